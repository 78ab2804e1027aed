//! The environment variables, all read here.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::OsString;

/// What the environment asks for. Read once for each open.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `GDRCOPY_ALLOW_UNALIGNED_MAP=1`: addresses that do not start a page can be mapped.
    pub(crate) allow_unaligned_map: bool,
    /// `GDRCOPY_FORCE_PCIE_COMPAT=1`: `FORCE_PCIE` is satisfied by an ordinary pin on GPUs that have
    /// no other link than PCIe.
    pub(crate) force_pcie_compat: bool,
    /// `GDRCOPY_USE_DMABUF_MMAP=1`: use the dma-buf backend even if gdrdrv is there.
    pub(crate) use_dmabuf: bool,
    /// `GDRCOPY_ISA`: the name of a copy routine.
    pub(crate) isa: Option<OsString>,
    /// `GDRCOPY_THREADS`: the number of threads that share a large copy.
    pub(crate) threads: Option<OsString>,
    /// The lowest level of log lines that are printed; `None` if none are.
    pub(crate) log_level: Option<u8>,
}

impl Settings {
    /// Reads the environment.
    pub(crate) fn from_env() -> Settings {
        Settings {
            allow_unaligned_map: is_one("GDRCOPY_ALLOW_UNALIGNED_MAP"),
            force_pcie_compat: is_one("GDRCOPY_FORCE_PCIE_COMPAT"),
            use_dmabuf: is_one("GDRCOPY_USE_DMABUF_MMAP"),
            isa: env::var_os("GDRCOPY_ISA"),
            threads: env::var_os("GDRCOPY_THREADS"),
            log_level: log_level(),
        }
    }
}

/// `GDRCOPY_LOG_LEVEL`, 4 (errors) by default, where `GDRCOPY_ENABLE_LOGGING` is set.
pub(crate) fn log_level() -> Option<u8> {
    env::var_os("GDRCOPY_ENABLE_LOGGING")?;
    let level = env::var("GDRCOPY_LOG_LEVEL").ok();
    let level = level.and_then(|text| text.trim().parse::<i64>().ok());
    Some(level.unwrap_or(4).clamp(1, 5) as u8)
}

/// Exactly `1` switches on, as in NVIDIA's libgdrapi.
fn is_one(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| value == "1")
}
