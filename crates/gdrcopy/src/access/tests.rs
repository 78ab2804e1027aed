//! Tests accesses to host memory in place of GPU memory. Miri runs these tests too. The fuzz test (tests/fuzz) makes
//! the same accesses at random under gdremu.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::access::{Mapped, MappedSlice, Words};
use crate::error::Error;
use crate::pool::Pool;
use crate::testing::{Gpu, Memory};

const LEN: usize = 400;

/// Neighboring bytes of a copy differ, so that the test finds bytes that were copied to a wrong place.
#[test]
fn copies_change_their_bytes_only_and_return_them() {
    let memory = Memory::aligned(LEN, 64);
    let slice = memory.slice();
    let mut model = vec![0; LEN];
    for (stamp, (offset, len)) in
        [(0, 0), (8, 8), (17, 7), (1, 130), (64, 64), (60, 9), (5, 395)].into_iter().enumerate()
    {
        let bytes: Vec<u8> = (0..len).map(|i| (97 * stamp + 7 * i) as u8).collect();
        slice.write(offset, &bytes).expect("inside");
        model[offset..][..len].copy_from_slice(&bytes);
        assert_eq!(slice.read_vec(0, LEN), Ok(model.clone()));
        assert_eq!(slice.read_vec(offset, len), Ok(bytes));
        let outside = Error::OutOfMapping { offset: LEN - len, len: len + 1, room: LEN };
        assert_eq!(slice.write(LEN - len, &vec![0; len + 1]), Err(outside));
    }
    slice.slice(3..70).expect("inside").fill(9).expect("this process");
    model[3..70].fill(9);
    assert_eq!(slice.read_vec(0, LEN), Ok(model));
}

#[test]
fn many_places_are_read_and_written_at_once() {
    let memory = Memory::aligned(LEN, 64);
    let slice = memory.slice();
    // Elements have 21 bytes, so that they start at different places of a cache line.
    let array = slice.array::<[u8; 21]>(10, 18).expect("inside");
    array.scatter(&[17, 0, 4], &[[1; 21], [2; 21], [3; 21]]).expect("inside");
    let mut found = [[0; 21]; 4];
    array.gather(&[4, 17, 1, 4], &mut found).expect("inside");
    assert_eq!(found, [[3; 21], [1; 21], [0; 21], [3; 21]]);
    let outside = Err(Error::OutOfArray { index: 18, count: 1, len: 18 });
    assert_eq!(array.gather(&[0, 18], &mut found[..2]), outside);
    assert_eq!((array.scatter(&[0, 18], &[[9; 21]; 2]), array.get(0)), (outside, Ok([2; 21])));

    let (mut first, mut second) = ([0; 3], [0; 100]);
    slice.read_many(&mut [(29, &mut first), (300, &mut second), (7, &mut [])]).expect("inside");
    assert_eq!((first, second[66], second[67]), ([2, 2, 0], 0, 1));
    let left = slice.read_vec(0, LEN);
    let outside = Error::OutOfMapping { offset: LEN, len: 1, room: LEN };
    assert_eq!((slice.write_many(&[(0, &[9]), (LEN, &[9])]), slice.read_vec(0, LEN)), (Err(outside), left));
    let mut model = slice.read_vec(0, LEN).expect("inside");
    let bytes: Vec<u8> = (0..100).collect();
    for lens in [[8, 8, 8], [5, 0, 100], [24, 24, 24]] {
        slice
            .write_many(&[(200, &bytes[..lens[0]]), (37, &bytes[..lens[1]]), (240, &bytes[..lens[2]])])
            .expect("inside");
        for (offset, len) in [200, 37, 240].into_iter().zip(lens) {
            model[offset..][..len].copy_from_slice(&bytes[..len]);
        }
        assert_eq!(slice.read_vec(0, LEN).as_ref(), Ok(&model));
    }
    slice.write_many(&[]).expect("no items");
    slice.write(200, &[0; 140]).expect("inside");
    let words = [1, 0, 40].map(|index| slice.word::<u64>(8 * index).expect("aligned"));
    words[2].store(u64::MAX);
    let mut values = [7; 3];
    words.into_iter().collect::<Words<'_, u64>>().load_all(&mut values);
    assert_eq!(values, [0x0202_0202_0202_0000, 0, u64::MAX]);
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
