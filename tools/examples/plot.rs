//! `plot RESULTS.json CHART.svg [DIRECTION]`: draws results that `--json` wrote, as `--plot` does; of copies in one direction,
//! `read` or `write`, if that is named. It also draws UCX's latency in a file of docs/data (`.txt`), and prints the table.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let (Some(results), Some(chart), true) = (arguments.first(), arguments.get(1), arguments.len() < 4) else {
        bail!("usage: plot RESULTS.json CHART.svg [DIRECTION]");
    };
    let name = || Path::new(results).display().to_string();
    if Path::new(results).extension() == Some("txt".as_ref()) {
        let messages = fs::read_to_string(results).with_context(name)?;
        print!("{}", gdrcopy_tools::table_of_messages(&messages).with_context(name)?);
        return gdrcopy_tools::draw_messages(&messages, Path::new(chart)).with_context(name);
    }
    let mut document: serde_json::Value = serde_json::from_reader(File::open(results).with_context(name)?)?;
    let direction = arguments.get(2).map(|direction| direction.to_string_lossy());
    if let (Some(direction), Some(records)) = (direction, document["records"].as_array_mut()) {
        records.retain(|record| record["direction"] == *direction);
    }
    gdrcopy_tools::draw(&document, Path::new(chart)).with_context(name)
}
