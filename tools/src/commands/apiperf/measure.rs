//! Pins, maps, queries, unmaps and unpins repeatedly.
#![forbid(unsafe_code)]

use anyhow::{Result, bail};
use clap::Args;

use crate::commands::Runs;
use crate::cuda::{DeviceBuffer, GPU_PAGE, Gpu};
use crate::libgdrapi::{Connection, Library};
use crate::measure::clock::Clock;
use crate::measure::method::{Kind, Method};
use crate::measure::plan::powers_of_two;
use crate::measure::session::{Session, Setup};
use crate::measure::stats::{self, Times};
use crate::measure::target::Target;
use crate::measure::verify::{difference, pattern};
use crate::output::progress_bar;
use crate::system::bytes::Bytes;
use crate::system::interrupt::Interrupt;

/// The sizes and runs to measure.
#[derive(Debug, Args)]
pub(super) struct Config {
    /// Size of the largest buffer; the smallest is one GPU page of 64 KiB
    #[arg(short, long, default_value = "16777216", value_name = "BYTES")]
    pub(super) size: Bytes,

    /// How often each call is timed
    #[arg(short = 'n', long, default_value = "100", value_name = "N", value_parser = at_least_one)]
    iterations: usize,

    /// How often each call is made before timing
    #[arg(short = 'w', long, default_value_t = 10, value_name = "N")]
    warmup: usize,

    #[command(flatten)]
    runs: Runs,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// The timed calls, in order.
pub(super) const CALLS: [&str; 5] = ["pin", "map", "get_info", "unmap", "unpin"];

#[derive(Debug)]
pub(super) struct Results {
    pub(super) setup: Setup,
    pub(super) rows: Vec<Row>,
    /// Independent runs that these are the medians of.
    pub(super) runs: u32,
    pub(super) interrupted: bool,
}

/// Buffers of one size.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) size: usize,
    /// One per library.
    pub(super) libraries: Vec<LibraryTimes>,
}

/// The times of one library's calls.
#[derive(Debug)]
pub(super) struct LibraryTimes {
    /// In the order of [`CALLS`].
    pub(super) calls: [Times; CALLS.len()],
    /// The smallest medians of the runs.
    pub(super) fastest_run: [f64; CALLS.len()],
    /// The times of each pin, of all runs.
    pub(super) pins: Vec<f64>,
}

/// Nanoseconds of each of the [`CALLS`].
type Sample = [f64; CALLS.len()];

/// A library that pins, and the buffer.
struct Pinner {
    // Dropped in this order, which closes first, then frees.
    connection: Connection,
    buffer: DeviceBuffer,
    library: &'static Library,
    label: String,
}

impl Pinner {
    /// Checks that the mapped memory is the buffer, and unmaps it. From here on only timed calls map.
    fn new(method: Method, verify: bool) -> Result<Pinner> {
        if verify {
            check(&method)?;
        }
        drop(method.mapped);
        Ok(Pinner {
            connection: Connection::open(method.library)?,
            buffer: method.buffer,
            library: method.library,
            label: method.label,
        })
    }

    /// The same library with other memory, of the same size.
    fn with_other_memory(&self, gpu: &'static Gpu, target: &Target) -> Result<Pinner> {
        let (len, library) = (self.buffer.len(), self.library);
        let method = Method::new(Kind::Library, &self.label, library, gpu, target, len)?;
        Pinner::new(method, target.verify)
    }
}

/// Checks that CUDA finds in the buffer what was written through the mapping.
fn check(method: &Method) -> Result<()> {
    let bytes = pattern(method.buffer.len(), 5);
    method.mapped.write(0, &bytes)?;
    let mut seen = vec![0; bytes.len()];
    method.buffer.read(&mut seen)?;
    match difference(&seen, &bytes, "device byte") {
        None => Ok(()),
        Some(wrong) => bail!("{}: wrong after a write: {wrong}", method.label),
    }
}

/// Measures all sizes in each run, until the user interrupts.
pub(super) fn run(session: Session, config: &Config, target: &Target) -> Result<Results> {
    let methods = session.methods.into_iter();
    let pinners = methods.map(|method| Pinner::new(method, target.verify));
    let mut pinners: Vec<_> = pinners.collect::<Result<_>>()?;
    let (clock, runs) = (Clock::calibrate(), config.runs.number);
    let sizes: Vec<_> = powers_of_two(config.size.0).filter(|&size| size >= GPU_PAGE).collect();
    // The samples by size, run and library.
    let mut samples: Vec<Vec<Vec<Vec<Sample>>>> = vec![Vec::new(); sizes.len()];
    let progress = progress_bar(sizes.len() * runs as usize);
    'runs: for run in 0..runs {
        if run > 0 {
            for pinner in &mut pinners {
                *pinner = pinner.with_other_memory(session.gpu, target)?;
            }
        }
        for (&size, samples) in sizes.iter().zip(&mut samples) {
            progress.set_message(format!("{size} B"));
            samples.push(measure(&pinners, size, config, target, &clock, &session.interrupt)?);
            progress.inc(1);
            if session.interrupt.requested() {
                break 'runs;
            }
        }
    }
    progress.finish_and_clear();
    let measured = sizes.into_iter().zip(samples);
    let measured = measured.filter(|(_, runs)| !runs.is_empty());
    let rows = measured.map(|(size, runs)| Row {
        size,
        libraries: (0..pinners.len())
            .map(|library| LibraryTimes::new(runs.iter().map(|run| &run[library][..])))
            .collect(),
    });
    Ok(Results { setup: session.setup, rows: rows.collect(), runs, interrupted: session.interrupt.requested() })
}

/// Times this size, the libraries in turn, and returns the samples of each. One turn is made even after
/// an interrupt.
fn measure(
    pinners: &[Pinner],
    size: usize,
    config: &Config,
    target: &Target,
    clock: &Clock,
    interrupt: &Interrupt,
) -> Result<Vec<Vec<Sample>>> {
    for _ in 0..config.warmup {
        if interrupt.requested() {
            break;
        }
        for pinner in pinners {
            sample(pinner, size, target, clock)?;
        }
    }
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); pinners.len()];
    for turn in 0..config.iterations {
        for place in 0..pinners.len() {
            let library = match turn % 2 {
                0 => place,
                _ => pinners.len() - 1 - place,
            };
            samples[library].push(sample(&pinners[library], size, target, clock)?);
        }
        if interrupt.requested() {
            break;
        }
    }
    Ok(samples)
}

/// Times the calls on `size` bytes.
fn sample(pinner: &Pinner, size: usize, target: &Target, clock: &Clock) -> Result<Sample> {
    let (connection, address) = (&pinner.connection, pinner.buffer.address());
    let (ns_pin, handle) = timed(clock, || connection.pin(address, size, target.force_pcie))?;
    let (ns_map, va) = timed(clock, || connection.map(handle, size, target.mapping))?;
    let (ns_info, _) = timed(clock, || connection.info(handle))?;
    let (ns_unmap, ()) = timed(clock, || connection.unmap(handle, va, size))?;
    let (ns_unpin, ()) = timed(clock, || connection.unpin(handle))?;
    Ok([ns_pin, ns_map, ns_info, ns_unmap, ns_unpin])
}

/// Nanoseconds of a call, and its result.
fn timed<T, E>(clock: &Clock, call: impl FnOnce() -> Result<T, E>) -> Result<(f64, T), E> {
    let mut result = None;
    let ns = clock.time(|| result = Some(call()));
    let result = result.expect("the clock calls it");
    Ok((ns, result?))
}

impl LibraryTimes {
    /// Summarizes at least one run.
    fn new<'a>(runs: impl Iterator<Item = &'a [Sample]> + Clone) -> LibraryTimes {
        let times = |call: usize| {
            let of_run = |run: &[Sample]| Times::new(run.iter().map(|sample| sample[call]).collect());
            stats::of_runs(runs.clone().map(of_run).collect()).expect("there is a run")
        };
        let calls: [_; CALLS.len()] = std::array::from_fn(times);
        LibraryTimes {
            calls: calls.map(|(median, _)| median),
            fastest_run: calls.map(|(_, fastest)| fastest),
            pins: runs.flatten().map(|sample| sample[0]).collect(),
        }
    }
}
