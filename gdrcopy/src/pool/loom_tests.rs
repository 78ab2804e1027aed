//! Pools, in the interleavings of threads that loom finds (`make loom`).

use loom::thread;

use super::Pool;
use super::blocks::LARGE;
use super::sync::Arc;
use crate::testing::Gpu;

/// The largest buffer that shares a chunk is a whole one here.
const CHUNK: usize = LARGE as usize;

/// Runs a model of a pool, which must leave nothing pinned.
fn check(model: fn(&Gpu, Arc<Pool>)) {
    loom::model(move || {
        let gpu = Gpu::new();
        let pool = Pool::options().chunk_len(CHUNK);
        model(&gpu, Arc::new(pool.build(&gpu.open(), gpu.clone())));
        gpu.assert_unused();
    });
}

#[test]
fn threads_that_need_a_chunk_at_once_share_one() {
    check(|_, pool| {
        let allocates = thread::spawn({
            let pool = Arc::clone(&pool);
            move || pool.alloc(CHUNK / 2).expect("memory")
        });
        let one = pool.alloc(CHUNK / 2).expect("memory");
        let other = allocates.join().expect("no panic");
        assert_ne!(one.device_address(), other.device_address());
        let report = pool.report().expect("this process");
        assert_eq!((report.chunks, report.buffers), (1, 2));
    });
}

#[test]
fn trim_takes_no_chunk_from_a_thread_that_allocates() {
    check(|_, pool| {
        let buffer = pool.alloc(CHUNK).expect("memory");
        let trims = thread::spawn({
            let pool = Arc::clone(&pool);
            move || pool.trim().expect("this process")
        });
        drop(buffer);
        let buffer = pool.alloc(CHUNK / 2).expect("memory");
        trims.join().expect("no panic");
        let report = pool.report().expect("this process");
        assert_eq!((report.chunks, report.buffers), (1, 1));
        drop(buffer);
        pool.trim().expect("this process");
        assert_eq!(pool.report(), Ok(Default::default()));
    });
}

#[test]
fn large_buffer_is_reported_while_it_is_dropped() {
    check(|gpu, pool| {
        let buffer = pool.alloc(CHUNK + 1).expect("memory");
        let drops = thread::spawn(move || drop(buffer));
        let report = pool.report().expect("this process");
        assert!(report.chunks <= 1 && report.buffers <= report.chunks, "{report:?}");
        drops.join().expect("no panic");
        gpu.assert_unused();
    });
}

#[test]
fn last_buffers_and_the_pool_are_dropped_at_once() {
    check(|_, pool| {
        let [one, other] = [(); 2].map(|()| pool.alloc(CHUNK / 2).expect("memory"));
        let drops = thread::spawn(move || drop(one));
        drop(pool);
        drop(other);
        drops.join().expect("no panic");
    });
}
