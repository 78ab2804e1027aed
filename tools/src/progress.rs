//! A bar on stderr that shows how far a long run is; nothing where stderr is no terminal.
#![forbid(unsafe_code)]

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of so many steps.
pub fn bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}");
    ProgressBar::new(steps as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
