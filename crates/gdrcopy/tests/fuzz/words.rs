//! Calls that access words of mapped memory. The words have different types.
#![forbid(unsafe_code)]

use std::any::type_name;
use std::fmt::Debug;
use std::time::Instant;

use bytemuck::{Pod, bytes_of};
use gdrcopy::{Word, Words};

use crate::access::Slice;
use crate::isolated::{calling, outcome, panic_outcome};
use crate::model::Memory;
use crate::ops::Args;
use crate::sizes::Numbers;
use crate::types::{assert_bits, value};

pub(crate) fn access(slice: Slice<'_>, memory: &Memory, args: &Args) {
    match (args.data >> 4) % 11 {
        0 => word::<u8>(slice, memory, args),
        1 => word::<i16>(slice, memory, args),
        2 => word::<u32>(slice, memory, args),
        3 => word::<u64>(slice, memory, args),
        4 => word::<f32>(slice, memory, args),
        5 => word::<f64>(slice, memory, args),
        6 => word::<[u8; 1]>(slice, memory, args),
        7 => word::<[u8; 2]>(slice, memory, args),
        8 => word::<[u8; 4]>(slice, memory, args),
        9 => word::<[u8; 8]>(slice, memory, args),
        _ => word::<[u16; 4]>(slice, memory, args),
    }
}

/// Reads words of these slices at once. The slices may be of different mappings.
pub(crate) fn many(slices: [Slice<'_>; 2], memory: &Memory, args: &Args) {
    match (args.data >> 4) % 5 {
        0 => load_all::<u8>(slices, memory, args),
        1 => load_all::<u16>(slices, memory, args),
        2 => load_all::<f32>(slices, memory, args),
        3 => load_all::<[u8; 8]>(slices, memory, args),
        _ => load_all::<u64>(slices, memory, args),
    }
}

fn word<T: Pod + Debug>(slice: Slice<'_>, memory: &Memory, args: &Args) {
    let offset = args.sizes[0].of(slice.len);
    let size = size_of::<T>();
    calling!("{slice}.word::<{}>({offset:#x})", type_name::<T>());
    let is_word = slice.has(offset, size) && slice.is_aligned(offset, size);
    if let Some(word) = outcome(is_word, slice.mapped.word::<T>(offset)) {
        use_word(word, slice.start + offset as u64, memory, args.data);
    }
    let count = slice.len / size;
    let index = args.sizes[1].of(count);
    calling!("{slice}.array::<{}>(0, {count:#x}).word({index:#x})", type_name::<T>());
    let array = slice.mapped.array::<T>(0, count).expect("inside");
    let is_word = index < count && slice.is_aligned(0, size);
    if let Some(word) = outcome(is_word, array.word(index)) {
        use_word(word, slice.start + (index * size) as u64, memory, !args.data);
    }
}

pub(crate) fn use_word<T: Pod + Debug>(word: Word<'_, T>, start: u64, memory: &Memory, data: u64) {
    assert_eq!(word.device_address(), start);
    let model = memory.bytes(start, size_of::<T>());
    assert_bits(&word.load(), &model);
    let seen = word.spin_until(|_| true, None).expect("the first value will do");
    assert_bits(&seen, &model);
    let late = word.spin_until(|_| false, Instant::now());
    assert!(late.is_err(), "{late:?}");
    let new: T = value(data);
    word.store(new);
    memory.set(start, bytes_of(&new));
    assert_bits(&word.load(), bytes_of(&new));
}

/// Reads many words at once. All are aligned and inside the slices, and several may be in the same place.
fn load_all<T: Pod>(slices: [Slice<'_>; 2], memory: &Memory, args: &Args) {
    let size = size_of::<T>();
    let mut numbers = Numbers(args.data);
    let counts = [numbers.below(70), 255 + numbers.below(4), 1023 + numbers.below(4), numbers.below(2500)];
    let count = counts[numbers.below(4)];
    let mut offsets = Vec::new();
    for _ in 0..count {
        let slice = slices[numbers.below(2)];
        let first = (slice.start.next_multiple_of(size as u64) - slice.start) as usize;
        let span = args.sizes[0].inside(slice.len.saturating_sub(first) / size);
        if span > 0 {
            offsets.push((slice, first + numbers.below(span) * size));
        }
    }
    let count = offsets.len();
    let places = match numbers.below(4) {
        0 => args.sizes[1].of(count).min(3000),
        _ => count,
    };
    let [one, other] = slices;
    calling!("{places} values of {count} words of {size} bytes at {one} and {other}");
    let words = offsets.iter().map(|(slice, offset)| slice.mapped.word::<T>(*offset).expect("a word"));
    let words: Words<'_, T> = words.collect();
    assert_eq!((words.len(), words.is_empty()), (count, count == 0));
    // The first and the last value are guards, which no call may change.
    let untouched: T = value(1);
    let mut values = vec![untouched; places + 2];
    panic_outcome(places != count, || words.load_all(&mut values[1..=places]));
    if places == count {
        for (number, (slice, offset)) in offsets.iter().enumerate() {
            assert_bits(&values[1 + number], &slice.model(memory, *offset, size));
        }
    }
    assert_bits(&values[0], bytes_of(&untouched));
    assert_bits(&values[places + 1], bytes_of(&untouched));
}
