//! `gdrcopy compare`: copies of many sizes and alignments through several libraries and other methods,
//! side by side in one process.
#![forbid(unsafe_code)]

mod text;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::copies;
use crate::measure::method::{Kind, WARM_UP};
use crate::measure::options::SharedOptions;
use crate::measure::plan::{Cold, Direction, Point};
use crate::measure::sampler::Repetitions;
use crate::measure::session::Extra;
use crate::output::Usage;
use crate::system::bytes::Bytes;
use crate::system::environment::Environment;

/// The options of `gdrcopy compare`.
///
/// All methods are compared with the first library.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy compare --cpu 4 --with memcpy,cumemcpy --json results.json --plot compare.svg
  gdrcopy compare --cpu 4-11 --variant GDRCOPY_USE_DMABUF_MMAP=1 --sizes 4,64,1K")]
pub(crate) struct Options {
    /// The first library with variables; repeatable
    ///
    /// Loads it once more with these environment variables, separated by commas.
    #[arg(long = "variant", value_name = "NAME=VALUE")]
    variants: Vec<Environment>,

    /// The first library with each GDRCOPY_ISA
    ///
    /// That is each copy routine that this CPU supports.
    #[arg(long)]
    all_routines: bool,

    /// Other methods, memcpy or cumemcpy
    ///
    /// memcpy is the C library's on the mapping; cumemcpy is cuMemcpyHtoD and cuMemcpyDtoH, from and to pinned memory.
    #[arg(long = "with", value_enum, value_delimiter = ',', hide_possible_values = true, value_name = "LIST")]
    others: Vec<Kind>,

    /// write or read, as the CPU does [default: both]
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        hide_possible_values = true,
        hide_default_value = true,
        default_value = "write,read",
        value_name = "LIST"
    )]
    direction: Vec<Direction>,

    /// Bytes, with K, M or G [default: 37, up to 16M]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        hide_default_value = true,
        default_value = "1,2,3,4,5,7,8,12,15,16,24,32,33,48,63,64,65,100,128,200,256,512,1000,1K,2K,4K,5000,8K,16K,\
                         32K,64K,128K,256K,512K,1M,4M,16M"
    )]
    sizes: Vec<Bytes>,

    /// Device bytes past a line [default: 7, up to 63]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        hide_default_value = true,
        default_value = "0,1,4,8,20,32,63"
    )]
    alignments: Vec<Bytes>,

    /// Host bytes past a line
    #[arg(long, hide_short_help = true, value_delimiter = ',', value_name = "LIST", default_value = "0")]
    host_alignments: Vec<Bytes>,

    /// Time for more than 21 samples each
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    budget: u64,

    /// Host memory in no cache of the CPU (x86-64)
    #[arg(long)]
    cold: bool,

    #[command(flatten)]
    shared: SharedOptions,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let points = points(options);
    if points.is_empty() {
        return Err(Usage("--sizes: nothing to measure".into()).into());
    }
    let mut variants = options.variants.clone();
    if options.all_routines {
        let names = gdrcopy_core::routines::supported().map(|routine| routine.name());
        variants.extend(names.map(|name| Environment::new("GDRCOPY_ISA", name)));
    }
    let extra = Extra { max_libraries: usize::MAX, variants, others: options.others.clone() };
    let len = points.iter().map(Point::device_len).max().unwrap_or(0);
    let session = options.shared.open("compare", len.max(WARM_UP), &extra)?;

    let budget = Duration::from_secs(options.budget).as_nanos() as f64;
    let share = Repetitions::Budget(budget / points.len() as f64);
    let points = points.into_iter().map(|point| (point, share)).collect();
    let cold = Cold { host: options.cold, ..Cold::default() };
    copies::run(&options.shared, &session, points, cold, text::render)
}

/// The points in the order in which they are measured, with sizes ascending innermost.
fn points(options: &Options) -> Vec<Point> {
    let mut sizes: Vec<_> = options.sizes.iter().map(|bytes| bytes.0).collect();
    sizes.retain(|&size| size > 0);
    sizes.sort_unstable();
    sizes.dedup();
    let mut points = Vec::new();
    for &direction in &options.direction {
        for host_alignment in &options.host_alignments {
            for alignment in &options.alignments {
                let point = |&size| Point::spread(direction, size, alignment.0, host_alignment.0);
                points.extend(sizes.iter().map(point));
            }
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn default_sweep_is_the_documented_one() {
        let options = Cli::parse_from(["compare", "--lib", "a.so"]).options;
        let points = points(&options);
        assert_eq!(points.len(), 2 * 7 * 37);
        let column = &points[7 * 37..][..37];
        assert!(column.is_sorted_by(|a, b| a.size < b.size));
        assert_eq!((column[0].size, column[36].size), (1, 16 << 20));
        assert!(column.iter().all(|point| point.direction == Direction::Read));
        let alignments: Vec<_> = points.iter().step_by(37).map(Point::alignment).collect();
        assert_eq!(alignments[..7], [0, 1, 4, 8, 20, 32, 63]);
    }
}
