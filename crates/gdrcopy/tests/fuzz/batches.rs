//! Calls with batches. Several batches are open at a time, and they end in any order.
#![forbid(unsafe_code)]

use std::mem;

use crate::access::{Borrowed, Slice};
use crate::isolated::{calling, outcome, panic_outcome};
use crate::model::{Memory, noise};
use crate::ops::{Access, Args};

pub(crate) fn access<'m>(borrowed: &mut Borrowed<'m>, slice: Slice<'m>, memory: &Memory, call: Access, args: &Args) {
    let offset = args.sizes[0].of(slice.len);
    if let Access::BeginBatch = call {
        calling!("batch {} = {slice}.batch()", borrowed.batches.len());
        borrowed.batches.extend(outcome(true, slice.mapped.batch()));
        return;
    }
    let number = args.data as usize % borrowed.batches.len().max(1);
    let Some(batch) = borrowed.batches.get_mut(number) else {
        return;
    };
    match call {
        Access::BatchWrite => {
            let bytes = noise(args.data, slice.part(args.sizes[1], offset).min(1 << 20));
            calling!("batch {number}.write_to({slice}, {offset:#x}, {:#x} bytes)", bytes.len());
            let has = slice.has(offset, bytes.len());
            if outcome(has, batch.write_to(slice.mapped, offset, &bytes)).is_some() {
                slice.written(memory, offset, &bytes);
            }
        }
        Access::BatchStore => {
            calling!("batch {number}.store({slice}.word::<u64>({offset:#x}))");
            let is_word = slice.has(offset, 8) && slice.is_aligned(offset, 8);
            if let Some(word) = outcome(is_word, slice.mapped.word::<u64>(offset)) {
                batch.store(word, args.data);
                slice.written(memory, offset, &args.data.to_ne_bytes());
            }
        }
        _ => {
            let batch = borrowed.batches.swap_remove(number);
            let end = ["commit", "drop", "forget"][args.which % 3];
            calling!("batch {number}: {end}");
            panic_outcome(false, || match end {
                "commit" => batch.commit(),
                "drop" => drop(batch),
                _ => mem::forget(batch),
            });
        }
    }
}
