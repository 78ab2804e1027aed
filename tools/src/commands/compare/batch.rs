//! `gdrcopy compare --batch`: batches and gathers of the Rust crate, side by side with single calls of a library.

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gdrcopy::{Gdr, MapFlag, Mapped, Mapping, PinFlags, Word, Words};
use serde::Serialize;

use super::options::Options;
use super::pattern::{Pattern, Random};
use crate::cuda::DeviceBuffer;
use crate::measure::clock::Clock;
use crate::measure::plan::Direction;
use crate::measure::sampler::{Repetitions, take_turns};
use crate::measure::session::{Extra, Session, Setup};
use crate::measure::stats::Times;
use crate::output::table::Table;
use crate::output::{self, name, progress_bar, ratio};

/// Items in a sample, at different lines.
const ITEMS: usize = 256;
/// Bytes of the buffer that the items are spread over, more than the CPU's buffers and the TLB hold.
const SPREAD: usize = 32 << 20;
/// Bytes of a cache line; items are at the start of one.
const LINE: usize = 64;
const SIZES: [usize; 3] = [4, 8, 64];
/// Items between two fences.
const BATCHES: [usize; 5] = [1, 4, 16, 64, 256];

#[derive(Debug, Serialize)]
struct Results {
    setup: Setup,
    routine: &'static str,
    records: Vec<Record>,
    interrupted: bool,
}

/// One method at one point.
#[derive(Debug, Serialize)]
struct Record {
    direction: Direction,
    pattern: Pattern,
    size_bytes: usize,
    batch: usize,
    method: &'static str,
    /// Median time of one item.
    ns_per_item: f64,
    p99_ns: f64,
    samples: usize,
    /// To the library, in the same row.
    ratio: f64,
}

pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let target = &options.copies.target;
    let session = Session::open("compare", target, SPREAD, &Extra::default())?;
    // The crate reads no environment variable, and the library does.
    let request = env::var_os("GDRCOPY_ISA");
    let routine = gdrcopy_core::copy::select_routine(request.as_deref());
    let library = &session.methods[0];
    let buffer = DeviceBuffer::alloc(session.gpu, library.buffer.memory(), SPREAD)?;
    let mapping = map(&buffer, target.force_pcie)?;
    let bench = Bench { session: &session, buffer: &buffer, mapping: &mapping, clock: Clock::calibrate() };
    let points = options.direction.len() * options.pattern.len() * SIZES.len() * BATCHES.len();
    let budget = Duration::from_secs(options.budget).as_nanos() as f64;
    let share = Repetitions::Budget(budget / points as f64);
    let mut results = Results { setup: session.setup.clone(), routine, records: Vec::new(), interrupted: false };
    let progress = progress_bar(points);
    'all: for &direction in &options.direction {
        for &pattern in &options.pattern {
            for size_bytes in SIZES {
                for batch in BATCHES {
                    let point = Point { direction, pattern, size_bytes, batch };
                    let records = match direction {
                        Direction::Write => bench.writes(point, share),
                        Direction::Read => bench.reads(point, share),
                    };
                    results.records.extend(records?);
                    progress.inc(1);
                    if session.interrupt.requested() {
                        results.interrupted = true;
                        break 'all;
                    }
                }
            }
        }
    }
    progress.finish_and_clear();
    let output = &options.copies.output;
    output.write(|| text(&results), &results, &results.records)?;
    Ok(output::exit_status("compare", results.interrupted))
}

/// The buffer, mapped by the crate.
fn map(buffer: &DeviceBuffer, force_pcie: bool) -> Result<Mapping> {
    let gdr = Gdr::open().context("the crate gdrcopy")?;
    let flags = match force_pcie {
        true => PinFlags::FORCE_PCIE,
        false => PinFlags::DEFAULT,
    };
    // SAFETY: the buffer outlives the mapping, and holds nothing but the bytes that are measured.
    let pin = unsafe { gdr.pin(buffer.address(), buffer.len(), flags) }?;
    Ok(pin.map(buffer.len(), MapFlag::Default)?)
}

/// The parameters that are measured together.
#[derive(Clone, Copy)]
struct Point {
    direction: Direction,
    pattern: Pattern,
    size_bytes: usize,
    batch: usize,
}

impl Point {
    /// The offsets of the items of a sample, other ones each time, the same ones for all methods.
    fn offsets(self, sample: usize) -> Vec<usize> {
        let mut random = Random::new(sample as u64);
        let lines = self.pattern.draw(ITEMS, SPREAD / LINE, &mut random);
        lines.into_iter().map(|line| LINE * line).collect()
    }

    /// The contents of the item at `offset`. Items of a sample may be at the same place.
    fn item(self, offset: usize) -> Vec<u8> {
        let salt = offset / LINE * 31 + offset / (251 * LINE) + self.size_bytes + self.batch;
        (0..self.size_bytes).map(|i| (i * 7 + salt) as u8).collect()
    }
}

struct Bench<'a> {
    session: &'a Session,
    buffer: &'a DeviceBuffer,
    mapping: &'a Mapping,
    clock: Clock,
}

impl Bench<'_> {
    fn writes(&self, point: Point, share: Repetitions) -> Result<Vec<Record>> {
        let library = &self.session.methods[0];
        let methods = [library.function(Direction::Write), "Batch"];
        let mut seen = vec![0; SPREAD];
        let records = self.measure(point, share, &methods, |method, offsets| {
            let item = |&offset: &usize| (offset, point.item(offset));
            let items: Vec<(usize, Vec<u8>)> = offsets.iter().map(item).collect();
            Ok(match method {
                0 => self.clock.time(|| {
                    for (offset, bytes) in &items {
                        library.mapped.write(*offset, bytes).expect("inside");
                    }
                }),
                _ => self.clock.time(|| {
                    for items in items.chunks(point.batch) {
                        let mut batch = self.mapping.batch().expect("not a forked child");
                        for (offset, bytes) in items {
                            batch.write(*offset, bytes).expect("inside");
                        }
                        batch.commit();
                    }
                }),
            })
        })?;
        self.mapping.flush()?;
        self.buffer.read(&mut seen)?;
        // The first sample's items. A line that is written again gets the same bytes.
        for offset in point.offsets(0) {
            let written = &seen[offset..][..point.size_bytes];
            let batch = point.batch;
            ensure!(written == point.item(offset), "wrong bytes after a batch of {batch}");
        }
        Ok(records)
    }

    fn reads(&self, point: Point, share: Repetitions) -> Result<Vec<Record>> {
        let (size, batch) = (point.size_bytes, point.batch);
        let library = &self.session.methods[0];
        let mut sent = vec![0; SPREAD];
        for (line, bytes) in sent.chunks_mut(LINE).enumerate() {
            bytes[..size].copy_from_slice(&point.item(line * LINE));
        }
        self.buffer.write(&sent)?;
        let mut read = vec![0; ITEMS * size];
        let mut words = vec![0_u32; if size == 4 { ITEMS } else { 0 }];
        let all = [library.function(Direction::Read), "read_many", "load_all"];
        // Words of 4 bytes are what flags usually are.
        let methods = &all[..if size == 4 { 3 } else { 2 }];
        self.measure(point, share, methods, |method, offsets| {
            read.fill(0xee);
            words.fill(0xeeee_eeee);
            let items = offsets.iter().copied().zip(read.chunks_mut(size));
            let mut items: Vec<(usize, &mut [u8])> = items.collect();
            let ns = match method {
                0 => self.clock.time(|| {
                    for (offset, bytes) in &mut items {
                        library.mapped.read(*offset, bytes).expect("inside");
                    }
                }),
                1 => self.clock.time(|| {
                    for items in items.chunks_mut(batch) {
                        self.mapping.read_many(items).expect("inside");
                    }
                }),
                _ => {
                    let sets = self.words(offsets, batch)?;
                    let ns = self.clock.time(|| {
                        for (set, values) in sets.iter().zip(words.chunks_mut(batch)) {
                            set.load_all(values);
                        }
                    });
                    for ((_, bytes), word) in items.iter_mut().zip(&words) {
                        bytes.copy_from_slice(&word.to_ne_bytes());
                    }
                    ns
                }
            };
            let is_wrong = |(offset, bytes): &(usize, &mut [u8])| **bytes != sent[*offset..][..size];
            // The library maps a buffer of its own.
            ensure!(
                method == 0 || !items.iter().any(is_wrong),
                "{}: wrong bytes with {batch} items between fences",
                all[method]
            );
            Ok(ns)
        })
    }

    fn words(&self, offsets: &[usize], batch: usize) -> Result<Vec<Words<'_, u32>>> {
        let word = |&offset: &usize| self.mapping.word(offset);
        let words: Vec<Word<'_, u32>> = offsets.iter().map(word).collect::<Result<_, _>>()?;
        let sets = words.chunks(batch);
        Ok(sets.map(|words| words.iter().copied().collect()).collect())
    }

    /// Has the methods take turns; `sample` copies items at all offsets and returns the nanoseconds that it takes.
    fn measure(
        &self,
        point: Point,
        share: Repetitions,
        methods: &[&'static str],
        mut sample: impl FnMut(usize, &[usize]) -> Result<f64>,
    ) -> Result<Vec<Record>> {
        let interrupt = &self.session.interrupt;
        let times = take_turns(methods.len(), share, ITEMS, interrupt, |method, first, items| {
            let offsets = point.offsets(first / ITEMS);
            self.session.methods[0].drain();
            self.mapping.flush()?;
            Ok(sample(method, &offsets)? / items as f64)
        })?;
        let first = times[0].median;
        let record = |(&method, times): (&&'static str, Times)| Record {
            direction: point.direction,
            pattern: point.pattern,
            size_bytes: point.size_bytes,
            batch: point.batch,
            method,
            ns_per_item: times.median,
            p99_ns: times.p99,
            samples: times.samples,
            ratio: times.median / first,
        };
        Ok(methods.iter().zip(times).map(record).collect())
    }
}

fn text(results: &Results) -> String {
    let names = ["direction", "lines", "bytes", "batch", "method", "ns/item", "P99", "samples", "ratio"];
    let mut table = Table::new(names);
    for record in &results.records {
        table.push(vec![
            record.direction.name().into(),
            name(record.pattern),
            record.size_bytes.to_string(),
            record.batch.to_string(),
            record.method.into(),
            format!("{:.1}", record.ns_per_item),
            format!("{:.1}", record.p99_ns),
            record.samples.to_string(),
            ratio(Some(record.ratio)),
        ]);
    }
    let Results { setup, routine, .. } = results;
    let table = table.markdown();
    format!("{}\n{setup}\ncrate gdrcopy: {routine}\n{table}", setup.command)
}
