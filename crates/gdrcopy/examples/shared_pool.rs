//! Threads take small buffers from one pool. Each has a flag and a message, and all of them share one pin and one
//! mapping.
//!
//! `cargo run --release --example shared_pool`, on a GPU or under gdremu.

use std::thread;

use gdrcopy::memory::CudaAllocator;
use gdrcopy::{Error, Gdr, Mapped, Pool};

const THREADS: u32 = 4;
const ROUNDS: u32 = 100;

/// Takes two buffers from the pool, uses them, and gives them back.
fn exchange(pool: &Pool, value: u32) -> Result<(), Error> {
    let flag = pool.alloc_zeroed(4)?;
    let message = pool.alloc(100)?;
    message.write(0, &value.to_ne_bytes())?;
    flag.word::<u32>(0)?.store(value);
    // A GPU kernel would be passed these addresses.
    assert_ne!(flag.device_address(), message.device_address());
    assert_eq!(flag.word::<u32>(0)?.load(), value);
    assert_eq!(message.array::<u32>(0, 1)?.get(0)?, value);
    Ok(())
}

fn main() -> Result<(), Error> {
    let pool = Pool::new(&Gdr::open()?, CudaAllocator::new(0)?);
    thread::scope(|s| {
        let work = |thread| {
            let pool = &pool;
            move || (0..ROUNDS).try_for_each(|round| exchange(pool, thread * ROUNDS + round))
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| s.spawn(work(thread))).collect();
        let results = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        results.collect::<Result<Vec<()>, Error>>()
    })?;
    println!("{:?}", pool.report()?);
    Ok(())
}
