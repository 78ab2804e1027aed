//! `compare`: times copies to and from mapped GPU memory through several libgdrapi files, side by side
//! in one process, and checks every byte of them.
//!
//! ```text
//! options → plan (the points of the sweep) → sweep: at each point verify, then measure all methods
//!   methods    method.rs over a libgdrapi file, CUDA, and plain memcpy
//!   results    results.rs, printed by report/{text,json,svg}.rs
//! ```
//!
//! Libraries, CUDA, the clock and the checks are those of tools/. README.md describes how it measures, and why so.

mod environment;
mod method;
mod options;
mod plan;
mod report;
mod results;
mod sweep;
mod verify;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;

use options::Options;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let results = sweep::run(options)?;
    print!("{}", report::text::render(&results));
    if let Some(file) = &options.json {
        report::json::write(&results, file)?;
    }
    if let Some(file) = &options.svg {
        report::svg::write(&results, file)?;
    }
    match results.failures().count() {
        0 => Ok(()),
        failures => bail!("{failures} of the copies were wrong: see FAILED above"),
    }
}
