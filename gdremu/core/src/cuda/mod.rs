//! Names and structures of the CUDA driver API.
#![forbid(unsafe_code)]

pub mod types;

/// Returns a function's name for programs and cuGetProcAddress, such as `cuMemAlloc` for the symbol `cuMemAlloc_v2`.
pub fn name_of(symbol: &str) -> &str {
    match symbol.rsplit_once("_v") {
        Some((name, version)) if version.parse::<u32>().is_ok() => name,
        _ => symbol,
    }
}
