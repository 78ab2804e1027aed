//! Numbers of what one process did with libgdrapi, or several in sum.
#![forbid(unsafe_code)]

use gdrcopy::MappingType;
use gdrcopy_trace_tables::{BUCKETS, Class, FUNCTIONS, Function, SIZES, Wrong, bucket_bounds};
use serde::Serialize;

use super::recorded::{Rate, Recorded, get};
use super::sites::Known;
use crate::measure::plan::Direction;

/// Pins that are listed, those with most copies.
const LISTED: usize = 10;

/// Use of libgdrapi.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Summary {
    pub(crate) seconds: f64,
    /// It ends at the last call, as the process left no time of its end. In a sum, that of any process.
    pub(crate) until_last_call: bool,
    /// In all threads.
    pub(crate) seconds_inside: f64,
    /// Threads that called libgdrapi.
    pub(crate) threads: u64,
    pub(crate) calls: Vec<Calls>,
    pub(crate) copies: Vec<Copies>,
    pub(crate) failed_copies: u64,
    pub(crate) pins: u64,
    pub(crate) maps: u64,
    pub(crate) mapping_types: Vec<(&'static str, u64)>,
    /// Those with most copies.
    pub(crate) most_used: Vec<Pin>,
    pub(crate) left: Left,
    pub(crate) misuse: Vec<Misuse>,
    /// Wrong copies of other places in the code, because there were too many.
    pub(crate) misuse_left_out: u64,
    pub(crate) advice: Vec<String>,
    /// Pins whose copies are not in `most_used`, because there were too many pins.
    pub(crate) pins_left_out: u64,
    /// Reads through cached mappings.
    #[serde(skip)]
    pub(crate) cached_reads: u64,
    /// How often a small write began where the one before it had ended.
    #[serde(skip)]
    pub(crate) in_rows: Vec<(u64, String)>,
    /// Pins of a range that had been pinned before.
    #[serde(skip)]
    pub(crate) again: Vec<(u64, String)>,
    /// Where gdr_get_info was last called.
    #[serde(skip)]
    pub(crate) info_caller: Option<String>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Calls {
    pub(crate) function: &'static str,
    pub(crate) count: u64,
    pub(crate) failed: u64,
    /// The last failure's.
    pub(crate) errno: Option<i32>,
    pub(crate) mean_ns: f64,
    pub(crate) bytes: u64,
    pub(crate) smallest_bytes: u64,
    pub(crate) largest_bytes: u64,
}

/// Copies of one direction, with sizes from this power of two to below the next.
#[derive(Debug, Serialize)]
pub(crate) struct Copies {
    pub(crate) direction: Direction,
    pub(crate) size_bytes: u64,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    /// In sum.
    pub(crate) seconds: f64,
    pub(crate) bytes_per_second: f64,
}

/// Pins of the same range by the same code.
#[derive(Debug, Serialize)]
pub(crate) struct Pin {
    pub(crate) pid: u64,
    pub(crate) device_address: u64,
    pub(crate) size_bytes: u64,
    pub(crate) pinned_by: String,
    pub(crate) mapping_type: &'static str,
    pub(crate) pins: u64,
    pub(crate) maps: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
}

/// Left when the processes ended.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Left {
    pub(crate) pins: u64,
    pub(crate) pinned_bytes: u64,
    pub(crate) mappings: u64,
    pub(crate) mapped_bytes: u64,
    /// There were too many pins at a time to know all.
    pub(crate) incomplete: bool,
}

/// Wrong copies of one place in the code.
#[derive(Debug, Serialize)]
pub(crate) struct Misuse {
    pub(crate) pid: u64,
    pub(crate) caller: String,
    pub(crate) count: u64,
    pub(crate) what: String,
}

const MAPPING_TYPES: [&str; 4] = ["of unknown type", "write-combining", "cached", "device"];

impl Summary {
    /// Sums up processes that took this time in sum.
    pub(crate) fn of(processes: &[&Recorded], seconds: f64, rate: Rate, known: &mut Known) -> Summary {
        let calls: Vec<_> = (0..FUNCTIONS.len()).map(|i| calls(processes, i, rate)).collect();
        let both = Direction::BOTH.iter().enumerate();
        let classes = both.flat_map(|(i, &direction)| (0..SIZES).map(move |s| (i, direction, s)));
        let threads = || processes.iter().flat_map(|process| &process.tables.threads);
        let copies = classes.filter_map(|(i, direction, size)| {
            let classes: Vec<_> = threads().map(|thread| &thread.copies[i][size]).collect();
            Copies::of(direction, size, &classes, rate)
        });
        let copies: Vec<_> = copies.collect();
        let of_copies: f64 = copies.iter().map(|copies| copies.seconds).sum();
        let of_calls: f64 = calls.iter().map(|calls| calls.mean_ns * calls.count as f64).sum();
        let total = |number: &dyn Fn(&Recorded) -> u64| processes.iter().map(|it| number(it)).sum();
        let used = |functions: [Function; 2]| {
            let calls = functions.map(|function| &calls[function as usize]);
            calls.map(|calls| calls.count.saturating_sub(calls.failed)).iter().sum()
        };
        let mut summary = Summary {
            seconds,
            seconds_inside: of_copies + of_calls / 1e9,
            threads: total(&|process| get(&process.tables.process.threads)),
            failed_copies: threads().flat_map(|thread| &thread.failed).map(get).sum(),
            pins: used([Function::PinBuffer, Function::PinBufferV2]),
            maps: used([Function::Map, Function::MapV2]),
            mapping_types: MAPPING_TYPES
                .iter()
                .enumerate()
                .map(|(i, &name)| (name, total(&|process| get(&process.tables.mapping_types[i]))))
                .filter(|&(_, count)| count > 0)
                .collect(),
            calls: calls.into_iter().filter(|calls| calls.count > 0).collect(),
            copies,
            left: Left { incomplete: total(&|process| get(&process.tables.pins_left_out)) > 0, ..Left::default() },
            misuse: processes.iter().flat_map(|process| misuse(process, known)).collect(),
            misuse_left_out: total(&|process| get(&process.tables.misuses_left_out)),
            pins_left_out: total(&|process| get(&process.tables.pins_left_out) + get(&process.tables.pins_forgotten)),
            ..Summary::default()
        };
        for process in processes {
            summary.add_pins(process, known);
            let infos = [Function::GetInfo, Function::GetInfoV2];
            let callers = infos.map(|info| get(&process.tables.calls[info as usize].caller));
            if let Some(&caller) = callers.iter().find(|&&caller| caller != 0) {
                summary.info_caller = Some(process.sites.name(caller, 0, known));
            }
        }
        summary.most_used.sort_by_key(|pin| std::cmp::Reverse(pin.writes + pin.reads));
        summary.most_used.truncate(LISTED);
        summary
    }

    fn add_pins(&mut self, process: &Recorded, known: &mut Known) {
        let tables = &process.tables;
        for (number, pin) in tables.pins.iter().enumerate() {
            if get(&pin.handle) == 0 {
                continue;
            }
            let copies = || tables.threads.iter().map(|thread| &thread.pins[number]);
            let count = |i: usize| copies().map(|copies| get(&copies.count[i])).sum::<u64>();
            let bytes = |i: usize| copies().map(|copies| get(&copies.bytes[i])).sum();
            let in_rows: u64 = copies().map(|copies| get(&copies.in_rows)).sum();
            let pinned_by = process.sites.name(get(&pin.caller), get(&pin.list), known);
            if get(&pin.live) != 0 {
                self.left.pins += 1;
                self.left.pinned_bytes += get(&pin.size);
                self.left.mappings += u64::from(get(&pin.mapped) > 0);
                self.left.mapped_bytes += get(&pin.mapped);
            }
            self.in_rows.push((in_rows, pinned_by.clone()));
            self.again.push((get(&pin.pins).saturating_sub(1), pinned_by.clone()));
            let is_mapped = get(&pin.maps) > 0;
            if get(&pin.mapping_type) == MappingType::Caching as u64 {
                self.cached_reads += count(1);
            }
            let name = MAPPING_TYPES.get(get(&pin.mapping_type) as usize);
            self.most_used.push(Pin {
                pid: get(&tables.process.pid),
                device_address: get(&pin.address),
                size_bytes: get(&pin.size),
                pinned_by,
                mapping_type: name.copied().filter(|_| is_mapped).unwrap_or("not mapped"),
                pins: get(&pin.pins),
                maps: get(&pin.maps),
                writes: count(0),
                written_bytes: bytes(0),
                reads: count(1),
                read_bytes: bytes(1),
            });
        }
    }

    /// Copies, and their bytes.
    pub(crate) fn copied(&self) -> (u64, u64) {
        let sums = self.copies.iter().map(|copies| (copies.count, copies.bytes));
        sums.fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1))
    }

    /// The calls of a function; none if there were none.
    pub(crate) fn calls_of(&self, function: Function) -> Option<&Calls> {
        self.calls.iter().find(|calls| calls.function == FUNCTIONS[function as usize])
    }
}

fn calls(processes: &[&Recorded], function: usize, rate: Rate) -> Calls {
    let mut all = Calls { function: FUNCTIONS[function], ..Calls::default() };
    let (mut ticks, mut smallest) = (0, u64::MAX);
    for call in processes.iter().map(|process| &process.tables.calls[function]) {
        all.count += get(&call.count);
        all.failed += get(&call.failed);
        all.bytes += get(&call.bytes);
        all.largest_bytes = all.largest_bytes.max(get(&call.largest));
        smallest = smallest.min(!get(&call.smallest));
        ticks += get(&call.ticks);
        all.errno = all.errno.or(Some(get(&call.error) as i32).filter(|&errno| errno != 0));
    }
    all.smallest_bytes = if all.bytes > 0 { smallest } else { 0 };
    all.mean_ns = rate.ns(ticks) / all.count.max(1) as f64;
    all
}

impl Copies {
    fn of(direction: Direction, size: usize, classes: &[&Class], rate: Rate) -> Option<Copies> {
        let sum = |number: &dyn Fn(&Class) -> u64| classes.iter().map(|it| number(it)).sum::<u64>();
        let times: Vec<_> = (0..BUCKETS).map(|i| sum(&|class| get(&class.times[i]))).collect();
        let count: u64 = times.iter().sum();
        let bytes = sum(&|class| get(&class.bytes));
        let seconds = rate.ns(sum(&|class| get(&class.ticks))) / 1e9;
        let percentile = |percent: u64| {
            let rank = (count * percent).div_ceil(100).max(1);
            let reached = times.iter().scan(0, |sum, times| {
                *sum += times;
                Some(*sum)
            });
            let bucket = reached.take_while(|&sum| sum < rank).count();
            let bounds = bucket_bounds(bucket);
            rate.ns(bounds.start + bounds.end - 1) / 2.0
        };
        (count > 0).then(|| Copies {
            direction,
            size_bytes: 1 << size,
            count,
            bytes,
            p50_ns: percentile(50),
            p99_ns: percentile(99),
            seconds,
            bytes_per_second: bytes as f64 / seconds.max(1e-9),
        })
    }
}

/// The wrong copies of a process.
fn misuse(process: &Recorded, known: &mut Known) -> Vec<Misuse> {
    let found = process.tables.misuses.iter().filter(|misuse| get(&misuse.key) != 0);
    let described = found.map(|misuse| {
        let wrong = Wrong::ALL.iter().find(|&&wrong| wrong as u64 == get(&misuse.key) & 7);
        let direction = ["write", "read"][get(&misuse.direction) as usize & 1];
        let (size, offset, mapped) = (get(&misuse.size), get(&misuse.offset).cast_signed(), get(&misuse.mapped));
        let why = match wrong {
            Some(Wrong::Outside) => {
                format!("at offset {offset}: the mapping has {mapped} bytes")
            }
            Some(Wrong::Unmapped) => "through a pin that is not mapped".into(),
            Some(Wrong::Closed) => "after the pin was unpinned or its connection closed".into(),
            Some(Wrong::Unknown) | None => "through a handle of no pin of this process".into(),
        };
        Misuse {
            pid: get(&process.tables.process.pid),
            caller: process.sites.name(get(&misuse.key) >> 3, get(&misuse.list), known),
            count: get(&misuse.count),
            what: format!("{direction} of {size} bytes {why}"),
        }
    });
    described.collect()
}

#[cfg(test)]
mod tests {
    use std::array::from_fn;

    use gdrcopy_trace_tables::time_bucket;

    use super::*;

    /// Counters of arm64 may tick every 40 ns.
    #[test]
    fn times_of_few_ticks_are_exact() {
        for ticks in 0..8 {
            let times = from_fn(|bucket| u64::from(bucket == time_bucket(ticks)).into());
            let class = Class { bytes: 8.into(), ticks: ticks.into(), times };
            let copies = Copies::of(Direction::Write, 3, &[&class], Rate { ns_per_tick: 40.0 }).unwrap();
            assert_eq!(copies.p50_ns, 40.0 * ticks as f64);
        }
    }
}
