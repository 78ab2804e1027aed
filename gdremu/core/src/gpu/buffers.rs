//! The buffers of cuMemAlloc and the blocks of memory that hold them, laid out as by the CUDA driver. Small buffers
//! share a block, so a small buffer can start inside a GPU page. Each larger buffer has a block of its own.
//!
//! This module only keeps records. Other modules allocate and free the blocks.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::physical::GPU_PAGE;
use super::ranges::Ranges;

/// Every small buffer starts at a multiple of this number of bytes.
const ALIGN: u64 = 512;

/// Buffers up to this number of bytes share a block with other buffers.
const SMALL: u64 = 1 << 20;

/// A buffer that the program allocated, with the length that the program asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    pub start: u64,
    pub len: u64,
    pub id: u64,
}

/// All buffers of this process, and the blocks of memory that hold them. Only buffers of the same `Kind` can share a
/// block.
#[derive(Clone, Debug, Default)]
pub struct Buffers<Kind> {
    /// The blocks, by their start addresses.
    blocks: BTreeMap<u64, Block<Kind>>,
    /// The buffers that have not been freed, by their start addresses.
    live: BTreeMap<u64, Buffer>,
}

/// Memory that is allocated and freed as a whole. It holds one large buffer or several small ones.
#[derive(Clone, Debug)]
struct Block<Kind> {
    kind: Kind,
    len: u64,
    /// The unused ranges, for further small buffers.
    free: Ranges,
}

/// The GPU pages that no live buffer uses any more once a buffer is freed. `len` is 0 if there are none.
pub struct Freed {
    pub start: u64,
    pub len: u64,
    /// True if the last buffer in a block was freed. The whole block is then unused, and the caller must free it.
    pub is_block: bool,
}

impl<Kind: Copy + PartialEq> Buffers<Kind> {
    /// Places a small buffer in an existing block and returns its address, or `None` if the caller must add a block.
    pub fn take(&mut self, kind: Kind, len: u64, id: u64) -> Option<u64> {
        if len > SMALL {
            return None;
        }
        for block in self.blocks.values_mut() {
            if block.kind == kind
                && let Some(start) = block.free.take(room(len), ALIGN)
            {
                self.live.insert(start, Buffer { start, len, id });
                return Some(start);
            }
        }
        None
    }

    /// Adds a block of `len` bytes that begins with a buffer. If the buffer is small, other buffers can share the block.
    pub fn add_block(&mut self, kind: Kind, len: u64, buffer: Buffer) {
        let mut free = Ranges::default();
        if buffer.len <= SMALL {
            free.give(buffer.start, len);
            free.take_at(buffer.start, room(buffer.len));
        }
        self.blocks.insert(buffer.start, Block { kind, len, free });
        self.live.insert(buffer.start, buffer);
    }

    /// Adds a block of another process's memory. This process may use only `buffer` in the block.
    pub fn add_imported(&mut self, kind: Kind, base: u64, len: u64, buffer: Buffer) {
        self.blocks.insert(base, Block { kind, len, free: Ranges::default() });
        self.live.insert(buffer.start, buffer);
    }

    /// Frees a live buffer. The bytes of a pinned buffer stay unused as long as its block exists. No other buffer may
    /// get them, because they may still be mapped through the pin.
    pub fn free(&mut self, buffer: Buffer, pinned: bool) -> Freed {
        self.live.remove(&buffer.start);
        let (&base, block) = self.blocks.range_mut(..=buffer.start).next_back().expect("a buffer is in a block");
        let len = block.len;
        if self.live.range(base..base + len).next().is_none() {
            self.blocks.remove(&base);
            return Freed { start: base, len, is_block: true };
        }
        if !pinned {
            block.free.give(buffer.start, room(buffer.len));
        }
        // Only the first and the last GPU page of a buffer can hold bytes of other buffers.
        let mut first = buffer.start / GPU_PAGE * GPU_PAGE;
        let mut last = (buffer.start + buffer.len).next_multiple_of(GPU_PAGE);
        if self.is_live(first) {
            first += GPU_PAGE;
        }
        if first < last && self.is_live(last - GPU_PAGE) {
            last -= GPU_PAGE;
        }
        Freed { start: first, len: last - first, is_block: false }
    }

    pub fn find(&self, va: u64) -> Option<Buffer> {
        let buffer = self.live.range(..=va).next_back()?.1;
        if va - buffer.start < buffer.len { Some(*buffer) } else { None }
    }

    pub fn starting_at(&self, va: u64) -> Option<Buffer> {
        self.live.get(&va).copied()
    }

    pub fn kind_of(&self, va: u64) -> Option<Kind> {
        self.starting_at(va)?;
        Some(self.blocks.range(..=va).next_back()?.1.kind)
    }

    /// Returns whether the GPU page at an address is part of a block, but contains no byte of a live buffer.
    pub fn is_dead(&self, page: u64) -> bool {
        match self.blocks.range(..=page).next_back() {
            Some((base, block)) if page - base < block.len => !self.is_live(page),
            _ => false,
        }
    }

    fn is_live(&self, page: u64) -> bool {
        self.live_until(page, page + GPU_PAGE).is_some()
    }

    /// Returns the end of the last live buffer that has a byte in `[start, end)`.
    pub fn live_until(&self, start: u64, end: u64) -> Option<u64> {
        let last = self.live.range(..end).next_back()?.1;
        let live_until = last.start + last.len;
        if live_until > start { Some(live_until) } else { None }
    }
}

fn room(len: u64) -> u64 {
    len.next_multiple_of(ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_die_with_the_last_byte_in_them() {
        let mut buffers = Buffers::default();
        let first = Buffer { start: 0, len: GPU_PAGE / 2, id: 1 };
        buffers.add_block((), 32 * GPU_PAGE, first);
        let [middle, _last] = [4, 2].map(|halves| buffers.take((), halves * GPU_PAGE / 2, 2).unwrap());
        let middle = buffers.starting_at(middle).unwrap();
        let Freed { start, len, .. } = buffers.free(middle, false);
        assert_eq!((start, len), (GPU_PAGE, GPU_PAGE));
        assert_eq!([0, 1, 2, 32].map(|page| buffers.is_dead(page * GPU_PAGE)), [false, true, false, false]);
        let Freed { start, len, .. } = buffers.free(first, false);
        assert_eq!((start, len), (0, GPU_PAGE));
    }
}
