//! The methods that the trait provides for all owners.
#![forbid(unsafe_code)]

use gdrcopy::Mapped as Methods;

use crate::access::Slice;
use crate::isolated::{calling, outcome};
use crate::memory::{Memory, noise};
use crate::ops::Args;
use crate::owners::{Owner, any_of};
use crate::sizes::bounds;
use crate::types::assert_bits;
use crate::world::World;

impl World {
    pub(crate) fn methods(&mut self, args: &Args) {
        if let Some(mapped) = any_of(&self.mapped, args) {
            let (slice, memory) = (mapped.slice(), &self.memory);
            match &mapped.owner {
                Owner::Mapping(owner) => methods(&**owner, slice, memory, args),
                Owner::Buffer(owner) => methods(&**owner, slice, memory, args),
                Owner::Owned(owner) => methods(owner, slice, memory, args),
                Owner::Slice(owner) => methods(owner, slice, memory, args),
            }
        }
    }
}

fn methods(owner: &impl Methods, slice: Slice<'_>, memory: &Memory, args: &Args) {
    let [at, many, _] = args.sizes;
    let offset = at.of(slice.len);
    let part = slice.part(many, offset);
    let (start, has) = (slice.start.wrapping_add(offset as u64), slice.has(offset, part));
    calling!("owner of {slice}: .read_vec({offset:#x}, {part:#x})");
    if let Some(bytes) = outcome(has, owner.read_vec(offset, part)) {
        assert!(bytes == memory.bytes(start, part), "another's bytes");
    }
    let bytes = noise(args.data, part.min(300));
    let has = slice.has(offset, bytes.len());
    calling!("  .write({offset:#x}, {} bytes)", bytes.len());
    if outcome(has, owner.write(offset, &bytes)).is_some() {
        memory.set(start, &bytes);
    }
    calling!("  .batch()");
    let mut batch = outcome(true, owner.batch()).expect("predicted");
    calling!("  .write({offset:#x}, {} bytes)", bytes.len());
    outcome(has, batch.write(offset, &bytes));
    batch.commit();
    let mut found = bytes.clone();
    found.fill(0);
    calling!("  .read({offset:#x}, {} bytes)", bytes.len());
    let is_read = outcome(has, owner.read(offset, &mut found)).is_some();
    assert!(if is_read { found == bytes } else { found.iter().all(|&byte| byte == 0) });
    found.fill(0);
    calling!("  .read_many({offset:#x}, {} bytes)", bytes.len());
    let is_read = outcome(has, owner.read_many(&mut [(offset, &mut found)])).is_some();
    assert!(if is_read { found == bytes } else { found.iter().all(|&byte| byte == 0) });
    calling!("  .flush()");
    outcome(slice.len > 0, owner.flush());
    if args.data & 7 == 0 {
        calling!("  .fill(7)");
        outcome(true, owner.fill(7));
        memory.with(slice.start, slice.len, |model| model.fill(7));
    }
    let (bounds, range) = bounds([at, many], args.data, slice.len);
    calling!("  .slice({bounds:x?})");
    let result = owner.slice(bounds);
    if let Some((part, range)) = outcome(range.is_some(), result).zip(range) {
        Slice::new(part, slice.start + range.start as u64, range.len());
    }
    calling!("  .split_at({offset:#x})");
    if let Some((left, right)) = outcome(slice.has(offset, 0), owner.split_at(offset)) {
        Slice::new(left, slice.start, offset);
        Slice::new(right, start, slice.len - offset);
    }
    calling!("  .word::<u16>({offset:#x})");
    let is_word = slice.has(offset, 2) && slice.is_aligned(offset, 2);
    if let Some(word) = outcome(is_word, owner.word::<u16>(offset)) {
        assert_bits(&word.load(), &memory.bytes(start, 2));
    }
    calling!("  .array::<u16>({offset:#x}, {part:#x})");
    let is_inside = part <= slice.len && slice.has(offset, 2 * part);
    if let Some(array) = outcome(is_inside, owner.array::<u16>(offset, part)) {
        Slice::new(array.as_bytes(), start, 2 * part);
    }
}
