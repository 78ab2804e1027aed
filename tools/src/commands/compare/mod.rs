//! `gdrcopy compare`: copies of many sizes and alignments through several libraries and other methods,
//! side by side in one process.
#![forbid(unsafe_code)]

mod options;
mod text;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::measure::method::WARM_UP;
use crate::measure::plan::Point;
use crate::measure::sampler::Repetitions;
use crate::measure::session::{Extra, Session};
use crate::output::Usage;
use crate::system::environment::Environment;

pub(crate) use options::Options;

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
    let session = Session::open("compare", &options.copies.target, len.max(WARM_UP), &extra)?;

    let budget = Duration::from_secs(options.budget).as_nanos() as f64;
    let share = Repetitions::Budget(budget / points.len() as f64);
    let points = points.into_iter().map(|point| (point, share)).collect();
    options.copies.run(session, points, false, 1, text::render)
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
    use crate::measure::plan::Direction;
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
