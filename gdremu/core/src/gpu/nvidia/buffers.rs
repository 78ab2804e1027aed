//! cuMemAlloc'ed buffers in blocks of exportable memory: small ones share a block, as CUDA lays
//! them out, so that they start anywhere in a GPU page; each larger one has a block of its own.
//!
//! Bookkeeping only: the blocks are made and freed elsewhere.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use crate::gpu::arena::Arena;
use crate::gpu::memory::GPU_PAGE;

/// Buffers up to this size share a block with others.
const SMALL: u64 = 1 << 20;

/// The least size of a block.
const BLOCK: u64 = 2 << 20;

/// All buffers of this process.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// By start.
    blocks: BTreeMap<u64, Block>,
    /// Bytes that the program asked for, by start.
    live: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Block {
    gpu: i32,
    len: u64,
    /// Where small buffers are in it; `None` for a block of one buffer.
    arena: Option<Arena>,
}

/// The result of a free.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Freed {
    /// GPU pages that no live buffer has a byte in any more: start and end.
    pub(super) pages: Option<(u64, u64)>,
    /// The block, if it is empty now: start and length.
    pub(super) block: Option<(u64, u64)>,
}

impl Buffers {
    /// Takes room for a buffer in a block that is there, and returns its address. `None`: a block
    /// of [`Buffers::block_len`] bytes is needed first. Memory of which `pinned(start, len)` holds
    /// since before it was freed is not touched: a mapping still shows it.
    pub(super) fn take(
        &mut self,
        gpu: i32,
        len: u64,
        pinned: impl Fn(u64, u64) -> bool,
    ) -> Option<u64> {
        if len > SMALL {
            return None;
        }
        let mut blocks = self.blocks.iter_mut().filter(|(_, b)| b.gpu == gpu);
        let va = blocks.find_map(|(&base, block)| {
            let arena = block.arena.as_mut()?;
            arena.reap(|offset, len| pinned(base + offset, len));
            arena.take(len).map(|offset| base + offset)
        })?;
        self.live.insert(va, len);
        Some(va)
    }

    /// How large a new block for a buffer is, at least.
    pub(super) fn block_len(len: u64) -> u64 {
        if len > SMALL { len } else { BLOCK }
    }

    /// Adds a block and takes room in it for the buffer that it was made for.
    pub(super) fn add_block(&mut self, gpu: i32, base: u64, block_len: u64, len: u64) -> u64 {
        let arena = (len <= SMALL).then(|| {
            let mut arena = Arena::new(block_len);
            arena.take(len).expect("a block has room for its buffer");
            arena
        });
        let block = Block { gpu, len: block_len, arena };
        self.blocks.insert(base, block);
        self.live.insert(base, len);
        base
    }

    /// Frees the buffer that starts at `va`; `None` if none does. `pinned` as above.
    pub(super) fn free(&mut self, va: u64, pinned: impl Fn(u64, u64) -> bool) -> Option<Freed> {
        let len = self.live.remove(&va)?;
        let (&base, block) = self.blocks.range_mut(..=va).next_back()?;
        if let Some(arena) = &mut block.arena {
            arena.give(va - base, pinned(va, len));
        }
        let (start, end) = (base, base + block.len);
        let pages = self.dead_pages(va, va + len);
        let mut block = None;
        if self.live.range(start..end).next().is_none() {
            self.blocks.remove(&start);
            block = Some((start, end - start));
        }
        Some(Freed { pages, block })
    }

    /// The buffer that an address lies in: start and length.
    pub(super) fn find(&self, va: u64) -> Option<(u64, u64)> {
        let (&start, &len) = self.live.range(..=va).next_back()?;
        (va - start < len).then_some((start, len))
    }

    /// The GPU of the buffer that starts at an address.
    pub(super) fn gpu_of(&self, va: u64) -> Option<i32> {
        self.live.get(&va)?;
        self.blocks.range(..=va).next_back().map(|(_, b)| b.gpu)
    }

    /// Whether a GPU page of a block has no byte of a live buffer in it.
    pub(super) fn is_dead(&self, page: u64) -> bool {
        let block = self.blocks.range(..=page).next_back();
        block.is_some_and(|(base, block)| page - base < block.len)
            && !self.is_live(page, page + GPU_PAGE)
    }

    /// Whether any live buffer has a byte in `[start, end)`.
    fn is_live(&self, start: u64, end: u64) -> bool {
        self.live.range(start..end).next().is_some() || self.find(start).is_some()
    }

    /// The pages of a freed range without live bytes. Only the first and the last can be shared.
    fn dead_pages(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let mut first = start / GPU_PAGE * GPU_PAGE;
        let mut last = end.next_multiple_of(GPU_PAGE);
        if self.is_live(first, first + GPU_PAGE) {
            first += GPU_PAGE;
        }
        if first < last && self.is_live(last - GPU_PAGE, last) {
            last -= GPU_PAGE;
        }
        (first < last).then_some((first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x7f00_0000_0000;

    /// Allocates on GPU 0 with blocks side by side from BASE on.
    fn alloc(buffers: &mut Buffers, len: u64) -> u64 {
        buffers.take(0, len, |_, _| false).unwrap_or_else(|| {
            let base =
                buffers.blocks.last_key_value().map_or(BASE, |(base, block)| base + block.len);
            let block_len = Buffers::block_len(len).next_multiple_of(BLOCK);
            buffers.add_block(0, base, block_len, len)
        })
    }

    #[test]
    fn small_buffers_share_a_block_and_large_ones_do_not() {
        let mut buffers = Buffers::default();
        assert_eq!(alloc(&mut buffers, 1), BASE);
        assert_eq!(alloc(&mut buffers, 1), BASE + 512);
        assert_eq!(alloc(&mut buffers, SMALL + 1), BASE + BLOCK);
        assert_eq!(alloc(&mut buffers, 1), BASE + 1024);
        assert_eq!(buffers.take(1, 1, |_, _| false), None, "another GPU's");
    }

    #[test]
    fn a_buffer_is_found_by_the_bytes_that_were_asked_for() {
        let mut buffers = Buffers::default();
        let va = alloc(&mut buffers, 1000);
        assert_eq!(buffers.find(va + 999), Some((va, 1000)));
        assert_eq!(buffers.find(va + 1000), None);
        assert_eq!(buffers.find(va - 1), None);
    }

    #[test]
    fn a_block_goes_with_its_last_buffer() {
        let mut buffers = Buffers::default();
        let (a, b) = (alloc(&mut buffers, 512), alloc(&mut buffers, 512));
        assert_eq!(buffers.free(a, |_, _| false).unwrap(), Freed { pages: None, block: None });
        assert_eq!(
            buffers.free(b, |_, _| false).unwrap(),
            Freed { pages: Some((BASE, BASE + GPU_PAGE)), block: Some((BASE, BLOCK)) }
        );
        assert_eq!(buffers.free(b, |_, _| false), None);
        let large = alloc(&mut buffers, BLOCK + 1);
        assert_eq!(buffers.free(large + 512, |_, _| false), None);
        let freed = buffers.free(large, |_, _| false).unwrap();
        assert_eq!(freed.block, Some((large, 2 * BLOCK)));
    }

    #[test]
    fn pages_die_with_the_last_byte_in_them() {
        let mut buffers = Buffers::default();
        let first = alloc(&mut buffers, GPU_PAGE / 2);
        let middle = alloc(&mut buffers, 2 * GPU_PAGE);
        let last = alloc(&mut buffers, GPU_PAGE);
        let freed = buffers.free(middle, |_, _| false).unwrap();
        assert_eq!(freed.pages, Some((BASE + GPU_PAGE, BASE + 2 * GPU_PAGE)));
        assert!(buffers.is_dead(BASE + GPU_PAGE));
        assert!(!buffers.is_dead(BASE));
        assert!(!buffers.is_dead(BASE + 2 * GPU_PAGE));
        assert!(!buffers.is_dead(BASE - GPU_PAGE), "not ours to judge");
        let freed = buffers.free(first, |_, _| false).unwrap();
        assert_eq!(freed.pages, Some((BASE, BASE + GPU_PAGE)));
        assert!(buffers.free(last, |_, _| false).unwrap().block.is_some());
    }

    #[test]
    fn memory_freed_while_pinned_is_not_given_out_again() {
        let mut buffers = Buffers::default();
        let a = alloc(&mut buffers, 512);
        let _keeps_the_block = alloc(&mut buffers, 512);
        buffers.free(a, |start, len| (start, len) == (a, 512));
        assert_ne!(buffers.take(0, 512, |start, _| start == a), Some(a));
        assert_eq!(buffers.take(0, 512, |_, _| false), Some(a));
    }
}
