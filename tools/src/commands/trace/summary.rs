//! Numbers of what one process did with libgdrapi, or several in sum, as JSON. docs/trace.md describes the fields.
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::slice;

use nix::errno::Errno;
use serde_json::{Value, json};

use super::recorded::{
    CALLS, COPIES, MISUSES, PARTS, PINS, PROCESS, Recorded, SIZES, THREADS, TIMES, USES, function, sum,
};
use super::sites::Known;
use crate::measure::plan::Direction;

/// Pins that are listed, those with most copies.
const LISTED: usize = 10;

pub(crate) fn of(processes: &[Recorded], ns_per_tick: f64, known: &mut Known) -> Value {
    let mut pins = Vec::new();
    let mut misuse = Vec::new();
    let mut left = [0; 4];
    for process in processes {
        add_pins(process, &mut pins, &mut left, known);
        add_misuse(process, &mut misuse, known);
    }
    pins.sort_by_key(|pin| Reverse(pin["writes"].as_u64().unwrap_or(0) + pin["reads"].as_u64().unwrap_or(0)));
    pins.truncate(LISTED);
    let [left_pins, pinned_bytes, mappings, mapped_bytes] = left;
    let [_, _, _, threads, _, _, pins_left_out, pins_forgotten, misuse_left_out] = sum(processes, PROCESS, 0..1);
    let [_, _, _, ticks_of_calls] = sum(processes, CALLS, 0..CALLS.records);
    let [_, ticks_of_copies] = sum(processes, COPIES, 0..COPIES.records);
    let [_, _, _, _, failed_copies] = sum(processes, THREADS, 0..PARTS);
    json!({
        "seconds_inside": (ticks_of_calls + ticks_of_copies) as f64 * ns_per_tick / 1e9,
        "threads": threads,
        "calls": calls(processes, ns_per_tick),
        "copies": copies(processes, ns_per_tick),
        "failed_copies": failed_copies,
        "pins": successes(processes, ["gdr_pin_buffer", "gdr_pin_buffer_v2"]),
        "maps": successes(processes, ["gdr_map", "gdr_map_v2"]),
        "most_used": pins,
        "pins_left_out": pins_left_out + pins_forgotten,
        "left": {
            "pins": left_pins, "pinned_bytes": pinned_bytes, "mappings": mappings, "mapped_bytes": mapped_bytes,
            "incomplete": pins_left_out > 0, // There were too many at a time.
        },
        "misuse": misuse,
        "misuse_left_out": misuse_left_out,
    })
}

/// With one decimal.
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
                errno = format!("{:?}", Errno::from_raw(error as i32)).into();
            }
        }
        let mean = nanoseconds(ticks as f64 / count as f64, ns_per_tick);
        rows.push(json!({
            "function": function(number as u64), "count": count, "failed": failed, "errno": errno, "mean_ns": mean,
        }));
    }
    rows
}

/// Calls of two functions that succeeded.
fn successes(processes: &[Recorded], names: [&str; 2]) -> u64 {
    let mut successes = 0;
    for number in 0..CALLS.records {
        if names.contains(&&*function(number as u64)) {
            let [count, failed] = sum(processes, CALLS, number..number + 1);
            successes += count - failed;
        }
    }
    successes
}

/// A row for each direction and size.
fn copies(processes: &[Recorded], ns_per_tick: f64) -> Vec<Value> {
    let mut rows = Vec::new();
    for class in 0..2 * SIZES {
        let parts = (class..COPIES.records).step_by(2 * SIZES);
        let [bytes, ticks, times @ ..]: [u64; 2 + TIMES] = sum(processes, COPIES, parts);
        let count = times.iter().sum::<u64>();
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

/// The ticks that these percent of the copies take at most. They are counted by quarters of powers of two, from 8 on.
fn percentile(times: &[u64; TIMES], percent: u64) -> f64 {
    let rank = (times.iter().sum::<u64>() * percent).div_ceil(100).max(1);
    let mut bucket = 0;
    let mut counted = times[0];
    while counted < rank && bucket + 1 < TIMES {
        bucket += 1;
        counted += times[bucket];
    }
    (first_time(bucket) + first_time(bucket + 1) - 1) as f64 / 2.0
}

fn first_time(bucket: usize) -> u64 {
    match bucket {
        0..4 => bucket as u64,
        _ => (4 + bucket as u64 % 4) << (bucket / 4 - 1),
    }
}

/// Adds rows of pins, and pins, bytes, mappings, bytes that are left at the end.
fn add_pins(process: &Recorded, rows: &mut Vec<Value>, left: &mut [u64; 4], known: &mut Known) {
    let [pid] = process.record(PROCESS, 0);
    for number in 0..PINS.records {
        let [_, live, _, address, size, caller, list, pins, maps, _, mapped, mapping_type] =
            process.record(PINS, number);
        if pins == 0 {
            continue;
        }
        if live != 0 {
            left[0] += 1;
            left[1] += size;
            left[2] += u64::from(mapped > 0);
            left[3] += mapped;
        }
        let parts = (number..USES.records).step_by(PINS.records);
        let [writes, reads, written_bytes, read_bytes] = sum(slice::from_ref(process), USES, parts);
        let mapping_type = match mapping_type {
            _ if maps == 0 => "not mapped",
            1 => "WC",
            2 => "cached",
            3 => "device",
            _ => "unknown",
        };
        rows.push(json!({
            "pid": pid, "device_address": address, "size_bytes": size, "pinned_by": process.sites.name(caller, list, known),
            "mapping_type": mapping_type, "pins": pins, "maps": maps,
            "writes": writes, "written_bytes": written_bytes, "reads": reads, "read_bytes": read_bytes,
        }));
    }
}

fn add_misuse(process: &Recorded, rows: &mut Vec<Value>, known: &mut Known) {
    let [pid] = process.record(PROCESS, 0);
    for number in 0..MISUSES.records {
        let [key, list, count, offset, size, mapped] = process.record(MISUSES, number);
        if key == 0 {
            continue;
        }
        let call = match function(key >> 3 & 31).as_str() {
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
        let caller = process.sites.name(key >> 8, list, known);
        rows.push(json!({ "pid": pid, "caller": caller, "count": count, "what": format!("{call} {why}") }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters of arm64 may tick every 40 ns.
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
