//! `plot RESULTS.json CHART.svg`: draws results that `--json` wrote, as `--plot` does.
#![forbid(unsafe_code)]

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [results, chart] = &arguments[..] else {
        bail!("usage: plot RESULTS.json CHART.svg");
    };
    let name = || results.display().to_string();
    let document: serde_json::Value =
        serde_json::from_reader(File::open(results).with_context(name)?)?;
    gdrcopy_tools::draw(&document, Path::new(chart)).with_context(name)
}
