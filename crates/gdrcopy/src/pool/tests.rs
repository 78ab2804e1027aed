//! Tests pools of a simulated GPU, without a kernel module.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread;

use super::{Pool, PoolBuffer};
use crate::access::Mapped;
use crate::error::Result;
use crate::memory::{DeviceAllocator, DeviceMemory};
use crate::testing::Gpu;

#[test]
fn buffers_that_threads_pass_on_are_apart_and_leave_no_pin() {
    const SIZES: [usize; 4] = [1, 100, 5000, 70_000];
    let gpu = Gpu::new();
    let pool = Pool::new(&gpu.open(), gpu.clone());
    thread::scope(|s| {
        let (sender, receiver) = mpsc::channel::<(PoolBuffer, u8)>();
        for stamp in 1..4 {
            let (pool, sender) = (&pool, sender.clone());
            s.spawn(move || {
                for len in SIZES {
                    let buffer = pool.alloc(len).expect("memory");
                    buffer.write(len - 1, &[stamp]).expect("inside");
                    sender.send((buffer, stamp)).expect("received");
                    pool.trim().expect("this process");
                }
            });
        }
        drop(sender);
        for (buffer, stamp) in receiver {
            let mut found = [0];
            buffer.read(buffer.len() - 1, &mut found).expect("inside");
            assert_eq!(found, [stamp], "someone else's memory");
        }
    });
    assert_eq!(pool.report().expect("this process").buffers, 0);
    let large = pool.alloc(3 << 20).expect("memory");
    drop(pool);
    large.write(0, b"alive").expect("inside");
    drop(large);
    gpu.assert_unused();
}

/// Counts the chunks that a pool asks for, and checks that no other thread can ask for one at the same time.
#[derive(Debug)]
struct Counted {
    gpu: Gpu,
    pool: &'static OnceLock<Pool>,
    chunks: AtomicUsize,
}

impl DeviceAllocator for &'static Counted {
    fn allocate(&self, len: usize) -> Result<Box<dyn DeviceMemory>> {
        let pool = self.pool.get().expect("a pool");
        assert!(pool.growth.try_lock().is_none(), "two threads can make a chunk at once");
        self.chunks.fetch_add(1, Ordering::Relaxed);
        self.gpu.allocate(len)
    }
}

#[test]
fn chunk_is_made_by_one_thread_and_seen_by_all_beside_a_trim() {
    static POOL: OnceLock<Pool> = OnceLock::new();
    static COUNTED: OnceLock<Counted> = OnceLock::new();
    let gpu = Gpu::new();
    let gdr = gpu.open();
    let counted = COUNTED.get_or_init(|| Counted { gpu, pool: &POOL, chunks: AtomicUsize::new(0) });
    let pool = POOL.get_or_init(|| Pool::new(&gdr, counted));
    // This buffer keeps the chunk in use, so `trim` never frees the chunk. The chunk always has room for another
    // buffer.
    let kept = pool.alloc(1).expect("memory");
    let rounds = if cfg!(miri) { 20 } else { 1_000_000 };
    thread::scope(|s| {
        let trimming = s.spawn(|| {
            for _ in 0..rounds {
                pool.trim().expect("this process");
            }
        });
        while !trimming.is_finished() {
            drop(pool.take(1, 1).expect("the chunk with room is seen"));
        }
    });
    drop(kept);
    assert_eq!(counted.chunks.load(Ordering::Relaxed), 1);
}
