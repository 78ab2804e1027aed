//! Slices against an array of bytes: what is read is what was written, and nothing else changes.

use proptest::prelude::*;

use crate::access::{Word, Words};
use crate::error::Error;
use crate::testing::Memory;

const LEN: usize = 400;

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<u8>),
    Batch(Vec<(usize, Vec<u8>)>),
    Store(usize, u64),
    Read(usize, usize),
    ReadMany(Vec<(usize, usize)>),
    LoadAll(Vec<usize>),
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
    prop_oneof![
        write().prop_map(|(offset, bytes)| Step::Write(offset, bytes)),
        prop::collection::vec(write(), 0..5).prop_map(Step::Batch),
        (word(), any::<u64>()).prop_map(|(index, value)| Step::Store(index, value)),
        read().prop_map(|(offset, len)| Step::Read(offset, len)),
        prop::collection::vec(read(), 0..40).prop_map(Step::ReadMany),
        prop::collection::vec(word(), 0..40).prop_map(Step::LoadAll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn slice_is_an_array_of_bytes(steps in prop::collection::vec(step(), 1..20)) {
        let memory = Memory::new(LEN);
        let slice = memory.slice();
        let mut model = vec![0; LEN];
        let inside = |offset: usize, len: usize| match offset + len <= LEN {
            true => Ok(()),
            false => Err(Error::OutOfMapping {
                offset,
                len,
                room: LEN,
            }),
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
            let mut all = [0; LEN];
            slice.read(0, &mut all).expect("inside");
            prop_assert_eq!(&all[..], &model[..]);
        }
    }
}
