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
    let name = results.display().to_string();
    let text = fs::read_to_string(results).context(name.clone())?;
    let document: serde_json::Value = serde_json::from_str(&text)?;
    gdrcopy_tools::draw(&document, chart).context(name)
}
