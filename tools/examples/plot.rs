//! `plot RESULTS.json CHART.svg`: draws results that `--json` wrote, as `--plot` does, or others of that form.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<_> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [results, chart] = &arguments[..] else {
        bail!("usage: plot RESULTS.json CHART.svg");
    };
    let name = || results.display().to_string();
    let document: serde_json::Value = serde_json::from_str(&fs::read_to_string(results).with_context(name)?)?;
    gdrcopy_tools::draw(&document, chart).with_context(name)
}
