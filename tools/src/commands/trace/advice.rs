//! Advice that the numbers of a run support.
#![forbid(unsafe_code)]

use gdrcopy_trace_tables::Function;

use super::summary::Summary;
use crate::measure::plan::Direction;
use crate::output::svg::quantity;

/// Reads from this size on are faster by CUDA on most computers (docs/performance.md).
const LARGE: u64 = 8192;
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
    if count >= SEVERAL {
        advice.push(format!(
            "{count} reads of 8 KiB and more, at {} on average: cuMemcpy is faster, as is this project's library with \
             GDRCOPY_DMA_READ set",
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
    let infos: u64 = infos.iter().flatten().map(|calls| calls.count).sum();
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
