//! Names of the functions of the CUDA driver API, and structures.
#![forbid(unsafe_code)]

pub mod types;

/// The name of a function by its symbol, as `cuMemAlloc` for `cuMemAlloc_v2`. Programs call it and cuGetProcAddress knows
/// it by this name.
pub fn name_of(symbol: &str) -> &str {
    match symbol.rsplit_once("_v") {
        Some((name, version)) if version.parse::<u32>().is_ok() => name,
        _ => symbol,
    }
}
