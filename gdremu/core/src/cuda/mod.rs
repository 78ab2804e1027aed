//! Names and structures of the CUDA driver API.
#![forbid(unsafe_code)]

pub mod types;

/// Returns the name that programs use for a symbol, also for cuGetProcAddress: `cuMemAlloc` for `cuMemAlloc_v2`.
pub fn name_of(symbol: &str) -> &str {
    match symbol.rsplit_once("_v") {
        Some((name, version)) if version.parse::<u32>().is_ok() => name,
        _ => symbol,
    }
}
