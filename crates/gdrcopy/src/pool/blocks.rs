//! The allocation metadata of a chunk of GPU memory: which parts of it are in use, by device address.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use gdrcopy_core::types::GPU_PAGE_SIZE as PAGE;

/// The size of a cache line. Small buffers take whole lines, so that no two of them share a PCIe write or a
/// write-combining buffer of the CPU.
pub(super) const LINE: u64 = 64;
/// In a pool with an allocator, a buffer whose size or alignment in bytes is above this has a chunk of its own.
pub(super) const LARGE: u64 = 2 << 20;

/// A part of a chunk of GPU memory that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The device address of the block's first byte.
    pub(crate) start: u64,
    /// The size in bytes. It is a multiple of `LINE` if the block shares a page, and otherwise of the size of a page.
    pub(crate) len: u64,
}

/// The blocks of a chunk of GPU memory, which are the parts that are in use.
///
/// A block whose size and alignment are below those of a GPU page is inside one page, which it shares only with such
/// blocks. Other blocks are whole pages.
#[derive(Debug)]
pub(crate) struct Blocks {
    pages: FreeRanges,
    /// The free ranges in each shared page. The key is the device address of the page.
    shared: BTreeMap<u64, FreeRanges>,
    /// For each shared page, the size of its largest free range, and the page's address. Ordered by this size, so that
    /// pages without room are not searched.
    largest: BTreeSet<(u64, u64)>,
    /// The number of blocks in use.
    pub(super) count: usize,
    /// The total size of the blocks in use, in bytes.
    pub(super) used: u64,
}

impl Blocks {
    /// Returns the metadata of a range of whole pages in which no block is in use.
    pub(crate) fn new(range: Range<u64>) -> Blocks {
        assert!(range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE));
        Blocks { pages: FreeRanges::new(range), shared: BTreeMap::new(), largest: BTreeSet::new(), count: 0, used: 0 }
    }

    /// Takes a block of at least `len` bytes at a multiple of `align`, or returns `None` if there is no room. `len` is
    /// at least 1, and `align` is a power of two.
    pub(crate) fn take(&mut self, len: u64, align: u64) -> Option<Block> {
        let block = if len < PAGE && align < PAGE {
            let len = len.next_multiple_of(LINE);
            let start = self.take_lines(len, align.max(LINE))?;
            Block { start, len }
        } else {
            let len = len.checked_next_multiple_of(PAGE)?;
            let start = self.pages.take(len, align.max(PAGE))?;
            Block { start, len }
        };
        self.count += 1;
        self.used += block.len;
        Some(block)
    }

    fn take_lines(&mut self, len: u64, align: u64) -> Option<u64> {
        let mut pages = self.largest.range((len, 0)..).map(|&(_, page)| page);
        // Each of these pages has `len` free bytes in a row. The first page in which they can be aligned is taken.
        let page = match pages.find(|page| self.shared[page].find(len, align).is_some()) {
            Some(page) => page,
            None => {
                let page = self.pages.take(PAGE, PAGE)?;
                self.shared.insert(page, FreeRanges::new(page..page + PAGE));
                page
            }
        };
        self.change_page(page, |free| free.take(len, align))
    }

    /// Changes the free ranges of a shared page. If the whole page is free after that, it is no longer shared.
    fn change_page<T>(&mut self, page: u64, change: impl FnOnce(&mut FreeRanges) -> T) -> T {
        let free = self.shared.get_mut(&page).expect("a shared page");
        self.largest.remove(&(free.largest(), page));
        let result = change(free);
        if free.largest() == PAGE {
            self.shared.remove(&page);
            self.pages.give_back(page..page + PAGE);
        } else {
            self.largest.insert((free.largest(), page));
        }
        result
    }

    /// Gives back a block that [`Blocks::take`] returned.
    pub(crate) fn give_back(&mut self, block: Block) {
        self.count -= 1;
        self.used -= block.len;
        let page = block.start / PAGE * PAGE;
        let range = block.start..block.start + block.len;
        if self.shared.contains_key(&page) {
            self.change_page(page, |free| free.give_back(range));
        } else {
            self.pages.give_back(range);
        }
    }

    /// The number of free bytes, including those in shared pages.
    pub(super) fn free(&self) -> u64 {
        self.pages.bytes() + self.shared.values().map(FreeRanges::bytes).sum::<u64>()
    }

    /// Returns the size of the largest free range in bytes.
    pub(super) fn largest_free(&self) -> u64 {
        match self.largest.last() {
            Some(&(size, _)) => size.max(self.pages.largest()),
            None => self.pages.largest(),
        }
    }
}

/// The free parts of a range of addresses. No two of them touch.
#[derive(Debug)]
struct FreeRanges {
    /// The end of each free range, by its start.
    ends: BTreeMap<u64, u64>,
    /// The size and start of each free range in `ends`, ordered by size, so that ranges that are too small are not
    /// searched.
    sizes: BTreeSet<(u64, u64)>,
}

impl FreeRanges {
    fn new(range: Range<u64>) -> FreeRanges {
        let mut free = FreeRanges { ends: BTreeMap::new(), sizes: BTreeSet::new() };
        free.insert(range.start, range.end);
        free
    }

    fn insert(&mut self, start: u64, end: u64) {
        self.ends.insert(start, end);
        self.sizes.insert((end - start, start));
    }

    /// Removes the range that starts at `start`, and returns its end.
    fn remove(&mut self, start: u64) -> Option<u64> {
        let end = self.ends.remove(&start)?;
        self.sizes.remove(&(end - start, start));
        Some(end)
    }

    /// Finds the smallest range that has `len` bytes at a multiple of `align`, and returns its start and the start of
    /// these bytes.
    fn find(&self, len: u64, align: u64) -> Option<(u64, u64)> {
        let mut large_enough = self.sizes.range((len, 0)..);
        large_enough.find_map(|&(size, start)| {
            let at = start.checked_next_multiple_of(align)?;
            (at.checked_add(len)? <= start + size).then_some((start, at))
        })
    }

    /// Takes the bytes that [`FreeRanges::find`] finds, and returns their start.
    fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        let (start, at) = self.find(len, align)?;
        let end = self.remove(start)?;
        for (start, end) in [(start, at), (at + len, end)] {
            if start < end {
                self.insert(start, end);
            }
        }
        Some(at)
    }

    /// Adds a range, and joins it with the free ranges that it touches.
    fn give_back(&mut self, Range { mut start, mut end }: Range<u64>) {
        if let Some((&before, &before_end)) = self.ends.range(..end).next_back() {
            assert!(before_end <= start, "freed twice");
            if before_end == start {
                self.remove(before);
                start = before;
            }
        }
        if let Some(after_end) = self.remove(end) {
            end = after_end;
        }
        self.insert(start, end);
    }

    fn bytes(&self) -> u64 {
        self.ends.iter().map(|(start, end)| end - start).sum()
    }

    fn largest(&self) -> u64 {
        self.sizes.last().map_or(0, |(size, _)| *size)
    }
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;

    use super::*;
    use crate::testing::cases;

    const PAGES: u64 = 12;
    /// The start is aligned to a page and to nothing larger, so that an address and its offset from the start can have
    /// different alignments.
    const START: u64 = 0x7f00_0000_0000 + PAGE;

    fn len() -> impl Strategy<Value = u64> {
        prop_oneof![
            3 => 1..1024_u64,
            2 => 1..PAGE + 2,
            1 => 1..PAGES * PAGE + PAGE,
            1 => Just(u64::MAX),
        ]
    }

    /// Returns the steps of a test: `Ok` takes a block of this length and alignment, and `Err` frees the block that
    /// this number selects.
    fn step() -> impl Strategy<Value = Result<(u64, u64), usize>> {
        prop_oneof![
            3 => (len(), (0..20_u32).prop_map(|bits| 1_u64 << bits)).prop_map(Ok),
            2 => any::<usize>().prop_map(Err),
        ]
    }

    /// Returns whether, from some multiple of `align` on, `count` pages in a row have no block in use.
    fn has_pages(taken: &[Block], count: u64, align: u64) -> bool {
        let used: BTreeSet<u64> = taken.iter().flat_map(pages).collect();
        let pages = (0..PAGES).map(|i| START / PAGE + i);
        let mut starts = pages.filter(|page| (page * PAGE).is_multiple_of(align));
        starts.any(|first| {
            let end = first.saturating_add(count);
            end <= START / PAGE + PAGES && (first..end).all(|page| !used.contains(&page))
        })
    }

    fn pages(block: &Block) -> std::ops::RangeInclusive<u64> {
        block.start / PAGE..=(block.start + block.len - 1) / PAGE
    }

    proptest! {
        #![proptest_config(cases(256, 2))]

        #[test]
        fn blocks_are_apart_and_aligned_and_come_back_whole(steps in prop::collection::vec(step(), 1..200)) {
            let mut blocks = Blocks::new(START..START + PAGES * PAGE);
            let mut taken: Vec<Block> = Vec::new();
            for step in steps {
                match step {
                    Ok((len, align)) => {
                        let is_small = len < PAGE && align < PAGE;
                        let needed = if is_small { 1 } else { len.div_ceil(PAGE) };
                        let has_room = has_pages(&taken, needed, align);
                        let Some(block) = blocks.take(len, align) else {
                            prop_assert!(!has_room, "{} at {} refused", len, align);
                            continue;
                        };
                        prop_assert!(has_room || is_small, "{} at {} granted", len, align);
                        prop_assert!(block.start >= START && block.len >= len);
                        prop_assert!(block.start + block.len <= START + PAGES * PAGE);
                        prop_assert!(block.start.is_multiple_of(align.max(LINE)));
                        prop_assert_eq!(pages(&block).count() == 1, needed == 1);
                        for other in &taken {
                            let apart = block.start + block.len <= other.start
                                || other.start + other.len <= block.start;
                            prop_assert!(apart, "{:?} overlaps {:?}", block, other);
                            let share = pages(other).any(|page| pages(&block).contains(&page));
                            prop_assert!(!share || is_small && other.len < PAGE, "{:?} {:?}", block, other);
                        }
                        taken.push(block);
                    }
                    Err(_) if taken.is_empty() => {}
                    Err(index) => {
                        let block = taken.swap_remove(index % taken.len());
                        blocks.give_back(block);
                    }
                }
                let used: u64 = taken.iter().map(|block| block.len).sum();
                prop_assert_eq!((blocks.count, blocks.used), (taken.len(), used));
                prop_assert_eq!(blocks.free() + used, PAGES * PAGE);
                prop_assert!(blocks.largest_free() <= blocks.free());
                let pages = blocks.shared.iter().map(|(page, free)| (free.largest(), *page));
                prop_assert_eq!(&blocks.largest, &pages.collect());
            }
            for block in taken {
                blocks.give_back(block);
            }
            prop_assert_eq!(blocks.largest_free(), PAGES * PAGE);
            prop_assert_eq!(blocks.pages.ends.len(), 1);
            prop_assert!(blocks.shared.is_empty());
        }
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn block_given_back_twice_is_noticed() {
        let mut blocks = Blocks::new(START..START + PAGES * PAGE);
        let [block, _, _] = [(); 3].map(|()| blocks.take(PAGE, 1).expect("room"));
        blocks.give_back(block);
        blocks.give_back(block);
    }
}
