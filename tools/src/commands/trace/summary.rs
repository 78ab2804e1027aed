//! Sums up the use of libgdrapi by one process, or by several together, as JSON. docs/trace.md describes the fields.
#![forbid(unsafe_code)]

use std::cmp::Reverse;

use nix::errno::Errno;
use serde_json::{Value, json};

use super::functions;
use super::recorded::{CALLS, COPIES, PARTS, PINS, PROCESS, Recorded, SITES, SIZES, THREADS, TIMES, sum};
use crate::measure::plan::Direction;

pub(crate) fn of(processes: &[Recorded], ns_per_tick: f64) -> Value {
    let mut pinned = Vec::new();
    let mut misuse = Vec::new();
    let mut left = [0; 4];
    for process in processes {
        add_sites(process, &mut pinned, &mut misuse, &mut left);
    }
    pinned.sort_by_key(|row| Reverse((row["left_pins"].as_u64(), row["pins"].as_u64())));
    pinned.truncate(10);
    let [left_pins, pinned_bytes, mappings, mapped_bytes] = left;
    let [_, _, _, threads, _, unknown_pins] = sum(processes, PROCESS, 0..1);
    let [_, _, _, ticks_of_calls] = sum(processes, CALLS, 0..CALLS.records);
    let [_, ticks_of_copies] = sum(processes, COPIES, 0..COPIES.records);
    let [_, _, _, failed_copies] = sum(processes, THREADS, 0..PARTS);
    let [_, pins_left_out] = sum(processes, SITES, OTHERS..OTHERS + 1);
    let [_, misuse_left_out] = sum(processes, SITES, SITES.records - 1..SITES.records);
    json!({
        "seconds_inside": (ticks_of_calls as f64 + ticks_of_copies as f64) * ns_per_tick / 1e9,
        "threads": threads,
        "calls": calls(processes, ns_per_tick),
        "copies": copies(processes, ns_per_tick),
        "failed_copies": failed_copies,
        "pins": successes(processes, "gdr_pin"),
        "maps": successes(processes, "gdr_map"),
        "pinned": pinned,
        "pins_left_out": pins_left_out,
        "left": {
            "pins": left_pins, "pinned_bytes": pinned_bytes, "mappings": mappings, "mapped_bytes": mapped_bytes,
            "incomplete": unknown_pins > 0, // A process had more pins than trace.c can record.
        },
        "misuse": misuse,
        "misuse_left_out": misuse_left_out,
    })
}

/// Converts ticks to nanoseconds with one decimal.
fn nanoseconds(ticks: f64, ns_per_tick: f64) -> f64 {
    (ticks * ns_per_tick * 10.0).round() / 10.0
}

fn calls(processes: &[Recorded], ns_per_tick: f64) -> Vec<Value> {
    let mut rows = Vec::new();
    for number in 0..CALLS.records {
        let [count, failed, _, ticks] = sum(processes, CALLS, number..number + 1);
        if count == 0 {
            continue;
        }
        let mut errno = Value::Null;
        for process in processes {
            let [_, _, error] = process.record(CALLS, number);
            if error != 0 {
                errno = name_of(error).into();
            }
        }
        let mean = nanoseconds(ticks as f64 / count as f64, ns_per_tick);
        rows.push(json!({
            "function": functions::name(number as u64), "count": count, "failed": failed, "errno": errno, "mean_ns": mean,
        }));
    }
    rows
}

/// Returns the name of an error. trace.c writes 4095 for a gdr_open that returned NULL and left errno 0.
fn name_of(error: u64) -> String {
    match error {
        4095 => "no errno".to_owned(),
        _ => format!("{:?}", Errno::from_raw(error as i32)),
    }
}

/// Returns the number of successful calls of functions whose names begin with `prefix`.
fn successes(processes: &[Recorded], prefix: &str) -> u64 {
    let mut successes = 0u64;
    for number in 0..CALLS.records {
        if functions::name(number as u64).starts_with(prefix) {
            let [count, failed] = sum(processes, CALLS, number..number + 1);
            successes = successes.saturating_add(count.saturating_sub(failed));
        }
    }
    successes
}

/// Returns a row for each direction and each class of sizes. A class has the sizes from one power of two to the next.
fn copies(processes: &[Recorded], ns_per_tick: f64) -> Vec<Value> {
    let mut rows = Vec::new();
    for class in 0..2 * SIZES {
        let parts = (class..COPIES.records).step_by(2 * SIZES);
        let [bytes, ticks, times @ ..]: [u64; 2 + TIMES] = sum(processes, COPIES, parts);
        let count = total(&times);
        let seconds = ticks as f64 * ns_per_tick / 1e9;
        if count > 0 {
            rows.push(json!({
                "direction": Direction::BOTH[class / SIZES].name(),
                "size_bytes": 1u64 << (class % SIZES) >> 1,
                "count": count,
                "bytes": bytes,
                "p50_ns": nanoseconds(percentile(&times, 50), ns_per_tick),
                "p99_ns": nanoseconds(percentile(&times, 99), ns_per_tick),
                "seconds": seconds,
                "bytes_per_second": (bytes as f64 / seconds.max(1e-9)).round(),
            }));
        }
    }
    rows
}

/// Returns the number of copies, which is the sum of `times`. The sum may overflow, because the traced program can
/// overwrite the counts.
pub(crate) fn total(times: &[u64; TIMES]) -> u64 {
    times.iter().fold(0, |total, count| total.saturating_add(*count))
}

/// Returns this percentile of the times of copies, in ticks. From 8 ticks on, each number in `times` counts the copies
/// in a quarter of the range between two powers of two, and the result is the middle of that quarter.
fn percentile(times: &[u64; TIMES], percent: u64) -> f64 {
    let rank = total(times).saturating_mul(percent).div_ceil(100).max(1);
    let mut bucket = 0;
    let mut counted = times[0];
    while counted < rank && bucket + 1 < TIMES {
        bucket += 1;
        counted = counted.saturating_add(times[bucket]);
    }
    (first_time(bucket) + first_time(bucket + 1) - 1) as f64 / 2.0
}

fn first_time(bucket: usize) -> u64 {
    match bucket {
        0..4 => bucket as u64,
        _ => (4 + bucket as u64 % 4) << (bucket / 4 - 1),
    }
}

/// The number of the record in [`SITES`] that counts the pins from all places in the code that have no record of their
/// own. The records of misuse come after it.
const OTHERS: usize = SITES.records / 2 - 1;

/// Adds a row for each place in the code from which memory was pinned, and for each misuse. Adds to `left` the pins,
/// pinned bytes, mappings and mapped bytes that are left at the end.
fn add_sites(process: &Recorded, pinned: &mut Vec<Value>, misuse: &mut Vec<Value>, left: &mut [u64; 4]) {
    let mut left_of_site = [[0; 2]; SITES.records];
    for number in 0..PINS.records {
        let [_, live, _, _, size, site, _, mapped] = process.record(PINS, number);
        if live == 0 {
            continue;
        }
        if let Some([pins, bytes]) = left_of_site.get_mut(site as usize) {
            *pins += 1;
            *bytes = size.saturating_add(*bytes);
        }
        for (place, value) in [1, size, u64::from(mapped > 0), mapped].into_iter().enumerate() {
            left[place] = value.saturating_add(left[place]);
        }
    }
    let [pid, ..] = process.process();
    for (number, [left_pins, left_bytes]) in left_of_site.into_iter().enumerate() {
        let [key, count, offset, size, mapped, mapping_type] = process.record(SITES, number);
        if key == 0 {
            continue;
        }
        let caller = process.name(key >> 8, Some(number));
        if number < OTHERS {
            let mapping_type = ["none", "WC", "cached", "device"].get(mapping_type as usize);
            pinned.push(json!({
                "pid": pid, "pinned_by": caller, "pins": count, "mapping_type": mapping_type, "left_pins": left_pins,
                "left_bytes": left_bytes,
            }));
            continue;
        }
        let call = match functions::name(key >> 3 & 31).as_str() {
            "gdr_copy_to_mapping" => format!("write of {size} bytes"),
            "gdr_copy_from_mapping" => format!("read of {size} bytes"),
            other => other.to_owned(),
        };
        let why = match key & 7 {
            1 => format!("at offset {}: the mapping has {mapped} bytes", offset.cast_signed()),
            2 => "through a pin that is not mapped".into(),
            3 => "after the pin was unpinned or its connection closed".into(),
            _ => "through a handle of no pin of this process".into(),
        };
        misuse.push(json!({ "pid": pid, "caller": caller, "count": count, "what": format!("{call} {why}") }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counter of arm64 may tick only every 40 ns, so fast copies take few ticks.
    #[test]
    fn times_of_few_ticks_are_exact_and_others_within_an_eighth() {
        for ticks in 0..8 {
            let mut times = [0; TIMES];
            times[ticks] = 1;
            assert_eq!(percentile(&times, 50), ticks as f64);
        }
        for bucket in 8..TIMES {
            assert!(first_time(bucket + 1) - first_time(bucket) <= first_time(bucket) / 4, "{bucket}");
        }
    }
}
