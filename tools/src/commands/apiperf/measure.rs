//! Pins, maps, queries, unmaps and unpins repeatedly.
#![forbid(unsafe_code)]

use anyhow::{Result, bail};

use crate::cuda::{DeviceBuffer, GPU_PAGE};
use crate::libgdrapi::{Connection, MappingType};
use crate::measure::clock::Clock;
use crate::measure::method::Method;
use crate::measure::session::{Session, Setup};
use crate::measure::stats::Times;
use crate::measure::verify::{difference, pattern};
use crate::output::progress_bar;
use crate::system::interrupt::Interrupt;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    /// Size of the largest buffer.
    pub(super) largest: usize,
    /// Untimed calls.
    pub(super) warmup: usize,
    /// Timed calls.
    pub(super) iterations: usize,
    pub(super) mapping: MappingType,
    pub(super) verify: bool,
}

/// The timed calls, in order.
pub(super) const CALLS: [&str; 5] = ["pin", "map", "get_info", "unmap", "unpin"];

/// The results.
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
    /// One per library.
    pub(super) libraries: Vec<LibraryTimes>,
}

/// The times of one library's calls.
#[derive(Debug)]
pub(super) struct LibraryTimes {
    /// In the order of [`CALLS`].
    pub(super) calls: [Times; CALLS.len()],
    /// Of each pin.
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
    /// Checks that the mapped memory is the buffer, and unmaps it: from here on only timed calls map.
    fn new(method: Method, verify: bool) -> Result<Pinner> {
        if verify {
            check(&method)?;
        }
        drop(method.mapped);
        Ok(Pinner {
            connection: Connection::open(method.library)?,
            buffer: method.buffer,
        })
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

/// Measures all sizes, until the user interrupts.
pub(super) fn run(session: Session, config: Config) -> Result<Results> {
    let methods = session.methods.into_iter();
    let pinners = methods.map(|method| Pinner::new(method, config.verify));
    let pinners: Vec<_> = pinners.collect::<Result<_>>()?;
    let clock = Clock::calibrate();
    let mut results = Results {
        setup: session.setup,
        rows: Vec::new(),
        interrupted: false,
    };
    let sizes: Vec<_> = doubling(config.largest).collect();
    let progress = progress_bar(sizes.len());
    for size in sizes {
        progress.set_message(format!("{size} B"));
        let libraries = measure(&pinners, size, config, &clock, &session.interrupt)?;
        results.rows.push(Row { size, libraries });
        progress.inc(1);
        if session.interrupt.requested() {
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

/// Times this size, the libraries in turn. One turn is made even after an interrupt.
fn measure(
    pinners: &[Pinner],
    size: usize,
    config: Config,
    clock: &Clock,
    interrupt: &Interrupt,
) -> Result<Vec<LibraryTimes>> {
    for _ in 0..config.warmup {
        for pinner in pinners {
            sample(pinner, size, config.mapping, clock)?;
        }
    }
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); pinners.len()];
    for turn in 0..config.iterations {
        for place in 0..pinners.len() {
            let library = match turn % 2 {
                0 => place,
                _ => pinners.len() - 1 - place,
            };
            samples[library].push(sample(&pinners[library], size, config.mapping, clock)?);
        }
        if interrupt.requested() {
            break;
        }
    }
    let times = samples.iter().map(|samples| LibraryTimes::new(samples));
    Ok(times.collect())
}

/// Times the calls on `size` bytes.
fn sample(pinner: &Pinner, size: usize, mapping: MappingType, clock: &Clock) -> Result<Sample> {
    let (connection, address) = (&pinner.connection, pinner.buffer.address());
    let (ns_pin, handle) = timed(clock, || connection.pin(address, size))?;
    let (ns_map, va) = timed(clock, || connection.map(handle, size, mapping))?;
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
    fn new(samples: &[Sample]) -> LibraryTimes {
        let of_call = |call: usize| samples.iter().map(move |sample| sample[call]);
        LibraryTimes {
            calls: std::array::from_fn(|call| Times::new(of_call(call).collect())),
            pins: of_call(0).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_double_from_one_page() {
        let sizes: Vec<_> = doubling(300_000).collect();
        assert_eq!(sizes, [65536, 131072, 262144]);
    }
}
