//! Slices, words, arrays, batches and gathers of mapped memory, under gdremu.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gdrcopy::{Error, Gdr, MapFlag, Mapped, Mapping, Options, Words};

use crate::cuda::Cuda;
use crate::ownership::{PAGE, are_refused, await_child, fork, leave_child, pin, pinned};
use crate::{outside, pattern};

pub(crate) fn mapped(cuda: &Cuda, len: usize) -> (Mapping, u64) {
    let (pin, address) = pinned(cuda, len);
    let mapping = pin.map(len, MapFlag::Default).expect("an aligned pin");
    (mapping, address)
}

#[test]
#[ignore = "access_under_gdremu runs it"]
fn unaligned_pin_starts_at_offset_0_and_ends_where_it_was_asked_to() {
    let cuda = Cuda::new();
    let page = cuda.alloc(3 * PAGE).next_multiple_of(PAGE as u64);
    let address = page + 4099;
    let pin = pin(&Gdr::open().expect("a driver"), address, 1000).expect("GPU memory");
    assert_eq!((pin.address(), pin.len()), (address, 1000));
    let mapping = pin.map(900, MapFlag::Default).expect("any alignment");
    assert_eq!(mapping.len(), 900);
    mapping.write(0, &pattern(900, 0)).expect("inside");
    assert_eq!(cuda.read(address, 900), pattern(900, 0));
    assert_eq!(mapping.write(0, &[0; 901]), Err(outside(0, 901, 900)));
    assert_eq!(mapping.read(900, &mut [0]), Err(outside(900, 1, 900)));
    assert_eq!(cuda.read(address - 1, 1), [0]);
}

#[test]
#[ignore = "access_under_gdremu runs it"]
fn slice_is_bounded_like_a_rust_slice() {
    let (mapping, _) = mapped(&Cuda::new(), PAGE);
    let slice = mapping.slice(16..64).expect("inside");
    assert_eq!(slice.len(), 48);
    assert_eq!(slice.slice(..=47).expect("inside").len(), 48);
    assert!(slice.slice(48..).expect("its end").is_empty());
    let (head, tail) = slice.split_at(5).expect("inside");
    assert_eq!((head.len(), tail.len()), (5, 43));
    tail.write(0, b"tail").expect("inside");
    assert_eq!(mapping.read_vec(21, 4), Ok(b"tail".to_vec()));
    let backwards = std::ops::Range { start: 2, end: 1 };
    for error in [
        slice.slice(..49).err(),
        slice.slice(49..).err(),
        slice.slice(backwards).err(),
        slice.slice(..=usize::MAX).err(),
        slice.split_at(49).err(),
        slice.write(47, &[0; 2]).err(),
        slice.write(usize::MAX, &[0; 2]).err(),
        slice.slice(48..).and_then(|end| end.flush()).err(),
    ] {
        assert!(matches!(error, Some(Error::OutOfMapping { .. })), "{error:?}");
    }
}

#[test]
#[ignore = "access_under_gdremu runs it"]
fn word_of_each_type_is_the_memory_of_the_gpu() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda, PAGE);
    macro_rules! check {
        ($($type:ty = $value:expr),+) => { $(
            let word = mapping.word::<$type>(64).expect("aligned");
            word.store($value);
            assert_eq!(cuda.read(address + 64, size_of::<$type>()), $value.to_ne_bytes());
            cuda.write(address + 64, &[0x41; size_of::<$type>()]);
            assert_eq!(word.load(), <$type>::from_ne_bytes([0x41; _]));
        )+ };
    }
    check!(u8 = 0xfe_u8, u16 = 0xfedc_u16, u32 = 0xfedc_ba98_u32, u64 = u64::MAX - 7);
    check!(i8 = -2_i8, i16 = -300_i16, i32 = -70_000_i32, i64 = i64::MIN + 5);
    check!(f32 = -1.5_f32, f64 = 2.25e300_f64);
    let unaligned = mapping.word::<u64>(68).err();
    assert_eq!(unaligned, Some(Error::UnalignedWord { offset: 68, size: 8 }));
    assert_eq!(mapping.word::<u16>(PAGE - 1).err(), Some(outside(PAGE - 1, 2, PAGE)));
    assert_eq!(mapping.word::<u64>(PAGE).err(), Some(outside(PAGE, 8, PAGE)));
}

#[test]
#[ignore = "access_under_gdremu runs it"]
fn array_of_plain_data_is_read_and_written_at_any_alignment() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda, PAGE);
    let array = mapping.array::<[u32; 3]>(5, 10).expect("inside");
    array.write(0, &[[1, 2, 3]; 10]).expect("inside");
    array.set(9, [7, 8, 9]).expect("inside");
    assert_eq!(array.get(8), Ok([1, 2, 3]));
    assert_eq!(array.get(9), Ok([7, 8, 9]));
    let mut two = [[0; 3]; 2];
    array.read(8, &mut two).expect("inside");
    assert_eq!(two, [[1, 2, 3], [7, 8, 9]]);
    assert_eq!(cuda.read(address + 5 + 9 * 12, 4), 7_u32.to_ne_bytes());
    for (error, index, count) in [
        (array.get(10).err(), 10, 1),
        (array.set(10, [0; 3]).err(), 10, 1),
        (array.read(9, &mut two).err(), 9, 2),
        (array.write(usize::MAX, &two).err(), usize::MAX, 2),
    ] {
        let len = 10;
        assert_eq!(error, Some(Error::OutOfArray { index, count, len }));
    }
    for (error, offset, len) in
        [(mapping.array::<u64>(8, PAGE / 8).err(), 8, PAGE), (mapping.array::<u64>(0, usize::MAX).err(), 0, usize::MAX)]
    {
        assert_eq!(error, Some(outside(offset, len, PAGE)));
    }
}

#[test]
#[ignore = "access_under_gdremu runs it"]
fn batch_writes_what_single_writes_do() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda, PAGE);
    let (other, other_address) = mapped(&cuda, PAGE);
    let bytes = pattern(300, 0);
    let mut batch = mapping.batch().expect("this process");
    for (i, len) in [0, 1, 2, 3, 4, 7, 8, 16, 31, 64, 65, 300].into_iter().enumerate() {
        batch.write(i * 512 + i, &bytes[..len]).expect("inside");
    }
    batch.store(other.word::<u32>(4).expect("aligned"), 0x1234_5678);
    batch.write_to(other.as_slice(), 9, &bytes[..9]).expect("inside");
    assert_eq!(batch.write(PAGE - 1, &bytes[..2]), Err(outside(PAGE - 1, 2, PAGE)));
    batch.commit();
    for (i, len) in [0, 1, 2, 3, 4, 7, 8, 16, 31, 64, 65, 300].into_iter().enumerate() {
        let written = cuda.read(address + (i * 512 + i) as u64, len + 1);
        assert_eq!((&written[..len], written[len]), (&bytes[..len], 0), "{len} bytes");
    }
    assert_eq!(cuda.read(other_address + 4, 4), 0x1234_5678_u32.to_ne_bytes());
    assert_eq!(cuda.read(other_address + 9, 9), bytes[..9]);
    mapping.flush().expect("this process");
}

#[test]
#[ignore = "access_under_gdremu runs it"]
fn gather_reads_what_single_reads_do() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda, PAGE);
    let bytes = pattern(PAGE, 0);
    cuda.write(address, &bytes);
    let places: Vec<(usize, usize)> = (0..100).map(|i| (i * 613 % 60_000, i * i % 400)).collect();
    let mut buffers: Vec<Vec<u8>> = places.iter().map(|&(_, len)| vec![0; len]).collect();
    let offsets = places.iter().map(|&(offset, _)| offset);
    let mut items: Vec<(usize, &mut [u8])> = offsets.zip(buffers.iter_mut().map(Vec::as_mut_slice)).collect();
    mapping.read_many(&mut items).expect("inside");
    for (&(offset, len), buffer) in places.iter().zip(&buffers) {
        assert_eq!(buffer, &bytes[offset..offset + len], "{offset}+{len}");
    }
    let mut untouched = [1; 4];
    let refused = mapping.read_many(&mut [(0, &mut untouched), (PAGE - 1, &mut [0; 2])]);
    assert_eq!((refused, untouched), (Err(outside(PAGE - 1, 2, PAGE)), [1; 4]));

    let words: Words<'_, u16> = (0..50).map(|i| mapping.word(i * 98).expect("aligned")).collect();
    let mut values = [0; 50];
    words.load_all(&mut values);
    for (i, value) in values.into_iter().enumerate() {
        assert_eq!(value.to_ne_bytes(), bytes[i * 98..i * 98 + 2], "word {i}");
    }
    assert!(catch_unwind(|| words.load_all(&mut [0; 49])).is_err());
}

#[test]
#[ignore = "access_under_gdremu runs it"]
fn scattered_elements_are_the_gpus_and_gathered_in_any_order() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda, PAGE);
    let array = mapping.array::<[u32; 3]>(5, 1000).expect("inside");
    let at: Vec<usize> = (0..300).map(|i| i * 77 % 1000).collect();
    let values: Vec<[u32; 3]> = (0..300).map(|i| [i, !i, i << 16]).collect();
    array.scatter(&at, &values).expect("inside");
    assert_eq!(cuda.read(address + 5 + 77 * 12, 4), 1_u32.to_ne_bytes());
    assert_eq!(array.get(76), Ok([0; 3]));
    let (at, values): (Vec<_>, Vec<_>) = at.into_iter().zip(values).rev().unzip();
    let mut found = vec![[0; 3]; at.len()];
    array.gather(&at, &mut found).expect("inside");
    assert_eq!(found, values);

    let part = array.slice(77..=154).expect("inside");
    assert_eq!((part.len(), part.get(0)), (78, Ok([1, !1, 1 << 16])));
    let refused = Error::OutOfArray { index: 78, count: 1, len: 78 };
    let before = cuda.read(address, PAGE);
    let mut untouched = [[9; 3]; 2];
    assert_eq!(part.gather(&[0, 78], &mut untouched), Err(refused.clone()));
    assert_eq!(untouched, [[9; 3]; 2]);
    assert_eq!(part.scatter(&[0, 78], &untouched), Err(refused));
    assert!(catch_unwind(|| part.scatter(&[0], &[[9; 3]; 2])).is_err());
    assert!(catch_unwind(|| part.gather(&[0], &mut [[9; 3]; 2])).is_err());
    assert_eq!(cuda.read(address, PAGE), before);
    let backwards = std::ops::Range { start: 2, end: 1 };
    for (error, index, count) in [
        (part.slice(..79).err(), 0, 79),
        (part.slice(79..).err(), 79, 0),
        (part.slice(backwards).err(), 2, 0),
        (part.slice(..=usize::MAX).err(), usize::MAX, usize::MAX),
    ] {
        let len = 78;
        assert_eq!(error, Some(Error::OutOfArray { index, count, len }));
    }
    assert!(part.slice(78..).expect("its end").is_empty());
}

#[test]
#[ignore = "access_under_gdremu runs it"]
fn fill_writes_all_of_a_slice_and_no_other_byte() {
    let cuda = Cuda::new();
    let (mapping, address) = mapped(&cuda, PAGE);
    for (start, len) in [(3, 0), (5, 1), (8, 8), (100, 333), (1000, 1024), (2001, 5000)] {
        cuda.write(address, &pattern(PAGE, 0));
        mapping.slice(start..start + len).expect("inside").fill(0xee).expect("this process");
        let mut expected = pattern(PAGE, 0);
        expected[start..start + len].fill(0xee);
        assert!(cuda.read(address, PAGE) == expected, "{len} bytes at {start}");
        let found = mapping.read_vec(start, len + 10).expect("inside");
        assert_eq!(found, expected[start..start + len + 10]);
    }
    let huge = usize::MAX - 7;
    assert_eq!(mapping.read_vec(7, huge), Err(outside(7, huge, PAGE)));
}

#[test]
#[ignore = "access_under_gdremu runs it"]
fn forked_child_is_refused_at_every_access() {
    let (mapping, _) = mapped(&Cuda::new(), PAGE);
    let slice = mapping.as_slice();
    let word = mapping.word::<u32>(0).expect("aligned");
    let words: Words<'_, u32> = [word].into_iter().collect();
    let array = mapping.array::<u32>(0, 1).expect("inside");
    let mut batch = mapping.batch().expect("this process");
    let child = fork();
    if child == 0 {
        let refused = are_refused(&[
            slice.write(0, &[1]).err(),
            slice.read(0, &mut [1]).err(),
            slice.read_many(&mut [(0, &mut [1])]).err(),
            slice.flush().err(),
            slice.batch().err(),
            batch.write(0, &[1]).err(),
            slice.fill(1).err(),
            slice.read_vec(0, 1).err(),
            array.gather(&[0], &mut [1]).err(),
            array.scatter(&[0], &[1]).err(),
        ]);
        std::panic::set_hook(Box::new(|_| {}));
        let panics = [
            catch_unwind(|| word.store(1)).is_err(),
            catch_unwind(|| word.load() == 0).is_err(),
            catch_unwind(|| words.load_all(&mut [0])).is_err(),
            catch_unwind(AssertUnwindSafe(|| batch.store(word, 1))).is_err(),
        ];
        leave_child(refused && panics == [true; 4])
    }
    await_child(child, "the child was served");
    assert_eq!(word.load(), 0);
}

#[test]
#[ignore = "access_under_gdremu runs it"]
fn device_path_that_does_not_exist_is_named_in_the_error() {
    let options: Options = Gdr::options().backend(gdrcopy::Backend::Gdrdrv);
    let error = options.device_path("/dev/no-such-gdrdrv").open().expect_err("no such file");
    assert_eq!(error.errno(), libc::ENOENT);
    let io = std::io::Error::from(error);
    assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
    assert!(io.to_string().contains("device path"), "{io}");
}
