//! Pins, maps, asks, unmaps and unpins, again and again.
#![forbid(unsafe_code)]

use anyhow::{Result, bail};

use super::Options;
use crate::clock::Clock;
use crate::cuda::{DeviceBuffer, GPU_PAGE};
use crate::interrupt::Interrupt;
use crate::library::{Connection, MappingType};
use crate::progress;
use crate::session::{Session, Setup};
use crate::stats::Times;
use crate::subject::Subject;
use crate::verify::{difference, pattern};

/// The calls that are timed, in this order.
pub(super) const CALLS: [&str; 5] = ["pin", "map", "get_info", "unmap", "unpin"];

/// What came of it.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) setup: Setup,
    pub(super) rows: Vec<Row>,
    pub(super) interrupted: bool,
}

/// Buffers of one size.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) size: usize,
    /// One for each library.
    pub(super) libraries: Vec<LibraryTimes>,
}

/// The times of one library's calls.
#[derive(Debug)]
pub(super) struct LibraryTimes {
    /// In the order of [`CALLS`].
    pub(super) calls: [Times; CALLS.len()],
    /// Of each single pin.
    pub(super) pins: Vec<f64>,
}

/// Nanoseconds of each of the [`CALLS`].
type Sample = [f64; CALLS.len()];

/// A library that pins, and the buffer.
struct Pinner {
    // Dropped in this order: closed first, then freed.
    connection: Connection,
    buffer: DeviceBuffer,
}

impl Pinner {
    /// The subject's buffer can be pinned and mapped; from here on nothing is mapped but what is timed.
    fn new(subject: Subject, verify: bool) -> Result<Pinner> {
        if verify {
            check(&subject)?;
        }
        drop(subject.mapped);
        Ok(Pinner {
            connection: Connection::open(subject.named.library)?,
            buffer: subject.buffer,
        })
    }
}

/// Makes sure that what was mapped is the buffer.
fn check(subject: &Subject) -> Result<()> {
    let bytes = pattern(subject.buffer.len(), 5);
    subject.mapped.write(0, &bytes)?;
    let mut seen = vec![0; bytes.len()];
    subject.buffer.read(&mut seen)?;
    match difference(&seen, &bytes, "device byte") {
        None => Ok(()),
        Some(wrong) => bail!("{}: wrong after a write: {wrong}", subject.named.label),
    }
}

/// Measures all sizes, or until the user wants to end.
pub(super) fn run(session: Session, options: &Options) -> Result<Results> {
    let verify = options.target.verify;
    let pinners = session
        .subjects
        .into_iter()
        .map(|subject| Pinner::new(subject, verify));
    let pinners: Vec<_> = pinners.collect::<Result<_>>()?;
    let clock = Clock::calibrate();
    let mut results = Results {
        setup: session.setup,
        rows: Vec::new(),
        interrupted: false,
    };
    let sizes: Vec<_> = doubling(options.size.0).collect();
    let progress = progress::bar(sizes.len());
    for size in sizes {
        progress.set_message(format!("{size} B"));
        let libraries = measure(&pinners, size, options, &clock, &session.interrupt)?;
        results.rows.push(Row { size, libraries });
        progress.inc(1);
        if session.interrupt.asked() {
            results.interrupted = true;
            break;
        }
    }
    progress.finish_and_clear();
    Ok(results)
}

/// 64 KiB, 128 KiB, … up to this number.
fn doubling(largest: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(GPU_PAGE), |size| size.checked_mul(2))
        .take_while(move |&size| size <= largest)
}

/// Times of this size, the libraries in turn. One turn is made even if the user wants to end.
fn measure(
    pinners: &[Pinner],
    size: usize,
    options: &Options,
    clock: &Clock,
    interrupt: &Interrupt,
) -> Result<Vec<LibraryTimes>> {
    let mapping = options.target.mapping;
    for _ in 0..options.warmup {
        for pinner in pinners {
            sample(pinner, size, mapping, clock)?;
        }
    }
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); pinners.len()];
    for turn in 0..options.iterations {
        for place in 0..pinners.len() {
            let library = match turn % 2 {
                0 => place,
                _ => pinners.len() - 1 - place,
            };
            samples[library].push(sample(&pinners[library], size, mapping, clock)?);
        }
        if interrupt.asked() {
            break;
        }
    }
    let times = samples.iter().map(|samples| LibraryTimes::of(samples));
    Ok(times.collect())
}

/// Pins and maps so many bytes, and gives them back.
fn sample(pinner: &Pinner, size: usize, mapping: MappingType, clock: &Clock) -> Result<Sample> {
    let (connection, address) = (&pinner.connection, pinner.buffer.address());
    let (ns_pin, handle) = timed(clock, || connection.pin(address, size))?;
    let (ns_map, va) = timed(clock, || connection.map(handle, size, mapping))?;
    let (ns_info, _) = timed(clock, || connection.info(handle))?;
    let (ns_unmap, ()) = timed(clock, || connection.unmap(handle, va, size))?;
    let (ns_unpin, ()) = timed(clock, || connection.unpin(handle))?;
    Ok([ns_pin, ns_map, ns_info, ns_unmap, ns_unpin])
}

/// Nanoseconds of a call, and its answer.
fn timed<T, E>(clock: &Clock, call: impl FnOnce() -> Result<T, E>) -> Result<(f64, T), E> {
    let mut answer = None;
    let ns = clock.time(|| answer = Some(call()));
    let answer = answer.expect("the clock makes the call");
    Ok((ns, answer?))
}

impl LibraryTimes {
    fn of(samples: &[Sample]) -> LibraryTimes {
        let of_call = |call: usize| samples.iter().map(move |sample| sample[call]);
        LibraryTimes {
            calls: std::array::from_fn(|call| Times::of(of_call(call).collect())),
            pins: of_call(0).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_pages() {
        let sizes: Vec<_> = doubling(300_000).collect();
        assert_eq!(sizes, [65536, 131072, 262144]);
    }
}
