//! The environment variables of the C libraries, with their names, and the values that they take.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::OsString;
use std::fmt;

use log::LevelFilter;

use crate::copy;
use crate::options::{Backend, Options};
use crate::routines::{self, Routine};

/// An environment variable.
#[derive(Debug)]
pub struct Variable {
    pub name: &'static str,
    pub values: Values,
}

/// Values of a variable.
#[derive(Debug)]
pub enum Values {
    /// It takes any value, or one that is checked where it is used.
    Any,
    /// Exactly `1` switches it on, as in NVIDIA's libgdrapi.
    One,
    /// It takes a number in this range.
    Number(usize, usize),
}

const fn variable(name: &'static str, values: Values) -> Variable {
    Variable { name, values }
}

pub const ENABLE_LOGGING: Variable = variable("GDRCOPY_ENABLE_LOGGING", Values::Any);
pub const LOG_LEVEL: Variable = variable("GDRCOPY_LOG_LEVEL", Values::Number(1, 4));
pub const ALLOW_UNALIGNED_MAP: Variable = variable("GDRCOPY_ALLOW_UNALIGNED_MAP", Values::One);
pub const FORCE_PCIE_COMPAT: Variable = variable("GDRCOPY_FORCE_PCIE_COMPAT", Values::One);
pub const ISA: Variable = variable("GDRCOPY_ISA", Values::Any);
pub const USE_DMABUF_MMAP: Variable = variable("GDRCOPY_USE_DMABUF_MMAP", Values::One);

/// All variables.
pub const ALL: [Variable; 6] =
    [ENABLE_LOGGING, LOG_LEVEL, ALLOW_UNALIGNED_MAP, FORCE_PCIE_COMPAT, ISA, USE_DMABUF_MMAP];

/// Variables of earlier versions, and what to use instead.
pub const GONE: [(&str, &str); 2] =
    [("GDRCOPY_DMA_READ", "call cuMemcpy for large reads"), ("GDRCOPY_THREADS", "call cuMemcpy for large copies")];

/// Logs what to use instead of variables that are set and no longer have an effect.
pub fn warn_of_gone() {
    for (name, instead) in GONE {
        if log::log_enabled!(log::Level::Warn) && env::var_os(name).is_some() {
            log::warn!("{name} has no effect any more: {instead}");
        }
    }
}

/// The least important lines that are printed. `GDRCOPY_LOG_LEVEL` sets it, 4 (errors) by
/// default, where `GDRCOPY_ENABLE_LOGGING` is set.
pub fn log_level() -> LevelFilter {
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

/// The options that the variables set for opening a source of GPU memory.
pub fn options() -> Options {
    let backend = if USE_DMABUF_MMAP.is_one() { Backend::DmaBuf } else { Backend::Auto };
    Options { backend, device_path: None, force_pcie_compat: FORCE_PCIE_COMPAT.is_one() }
}

/// Makes copies use the routine that `GDRCOPY_ISA` names.
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

    /// Returns whether it is set to `1`.
    pub fn is_one(&self) -> bool {
        self.value().is_some_and(|value| value == "1")
    }

    /// Returns whether it may have this value.
    pub fn takes(&self, value: &str) -> bool {
        match self.values {
            Values::Any => true,
            Values::One => ["1", "0", ""].contains(&value),
            Values::Number(least, most) => match value.trim().parse::<usize>() {
                Ok(number) => (least..=most).contains(&number),
                Err(_) => false,
            },
        }
    }
}

impl fmt::Display for Values {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Values::Any => out.write_str("any value"),
            Values::One => out.write_str("1, which switches it on"),
            Values::Number(least, most) => write!(out, "a number from {least} to {most}"),
        }
    }
}
