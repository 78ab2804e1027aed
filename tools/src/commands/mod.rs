//! The tools, one module each, with its options, `run`, and its text output.

pub(crate) mod apiperf;
pub(crate) mod checkpoint;
pub(crate) mod compare;
pub(crate) mod copybw;
pub(crate) mod copylat;
pub(crate) mod doctor;
pub(crate) mod pplat;
pub(crate) mod ps;
pub(crate) mod suspend;
pub(crate) mod trace;
pub(crate) mod tune;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, value_parser};

use crate::measure::chart::Plot;
use crate::measure::plan::{Cold, Direction, Point};
use crate::measure::results::Results;
use crate::measure::sampler::{Repetitions, Sweep};
use crate::measure::session::Session;
use crate::measure::target::Target;
use crate::output::{self, Output};

/// How often copies are made.
#[derive(Debug, Args)]
struct Counts {
    /// How often each write is made; 0 for no writes
    #[arg(short = 'w', long, default_value_t = 10_000, value_name = "N")]
    writes: usize,

    /// How often each read is made; 0 for no reads
    #[arg(short = 'r', long, default_value_t = 100, value_name = "N")]
    reads: usize,
}

impl Counts {
    /// All writes, then all reads.
    fn points(&self, sizes: &[usize], offset: usize) -> Vec<(Point, Repetitions)> {
        let directions = [(Direction::Write, self.writes), (Direction::Read, self.reads)];
        let wanted = directions.into_iter().filter(|&(_, calls)| calls > 0);
        let points = wanted.flat_map(|(direction, calls)| {
            let point = move |&size| Point::fixed(direction, size, offset);
            let calls = Repetitions::Calls(calls);
            sizes.iter().map(move |size| (point(size), calls))
        });
        points.collect()
    }
}

/// How often everything is measured.
#[derive(Debug, Args)]
pub(crate) struct Runs {
    /// Independent runs, each with other memory, pins and mappings; their median and minimum count
    #[arg(
        short = 'R',
        long = "runs",
        default_value_t = 1,
        value_name = "N",
        value_parser = value_parser!(u32).range(1..)
    )]
    number: u32,
}

/// Options of the tools that measure copies.
#[derive(Debug, Args)]
pub(crate) struct CopyOptions {
    /// Remove the host side from the CPU's caches before each timed call (x86-64)
    #[arg(long)]
    cold: bool,

    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    plot: Plot,
}

impl CopyOptions {
    /// Measures, prints the results, and returns the exit status, which is 1 if a byte was copied
    /// wrong.
    fn run(
        &self,
        mut session: Session,
        points: Vec<(Point, Repetitions)>,
        cold_device: bool,
        runs: u32,
        text: impl FnOnce(&Results) -> String,
    ) -> Result<ExitCode> {
        let sweep = Sweep { points, verify: self.target.verify, cold: Cold { host: self.cold, device: cold_device } };
        let mut all = vec![sweep.run(&session)?];
        for _ in 1..runs {
            if session.interrupt.requested() {
                break;
            }
            session.change_memory(&self.target)?;
            all.push(sweep.run(&session)?);
        }
        let results = match &all[..] {
            [only] => only.clone(),
            all => Results::of_runs(all),
        };
        let tool = &results.setup.tool;
        if results.rows.is_empty() && results.interrupted {
            return Ok(output::interrupted_early(tool));
        }
        results.write(&self.output, &self.plot, || text(&results))?;
        let mut status = output::exit_status(tool, results.interrupted);
        for failure in results.failures() {
            eprintln!("gdrcopy {tool}: wrong copy: {failure}");
            status = ExitCode::FAILURE;
        }
        Ok(status)
    }
}
