//! Pools of a GPU without a kernel.

use std::sync::mpsc;
use std::thread;

use super::{Pool, PoolBuffer};
use crate::access::Mapped;
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
