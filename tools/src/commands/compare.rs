//! `gdrcopy compare`: copies of many sizes through several libraries and other methods, side by side in one process.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::copies;
use crate::measure::method::Kind;
use crate::measure::options::SharedOptions;
use crate::measure::plan::{Direction, Point};
use crate::measure::sampler::{Repetitions, Sweep};
use crate::output::Usage;
use crate::system::bytes::Bytes;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy compare --cpu 4 --with memcpy,cumemcpy --json results.json
  gdrcopy compare --cpu 4 --lib new=build/lib/libgdrapi.so.2 --lib old=/usr/lib/libgdrapi.so.2 --sizes 4,64,1K")]
pub(crate) struct Options {
    /// Other methods, memcpy or cumemcpy
    ///
    /// memcpy is the C library's on the mapping; cumemcpy is cuMemcpyHtoD and cuMemcpyDtoH, from and to pinned memory.
    #[arg(long = "with", value_enum, value_delimiter = ',', hide_possible_values = true, value_name = "LIST")]
    others: Vec<Kind>,

    /// Bytes, with K, M or G [default: 37 sizes up to 16M]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        hide_default_value = true,
        default_value = "1,2,3,4,5,7,8,12,15,16,24,32,33,48,63,64,65,100,128,200,256,512,1000,1K,2K,4K,5000,8K,16K,\
                         32K,64K,128K,256K,512K,1M,4M,16M"
    )]
    sizes: Vec<Bytes>,

    /// Device bytes past a line, as 1
    #[arg(long, value_name = "BYTES", default_value = "0")]
    alignment: Bytes,

    /// Time for more than 21 samples each
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    budget: u64,

    #[command(flatten)]
    shared: SharedOptions,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut sizes: Vec<_> = options.sizes.iter().map(|bytes| bytes.0).collect();
    sizes.retain(|&size| size > 0);
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.is_empty() {
        return Err(Usage("--sizes: nothing to measure".into()).into());
    }
    let budget = Duration::from_secs(options.budget).as_nanos() as f64;
    let share = Repetitions::Budget(budget / (2 * sizes.len()) as f64);
    let mut points = Vec::new();
    for direction in Direction::BOTH {
        for &size in &sizes {
            points.push((Point::spread(direction, size, options.alignment.0), share));
        }
    }
    let len = points.iter().map(|(point, _)| point.device_len()).max().unwrap_or(0);
    let session = options.shared.open("compare", len, &options.others)?;
    copies::run(&options.shared, &session, &Sweep { points, cold_device: false }, copies::text)
}
