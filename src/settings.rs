//! Environment variables that change behaviour, read once for each open.
#![forbid(unsafe_code)]

use std::env;

/// What the environment asks for. The variables for logging and for the copy kernels are read where
/// they are used, in `log` and `copy`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    /// `GDRCOPY_ALLOW_UNALIGNED_MAP=1`: addresses that do not start a GPU page can be mapped.
    pub(crate) allow_unaligned_map: bool,
    /// `GDRCOPY_FORCE_PCIE_COMPAT=1`: `FORCE_PCIE` is satisfied by an ordinary pin on GPUs that have
    /// no other link than PCIe.
    pub(crate) force_pcie_compat: bool,
    /// `GDRCOPY_USE_DMABUF_MMAP=1`: use the dma-buf backend even if gdrdrv is there.
    pub(crate) use_dmabuf: bool,
}

impl Settings {
    /// Reads the environment.
    pub(crate) fn from_env() -> Settings {
        Settings {
            allow_unaligned_map: is_one("GDRCOPY_ALLOW_UNALIGNED_MAP"),
            force_pcie_compat: is_one("GDRCOPY_FORCE_PCIE_COMPAT"),
            use_dmabuf: is_one("GDRCOPY_USE_DMABUF_MMAP"),
        }
    }
}

/// Exactly `1` switches on, as in the original library.
fn is_one(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| value == "1")
}
