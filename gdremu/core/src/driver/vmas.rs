//! Address ranges that map GPU memory, as the kernel's memory management keeps them. A partial munmap splits
//! them, and a move makes a new one.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

/// Ranges by address, with what each of them shows.
pub(super) struct Vmas<T>(BTreeMap<usize, (usize, T)>);

impl<T> Default for Vmas<T> {
    fn default() -> Self {
        Vmas(BTreeMap::new())
    }
}

impl<T: Copy> Vmas<T> {
    pub(super) fn insert(&mut self, addr: usize, len: usize, shown: T) {
        self.0.insert(addr, (len, shown));
    }

    /// Returns whether any address of a range is mapped.
    pub(super) fn touches(&self, addr: usize, len: usize) -> bool {
        self.overlapping(addr, len).next().is_some()
    }

    /// Takes a range away; what lies beside it stays. Returns the part that was hit of each, with address,
    /// length and the memory that it shows.
    pub(super) fn remove(&mut self, addr: usize, len: usize) -> Vec<(usize, usize, T)> {
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

    /// A range was moved to another address. Returns the parts that were, as [`Vmas::remove`] does.
    pub(super) fn relocate(&mut self, from: usize, len: usize, to: usize) -> Vec<(usize, usize, T)> {
        let moved = self.remove(from, len);
        for (addr, len, shown) in &moved {
            self.insert(to + (addr - from), *len, *shown);
        }
        moved
    }

    /// The memory that all of them show.
    pub(super) fn shown(&self) -> impl Iterator<Item = &T> {
        self.0.values().map(|(_, shown)| shown)
    }

    /// The lowest address and the end of the highest.
    pub(super) fn bounds(&self) -> Option<(usize, usize)> {
        let (first, _) = self.0.first_key_value()?;
        let (last, (len, _)) = self.0.last_key_value()?;
        Some((*first, last + len))
    }

    fn overlapping(&self, addr: usize, len: usize) -> impl Iterator<Item = (usize, usize, T)> {
        let end = addr.saturating_add(len);
        let before = self.0.range(..addr).next_back().filter(|(start, (len, _))| *start + len > addr);
        let within = self.0.range(addr..end.max(addr));
        before.into_iter().chain(within).map(|(start, (len, shown))| (*start, *len, *shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranges side by side at 0x1000 and 0x3000, and one apart at 0x6000.
    fn vmas() -> Vmas<char> {
        let mut vmas = Vmas::default();
        for (addr, len, shown) in [(0x1000, 0x2000, 'a'), (0x3000, 0x2000, 'b'), (0x6000, 0x1000, 'c')] {
            vmas.insert(addr, len, shown);
        }
        vmas
    }

    #[test]
    fn what_lies_beside_a_removed_range_stays() {
        type Parts = &'static [(usize, usize, char)];
        let both: Parts = &[(0x2000, 0x1000, 'a'), (0x3000, 0x1000, 'b')];
        let outer: Parts = &[(0x1000, 0x1000, 'a'), (0x4000, 0x1000, 'b'), (0x6000, 0x1000, 'c')];
        let middle: Parts = &[(0x1800, 0x400, 'a')];
        let split: Parts = &[(0x1000, 0x800, 'a'), (0x1c00, 0x1400, 'a'), (0x3000, 0x2000, 'b'), (0x6000, 0x1000, 'c')];
        let all: Parts = &[(0x1000, 0x2000, 'a'), (0x3000, 0x2000, 'b'), (0x6000, 0x1000, 'c')];
        for (addr, len, gone, left) in [
            (0x2000, 0x2000, both, outer),
            (0x1800, 0x400, middle, split),
            (0, 0x3000, &all[..1], &all[1..]),
            (0x5000, 0x1000, &[], all),
        ] {
            let mut vmas = vmas();
            assert_eq!(vmas.touches(addr, len), !gone.is_empty());
            assert_eq!(vmas.remove(addr, len), gone);
            assert_eq!(vmas.overlapping(0, usize::MAX).collect::<Vec<_>>(), left);
        }
    }
}
