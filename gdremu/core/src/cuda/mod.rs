//! The functions of the CUDA driver API, which have a name and versions, and their structures.

pub mod types;

use std::ffi::c_void;

#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// The name with the suffix of the function's version.
    pub symbol: &'static str,
    /// The CUDA version that it came with, as 3020 for 3.2.
    pub since: u32,
    pub address: *const c_void,
}

impl Function {
    /// The name by which programs call the function and cuGetProcAddress knows it.
    pub fn name(&self) -> &'static str {
        name_of(self.symbol)
    }
}

/// The name of a function by its symbol, as `cuMemAlloc` for `cuMemAlloc_v2`.
pub fn name_of(symbol: &str) -> &str {
    match symbol.rsplit_once("_v") {
        Some((name, version)) if version.parse::<u32>().is_ok() => name,
        _ => symbol,
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    Name,
    /// It came with a later version of CUDA.
    Version,
}

/// The newest of these functions that has this name and that CUDA `version` has.
pub fn newest<'a>(functions: &'a [Function], name: &str, version: u32) -> Result<&'a Function, Missing> {
    let mut named = functions.iter().filter(|function| function.name() == name).peekable();
    named.peek().ok_or(Missing::Name)?;
    named.filter(|function| function.since <= version).max_by_key(|function| function.since).ok_or(Missing::Version)
}
