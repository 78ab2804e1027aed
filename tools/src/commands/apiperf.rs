//! `gdrcopy apiperf` measures the time of the calls that pin and map, for each size of the buffer.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, value_parser};
use serde::Serialize;

use crate::cuda::{DeviceBuffer, GPU_PAGE};
use crate::libgdrapi::Connection;
use crate::measure::clock::Clock;
use crate::measure::method::Method;
use crate::measure::options::SharedOptions;
use crate::measure::plan::powers_of_two;
use crate::measure::results::{Document, RATIO, TIMES, table};
use crate::measure::sampler::take_turns;
use crate::measure::session::{LibraryInfo, Session};
use crate::measure::stats::Times;
use crate::output::{self, Progress, Usage};
use crate::system::bytes::Bytes;

#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  gdrcopy apiperf --size 64M --json apiperf.json")]
pub(crate) struct Options {
    /// Size of the largest buffer
    ///
    /// The smallest is one GPU page of 64 KiB.
    #[arg(short, long, default_value = "16777216", value_name = "BYTES")]
    size: Bytes,

    /// How often each call is timed
    #[arg(short = 'n', long, default_value = "100", value_name = "N", value_parser = value_parser!(u32).range(1..))]
    iterations: u32,

    /// How often each call is made before
    #[arg(short = 'w', long, default_value_t = 10, value_name = "N")]
    warmup: usize,

    #[command(flatten)]
    shared: SharedOptions,
}

/// The timed calls, in order.
const CALLS: [&str; 5] = ["pin", "map", "get_info", "unmap", "unpin"];

/// The time that each of the [`CALLS`] took, in nanoseconds.
type Sample = [f64; CALLS.len()];

/// The times of one call of one library, with buffers of one size.
#[derive(Serialize)]
struct Record<'a> {
    library: &'a str,
    call: &'static str,
    size_bytes: usize,
    #[serde(flatten)]
    times: Times,
    /// The median divided by the first library's median. For the first library, it is `None`.
    ratio: Option<f64>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let largest = options.size.0;
    if largest < GPU_PAGE {
        return Err(Usage(format!("--size must be at least {GPU_PAGE}, one GPU page")).into());
    }
    let mut session = options.shared.open("apiperf", largest, &[])?;
    let mut pinners = Vec::new();
    for method in session.methods.drain(..) {
        pinners.push(Pinner::new(method)?);
    }
    let records = measure(options, &session, &pinners)?;
    let interrupted = session.interrupt.requested();
    let document = Document { setup: &session.setup, interrupted, records };
    options.shared.output.write(|| text(&document), &document)?;
    Ok(output::exit_status("apiperf", interrupted))
}

/// A library, and the buffer that it pins.
struct Pinner {
    connection: Connection,
    buffer: DeviceBuffer,
    label: String,
}

impl Pinner {
    /// Unmaps the memory that `method` has mapped. From here on only timed calls map it.
    fn new(method: Method) -> Result<Pinner> {
        drop(method.mapped);
        Ok(Pinner { connection: Connection::open(method.library)?, buffer: method.buffer, label: method.label })
    }

    /// Times each of the [`CALLS`] once, on `size` bytes.
    fn sample(&self, size: usize, options: &SharedOptions, clock: &Clock) -> Result<Sample> {
        let connection = &self.connection;
        let mut ns = [0.0; CALLS.len()];
        let handle = timed(clock, &mut ns[0], || connection.pin(self.buffer.address(), size))?;
        let va = timed(clock, &mut ns[1], || connection.map(handle, size, options.mapping))?;
        timed(clock, &mut ns[2], || connection.info(handle))?;
        timed(clock, &mut ns[3], || connection.unmap(handle, va, size))?;
        timed(clock, &mut ns[4], || connection.unpin(handle))?;
        Ok(ns)
    }
}

/// Makes a call, and stores the nanoseconds that it took in `ns`.
fn timed<T, E>(clock: &Clock, ns: &mut f64, call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let mut result = None;
    *ns = clock.time(|| result = Some(call()));
    result.expect("the clock calls it")
}

/// Measures all sizes. If the user interrupts, it stops after the current size, for which each library still gets at
/// least one sample.
fn measure<'a>(options: &Options, session: &Session, pinners: &'a [Pinner]) -> Result<Vec<Record<'a>>> {
    let interrupt = &session.interrupt;
    let clock = Clock::calibrate();
    let mut sizes = powers_of_two(options.size.0);
    sizes.retain(|&size| size >= GPU_PAGE);
    let mut progress = Progress::new(sizes.len());
    let mut records = Vec::new();
    for size in sizes {
        progress.begin(format!("{size} B"));
        let sample = |i: usize, _turn: usize| pinners[i].sample(size, &options.shared, &clock);
        take_turns(pinners.len(), options.warmup, interrupt, &sample)?;
        let samples = take_turns(pinners.len(), options.iterations as usize, interrupt, &sample)?;
        for (pinner, samples_of) in pinners.iter().zip(&samples) {
            for (number, call) in CALLS.into_iter().enumerate() {
                let times = times(samples_of, number);
                let first =
                    if pinner.label == pinners[0].label { None } else { Some(self::times(&samples[0], number)) };
                let ratio = times.ratio(first);
                records.push(Record { library: &pinner.label, call, size_bytes: size, times, ratio });
            }
        }
        progress.end();
        if interrupt.requested() {
            break;
        }
    }
    Ok(records)
}

/// Returns the times of the call with this index in [`CALLS`].
fn times(samples: &[Sample], call: usize) -> Times {
    Times::new(samples.iter().map(|sample| sample[call]).collect())
}

/// Returns a table for each library, with a row per size and call. Libraries after the first have ratios to the first.
fn text(document: &Document<Record>) -> String {
    let mut columns = vec![("Call", "call"), ("Size(B)", "size_bytes")];
    columns.extend(TIMES);
    columns.extend([("Mean(us)", "mean_ns"), RATIO]);
    let mut text = document.setup.to_string();
    for LibraryInfo { label, .. } in &document.setup.libraries {
        let mut records: Vec<_> = document.records.iter().collect();
        records.retain(|record| record.library == label);
        let _ = write!(text, "\n{label}\n{}", table(&records, &columns));
    }
    text
}
