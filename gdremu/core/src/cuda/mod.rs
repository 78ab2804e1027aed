//! Names and structures of the CUDA driver API.
#![forbid(unsafe_code)]

pub mod types;

/// Returns a symbol's name without its version, as programs write it: `cuMemAlloc` for `cuMemAlloc_v2`.
pub fn name_of(symbol: &str) -> &str {
    match symbol.rsplit_once("_v") {
        Some((name, version)) if version.parse::<u32>().is_ok() => name,
        _ => symbol,
    }
}
