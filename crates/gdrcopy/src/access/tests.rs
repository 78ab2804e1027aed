//! Slices against an array of bytes. The bytes read are those written, and nothing else changes.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use crate::access::{Mapped, MappedSlice, Word, Words};
use crate::error::Error;
use crate::pool::Pool;
use crate::testing::{Gpu, Memory, cases};

const LEN: usize = 400;

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<u8>),
    Batch(Vec<(usize, Vec<u8>)>),
    Store(usize, u64),
    Read(usize, usize),
    ReadMany(Vec<(usize, usize)>),
    LoadAll(Vec<usize>),
    Fill(usize, usize, u8),
    /// Elements of an array that starts at this offset, by their indexes.
    Gather(usize, Vec<usize>),
    Scatter(usize, BTreeMap<usize, Element>),
}

/// 21 bytes, so that elements start at each place of a line.
type Element = [u8; 21];

/// The number of elements from this offset on.
fn elements(offset: usize) -> usize {
    (LEN - offset) / size_of::<Element>()
}

/// Words and other short ranges are copied in other manners than long ones.
fn len() -> impl Strategy<Value = usize> {
    prop_oneof![0..10_usize, 0..LEN]
}

/// Faster than bytes that are generated one by one.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (seed ^ (7 * i)) as u8).collect()
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || (len(), any::<usize>()).prop_map(|(len, seed)| pattern(len, seed));
    let write = move || (0..=LEN, bytes());
    let read = || (0..=LEN, len());
    let word = || 0..LEN / 8;
    // An index that is outside is rare, so that most calls succeed.
    let index = || prop_oneof![40 => 0..15_usize, 1 => 0..LEN];
    let element = || any::<usize>().prop_map(|seed| pattern(21, seed).try_into().expect("its size"));
    prop_oneof![
        write().prop_map(|(offset, bytes)| Step::Write(offset, bytes)),
        prop::collection::vec(write(), 0..5).prop_map(Step::Batch),
        (word(), any::<u64>()).prop_map(|(index, value)| Step::Store(index, value)),
        read().prop_map(|(offset, len)| Step::Read(offset, len)),
        prop::collection::vec(read(), 0..40).prop_map(Step::ReadMany),
        prop::collection::vec(word(), 0..40).prop_map(Step::LoadAll),
        (0..=LEN, len(), any::<u8>()).prop_map(|(offset, len, byte)| Step::Fill(offset, len, byte)),
        (0..64_usize, prop::collection::vec(index(), 0..40)).prop_map(|(offset, at)| Step::Gather(offset, at)),
        (0..64_usize, prop::collection::btree_map(index(), element(), 0..15))
            .prop_map(|(offset, elements)| Step::Scatter(offset, elements)),
    ]
}

proptest! {
    #![proptest_config(cases(256, 2))]

    #[test]
    fn slice_is_an_array_of_bytes(steps in prop::collection::vec(step(), 1..20)) {
        let memory = Memory::aligned(LEN, 64);
        let slice = memory.slice();
        let mut model = vec![0; LEN];
        let inside = |offset: usize, len: usize| match offset + len <= LEN {
            true => Ok(()),
            false => Err(Error::OutOfMapping { offset, len, room: LEN }),
        };
        let inside_array = |at: &[usize], len: usize| match at.iter().find(|&&index| index >= len) {
            None => Ok(()),
            Some(&index) => Err(Error::OutOfArray { index, count: 1, len }),
        };
        for step in steps {
            match step {
                Step::Write(offset, bytes) => {
                    let written = slice.write(offset, &bytes);
                    prop_assert_eq!(&written, &inside(offset, bytes.len()));
                    if written.is_ok() {
                        model[offset..][..bytes.len()].copy_from_slice(&bytes);
                    }
                }
                Step::Batch(writes) => {
                    let mut batch = slice.batch().expect("this process");
                    for (offset, bytes) in writes {
                        let written = batch.write(offset, &bytes);
                        prop_assert_eq!(&written, &inside(offset, bytes.len()));
                        if written.is_ok() {
                            model[offset..][..bytes.len()].copy_from_slice(&bytes);
                        }
                    }
                    batch.commit();
                }
                Step::Store(index, value) => {
                    let array = slice.array::<u64>(0, LEN / 8).expect("inside");
                    array.word(index).expect("aligned").store(value);
                    model[8 * index..][..8].copy_from_slice(&value.to_ne_bytes());
                }
                Step::Read(offset, len) => {
                    let mut found = vec![0; len];
                    let read = slice.read(offset, &mut found);
                    prop_assert_eq!(&read, &inside(offset, len));
                    prop_assert!(read.is_err() || found == model[offset..][..len]);
                }
                Step::ReadMany(reads) => {
                    let mut found: Vec<Vec<u8>> = reads.iter().map(|&(_, len)| vec![0; len]).collect();
                    let mut items: Vec<_> = reads
                        .iter()
                        .zip(&mut found)
                        .map(|(&(offset, _), dst)| (offset, &mut dst[..]))
                        .collect();
                    let read = slice.read_many(&mut items);
                    let all = reads.iter().try_for_each(|&(offset, len)| inside(offset, len));
                    prop_assert_eq!(&read, &all);
                    for (&(offset, len), found) in reads.iter().zip(&found) {
                        prop_assert!(read.is_err() || *found == model[offset..][..len]);
                    }
                }
                Step::Fill(offset, len, byte) => {
                    let filled = slice.slice(offset..offset + len).and_then(|part| part.fill(byte));
                    prop_assert_eq!(&filled, &inside(offset, len));
                    if filled.is_ok() {
                        model[offset..][..len].fill(byte);
                    }
                }
                Step::Gather(offset, at) => {
                    let len = elements(offset);
                    let array = slice.array::<Element>(offset, len).expect("inside");
                    let mut found = vec![[0; 21]; at.len()];
                    let read = array.gather(&at, &mut found);
                    prop_assert_eq!(&read, &inside_array(&at, len));
                    for (index, found) in at.into_iter().zip(found) {
                        prop_assert!(read.is_err() || found == model[offset + 21 * index..][..21]);
                        prop_assert!(read.is_ok() || found == [0; 21]);
                    }
                }
                Step::Scatter(offset, elements_by_index) => {
                    let len = elements(offset);
                    let array = slice.array::<Element>(offset, len).expect("inside");
                    let at: Vec<usize> = elements_by_index.keys().copied().collect();
                    let values: Vec<Element> = elements_by_index.into_values().collect();
                    let written = array.scatter(&at, &values);
                    prop_assert_eq!(&written, &inside_array(&at, len));
                    for (index, value) in at.into_iter().zip(values) {
                        if written.is_ok() {
                            model[offset + 21 * index..][..21].copy_from_slice(&value);
                        }
                    }
                }
                Step::LoadAll(indices) => {
                    let word = |&index: &usize| slice.word(8 * index).expect("aligned");
                    let words: Vec<Word<'_, u64>> = indices.iter().map(word).collect();
                    let mut found = vec![0; words.len()];
                    let single: Vec<u64> = words.iter().map(|word| word.load()).collect();
                    words.into_iter().collect::<Words<'_, u64>>().load_all(&mut found);
                    prop_assert_eq!(&found, &single);
                    for (index, found) in indices.into_iter().zip(found) {
                        prop_assert_eq!(&found.to_ne_bytes()[..], &model[8 * index..][..8]);
                    }
                }
            }
            prop_assert_eq!(slice.read_vec(0, LEN), Ok(model.clone()));
        }
    }
}

#[test]
fn methods_of_an_owner_are_those_of_its_slice() {
    let gpu = Gpu::new();
    let owner = Arc::new(Pool::new(&gpu.open(), gpu.clone()).alloc(LEN).expect("memory"));
    let all = owner.as_slice();
    let place = |slice: MappedSlice<'_>| (slice.device_address() - all.device_address(), slice.len());
    assert_eq!((owner.len(), owner.device_address()), (LEN, all.device_address()));
    assert_eq!((owner.as_mut_ptr(), owner.mapping_type()), (all.as_mut_ptr(), all.mapping_type()));
    assert_eq!(owner.slice(2..9).map(place), Ok((2, 7)));
    let (left, right) = owner.split_at(4).expect("inside");
    assert_eq!((place(left), place(right)), ((0, 4), (4, LEN - 4)));
    let array = owner.array::<u16>(8, 3).expect("inside");
    assert_eq!((place(array.as_bytes()), array.device_address()), ((8, 6), all.device_address() + 8));
    assert_eq!(owner.word::<u16>(6).expect("aligned").device_address(), all.device_address() + 6);

    owner.fill(7).expect("this process");
    owner.write(3, b"write").expect("inside");
    let mut batch = owner.batch().expect("this process");
    batch.write(100, b"bat").expect("inside");
    batch.write_value(103, b"ch").expect("inside");
    batch.commit();
    let mut model = vec![7; LEN];
    model[3..8].copy_from_slice(b"write");
    model[100..105].copy_from_slice(b"batch");
    assert_eq!(owner.read_vec(0, LEN), Ok(model));
    let mut found = [0; 5];
    owner.read(3, &mut found).expect("inside");
    assert_eq!(&found, b"write");
    owner.read_many(&mut [(100, &mut found)]).expect("inside");
    assert_eq!(&found, b"batch");
    owner.flush().expect("this process");
}
