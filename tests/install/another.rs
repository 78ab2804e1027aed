//! A second static library written in Rust, which contains Rust's standard library, as libgdrapi.a does.

/// Formats the number. Formatting may panic, so the standard library's code for unwinding is also linked.
#[unsafe(no_mangle)]
pub extern "C" fn another(number: i32) -> usize {
    std::panic::catch_unwind(|| format!("{number}").len()).unwrap_or(0)
}
