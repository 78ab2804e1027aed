//! Owned views of memory of a GPU without a kernel.

use std::sync::Arc;
use std::thread;

use super::{Owned, OwnedArray, OwnedCounter, OwnedFlag, OwnedSlice, OwnedWord};
use crate::access::Mapped;
use crate::channel::{Counter, CounterWriter, Ring, RingReceiver, RingSender};
use crate::error::Error;
use crate::memory::{DeviceAllocator, MapOptions};
use crate::pool::Pool;
use crate::testing::Gpu;

/// The fields of a program's struct.
struct Held {
    word: OwnedWord<u64>,
    flag: OwnedFlag,
    begun: CounterWriter<'static>,
    done: OwnedCounter,
    rows: OwnedArray<[u32; 4]>,
    requests: RingSender<'static, [u32; 3]>,
    answers: RingReceiver<'static, [u32; 3]>,
}

impl Held {
    fn new(pool: &Pool) -> Held {
        Held {
            word: pool.word(0x0102_0304_0506_0708).expect("memory"),
            flag: pool.flag().expect("memory"),
            begun: pool.counter().expect("memory").into_writer(),
            done: pool.counter().expect("memory"),
            rows: pool.array(100).expect("memory"),
            requests: pool.ring_to_gpu(8).expect("memory"),
            answers: pool.ring_from_gpu(8).expect("memory"),
        }
    }

    fn device_addresses(&self) -> [u64; 7] {
        [
            self.word.view().device_address(),
            self.flag.view().device_address(),
            self.begun.counter().device_address(),
            self.done.view().device_address(),
            self.rows.view().as_bytes().device_address(),
            self.requests.device_address(),
            self.answers.device_address(),
        ]
    }
}

fn pool_of(gpu: &Gpu) -> Pool {
    let pool = Pool::new(&gpu.open(), gpu.clone());
    // Bytes that others left in memory.
    let dirty = pool.alloc(60_000).expect("memory");
    dirty.fill(0xee).expect("this process");
    pool
}

#[test]
fn owned_views_outlive_their_pool_and_leave_no_pin() {
    let gpu = Gpu::new();
    let mut held = Held::new(&pool_of(&gpu));
    let word = held.word.view();
    assert_eq!(word.load(), 0x0102_0304_0506_0708);
    word.store(5);
    held.flag.view().set(1);
    held.rows.view().set(99, [7; 4]).expect("inside");
    assert_eq!(held.rows.view().get(98), Ok([0; 4]));
    assert_eq!((held.begun.add(2), held.done.view().get()), (2, 0));
    assert_eq!(held.requests.try_send(&[[1; 3]; 9]), Ok(8));
    assert_eq!(held.answers.pop(), Ok(None));

    let mut places = held.device_addresses();
    let mut bytes = [0; 8];
    gpu.read(places[0], &mut bytes);
    assert_eq!(bytes, 5_u64.to_ne_bytes());
    gpu.read(places[1], &mut bytes[..4]);
    assert_eq!(bytes[..4], 1_u32.to_ne_bytes());
    gpu.read(places[2], &mut bytes);
    assert_eq!(bytes, 2_u64.to_ne_bytes());
    gpu.read(places[4] + 99 * 16, &mut bytes);
    assert_eq!(bytes, [7, 0, 0, 0, 7, 0, 0, 0]);
    let ring = gpu.memory(places[5], Ring::<[u32; 3]>::bytes(8));
    let mut kernel = Ring::<[u32; 3]>::attach(ring, 8, 0).expect("room").into_receiver();
    assert_eq!(kernel.pop(), Ok(Some([1; 3])));
    places.sort_unstable();
    assert!(places.iter().all(|place| place.is_multiple_of(64)));
    assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
    drop(held);
    gpu.assert_unused();
}

#[test]
fn each_owned_view_keeps_its_memory_by_itself() {
    let gpu = Gpu::new();
    let keeps: [fn(Held) -> Box<dyn Send>; 7] = [
        |held| Box::new(held.word),
        |held| Box::new(held.flag),
        |held| Box::new(held.begun),
        |held| Box::new(held.done),
        |held| Box::new(held.rows),
        |held| Box::new(held.requests),
        |held| Box::new(held.answers),
    ];
    for keep in keeps {
        let kept = keep(Held::new(&pool_of(&gpu)));
        let unused = std::panic::AssertUnwindSafe(|| gpu.assert_unused());
        assert!(std::panic::catch_unwind(unused).is_err(), "freed too early");
        drop(kept);
        gpu.assert_unused();
    }
}

#[test]
fn clones_in_threads_are_the_same_memory() {
    let gpu = Gpu::new();
    let flag = pool_of(&gpu).flag().expect("memory");
    let waits = flag.clone();
    let waits = thread::spawn(move || waits.view().wait(3, None));
    flag.view().set(3);
    drop(flag);
    assert_eq!(waits.join().expect("no panic"), Ok(()));
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
    let counter = OwnedCounter::new(Arc::new(slice), |memory| memory.word(8).map(Counter::new));
    let counter = counter.expect("inside");
    assert_eq!(counter.view().device_address(), address + 16);
    let mut bytes = [0; 4];
    gpu.read(address + 8, &mut bytes);
    assert_eq!(&bytes, b"part");
    assert_eq!(format!("{counter:?}"), format!("Owned({:?})", counter.view()));
    drop(counter);
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
    assert_eq!(pool.array::<u64>(usize::MAX / 4).err(), Some(Error::RangeOverflow));
    assert_eq!(pool.array::<u64>(0).err(), Some(Error::EmptyRange));
    assert!(pool.ring_to_gpu::<[u32; 1 << 20]>(1 << 31).is_err());
    assert_eq!(pool.report().expect("this process").buffers, 0);
}

#[test]
fn owned_views_go_to_threads() {
    fn sendable<V: Send + Sync + Clone + 'static>() {}
    sendable::<OwnedWord<u8>>();
    sendable::<OwnedArray<[f32; 4]>>();
    sendable::<OwnedFlag>();
    sendable::<OwnedCounter>();
    sendable::<OwnedSlice>();
    fn moved<V: Send + 'static>() {}
    moved::<Owned<Ring<'static, u32>>>();
    moved::<RingSender<'static, u32>>();
    moved::<RingReceiver<'static, u32>>();
    moved::<CounterWriter<'static>>();
}
