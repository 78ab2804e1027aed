//! Tests owned views of the memory of a simulated GPU, without a kernel module.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::thread;

use super::{OwnedArray, OwnedSlice, OwnedWord, OwnedWords};
use crate::access::Mapped;
use crate::error::{Error, GdrError};
use crate::memory::{DeviceAllocator, MapOptions};
use crate::pool::Pool;
use crate::testing::Gpu;

fn pool_of(gpu: &Gpu) -> Pool {
    let pool = Pool::new(&gpu.open(), gpu.clone());
    // Later buffers reuse this memory. Its bytes are not zero, so a test fails if a new array is not zeroed.
    let dirty = pool.alloc(60_000).expect("memory");
    dirty.fill(0xee).expect("this process");
    pool
}

#[test]
fn owned_views_outlive_their_pool_and_leave_no_pin() {
    let gpu = Gpu::new();
    let pool = pool_of(&gpu);
    let word = pool.word(0x0102_0304_0506_0708_u64).expect("memory");
    let rows: OwnedArray<[u32; 4]> = pool.array(100).expect("memory");
    drop(pool);
    assert_eq!(word.view().load(), 0x0102_0304_0506_0708);
    word.view().store(5);
    rows.view().set(99, [7; 4]).expect("inside");
    assert_eq!(rows.view().get(98), Ok([0; 4]));
    let at = word.view().device_address();
    let row = rows.view().as_bytes().device_address();
    let mut bytes = [0; 8];
    gpu.read(at, &mut bytes);
    assert_eq!(bytes, 5_u64.to_ne_bytes());
    gpu.read(row + 99 * 16, &mut bytes);
    assert_eq!(bytes, [7, 0, 0, 0, 7, 0, 0, 0]);
    assert!(at.is_multiple_of(64) && row.is_multiple_of(64) && at / 64 != row / 64);
    drop(word);
    let unused = std::panic::AssertUnwindSafe(|| gpu.assert_unused());
    assert!(std::panic::catch_unwind(unused).is_err(), "freed too early");
    drop(rows);
    gpu.assert_unused();
}

#[test]
fn clones_in_threads_are_the_same_memory() {
    let gpu = Gpu::new();
    let flag = pool_of(&gpu).word(0_u32).expect("memory");
    let waits = flag.clone();
    let waits = thread::spawn(move || waits.view().spin_until(|value| value == 3, None));
    flag.view().store(3);
    drop(flag);
    assert_eq!(waits.join().expect("no panic"), Ok(3));
    gpu.assert_unused();
}

#[test]
fn view_of_any_memory_keeps_all_of_it() {
    let gpu = Gpu::new();
    let memory = gpu.allocate(1000).expect("memory");
    let mapping = gpu.open().map_owned(memory, MapOptions::default());
    let mapping = Arc::new(mapping.expect("GPU memory"));
    let slice = OwnedSlice::new(Arc::clone(&mapping), |memory| memory.slice(8..512));
    let slice = slice.expect("inside");
    let address = mapping.device_address();
    drop(mapping);
    slice.write(0, b"part").expect("inside");
    let word = OwnedWord::<u64>::new(Arc::new(slice), |memory| memory.word(8));
    let word = word.expect("inside");
    assert_eq!(word.view().device_address(), address + 16);
    let mut bytes = [0; 4];
    gpu.read(address + 8, &mut bytes);
    assert_eq!(&bytes, b"part");
    assert_eq!(format!("{word:?}"), format!("Owned({:?})", word.view()));
    drop(word);
    gpu.assert_unused();
}

#[test]
fn flags_of_any_owner_are_polled_at_once() {
    let gpu = Gpu::new();
    let buffer: Arc<dyn Mapped> = Arc::new(pool_of(&gpu).alloc_zeroed(4096).expect("memory"));
    assert_eq!((buffer.len(), buffer.as_slice().device_address()), (4096, buffer.device_address()));
    assert_eq!(buffer.as_mut_ptr(), buffer.as_slice().as_mut_ptr());
    let address = buffer.device_address();
    let words = OwnedWords::<u32>::new(Arc::new(buffer), |memory| (0..64).map(|i| memory.word(64 * i)).collect());
    let flags = words.expect("inside").clone();
    gpu.write(address + 64 * 63, &[1]);
    let mut values = [7; 64];
    flags.load_all(&mut values);
    assert_eq!((values[0], values[62], values[63]), (0, 0, 1));
    let last = flags.get(63).expect("the last one");
    assert_eq!((last.load(), last.device_address()), (1, address + 64 * 63));
    assert!(flags.get(64).is_none());
    drop(flags);
    gpu.assert_unused();
}

#[test]
fn refused_views_give_their_memory_back() {
    let gpu = Gpu::new();
    let pool = pool_of(&gpu);
    let buffer = Arc::new(pool.alloc(64).expect("memory"));
    let word = OwnedWord::<u64>::new(Arc::clone(&buffer), |memory| memory.word(60));
    assert!(matches!(word, Err(Error::OutOfMapping { .. })), "{word:?}");
    assert_eq!(Arc::strong_count(&buffer), 1);
    drop(buffer);
    assert_eq!(pool.array::<u64>(usize::MAX / 4).err(), Some(GdrError::RangeOverflow.into()));
    assert_eq!(pool.array::<u64>(0).err(), Some(GdrError::EmptyRange.into()));
    assert_eq!(pool.report().expect("this process").buffers, 0);
}

#[test]
fn owned_views_go_to_threads() {
    fn sendable<V: Send + Sync + Clone + 'static>() {}
    sendable::<OwnedWord<u8>>();
    sendable::<OwnedArray<[f32; 4]>>();
    sendable::<OwnedSlice>();
    sendable::<OwnedWords<u8>>();
}
