//! cuMemAlloc'ed buffers in blocks of memory, as the CUDA driver lays them out. Small ones share a block, so that
//! they start anywhere in a GPU page. Each larger one has a block of its own.
//!
//! Bookkeeping only. The blocks are made and freed elsewhere.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::physical::GPU_PAGE;
use super::ranges::Ranges;

/// Every small buffer starts at a multiple of this.
const ALIGN: u64 = 512;

/// Buffers up to this size share a block with others.
const SMALL: u64 = 1 << 20;

/// A buffer, with the bytes that the program asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer {
    pub(super) start: u64,
    pub(super) len: u64,
    /// Different for every buffer.
    pub(super) id: u64,
}

/// All buffers of this process. Those of one `Kind` may share a block.
#[derive(Clone, Debug)]
pub(super) struct Buffers<Kind> {
    /// By start.
    blocks: BTreeMap<u64, Block<Kind>>,
    /// By start.
    live: BTreeMap<u64, Buffer>,
}

#[derive(Clone, Debug)]
struct Block<Kind> {
    kind: Kind,
    len: u64,
    /// Room for small buffers.
    free: Ranges,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Freed {
    /// The block that is empty now, as start and length.
    Block(u64, u64),
    /// Start and length of the GPU pages that no live buffer has a byte in any more, maybe none.
    Part(u64, u64),
}

impl<Kind> Default for Buffers<Kind> {
    fn default() -> Self {
        Buffers { blocks: BTreeMap::new(), live: BTreeMap::new() }
    }
}

impl<Kind: Copy + PartialEq> Buffers<Kind> {
    /// Takes room for a small buffer in a block that is there, and returns its address. `None`: a block is
    /// needed first.
    pub(super) fn take(&mut self, kind: Kind, len: u64, id: u64) -> Option<u64> {
        if len > SMALL {
            return None;
        }
        let mut blocks = self.blocks.values_mut().filter(|block| block.kind == kind);
        let start = blocks.find_map(|block| block.free.take(room(len), ALIGN))?;
        self.live.insert(start, Buffer { start, len, id });
        Some(start)
    }

    /// Adds a block for a buffer, which starts with it if it is small.
    pub(super) fn add_block(&mut self, kind: Kind, base: u64, len: u64, buffer: Buffer) {
        let mut free = Ranges::default();
        if buffer.len <= SMALL && buffer.start == base {
            free.give(base, len);
            free.take_at(base, room(buffer.len));
        }
        self.blocks.insert(base, Block { kind, len, free });
        self.live.insert(buffer.start, buffer);
    }

    /// Frees the buffer that starts at `va`; `None` if none does. The room of a pinned one stays unused as long as the
    /// block lives. Bytes that a mapping still shows must not become another buffer's memory.
    pub(super) fn free(&mut self, va: u64, pinned: bool) -> Option<Freed> {
        let buffer = self.live.remove(&va)?;
        let (&base, block) = self.blocks.range_mut(..=va).next_back()?;
        let end = base + block.len;
        if self.live.range(base..end).next().is_none() {
            self.blocks.remove(&base);
            return Some(Freed::Block(base, end - base));
        }
        if !pinned {
            block.free.give(va, room(buffer.len));
        }
        Some(self.dead_pages(va, va + buffer.len))
    }

    /// The buffer that an address lies in.
    pub(super) fn find(&self, va: u64) -> Option<Buffer> {
        let (_, buffer) = self.live.range(..=va).next_back()?;
        (va - buffer.start < buffer.len).then_some(*buffer)
    }

    /// The kind of the buffer that starts at an address.
    pub(super) fn kind_of(&self, va: u64) -> Option<Kind> {
        self.live.get(&va)?;
        self.blocks.range(..=va).next_back().map(|(_, block)| block.kind)
    }

    /// Returns whether a GPU page of a block has no byte of a live buffer in it.
    pub(super) fn is_dead(&self, page: u64) -> bool {
        match self.blocks.range(..=page).next_back() {
            Some((base, block)) if page - base < block.len => !self.is_live(page),
            _ => false,
        }
    }

    /// Returns whether a GPU page has a byte of a live buffer in it.
    fn is_live(&self, page: u64) -> bool {
        self.live_until(page, page + GPU_PAGE).is_some()
    }

    /// Where the last live buffer ends that has a byte in `[start, end)`.
    pub(super) fn live_until(&self, start: u64, end: u64) -> Option<u64> {
        let (_, last) = self.live.range(..end).next_back()?;
        Some(last.start + last.len).filter(|live_until| *live_until > start)
    }

    /// The pages of a freed range without live bytes. Only the first and the last can be shared.
    fn dead_pages(&self, start: u64, end: u64) -> Freed {
        let mut first = start / GPU_PAGE * GPU_PAGE;
        let mut last = end.next_multiple_of(GPU_PAGE);
        if self.is_live(first) {
            first += GPU_PAGE;
        }
        if first < last && self.is_live(last - GPU_PAGE) {
            last -= GPU_PAGE;
        }
        Freed::Part(first, last - first)
    }
}

/// The room that a small buffer takes.
fn room(len: u64) -> u64 {
    len.next_multiple_of(ALIGN)
}

#[cfg(test)]
mod tests {
    use super::super::physical::BLOCK;
    use super::*;

    const BASE: u64 = 0x7f00_0000_0000;

    /// Allocates on GPU 0 with blocks side by side from BASE on.
    fn alloc(buffers: &mut Buffers<i32>, len: u64) -> u64 {
        buffers.take(0, len, 0).unwrap_or_else(|| {
            let last = buffers.blocks.last_key_value();
            let start = last.map_or(BASE, |(base, block)| base + block.len);
            buffers.add_block(0, start, len.next_multiple_of(BLOCK), Buffer { start, len, id: 0 });
            start
        })
    }

    #[test]
    fn small_buffers_share_a_block_512_bytes_apart_and_reuse_the_first_gap_that_fits() {
        let mut buffers = Buffers::default();
        assert_eq!(alloc(&mut buffers, 1), BASE);
        assert_eq!(alloc(&mut buffers, 513), BASE + 512);
        assert_eq!(alloc(&mut buffers, SMALL + 1), BASE + BLOCK);
        assert_eq!(alloc(&mut buffers, 512), BASE + 1536);
        buffers.free(BASE + 512, false);
        assert_eq!(alloc(&mut buffers, 1025), BASE + 2048);
        assert_eq!(alloc(&mut buffers, 1024), BASE + 512);
        assert_eq!(alloc(&mut buffers, SMALL), BASE + 2048 + 1536);
        assert_eq!(alloc(&mut buffers, SMALL), BASE + 2 * BLOCK, "the block is full");
        assert_eq!(buffers.take(1, 1, 0), None, "another GPU's");
    }

    #[test]
    fn pages_die_with_the_last_byte_in_them() {
        let mut buffers = Buffers::default();
        let first = alloc(&mut buffers, GPU_PAGE / 2);
        let middle = alloc(&mut buffers, 2 * GPU_PAGE);
        let _last = alloc(&mut buffers, GPU_PAGE);
        assert_eq!(buffers.free(middle, false), Some(Freed::Part(BASE + GPU_PAGE, GPU_PAGE)));
        assert_eq!(buffers.free(first, false), Some(Freed::Part(BASE, GPU_PAGE)));
        let is_dead = [-1, 0, 1, 2].map(|page| buffers.is_dead(BASE.wrapping_add_signed(page * GPU_PAGE as i64)));
        assert_eq!(is_dead, [false, true, true, false], "none of a block is dead or alive");
    }

    #[test]
    fn room_freed_while_pinned_is_not_given_out_again() {
        let mut buffers = Buffers::default();
        let a = alloc(&mut buffers, 512);
        let b = alloc(&mut buffers, 512);
        buffers.free(a, true);
        assert_eq!(alloc(&mut buffers, 512), b + 512);
    }
}
