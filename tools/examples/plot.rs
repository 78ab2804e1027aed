//! `plot RESULTS CHART.svg`: draws results that `--json` wrote, as `--plot` does. It also draws UCX's latency in a file of
//! docs/data (`.txt`), and prints the table.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<_> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [results, chart] = &arguments[..] else {
        bail!("usage: plot RESULTS CHART.svg");
    };
    draw(results, chart).with_context(|| results.display().to_string())
}

fn draw(results: &Path, chart: &Path) -> Result<()> {
    let text = fs::read_to_string(results)?;
    if results.extension() == Some("txt".as_ref()) {
        print!("{}", gdrcopy_tools::table_of_messages(&text)?);
        return gdrcopy_tools::draw_messages(&text, chart);
    }
    let document: serde_json::Value = serde_json::from_str(&text)?;
    gdrcopy_tools::draw(&document, chart)
}
