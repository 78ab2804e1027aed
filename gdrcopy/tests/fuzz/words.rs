//! Words and arrays, of every type that could matter.
#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::time::Instant;

use bytemuck::{Pod, bytes_of, cast_slice, cast_slice_mut, pod_read_unaligned};
use gdrcopy::Words;

use crate::access::{Context, Slice};
use crate::isolated::{calling, outcome, panic_outcome};
use crate::memory::noise;
use crate::ops::{Access, Args};
use crate::sizes::Numbers;

pub(crate) fn access(slice: Slice<'_>, context: &mut Context<'_>, call: Access, args: &Args) {
    let kind = args.data >> 4;
    match call {
        Access::Word => match kind % 6 {
            0 => word::<u8>(slice, context, args),
            1 => word::<i16>(slice, context, args),
            2 => word::<u32>(slice, context, args),
            3 => word::<u64>(slice, context, args),
            4 => word::<f32>(slice, context, args),
            _ => word::<f64>(slice, context, args),
        },
        Access::LoadAll => match kind % 4 {
            0 => load_all::<u8>(slice, context, args),
            1 => load_all::<u16>(slice, context, args),
            2 => load_all::<f32>(slice, context, args),
            _ => load_all::<u64>(slice, context, args),
        },
        _ => match kind % 6 {
            0 => array::<u8>(slice, context, args),
            1 => array::<[u8; 3]>(slice, context, args),
            2 => array::<u64>(slice, context, args),
            3 => array::<[u64; 512]>(slice, context, args),
            4 => array::<[u64; 0]>(slice, context, args),
            _ => array::<u32>(slice, context, args),
        },
    }
}

fn value<T: Pod>(seed: u64) -> T {
    pod_read_unaligned(&noise(seed, size_of::<T>()))
}

/// Of floats, the bits matter.
#[track_caller]
fn assert_bits<T: Pod>(found: &T, model: &[u8]) {
    assert_eq!(bytes_of(found), model);
}

fn word<T: Pod + Debug>(slice: Slice<'_>, context: &mut Context<'_>, args: &Args) {
    let (offset, size) = (args.sizes[0].of(slice.len), size_of::<T>());
    calling!(
        "{slice}.word::<{}>({offset:#x})",
        std::any::type_name::<T>()
    );
    let is_word = slice.has(offset, size) && slice.is_aligned(offset, size);
    let Some(word) = outcome(is_word, slice.mapped.word::<T>(offset)) else {
        return;
    };
    let model = slice.model(context.memory, offset, size);
    assert_bits(&word.load(), &model);
    let seen = word
        .spin_until(|_| true, None)
        .expect("the first value will do");
    assert_bits(&seen, &model);
    let late = word.spin_until(|_| false, Instant::now());
    assert!(late.is_err(), "{late:?}");
    let new: T = value(args.data);
    word.store(new);
    slice.written(context.memory, offset, bytes_of(&new));
    assert_bits(&word.load(), bytes_of(&new));
}

/// Up to 70 words, aligned and inside, in places that may be the same.
fn load_all<T: Pod>(slice: Slice<'_>, context: &mut Context<'_>, args: &Args) {
    let (size, mut numbers) = (size_of::<T>(), Numbers(args.data));
    let first = slice.start.next_multiple_of(size as u64) - slice.start;
    let places = slice.len.saturating_sub(first as usize) / size;
    let span = args.sizes[0].inside(places);
    let count = if span == 0 { 0 } else { numbers.below(70) };
    let offsets: Vec<_> = (0..count)
        .map(|_| first as usize + numbers.below(span) * size)
        .collect();
    let places = args.sizes[1].of(count).min(100);
    calling!("{places} values of words of {size} bytes at {slice}{offsets:x?}");
    let words = offsets
        .iter()
        .map(|&offset| slice.mapped.word::<T>(offset).expect("a word"));
    let words: Words<'_, T> = words.collect();
    assert_eq!((words.len(), words.is_empty()), (count, count == 0));
    let mut values: Vec<T> = (0..places).map(|_| value(1)).collect();
    panic_outcome(places != count, || words.load_all(&mut values));
    let is_equal = places == count;
    for (found, &offset) in values.iter().zip(&offsets).filter(|_| is_equal) {
        assert_bits(found, &slice.model(context.memory, offset, size));
    }
}

fn array<T: Pod>(slice: Slice<'_>, context: &mut Context<'_>, args: &Args) {
    let [at, many, few] = args.sizes;
    let (offset, size) = (at.of(slice.len), size_of::<T>());
    let len = many.of(slice.len.saturating_sub(offset) / size.max(1));
    calling!(
        "{slice}.array::<{}>({offset:#x}, {len:#x})",
        std::any::type_name::<T>()
    );
    let is_inside =
        (len as u128 * size as u128) <= slice.len as u128 && slice.has(offset, len * size);
    let Some(array) = outcome(is_inside, slice.mapped.array::<T>(offset, len)) else {
        return;
    };
    let elements = Slice::new(array.as_bytes(), slice.start + offset as u64, len * size);
    let index = few.of(len);
    let count = (args.data as usize % 300).min(len);
    let fits = |count: usize| index <= len && count <= len - index;
    let memory = context.memory;

    calling!("  .get({index:#x})");
    if let Some(found) = outcome(fits(1), array.get(index)) {
        assert_bits(&found, &elements.model(memory, index * size, size));
    }
    calling!("  .set({index:#x})");
    let new: T = value(args.data);
    if outcome(fits(1), array.set(index, new)).is_some() {
        elements.written(memory, index * size, bytes_of(&new));
    }
    calling!("  .write({index:#x}, {count})");
    let mut values = vec![new; count];
    if outcome(fits(count), array.write(index, &values)).is_some() {
        elements.written(memory, index * size, cast_or_empty(&values));
    }
    calling!("  .read({index:#x}, {count})");
    let before = values.clone();
    if size > 0 {
        cast_slice_mut::<T, u8>(&mut values).fill(0x5a);
    }
    if outcome(fits(count), array.read(index, &mut values)).is_some() {
        assert_eq!(cast_or_empty(&values), cast_or_empty(&before));
    } else {
        assert!(cast_or_empty(&values).iter().all(|&byte| byte == 0x5a));
    }
}

/// The bytes of values that may have none.
fn cast_or_empty<T: Pod>(values: &[T]) -> &[u8] {
    if size_of::<T>() == 0 {
        &[]
    } else {
        cast_slice(values)
    }
}
