//! A set of free ranges of addresses or physical offsets. The first range that fits is allocated.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

/// The lengths of free ranges by their starts. Adjacent ranges are always merged.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    free: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Makes `[start, start + len)` free. It must not be free already.
    pub(super) fn give(&mut self, mut start: u64, mut len: u64) {
        if let Some((&before, &before_len)) = self.free.range(..start).next_back()
            && before + before_len == start
        {
            self.free.remove(&before);
            start = before;
            len += before_len;
        }
        if let Some(after_len) = self.free.remove(&(start + len)) {
            len += after_len;
        }
        self.free.insert(start, len);
    }

    /// Takes the lowest free range of `len` that starts at a multiple of `align`.
    pub(super) fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        for (start, free) in &self.free {
            let aligned = start.checked_next_multiple_of(align)?;
            if len <= *free && aligned - start <= free - len {
                self.take_at(aligned, len);
                return Some(aligned);
            }
        }
        None
    }

    /// Takes exactly `[start, start + len)`, or nothing if not all of it is free.
    pub(super) fn take_at(&mut self, start: u64, len: u64) -> bool {
        let Some((&from, &free)) = self.free.range(..=start).next_back() else {
            return false;
        };
        let head = start - from;
        if len > free || head > free - len {
            return false;
        }
        self.free.remove(&from);
        let tail = free - head - len;
        if head > 0 {
            self.free.insert(from, head);
        }
        if tail > 0 {
            self.free.insert(start + len, tail);
        }
        true
    }

    pub(super) fn total(&self) -> u64 {
        self.free.values().sum()
    }
}
