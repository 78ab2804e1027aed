//! The address ranges at which GPU memory is mapped. They change as Linux's VMAs (virtual memory areas) do: munmap of a
//! part splits a range, and mremap makes a new range.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use crate::session::Identity;

/// The device or dma-buf that is mapped at a range of addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) file: Identity,
    /// `None` for a mapping of a dma-buf.
    pub(super) pin: Option<MappedPin>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MappedPin {
    pub(super) handle: u64,
    /// The number of the mmap call that mapped this range.
    pub(super) origin: u64,
}

/// The mapped ranges: for each start address, the length and the mapped memory.
#[derive(Default)]
pub struct Vmas(BTreeMap<usize, (usize, Shown)>);

impl Vmas {
    pub(super) fn insert(&mut self, addr: usize, len: usize, shown: Shown) {
        self.0.insert(addr, (len, shown));
    }

    pub fn touches(&self, addr: usize, len: usize) -> bool {
        self.overlapping(addr, len).next().is_some()
    }

    /// Removes a range from all entries. Returns the removed part of each entry as address, length and mapped memory.
    pub(super) fn remove(&mut self, addr: usize, len: usize) -> Vec<(usize, usize, Shown)> {
        let hit: Vec<_> = self.overlapping(addr, len).collect();
        let end = addr.saturating_add(len);
        let mut gone = Vec::new();
        for (start, len, shown) in hit {
            self.0.remove(&start);
            let last = start + len;
            if start < addr {
                self.insert(start, addr - start, shown);
            }
            if end < last {
                self.insert(end, last - end, shown);
            }
            let from = start.max(addr);
            gone.push((from, end.min(last) - from, shown));
        }
        gone
    }

    /// Returns whether the file, an open device or a dma-buf, is mapped anywhere. A mapping counts even if its pages
    /// were removed because the GPU memory was unpinned or freed.
    pub fn shows(&self, file: Identity) -> bool {
        self.0.values().any(|(_, shown)| shown.file == file)
    }

    pub fn bounds(&self) -> Option<(usize, usize)> {
        let first = self.0.first_key_value()?;
        let last = self.0.last_key_value()?;
        Some((*first.0, last.0 + last.1.0))
    }

    fn overlapping(&self, addr: usize, len: usize) -> impl Iterator<Item = (usize, usize, Shown)> {
        let end = addr.saturating_add(len).max(addr);
        let first = match self.0.range(..addr).next_back() {
            Some((start, (len, _))) if start + len > addr => *start,
            _ => addr,
        };
        self.0.range(first..end).map(|(start, (len, shown))| (*start, *len, *shown))
    }
}
