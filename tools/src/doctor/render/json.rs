//! The report as one JSON document.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use crate::doctor::finding::Report;

/// `{"usable", "problems", "warnings", "sections": [{"title", "findings": [{"subject", "verdict",
/// "value", "remedy"}]}]}`.
pub(in crate::doctor) fn json(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, report)?;
    writeln!(out)
}
