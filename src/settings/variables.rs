//! The environment variables of the C library: their names, and the values that they take. `gdrcopy doctor` includes this
//! file.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::OsString;
use std::fmt;

use gdrcopy_core::copy::MAX_THREADS;

/// An environment variable.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) values: Values,
}

/// What a variable may be set to.
#[derive(Debug)]
pub(crate) enum Values {
    /// Any value, or one that is checked where it is used.
    Any,
    /// Exactly `1` switches on, as in NVIDIA's libgdrapi.
    One,
    /// A number in this range.
    Number(usize, usize),
    Bytes,
}

const fn variable(name: &'static str, values: Values) -> Variable {
    Variable { name, values }
}

pub(crate) const ENABLE_LOGGING: Variable = variable("GDRCOPY_ENABLE_LOGGING", Values::Any);
pub(crate) const LOG_LEVEL: Variable = variable("GDRCOPY_LOG_LEVEL", Values::Number(1, 4));
pub(crate) const ALLOW_UNALIGNED_MAP: Variable =
    variable("GDRCOPY_ALLOW_UNALIGNED_MAP", Values::One);
pub(crate) const FORCE_PCIE_COMPAT: Variable = variable("GDRCOPY_FORCE_PCIE_COMPAT", Values::One);
pub(crate) const DMA_READ: Variable = variable("GDRCOPY_DMA_READ", Values::Bytes);
pub(crate) const ISA: Variable = variable("GDRCOPY_ISA", Values::Any);
pub(crate) const THREADS: Variable = variable("GDRCOPY_THREADS", Values::Number(1, MAX_THREADS));
pub(crate) const USE_DMABUF_MMAP: Variable = variable("GDRCOPY_USE_DMABUF_MMAP", Values::One);

/// All of them.
#[allow(dead_code, reason = "for doctor")]
pub(crate) const ALL: [Variable; 8] = [
    ENABLE_LOGGING,
    LOG_LEVEL,
    ALLOW_UNALIGNED_MAP,
    FORCE_PCIE_COMPAT,
    DMA_READ,
    ISA,
    THREADS,
    USE_DMABUF_MMAP,
];

impl Variable {
    /// Its value in this process.
    pub(crate) fn value(&self) -> Option<OsString> {
        env::var_os(self.name)
    }

    /// Whether it is set to `1`.
    pub(crate) fn is_one(&self) -> bool {
        self.value().is_some_and(|value| value == "1")
    }

    /// Whether it may have this value.
    pub(crate) fn takes(&self, value: &str) -> bool {
        let number = value.trim().parse::<usize>().ok();
        match self.values {
            Values::Any => true,
            Values::One => ["1", "0", ""].contains(&value),
            Values::Number(least, most) => number.is_some_and(|it| it >= least && it <= most),
            Values::Bytes => number.is_some(),
        }
    }
}

impl fmt::Display for Values {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Values::Any => out.write_str("any value"),
            Values::One => out.write_str("1, which switches it on"),
            Values::Number(least, most) => write!(out, "a number from {least} to {most}"),
            Values::Bytes => out.write_str("a number of bytes"),
        }
    }
}
