//! The environment variables that libgdrapi and libgdrx read: their names, and the values that they take.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::OsString;

use log::LevelFilter;

use crate::copy;
use crate::options::{Backend, Options};
use crate::routines::{self, Routine};

/// An environment variable.
#[derive(Debug)]
pub struct Variable {
    pub name: &'static str,
    /// The values that the variable takes, in words.
    pub values: &'static str,
}

/// The values of a variable that takes any value, or whose value is checked where it is used.
const ANY: &str = "any value";
/// The values of a variable that has an effect only if its value is `1`, as in NVIDIA's libgdrapi.
const ONE: &str = "1, which switches it on";
const LEVEL: &str = "a number from 1 to 4";

pub const ENABLE_LOGGING: Variable = Variable { name: "GDRCOPY_ENABLE_LOGGING", values: ANY };
pub const LOG_LEVEL: Variable = Variable { name: "GDRCOPY_LOG_LEVEL", values: LEVEL };
pub const ALLOW_UNALIGNED_MAP: Variable = Variable { name: "GDRCOPY_ALLOW_UNALIGNED_MAP", values: ONE };
pub const FORCE_PCIE_COMPAT: Variable = Variable { name: "GDRCOPY_FORCE_PCIE_COMPAT", values: ONE };
pub const ISA: Variable = Variable { name: "GDRCOPY_ISA", values: ANY };
pub const USE_DMABUF_MMAP: Variable = Variable { name: "GDRCOPY_USE_DMABUF_MMAP", values: ONE };

/// All variables.
pub const ALL: [Variable; 6] =
    [ENABLE_LOGGING, LOG_LEVEL, ALLOW_UNALIGNED_MAP, FORCE_PCIE_COMPAT, ISA, USE_DMABUF_MMAP];

/// Variables that only earlier versions of this library knew, and what to use instead.
pub const GONE: [(&str, &str); 2] =
    [("GDRCOPY_DMA_READ", "call cuMemcpy for large reads"), ("GDRCOPY_THREADS", "call cuMemcpy for large copies")];

/// Logs each variable that is set but no longer has an effect, and what to use instead.
pub fn warn_of_gone() {
    for (name, instead) in GONE {
        if log::log_enabled!(log::Level::Warn) && env::var_os(name).is_some() {
            log::warn!("{name} has no effect any more: {instead}");
        }
    }
}

/// Returns the least important level that is logged. If `GDRCOPY_ENABLE_LOGGING` is set, `GDRCOPY_LOG_LEVEL` sets the
/// level, by default 4 (errors). Otherwise nothing is logged.
pub(crate) fn log_level() -> LevelFilter {
    if ENABLE_LOGGING.value().is_none() {
        return LevelFilter::Off;
    }
    let text = LOG_LEVEL.value().unwrap_or_default();
    match text.to_string_lossy().trim().parse::<i64>().unwrap_or(4) {
        ..=1 => LevelFilter::Debug,
        2 => LevelFilter::Info,
        3 => LevelFilter::Warn,
        4 => LevelFilter::Error,
        5.. => LevelFilter::Off,
    }
}

/// Returns the options for opening gdrdrv or another backend, as the environment variables set them.
pub fn options() -> Options {
    let backend = if USE_DMABUF_MMAP.is_one() { Backend::DmaBuf } else { Backend::Auto };
    Options { backend, device_path: None, force_pcie_compat: FORCE_PCIE_COMPAT.is_one() }
}

/// Makes copies use the routine that `GDRCOPY_ISA` names, or the best one. Warns if the CPU does not run that routine.
pub fn select_routine() {
    let request = ISA.value();
    let used = copy::select_routine(request.as_deref());
    if let Some(request) = request
        && request != used
    {
        let names: Vec<&str> = routines::supported().map(Routine::name).collect();
        log::warn!("GDRCOPY_ISA={}: this CPU has {}; using {used}", request.display(), names.join(", "));
    }
}

impl Variable {
    /// The variable's value in this process.
    pub fn value(&self) -> Option<OsString> {
        env::var_os(self.name)
    }

    /// Returns whether the variable is set to `1`.
    pub fn is_one(&self) -> bool {
        self.value().is_some_and(|value| value == "1")
    }

    /// Returns whether the variable takes this value.
    pub fn takes(&self, value: &str) -> bool {
        match self.values {
            ONE => ["1", "0", ""].contains(&value),
            LEVEL => matches!(value.trim().parse(), Ok(1..=4)),
            _ => true,
        }
    }
}
