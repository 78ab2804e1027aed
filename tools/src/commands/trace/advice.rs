//! Advice that the numbers of a run support.
#![forbid(unsafe_code)]

use gdrcopy_trace_tables::Function;

use super::summary::Summary;
use crate::measure::plan::Direction;
use crate::output::svg::quantity;

/// Reads from this size on are faster by CUDA on most computers (docs/performance.md).
const LARGE: u64 = 8192;
/// The mean speed of large reads from which on CUDA is hardly faster.
const FAST: f64 = 2e9;
/// The fewest of something that are worth a change.
const MANY: u64 = 100;
/// The fewest pins of the same range that are, and the fewest large reads.
const SEVERAL: u64 = 10;

/// One line each.
pub(crate) fn of(summary: &Summary) -> Vec<String> {
    let mut advice = Vec::new();
    let is_large_read = |size: u64, direction| direction == Direction::Read && size >= LARGE;
    let large = summary.copies.iter().filter(|it| is_large_read(it.size_bytes, it.direction));
    let (count, bytes, seconds) = large.fold((0, 0.0, 0.0), |(count, bytes, seconds), it| {
        (count + it.count, bytes + it.bytes as f64, seconds + it.seconds)
    });
    // All reads of cached mappings may be large ones.
    if count >= SEVERAL + summary.cached_reads && bytes / seconds < FAST {
        advice.push(format!(
            "{count} reads of 8 KiB and more, at {} on average: cuMemcpy is faster",
            quantity(bytes / seconds, "B/s")
        ));
    }
    if let Some((rows, pinned_by)) = summary.in_rows.iter().max_by_key(|row| row.0)
        && *rows >= MANY
    {
        advice.push(format!(
            "{rows} writes of at most 64 bytes began where the one before ended, in the buffer pinned by {pinned_by}: \
             gather them in host memory, and copy once"
        ));
    }
    if let Some((again, pinned_by)) = summary.again.iter().max_by_key(|again| again.0)
        && *again >= SEVERAL
    {
        advice.push(format!("{pinned_by} pinned the same range {} times: keep the pin", again + 1));
    }
    let infos = [Function::GetInfo, Function::GetInfoV2].map(|info| summary.calls_of(info));
    let infos: u64 = infos.iter().flatten().map(|calls| calls.count.saturating_sub(calls.failed)).sum();
    if infos >= MANY.max(10 * summary.pins) {
        let caller = summary.info_caller.as_deref().unwrap_or("?");
        advice.push(format!(
            "{infos} calls of gdr_get_info for {} pins, the last from {caller}: what it returns changes only when \
             the pin is mapped or unmapped",
            summary.pins
        ));
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::super::summary::{Calls, Copies};
    use super::*;

    fn reads(bytes_per_second: f64, cached_reads: u64) -> Summary {
        let (count, bytes) = (10, 163_840);
        let seconds = bytes as f64 / bytes_per_second;
        let direction = Direction::Read;
        let copies =
            Copies { direction, size_bytes: 16384, count, bytes, p50_ns: 1.0, p99_ns: 1.0, seconds, bytes_per_second };
        Summary { copies: vec![copies], cached_reads, ..Summary::default() }
    }

    #[test]
    fn only_slow_reads_are_to_be_made_otherwise() {
        let slow = reads(3e7, 0);
        assert!(of(&slow)[0].ends_with("cuMemcpy is faster"));
        assert_eq!(of(&reads(5e9, 0)), [""; 0]);
        assert_eq!(of(&reads(3e7, 10)), [""; 0]);
    }

    #[test]
    fn infos_that_failed_are_no_loop() {
        let infos = |failed| {
            let function = gdrcopy_trace_tables::FUNCTIONS[Function::GetInfo as usize];
            let calls = vec![Calls { function, count: 200, failed, ..Calls::default() }];
            of(&Summary { pins: 1, calls, ..Summary::default() }).len()
        };
        assert_eq!([infos(0), infos(150)], [1, 0]);
    }
}
