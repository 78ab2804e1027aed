//! A second static library written in Rust, which contains Rust's standard library, as libgdrapi.a does.

/// Formatting may panic, so the code that unwinds is linked.
#[unsafe(no_mangle)]
pub extern "C" fn another(number: i32) -> usize {
    std::panic::catch_unwind(|| format!("{number}").len()).unwrap_or(0)
}
