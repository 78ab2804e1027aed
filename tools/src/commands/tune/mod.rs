//! `gdrcopy tune`: measures the speed of the mapping and of UCX's messages, and prints settings for UCX and NCCL.
#![forbid(unsafe_code)]

mod children;
mod messages;
mod report;
mod settings;
mod threshold;
mod ucx;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, value_parser};

use crate::measure::options::SharedOptions;
use crate::measure::plan::{Direction, Point};
use crate::measure::sampler::{Repetitions, Sweep};
use crate::measure::session::Setup;
use crate::output::{self, Usage};
use crate::system::cpu;

use children::Limit;
use messages::{Measured, Pairs};
use report::Advice;
use settings::{Model, Setting};
use ucx::Ucx;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy tune --cpu 4,6 >tune.env && set -a && . ./tune.env
  gdrcopy tune --cpu 4,6 --ucx /opt/ucx >tune.env")]
pub(crate) struct Options {
    /// Time to measure in
    ///
    /// The mapping takes at most 2 seconds of it, and ucx_perftest the rest.
    #[arg(
        long,
        default_value_t = 120,
        value_name = "SECONDS",
        value_parser = value_parser!(u64).range(1..=3600)
    )]
    budget: u64,

    /// A UCX, with bin/ucx_perftest [default: on the path]
    #[arg(long, value_name = "DIR")]
    ucx: Option<PathBuf>,

    #[command(flatten)]
    shared: SharedOptions,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let ucx = Ucx::find(options.ucx.as_deref());
    if let (Some(directory), None) = (&options.ucx, ucx.program("ucx_perftest")) {
        return Err(Usage(format!("--ucx: {} has no bin/ucx_perftest", directory.display())).into());
    }
    if options.shared.libraries.len() > 1 {
        return Err(Usage("--lib: at most 1 library".into()).into());
    }
    let allowed = cpu::allowed().unwrap_or_default();
    let points = settings::points();
    let len = points.iter().map(Point::device_len).max().unwrap_or(0);
    let session = options.shared.open("tune", len, &[])?;
    let budget = Duration::from_secs(options.budget);
    let copies = (budget / 4).min(Duration::from_secs(2));
    let share = Repetitions::Budget(copies.as_nanos() as f64 / points.len() as f64);
    let points = points.into_iter().map(|point| (point, share)).collect();
    let results = Sweep { points, cold_device: false }.run(&session)?;
    if let Some(failure) = results.failures().first() {
        bail!("wrong copy: {failure}. Do not use this library");
    }
    if results.interrupted {
        return Ok(output::interrupted_early("tune"));
    }
    let models = [Model::of(&results, Direction::Write)?, Model::of(&results, Direction::Read)?];
    let cpus = options.shared.cpu.as_ref().map(|cpus| cpus.two(&allowed));
    let interrupt = session.interrupt.clone();
    let limit = Limit { interrupt: &interrupt, deadline: Instant::now() + (budget - copies) };
    // The end of the session unpins its memory, which makes room in BAR1 for UCX.
    drop(session);
    let pairs = Pairs { ucx: &ucx, cpus, allowed: &allowed, limit, longest: budget / 4 };
    let Measured { messages, notes } =
        match measured_messages(&pairs, &results.setup, &Setting::model(models[0], models[1])) {
            Err(_) if interrupt.requested() => return Ok(output::interrupted_early("tune")),
            answer => answer?,
        };
    for note in &notes {
        eprintln!("gdrcopy tune: {note}");
    }
    let advice = Advice::new(&results, models, messages, notes);
    options.shared.output.write(|| advice.text(), &advice)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the times of UCX's messages, or the reason why they are not measured.
fn measured_messages(pairs: &Pairs, setup: &Setup, model: &[Setting]) -> Result<Measured> {
    let facts = match pairs.ucx.facts(&pairs.limit) {
        Err(error) if !pairs.limit.interrupt.requested() => {
            return Ok(Measured::nothing(format!("UCX's messages are not measured: {error:#}")));
        }
        facts => facts?,
    };
    let version = &facts.version;
    for (has, reason) in [
        (facts.has_model, "does not know UCX_GDR_COPY_BW: it is older, or has no plugin for gdr_copy (docs/scale.md)"),
        (
            facts.has_gdr_copy,
            "cannot use gdr_copy here, so its messages are not measured: `gdrcopy doctor --for ucx` says why",
        ),
        (facts.has_intra, "has no threshold for messages within a node, as 1.17 has, so they are not measured"),
    ] {
        if !has {
            return Ok(Measured::nothing(format!("UCX {version} {reason}")));
        }
    }
    if pairs.ucx.program("ucx_perftest").is_none() {
        return Ok(Measured::nothing(
            "no ucx_perftest on the path, so UCX's messages are not measured: it is in bin/ of a UCX that was built with \
             CUDA and gdr_copy (docs/scale.md); name its directory with --ucx"
                .into(),
        ));
    }
    let seconds = pairs.limit.deadline.saturating_duration_since(Instant::now()).as_secs_f64();
    eprintln!("gdrcopy tune: measuring messages of UCX {version} for at most {seconds:.0} s");
    pairs.measure(setup, model)
}
