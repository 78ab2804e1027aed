//! `gdrcopy compare --batch`: batches and gathers of the Rust crate, side by side with single calls of a library.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gdrcopy::{Gdr, MapFlag, Mapped, Mapping, PinFlags, Word, Words};
use serde::Serialize;

use super::Options;
use crate::cuda::DeviceBuffer;
use crate::measure::clock::Clock;
use crate::measure::plan::Direction;
use crate::measure::sampler::{Repetitions, take_turns};
use crate::measure::session::{Extra, Session, Setup};
use crate::measure::stats::Times;
use crate::output::table::Table;
use crate::output::{self, progress_bar, ratio};

/// Items in a sample, at different lines.
const ITEMS: usize = 256;
/// Bytes of the buffer that the items are spread over: more than the CPU's buffers and the TLB hold.
const SPREAD: usize = 32 << 20;
const SIZES: [usize; 3] = [4, 8, 64];
/// Items between two fences.
const BATCHES: [usize; 5] = [1, 4, 16, 64, 256];

/// Everything measured.
#[derive(Debug, Serialize)]
struct Results {
    setup: Setup,
    records: Vec<Record>,
    interrupted: bool,
}

/// One method at one point.
#[derive(Debug, Serialize)]
struct Record {
    direction: Direction,
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

/// Runs it.
pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let target = &options.copies.target;
    let session = Session::open("compare", target, SPREAD, &Extra::default())?;
    let library = &session.methods[0];
    let buffer = DeviceBuffer::alloc(session.gpu, library.buffer.memory(), SPREAD)?;
    let mapping = map(&buffer, target.force_pcie)?;
    let bench = Bench {
        session: &session,
        buffer: &buffer,
        mapping: &mapping,
        clock: Clock::calibrate(),
        offsets: offsets(),
    };
    let points = options.direction.len() * SIZES.len() * BATCHES.len();
    let budget = Duration::from_secs(options.budget).as_nanos() as f64;
    let share = Repetitions::Budget(budget / points as f64);
    let mut results = Results {
        setup: session.setup.clone(),
        records: Vec::new(),
        interrupted: false,
    };
    let progress = progress_bar(points);
    'all: for &direction in &options.direction {
        for size in SIZES {
            for batch in BATCHES {
                let records = match direction {
                    Direction::Write => bench.writes(size, batch, share),
                    Direction::Read => bench.reads(size, batch, share),
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

/// Different multiples of 64 bytes, without a pattern that a prefetcher could know.
fn offsets() -> Vec<usize> {
    const LINES: usize = SPREAD / 64;
    // A linear congruential generator modulo a power of two meets each number once.
    let next = |line: &usize| Some((line * 1_664_525 + 1_013_904_223) % LINES);
    let lines = std::iter::successors(Some(1), next);
    lines.map(|line| line * 64).take(ITEMS).collect()
}

/// Bytes that differ from those of other items and rounds.
fn pattern(item: usize, size: usize, salt: usize) -> Vec<u8> {
    (0..size)
        .map(|i| (item * 31 + i * 7 + salt) as u8)
        .collect()
}

struct Bench<'a> {
    session: &'a Session,
    buffer: &'a DeviceBuffer,
    mapping: &'a Mapping,
    clock: Clock,
    offsets: Vec<usize>,
}

impl Bench<'_> {
    fn writes(&self, size: usize, batch: usize, share: Repetitions) -> Result<Vec<Record>> {
        let library = &self.session.methods[0];
        let salt = size + batch;
        let items: Vec<Vec<u8>> = (0..ITEMS).map(|i| pattern(i, size, salt)).collect();
        let places: Vec<(usize, &[u8])> = self
            .offsets
            .iter()
            .copied()
            .zip(items.iter().map(Vec::as_slice))
            .collect();
        let methods = [library.function(Direction::Write), "Batch"];
        let records = self.measure(Direction::Write, size, batch, share, &methods, |method| {
            let ns = match method {
                0 => self.clock.time(|| {
                    for &(offset, bytes) in &places {
                        library.mapped.write(offset, bytes).expect("inside");
                    }
                }),
                _ => self.clock.time(|| {
                    for places in places.chunks(batch) {
                        let mut batch = self.mapping.batch().expect("not a forked child");
                        for &(offset, bytes) in places {
                            batch.write(offset, bytes).expect("inside");
                        }
                        batch.commit();
                    }
                }),
            };
            Ok(ns)
        })?;
        self.mapping.flush()?;
        let mut written = vec![0; SPREAD];
        self.buffer.read(&mut written)?;
        for (offset, bytes) in places {
            ensure!(
                written[offset..][..size] == *bytes,
                "wrong bytes after a batch of {batch}"
            );
        }
        Ok(records)
    }

    fn reads(&self, size: usize, batch: usize, share: Repetitions) -> Result<Vec<Record>> {
        let library = &self.session.methods[0];
        let mut sent = vec![0; SPREAD];
        for (i, &offset) in self.offsets.iter().enumerate() {
            sent[offset..][..size].copy_from_slice(&pattern(i, size, batch));
        }
        self.buffer.write(&sent)?;
        let mut read = vec![0; ITEMS * size];
        let mut words = vec![0_u32; if size == 4 { ITEMS } else { 0 }];
        let sets = self.words(batch)?;
        let all = [library.function(Direction::Read), "read_many", "load_all"];
        // Words of 4 bytes are what flags usually are.
        let methods = &all[..if size == 4 { 3 } else { 2 }];
        let records = self.measure(Direction::Read, size, batch, share, methods, |method| {
            let items = self.offsets.iter().copied().zip(read.chunks_mut(size));
            Ok(match method {
                0 => {
                    let items: Vec<(usize, &mut [u8])> = items.collect();
                    self.clock.time(|| {
                        for (offset, bytes) in items {
                            library.mapped.read(offset, bytes).expect("inside");
                        }
                    })
                }
                1 => {
                    let mut items: Vec<(usize, &mut [u8])> = items.collect();
                    self.clock.time(|| {
                        for items in items.chunks_mut(batch) {
                            self.mapping.read_many(items).expect("inside");
                        }
                    })
                }
                _ => self.clock.time(|| {
                    for (set, values) in sets.iter().zip(words.chunks_mut(batch)) {
                        set.load_all(values);
                    }
                }),
            })
        })?;
        let mut items: Vec<(usize, &mut [u8])> = self
            .offsets
            .iter()
            .copied()
            .zip(read.chunks_mut(size))
            .collect();
        items.iter_mut().for_each(|(_, bytes)| bytes.fill(0));
        for items in items.chunks_mut(batch) {
            self.mapping.read_many(items)?;
        }
        for (i, (offset, bytes)) in items.iter().enumerate() {
            let expected = &sent[*offset..][..size];
            ensure!(*bytes == expected, "wrong bytes in a gather of {batch}");
            let word = words.get(i).map(|word| word.to_ne_bytes());
            ensure!(
                word.is_none_or(|word| word == *expected),
                "wrong word in a set of {batch}"
            );
        }
        Ok(records)
    }

    /// The items as sets of words.
    fn words(&self, batch: usize) -> Result<Vec<Words<'_, u32>>> {
        let word = |&offset: &usize| self.mapping.word(offset);
        let words: Vec<Word<'_, u32>> = self.offsets.iter().map(word).collect::<Result<_, _>>()?;
        Ok(words
            .chunks(batch)
            .map(|words| words.iter().copied().collect())
            .collect())
    }

    /// Has the methods take turns; `sample` copies all items and returns the nanoseconds that it takes.
    fn measure(
        &self,
        direction: Direction,
        size_bytes: usize,
        batch: usize,
        share: Repetitions,
        methods: &[&'static str],
        mut sample: impl FnMut(usize) -> Result<f64>,
    ) -> Result<Vec<Record>> {
        let interrupt = &self.session.interrupt;
        let times = take_turns(
            methods.len(),
            share,
            ITEMS,
            interrupt,
            |method, _, items| {
                self.session.methods[0].drain();
                self.mapping.flush()?;
                Ok(sample(method)? / items as f64)
            },
        )?;
        let first = times[0].median;
        let record = |(&method, times): (&&'static str, Times)| Record {
            direction,
            size_bytes,
            batch,
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
    let names = [
        "direction",
        "bytes",
        "batch",
        "method",
        "ns/item",
        "P99",
        "samples",
        "ratio",
    ];
    let mut table = Table::new(names);
    for record in &results.records {
        table.push(vec![
            record.direction.name().into(),
            record.size_bytes.to_string(),
            record.batch.to_string(),
            record.method.into(),
            format!("{:.1}", record.ns_per_item),
            format!("{:.1}", record.p99_ns),
            record.samples.to_string(),
            ratio(Some(record.ratio)),
        ]);
    }
    let setup = &results.setup;
    format!("{}\n{setup}\n{}", setup.command, table.markdown())
}
