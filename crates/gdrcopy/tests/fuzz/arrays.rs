//! Calls the functions of `Array`, for single elements, ranges of elements, and many elements with any indexes.
#![forbid(unsafe_code)]

use std::any::type_name;
use std::collections::HashMap;

use bytemuck::{Pod, bytes_of, cast_slice_mut};
use gdrcopy::Array;

use crate::access::Slice;
use crate::isolated::{calling, outcome, outcome_or_panic};
use crate::model::Memory;
use crate::ops::Args;
use crate::sizes::{Numbers, bounds};
use crate::types::{assert_bits, cast_or_empty, value};

pub(crate) fn access(slice: Slice<'_>, memory: &Memory, args: &Args) {
    match (args.data >> 4) % 8 {
        0 => array::<u8>(slice, memory, args),
        1 => array::<[u8; 3]>(slice, memory, args),
        2 => array::<u64>(slice, memory, args),
        3 => array::<[u64; 512]>(slice, memory, args),
        4 => array::<[u64; 0]>(slice, memory, args),
        5 => array::<[u8; 2049]>(slice, memory, args),
        6 => array::<[u8; 17001]>(slice, memory, args),
        _ => array::<u32>(slice, memory, args),
    }
}

fn array<T: Pod>(slice: Slice<'_>, memory: &Memory, args: &Args) {
    let [at, many, _] = args.sizes;
    let offset = at.of(slice.len);
    let size = size_of::<T>();
    let len = many.of(slice.len.saturating_sub(offset) / size.max(1));
    calling!("{slice}.array::<{}>({offset:#x}, {len:#x})", type_name::<T>());
    let is_inside = (len as u128 * size as u128) <= slice.len as u128 && slice.has(offset, len * size);
    if let Some(array) = outcome(is_inside, slice.mapped.array::<T>(offset, len)) {
        use_array(array, slice.start + offset as u64, len, memory, args);
    }
}

/// Returns whether an array of `len` elements has `count` elements from `index` on.
fn fits(index: usize, count: usize, len: usize) -> bool {
    index <= len && count <= len - index
}

/// Calls the methods of an array of `len` elements, and checks their results.
pub(crate) fn use_array<T: Pod>(array: Array<'_, T>, start: u64, len: usize, memory: &Memory, args: &Args) {
    assert_eq!((array.len(), array.is_empty(), array.device_address()), (len, len == 0, start));
    let size = size_of::<T>();
    let elements = Slice::new(array.as_bytes(), start, len * size);
    let index = args.sizes[2].of(len);
    let count = (args.data as usize % 300).min(len).min((1 << 18) / size.max(1));

    calling!("  .get({index:#x})");
    if let Some(element) = outcome(fits(index, 1, len), array.get(index)) {
        assert_bits(&element, &elements.model(memory, index * size, size));
    }
    calling!("  .set({index:#x})");
    let new: T = value(args.data);
    if outcome(fits(index, 1, len), array.set(index, new)).is_some() {
        elements.written(memory, index * size, bytes_of(&new));
    }
    calling!("  .write({index:#x}, {count})");
    let mut values = vec![new; count];
    if outcome(fits(index, count, len), array.write(index, &values)).is_some() {
        elements.written(memory, index * size, cast_or_empty(&values));
    }
    calling!("  .read({index:#x}, {count})");
    let before = values.clone();
    fill(&mut values);
    if outcome(fits(index, count, len), array.read(index, &mut values)).is_some() {
        assert!(cast_or_empty(&values) == cast_or_empty(&before));
    } else {
        assert_filled(&values);
    }
    let (bounds, range) = bounds([args.sizes[0], args.sizes[2]], args.data >> 16, len);
    calling!("  .slice({bounds:x?})");
    let part = outcome(range.is_some(), array.slice(bounds)).unwrap_or(array);
    let range = range.unwrap_or(0..len);
    let part_start = start + (range.start * size) as u64;
    let elements = Slice::new(part.as_bytes(), part_start, range.len() * size);
    assert_eq!(part.len(), range.len());
    gather(part, elements, memory, args);
    scatter(part, elements, memory, args);
}

/// Returns indexes for a gather or scatter. Several can be equal, and one can be outside the array.
fn indexes<T>(len: usize, args: &Args, numbers: &mut Numbers) -> Vec<usize> {
    let counts = [numbers.below(40), 250 + numbers.below(10), numbers.below(1200)];
    let count = counts[numbers.below(3)].min((1 << 18) / size_of::<T>().max(1));
    let span = [len, 3.min(len)][numbers.below(2)];
    // If the array has no elements, each index is outside.
    let mut at: Vec<_> = (0..count).map(|_| numbers.below(span)).collect();
    if count > 0 && numbers.below(4) == 0 {
        at[numbers.below(count)] = args.sizes[numbers.below(3)].of(len);
    }
    at
}

/// Returns the number of values to pass with `count` indexes. In one of eight cases, it may differ from `count`. Then
/// the call must panic.
fn places(count: usize, args: &Args, numbers: &mut Numbers) -> usize {
    match numbers.below(8) {
        0 => args.sizes[1].of(count).min(2 * count + 1),
        _ => count,
    }
}

fn gather<T: Pod>(array: Array<'_, T>, elements: Slice<'_>, memory: &Memory, args: &Args) {
    let len = array.len();
    let size = size_of::<T>();
    let mut numbers = Numbers(args.data);
    let at = indexes::<T>(len, args, &mut numbers);
    let places = places(at.len(), args, &mut numbers);
    calling!("  {elements} of {len:#x}: .gather({at:x?}, {places})");
    // The first and the last value are guards, which no call may change.
    let mut values = vec![T::zeroed(); places + 2];
    fill(&mut values);
    let is_valid = at.iter().all(|&index| index < len);
    let panics = places != at.len();
    if outcome_or_panic(panics, is_valid, || array.gather(&at, &mut values[1..=places])).is_some() {
        for (number, &index) in at.iter().enumerate() {
            assert_bits(&values[1 + number], &elements.model(memory, index * size, size));
        }
    } else {
        assert_filled(&values[1..=places]);
    }
    assert_filled(&values[..1]);
    assert_filled(&values[places + 1..]);
}

fn scatter<T: Pod>(array: Array<'_, T>, elements: Slice<'_>, memory: &Memory, args: &Args) {
    let len = array.len();
    let size = size_of::<T>();
    let mut numbers = Numbers(!args.data);
    let at = indexes::<T>(len, args, &mut numbers);
    let places = places(at.len(), args, &mut numbers);
    calling!("  {elements} of {len:#x}: .scatter({at:x?}, {places})");
    let some: [T; 4] = [0, 1, 2, 3].map(|more| value(args.data.wrapping_add(more)));
    let values: Vec<T> = (0..places).map(|number| some[number % 4]).collect();
    let is_valid = at.iter().all(|&index| index < len);
    if outcome_or_panic(places != at.len(), is_valid, || array.scatter(&at, &values)).is_none() {
        return;
    }
    let mut written: HashMap<usize, Vec<&T>> = HashMap::new();
    for (number, &index) in at.iter().enumerate() {
        written.entry(index).or_default().push(&values[number]);
    }
    for (index, values) in written {
        // If an index was written several times, any of its values may stay.
        let element = array.get(index).expect("inside");
        let mut values = values.into_iter().map(bytes_of);
        assert!(values.any(|value| value == bytes_of(&element)), "element {index:#x}");
        elements.written(memory, index * size, bytes_of(&element));
    }
}

fn fill<T: Pod>(values: &mut [T]) {
    if size_of::<T>() > 0 {
        cast_slice_mut::<T, u8>(values).fill(0x5a);
    }
}

#[track_caller]
fn assert_filled<T: Pod>(values: &[T]) {
    assert!(cast_or_empty(values).iter().all(|&byte| byte == 0x5a), "a write to another's bytes");
}
