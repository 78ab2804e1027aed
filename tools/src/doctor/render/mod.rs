//! The report, told on stdout.
#![forbid(unsafe_code)]

mod json;
mod text;

pub(super) use json::json;
pub(super) use text::text;
