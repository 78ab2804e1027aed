//! Numbers of what one process did with libgdrapi, or several in sum, as JSON. docs/trace.md describes the fields.
#![forbid(unsafe_code)]

use std::cmp::Reverse;

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
    let mut ticks_inside = 0;
    let mut pinned = 0;
    let mut mapped = 0;
    let mut calls = Vec::new();
    for number in 0..CALLS.records {
        let row = calls_of(processes, number, ns_per_tick, &mut ticks_inside);
        let succeeded = row["count"].as_u64().unwrap_or(0) - row["failed"].as_u64().unwrap_or(0);
        match row["function"].as_str() {
            Some("gdr_pin_buffer" | "gdr_pin_buffer_v2") => pinned += succeeded,
            Some("gdr_map" | "gdr_map_v2") => mapped += succeeded,
            _ => {}
        }
        if row["count"] != 0 {
            calls.push(row);
        }
    }
    let mut copies = Vec::new();
    for class in 0..2 * SIZES {
        let row = copies_of(processes, class, ns_per_tick, &mut ticks_inside);
        if row["count"] != 0 {
            copies.push(row);
        }
    }
    let mut pins = Vec::new();
    let mut misuse = Vec::new();
    for process in processes {
        add_pins(process, &mut pins, known);
        add_misuse(process, &mut misuse, known);
    }
    pins.sort_by_key(|pin| Reverse(pin["writes"].as_u64().unwrap_or(0) + pin["reads"].as_u64().unwrap_or(0)));
    pins.truncate(LISTED);
    json!({
        "seconds_inside": ticks_inside as f64 * ns_per_tick / 1e9,
        "threads": sum(processes, PROCESS, 4),
        "calls": calls,
        "copies": copies,
        "failed_copies": sum(processes, THREADS, 4),
        "pins": pinned,
        "maps": mapped,
        "most_used": pins,
        "pins_left_out": sum(processes, PROCESS, 7) + sum(processes, PROCESS, 8),
        "left": left(processes),
        "misuse": misuse,
        "misuse_left_out": sum(processes, PROCESS, 9),
    })
}

/// With one decimal.
fn nanoseconds(ticks: f64, ns_per_tick: f64) -> f64 {
    (ticks * ns_per_tick * 10.0).round() / 10.0
}

fn calls_of(processes: &[Recorded], number: usize, ns_per_tick: f64, ticks_inside: &mut u64) -> Value {
    let mut sums = [0; 4];
    let mut errno = Value::Null;
    for process in processes {
        let [_, _, error, _] = add(&mut sums, process.record(CALLS, number));
        if error != 0 {
            errno = format!("{:?}", Errno::from_raw(error as i32)).into();
        }
    }
    let [count, failed, _, ticks] = sums;
    *ticks_inside += ticks;
    let mean = nanoseconds(ticks as f64 / count.max(1) as f64, ns_per_tick);
    json!({ "function": function(number as u64), "count": count, "failed": failed, "errno": errno, "mean_ns": mean })
}

/// Adds numbers to sums, and returns them.
fn add<const N: usize>(sums: &mut [u64; N], numbers: [u64; N]) -> [u64; N] {
    for (sum, number) in sums.iter_mut().zip(numbers) {
        *sum += number;
    }
    numbers
}

/// The copies of a direction and size.
fn copies_of(processes: &[Recorded], class: usize, ns_per_tick: f64, ticks_inside: &mut u64) -> Value {
    let mut sums = [0; 2 + TIMES];
    for process in processes {
        for part in 0..PARTS {
            add(&mut sums, process.record(COPIES, part * 2 * SIZES + class));
        }
    }
    let [bytes, ticks, times @ ..] = sums;
    let seconds = ticks as f64 * ns_per_tick / 1e9;
    *ticks_inside += ticks;
    json!({
        "direction": Direction::BOTH[class / SIZES].name(),
        "size_bytes": 1u64 << (class % SIZES) >> 1,
        "count": times.iter().sum::<u64>(),
        "bytes": bytes,
        "p50_ns": nanoseconds(percentile(&times, 50), ns_per_tick),
        "p99_ns": nanoseconds(percentile(&times, 99), ns_per_tick),
        "seconds": seconds,
        "bytes_per_second": (bytes as f64 / seconds.max(1e-9)).round(),
    })
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

fn add_pins(process: &Recorded, rows: &mut Vec<Value>, known: &mut Known) {
    let [pid] = process.record(PROCESS, 0);
    for number in 0..PINS.records {
        let [_, _, _, address, size, caller, list, pins, maps, _, _, mapping_type] = process.record(PINS, number);
        if pins == 0 {
            continue;
        }
        let mut sums = [0; 4];
        for part in 0..PARTS {
            add(&mut sums, process.record(USES, part * PINS.records + number));
        }
        let [writes, reads, written_bytes, read_bytes] = sums;
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

/// Pins and mappings at the end. They are incomplete if there were too many at a time.
fn left(processes: &[Recorded]) -> Value {
    let mut sums = [0; 4];
    for process in processes {
        for number in 0..PINS.records {
            let [_, live, _, _, size, _, _, _, _, _, mapped] = process.record(PINS, number);
            if live != 0 {
                add(&mut sums, [1, size, u64::from(mapped > 0), mapped]);
            }
        }
    }
    let [pins, pinned_bytes, mappings, mapped_bytes] = sums;
    let incomplete = sum(processes, PROCESS, 7) > 0;
    json!({
        "pins": pins, "pinned_bytes": pinned_bytes, "mappings": mappings, "mapped_bytes": mapped_bytes, "incomplete": incomplete,
    })
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
