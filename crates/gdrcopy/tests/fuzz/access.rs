//! Calls with mapped slices: bounds, copies and gathers.
#![forbid(unsafe_code)]

use std::fmt;

use gdrcopy::{Batch, MappedSlice};

use crate::buffers::Host;
use crate::isolated::{calling, outcome};
use crate::model::{Memory, noise};
use crate::ops::{Access, Args};
use crate::sizes::{Numbers, Size, bounds};
use crate::{arrays, batches, words};

/// A slice, with the device address and the length that the test expects of it.
#[derive(Clone, Copy)]
pub(crate) struct Slice<'m> {
    pub(crate) mapped: MappedSlice<'m>,
    pub(crate) start: u64,
    pub(crate) len: usize,
}

/// The slices and batches that earlier calls of a random sequence have made, and that the next calls can use.
#[derive(Default)]
pub(crate) struct Borrowed<'m> {
    pub(crate) slices: Vec<Slice<'m>>,
    pub(crate) batches: Vec<Batch<'m>>,
}

/// An access needs a slice, and also these: the expected bytes of GPU memory, and host memory into which reads copy.
pub(crate) struct Context<'w> {
    pub(crate) memory: &'w Memory,
    pub(crate) host: &'w mut Host,
}

impl fmt::Display for Slice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}+{:#x}]", self.start, self.len)
    }
}

impl<'m> Slice<'m> {
    /// Makes a slice, and checks that the library reports the expected address and length for it.
    #[track_caller]
    pub(crate) fn new(mapped: MappedSlice<'m>, start: u64, len: usize) -> Slice<'m> {
        assert_eq!((mapped.device_address(), mapped.len()), (start, len));
        assert_eq!(mapped.is_empty(), len == 0);
        Slice { mapped, start, len }
    }

    /// Returns whether these bytes are inside the slice.
    pub(crate) fn has(self, offset: usize, len: usize) -> bool {
        offset <= self.len && len <= self.len - offset
    }

    /// Returns a length for a range that starts at `offset`. Most of these ranges fit into the slice.
    pub(crate) fn part(self, size: Size, offset: usize) -> usize {
        size.of(self.len.checked_sub(offset).unwrap_or(self.len))
    }

    /// Returns whether a word of this size at `offset` is naturally aligned.
    pub(crate) fn is_aligned(self, offset: usize, size: usize) -> bool {
        self.start.wrapping_add(offset as u64).is_multiple_of(size as u64)
    }

    pub(crate) fn model(self, memory: &Memory, offset: usize, len: usize) -> Vec<u8> {
        memory.bytes(self.start + offset as u64, len)
    }

    /// Returns the bytes that the test expects in each range, or `None` if a range is not inside the slice.
    fn models(self, memory: &Memory, ranges: &[(usize, usize)]) -> Option<Vec<Vec<u8>>> {
        let mut models = Vec::new();
        for &(offset, len) in ranges {
            if !self.has(offset, len) {
                return None;
            }
            models.push(self.model(memory, offset, len));
        }
        Some(models)
    }

    /// Changes the expected bytes of the slice as a write of `bytes` changes GPU memory.
    #[track_caller]
    pub(crate) fn written(self, memory: &Memory, offset: usize, bytes: &[u8]) {
        memory.set(self.start + offset as u64, bytes);
    }
}

/// Makes one call with one of the slices.
pub(crate) fn access(borrowed: &mut Borrowed<'_>, context: &mut Context<'_>, call: Access, args: &Args) {
    let Some(&slice) = borrowed.slices.get(args.which % borrowed.slices.len().max(1)) else {
        return;
    };
    let memory = context.memory;
    let data = args.data;
    let offset = args.sizes[0].of(slice.len);
    match call {
        Access::Slice => sub_slice(borrowed, slice, args),
        Access::SplitAt => {
            calling!("{slice}.split_at({offset:#x})");
            if let Some((left, right)) = outcome(slice.has(offset, 0), slice.mapped.split_at(offset)) {
                let middle = slice.start + offset as u64;
                borrowed.slices.push(Slice::new(left, slice.start, offset));
                borrowed.slices.push(Slice::new(right, middle, slice.len - offset));
            }
        }
        Access::Write => {
            let bytes = noise(data, slice.part(args.sizes[1], offset).min(context.host.room()));
            calling!("{slice}.write({offset:#x}, {:#x} bytes)", bytes.len());
            let has = slice.has(offset, bytes.len());
            if outcome(has, slice.mapped.write(offset, &bytes)).is_some() {
                slice.written(memory, offset, &bytes);
            }
        }
        Access::Read => {
            let len = slice.part(args.sizes[1], offset).min(context.host.room());
            calling!("{slice}.read({offset:#x}, {len:#x} bytes)");
            let expected = slice.models(memory, &[(offset, len)]);
            let skipped = data as usize % (context.host.room() - len + 1);
            context.host.receive(skipped, &[len], expected, |mut parts| slice.mapped.read(offset, parts.remove(0)));
        }
        Access::ReadMany => read_many(slice, context, args),
        Access::WriteMany => write_many(slice, context, args),
        Access::ReadVec => {
            let len = slice.part(args.sizes[1], offset);
            calling!("{slice}.read_vec({offset:#x}, {len:#x})");
            let has = slice.has(offset, len);
            if let Some(bytes) = outcome(has, slice.mapped.read_vec(offset, len)) {
                assert!(bytes == slice.model(memory, offset, len), "another's bytes");
            }
        }
        Access::Fill => {
            let byte = data as u8;
            calling!("{slice}.fill({byte:#x})");
            outcome(true, slice.mapped.fill(byte));
            memory.with(slice.start, slice.len, |model| model.fill(byte));
        }
        Access::Flush => {
            calling!("{slice}.flush()");
            outcome(slice.len > 0, slice.mapped.flush());
        }
        Access::Word => words::access(slice, memory, args),
        Access::LoadAll => {
            let second = borrowed.slices[data as usize % borrowed.slices.len()];
            words::many([slice, second], memory, args);
        }
        Access::Array => arrays::access(slice, memory, args),
        Access::BeginBatch | Access::BatchWrite | Access::BatchStore | Access::EndBatch => {
            batches::access(borrowed, slice, memory, call, args);
        }
    }
    // Only the first slice and the seven newest ones are kept.
    let surplus = borrowed.slices.len().saturating_sub(8);
    borrowed.slices.drain(1..1 + surplus);
}

fn sub_slice<'m>(borrowed: &mut Borrowed<'m>, slice: Slice<'m>, args: &Args) {
    let (bounds, range) = bounds([args.sizes[0], args.sizes[1]], args.data, slice.len);
    calling!("{slice}.slice({bounds:x?})");
    if let Some(part) = outcome(range.is_some(), slice.mapped.slice(bounds)) {
        let range = range.expect("predicted");
        let start = slice.start + range.start as u64;
        borrowed.slices.push(Slice::new(part, start, range.len()));
    }
}

/// Returns offsets and lengths of many items, near each other or anywhere in the slice. Some items are empty, and some
/// can be outside the slice.
fn many_items(slice: Slice<'_>, context: &Context<'_>, args: &Args) -> Vec<(usize, usize)> {
    let mut numbers = Numbers(args.data);
    let extreme = args.sizes[0].of(slice.len);
    let span = args.sizes[1].inside(slice.len);
    // Some lists have a few items that are longer than a copy routine handles at a time. Others have more items than a
    // gather loads at a time.
    let (most, share) = [(40, 64), (4, 5), (1200, 2048)][numbers.below(3)];
    let longest = args.sizes[2].of(slice.len).min(context.host.room() / share);
    (0..numbers.below(most))
        .map(|_| {
            let len = numbers.below(longest + 1).min(slice.len);
            match numbers.below(2 * most) {
                0 => (extreme, len),
                1 => (slice.len, 0),
                2..5 => (numbers.below(slice.len + 1), 0),
                _ => (numbers.below(span.saturating_sub(len) + 1), len),
            }
        })
        .collect()
}

/// Writes many items. The value of a byte depends only on its address, because items that overlap are written in any
/// order.
fn write_many(slice: Slice<'_>, context: &Context<'_>, args: &Args) {
    let items = many_items(slice, context, args);
    let bytes = noise(args.data, slice.len);
    let mut writes: Vec<(usize, &[u8])> = Vec::new();
    let mut are_inside = true;
    for &(offset, len) in &items {
        let has = slice.has(offset, len);
        are_inside &= has;
        writes.push((offset, if has { &bytes[offset..][..len] } else { &bytes[..len] }));
    }
    calling!("{slice}.write_many({items:x?})");
    if outcome(are_inside, slice.mapped.write_many(&writes)).is_some() {
        for (offset, bytes) in writes {
            slice.written(context.memory, offset, bytes);
        }
    }
}

fn read_many(slice: Slice<'_>, context: &mut Context<'_>, args: &Args) {
    let items = many_items(slice, context, args);
    calling!("{slice}.read_many({items:x?})");
    let expected = slice.models(context.memory, &items);
    let lens: Vec<usize> = items.iter().map(|&(_, len)| len).collect();
    context.host.receive(0, &lens, expected, |parts| {
        let offsets = items.iter().map(|&(offset, _)| offset);
        let mut reads: Vec<_> = offsets.zip(parts).collect();
        slice.mapped.read_many(&mut reads)
    });
}
