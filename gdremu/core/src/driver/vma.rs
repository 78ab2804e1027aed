//! The address ranges that map pinned memory, as the kernel's memory management keeps them: a
//! partial munmap splits them, and a move makes a new one.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::FileId;

/// A range of addresses that shows a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vma {
    pub(super) len: usize,
    pub(super) file: FileId,
    pub(super) handle: u64,
    /// Which mmap it comes from, whatever became of its parts.
    pub(super) origin: u64,
}

/// All of them by address.
#[derive(Debug, Default)]
pub(super) struct Vmas(BTreeMap<usize, Vma>);

impl Vmas {
    pub(super) fn insert(&mut self, addr: usize, vma: Vma) {
        self.0.insert(addr, vma);
    }

    /// Whether any address of the range belongs to one.
    pub(super) fn touches(&self, addr: usize, len: usize) -> bool {
        self.overlapping(addr, len).next().is_some()
    }

    /// Takes the range away; what lies beside it stays. Returns the part that was hit of each.
    pub(super) fn remove(&mut self, addr: usize, len: usize) -> Vec<(usize, Vma)> {
        let hit: Vec<_> = self.overlapping(addr, len).collect();
        let end = addr.saturating_add(len);
        let mut gone = Vec::new();
        for (start, vma) in hit {
            self.0.remove(&start);
            let vma_end = start + vma.len;
            if start < addr {
                self.insert(start, Vma { len: addr - start, ..vma });
            }
            if end < vma_end {
                self.insert(end, Vma { len: vma_end - end, ..vma });
            }
            let from = start.max(addr);
            gone.push((from, Vma { len: end.min(vma_end) - from, ..vma }));
        }
        gone
    }

    pub(super) fn of_file(&self, file: FileId) -> usize {
        self.0.values().filter(|vma| vma.file == file).count()
    }

    /// The lowest address and the end of the highest.
    pub(super) fn bounds(&self) -> Option<(usize, usize)> {
        let (first, _) = self.0.first_key_value()?;
        let (last, vma) = self.0.last_key_value()?;
        Some((*first, last + vma.len))
    }

    fn overlapping(&self, addr: usize, len: usize) -> impl Iterator<Item = (usize, Vma)> {
        let end = addr.saturating_add(len);
        let before =
            self.0.range(..addr).next_back().filter(|(start, vma)| *start + vma.len > addr);
        let within = self.0.range(addr..end.max(addr));
        before.into_iter().chain(within).map(|(start, vma)| (*start, *vma))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vma(len: usize) -> Vma {
        Vma { len, file: FileId(1), handle: 0, origin: 0 }
    }

    fn ranges(vmas: &Vmas) -> Vec<(usize, usize)> {
        vmas.0.iter().map(|(start, vma)| (*start, vma.len)).collect()
    }

    #[test]
    fn head_middle_and_tail_are_cut_off() {
        for (cut, left) in [
            ((0x1000, 0x1000), vec![(0x2000, 0x3000)]),
            ((0x2000, 0x1000), vec![(0x1000, 0x1000), (0x3000, 0x2000)]),
            ((0x4000, 0x1000), vec![(0x1000, 0x3000)]),
            ((0x0, 0x10000), vec![]),
        ] {
            let mut vmas = Vmas::default();
            vmas.insert(0x1000, vma(0x4000));
            assert_eq!(vmas.remove(cut.0, cut.1).len(), 1);
            assert_eq!(ranges(&vmas), left);
        }
    }

    #[test]
    fn adjacent_mappings_are_unchanged() {
        let mut vmas = Vmas::default();
        vmas.insert(0x1000, vma(0x1000));
        vmas.insert(0x3000, vma(0x1000));
        assert!(!vmas.touches(0x2000, 0x1000));
        assert!(vmas.touches(0x2000, 0x1001));
        assert!(vmas.touches(0x1fff, 1));
        assert_eq!(vmas.remove(0x2000, 0x1000), []);
        assert_eq!(vmas.bounds(), Some((0x1000, 0x4000)));
    }

    #[test]
    fn one_cut_through_two() {
        let mut vmas = Vmas::default();
        vmas.insert(0x1000, vma(0x2000));
        vmas.insert(0x3000, vma(0x2000));
        let gone = vmas.remove(0x2000, 0x2000);
        assert_eq!(
            gone.iter().map(|(a, v)| (*a, v.len)).collect::<Vec<_>>(),
            [(0x2000, 0x1000), (0x3000, 0x1000)]
        );
        assert_eq!(ranges(&vmas), [(0x1000, 0x1000), (0x4000, 0x1000)]);
    }
}
