//! Which ranges a cache serves, and what it keeps of them.

use std::collections::BTreeMap;
use std::sync::Barrier;

use gdrcopy::pin_cache::CachedSlice;
use gdrcopy::{Error, Gdr, Mapped, PinCache};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{UNLIMITED, cache, calls, get, report};
use crate::cuda::Cuda;
use crate::outside;
use crate::ownership::{PAGE, are_refused, await_child, fork, leave_child, pin};

/// gdremu gives such buffers addresses of their own, which are used again once they are freed.
const BUFFER: usize = 2 << 20;

/// Entries, bytes, hits and misses.
fn counts(cache: &PinCache) -> (usize, u64, u64, u64) {
    let report = report(cache);
    (report.entries, report.bytes, report.hits, report.misses)
}

fn byte_of(slice: &CachedSlice) -> u8 {
    let mut byte = [0];
    slice.read(0, &mut byte).expect("inside");
    byte[0]
}

fn cpu_address(slice: &CachedSlice) -> usize {
    slice.as_slice().as_mut_ptr() as usize
}

fn is_same(a: &CachedSlice, b: &CachedSlice) -> bool {
    (cpu_address(a), a.len()) == (cpu_address(b), b.len())
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn same_range_is_pinned_once() {
    let (cuda, cache) = (Cuda::new(), cache(UNLIMITED));
    let address = cuda.alloc(BUFFER);
    let first = get(&cache, address + 3, 1000).expect("GPU memory");
    let second = get(&cache, address + 3, 1000).expect("the same");
    assert!(is_same(&first, &second));
    first.write(0, &[0x42]).expect("inside");
    assert_eq!(cuda.read(address + 3, 1), [0x42]);
    drop((first, second));
    get(&cache, address + 3, 1000).expect("kept");
    assert_eq!(counts(&cache), (1, 1000, 2, 1));
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn range_inside_a_cached_one_is_served_from_it() {
    let (cuda, cache) = (Cuda::new(), cache(UNLIMITED));
    let address = cuda.alloc(BUFFER) + 5;
    let whole = get(&cache, address, 1 << 20).expect("GPU memory");
    for (offset, len) in [(0, 1), (4096, 4096), (70_000, 900_000), ((1 << 20) - 1, 1)] {
        let part = get(&cache, address + offset, len).expect("inside");
        assert_eq!(cpu_address(&part), cpu_address(&whole) + offset as usize);
        assert_eq!(part.device_address(), address + offset);
        assert_eq!((part.len(), part.as_slice().len()), (len, len));
        part.write(len - 1, &[0x42]).expect("inside");
        assert_eq!(cuda.read(address + offset + len as u64 - 1, 1), [0x42]);
        assert_eq!(part.write(len, &[1]), Err(outside(len, 1, len)));
    }
    assert_eq!(counts(&cache), (1, 1 << 20, 4, 1));
    let part = get(&cache, address + 4096, 4096).expect("inside");
    drop(whole);
    cache.clear().expect("this process");
    part.write(0, b"valid").expect("a slice outlives its entry");
    assert_eq!(cuda.read(address + 4096, 5), b"valid");
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn range_across_an_end_of_a_cached_one_is_pinned() {
    let (cuda, cache) = (Cuda::new(), cache(UNLIMITED));
    let address = cuda.alloc(BUFFER);
    get(&cache, address + 1000, 1000).expect("GPU memory");
    get(&cache, address + 1001, 1000).expect("one byte more");
    get(&cache, address + 999, 1000).expect("one byte before");
    assert_eq!(counts(&cache), (3, 3000, 0, 3));
    get(&cache, address + 1000, 1000).expect("kept");
    get(&cache, address + 1500, 501).expect("kept");
    get(&cache, address + 999, 500).expect("kept");
    assert_eq!(counts(&cache), (3, 3000, 3, 3));
    let small = get(&cache, address + 1000, 1000).expect("kept");
    get(&cache, address + 999, 1001).expect("a range that contains two");
    assert_eq!(counts(&cache), (2, 2001, 4, 4));
    let inside = get(&cache, address + 1000, 1000).expect("part of the new one");
    assert!(!is_same(&small, &inside));
    small.write(0, &[1]).expect("it outlives its entry");
    assert_eq!(byte_of(&inside), 1);
    assert_eq!(counts(&cache), (2, 2001, 5, 4));
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn capacity_counts_whole_pages() {
    let cuda = Cuda::new();
    let address = cuda.alloc(4 * BUFFER);
    let gdr = Gdr::open().expect("an emulated driver");
    let page = pin(&gdr, address, 1).and_then(|pin| pin.info());
    let page = page.expect("GPU memory").page_size as usize;
    let cache = cache(10 * page + page / 2);
    for i in 0..40 {
        get(&cache, address + (i * page) as u64, 64).expect("GPU memory");
    }
    let small = report(&cache);
    assert_eq!((small.entries, small.bytes), (10, 640));
    assert_eq!((small.pinned_bytes, small.evictions), (10 * page as u64, 30));
    cache.clear().expect("this process");
    // Each takes the page that both share.
    get(&cache, address, 64).expect("GPU memory");
    get(&cache, address + 64, 64).expect("GPU memory");
    assert_eq!(report(&cache).pinned_bytes, 2 * page as u64);
    get(&cache, address + page as u64 - 1, 8 * page + 2).expect("it touches ten pages");
    let large = report(&cache);
    assert_eq!((large.entries, large.bytes), (1, 8 * page as u64 + 2));
    assert_eq!(large.pinned_bytes, 10 * page as u64);
    get(&cache, address + page as u64 - 1, 9 * page + 2).expect("not kept");
    assert_eq!(report(&cache).pinned_bytes, 10 * page as u64);
    assert_eq!(report(&cache).misses, 44);
    cache.invalidate(address, 4 * BUFFER).expect("this process");
    let empty = report(&cache);
    assert_eq!((empty.bytes, empty.pinned_bytes), (0, 0));
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn capacity_in_use_is_not_given_to_others() {
    let (cuda, cache) = (Cuda::new(), cache(2 * PAGE));
    let address = cuda.alloc(BUFFER);
    let place = |i: usize| address + (i * PAGE) as u64;
    let in_use = get(&cache, place(0), PAGE).expect("GPU memory");
    get(&cache, place(1), PAGE).expect("GPU memory");
    get(&cache, place(2), PAGE).expect("in place of the idle one, which was used later");
    assert!(is_same(&in_use, &get(&cache, place(0), PAGE).expect("kept")));
    let all = get(&cache, place(2), PAGE).expect("kept");
    assert_eq!(calls(&cache), (2, 3));
    get(&cache, place(3), PAGE).expect("not kept");
    assert_eq!(report(&cache).pinned_bytes, 2 * PAGE as u64);
    get(&cache, place(3), PAGE).expect("pinned again");
    assert_eq!(calls(&cache), (2, 5));
    drop((in_use, all));
    get(&cache, place(3), PAGE).expect("in place of one of them");
    get(&cache, place(3), PAGE).expect("kept");
    assert_eq!(calls(&cache), (3, 6));
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn memory_allocated_again_inside_a_cached_range_is_pinned_again() {
    let (cuda, cache) = (Cuda::new(), cache(UNLIMITED));
    // Neighbors, which take one pin.
    let [first, second] = [(); 2].map(|()| cuda.alloc(BUFFER));
    assert_eq!(second, first + BUFFER as u64, "the test needs neighbors");
    cuda.write(first, b"old");
    cuda.write(second, b"second");
    let whole = get(&cache, first, 2 * BUFFER).expect("GPU memory");
    drop(whole);
    let across = get(&cache, second - 3, 6).expect("of both");
    assert_eq!(across.len(), 6);
    drop(across);
    assert_eq!(counts(&cache), (1, 2 * BUFFER as u64, 1, 1));

    cuda.free(first);
    let gdr = Gdr::open().expect("an emulated driver");
    let outlives = gdr.is_persistent() == Ok(true);
    let rest = get(&cache, second, 6).expect("GPU memory");
    assert_eq!(byte_of(&rest), b's');
    let hits = if outlives { (2, 1) } else { (1, 2) };
    assert_eq!(calls(&cache), hits, "the driver ends pins of freed memory only");
    drop(rest);

    assert_eq!(cuda.alloc(BUFFER), first, "the test needs the address again");
    cuda.write(first, b"new");
    let (hits, misses) = hits;
    let new = get(&cache, first, 3).expect("GPU memory");
    assert_eq!(byte_of(&new), b'n');
    assert_eq!(calls(&cache), (hits, misses + 1));
    let across = get(&cache, second - 3, 6).expect("of both");
    assert_eq!(across.len(), 6);
    assert_eq!(calls(&cache), (hits, misses + 2));
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn threads_that_need_the_same_range_pin_it_once() {
    const THREADS: usize = 4;
    let (cuda, cache) = (Cuda::new(), cache(UNLIMITED));
    let address = cuda.alloc(BUFFER);
    let barrier = Barrier::new(THREADS);
    for round in 1..=100 {
        let addresses = std::thread::scope(|s| {
            let threads = [(); THREADS].map(|()| {
                s.spawn(|| {
                    barrier.wait();
                    let slice = get(&cache, address, BUFFER).expect("GPU memory");
                    slice.write(0, &[round]).expect("inside");
                    let place = cpu_address(&slice);
                    // Otherwise a second mapping may get the addresses of the first.
                    barrier.wait();
                    place
                })
            });
            threads.map(|thread| thread.join().expect("no panic"))
        });
        assert_eq!(addresses, [addresses[0]; THREADS]);
        assert_eq!(report(&cache).misses, u64::from(round));
        cache.clear().expect("this process");
    }
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn memory_allocated_again_at_the_same_address_is_pinned_again() {
    let (cuda, cache) = (Cuda::new(), cache(UNLIMITED));
    let address = cuda.alloc(BUFFER);
    cuda.write(address, b"old");
    let old = get(&cache, address, 3).expect("GPU memory");
    assert_eq!(byte_of(&old), b'o');
    drop(old);
    get(&cache, address + 1, 7).expect("a second entry of the same buffer");
    cuda.free(address);
    assert_eq!(cuda.alloc(BUFFER), address, "the test needs the address again");
    cuda.write(address, b"new");
    let new = get(&cache, address, 3).expect("GPU memory");
    assert_eq!(byte_of(&new), b'n');
    assert_eq!(counts(&cache), (1, 3, 0, 3), "all entries of the old buffer are gone");
    cuda.free(address);
    let freed = get(&cache, address, 3).expect_err("no memory there");
    assert!(matches!(freed, Error::Cuda { .. }), "{freed:?}");
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn least_recently_used_entries_go_first() {
    let (cuda, cache) = (Cuda::new(), cache(3 * PAGE));
    let address = cuda.alloc(BUFFER);
    let place = |i: usize| address + (i * PAGE) as u64;
    for i in 0..3 {
        get(&cache, place(i), PAGE).expect("GPU memory");
    }
    get(&cache, place(0) + 1, 1).expect("kept");
    assert_eq!(counts(&cache), (3, 3 * PAGE as u64, 1, 3));
    get(&cache, place(3), PAGE).expect("in place of 1");
    get(&cache, place(0), PAGE).expect("kept");
    assert_eq!(counts(&cache), (3, 3 * PAGE as u64, 2, 4));
    let outlives = get(&cache, place(1), PAGE).expect("in place of 2");
    assert_eq!(counts(&cache), (3, 3 * PAGE as u64, 2, 5));
    let all = get(&cache, address, 3 * PAGE).expect("in place of all");
    assert_eq!(counts(&cache), (1, 3 * PAGE as u64, 2, 6));
    outlives.write(0, &[7]).expect("a slice outlives its entry");
    assert_eq!(cuda.read(place(1), 1), [7]);
    let too_large = get(&cache, address, 3 * PAGE + 1).expect("not kept");
    assert_eq!(too_large.len(), 3 * PAGE + 1);
    assert_eq!(counts(&cache), (1, 3 * PAGE as u64, 2, 7));
    assert!(is_same(&all, &get(&cache, address, 3 * PAGE).expect("kept")));
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn invalidate_forgets_what_overlaps() {
    let (cuda, cache) = (Cuda::new(), cache(UNLIMITED));
    let address = cuda.alloc(BUFFER);
    for (offset, len) in [(0, 100), (100, 100), (150, 100), (250, 10)] {
        get(&cache, address + offset, len).expect("GPU memory");
    }
    cache.invalidate(address + 199, 0).expect("nothing");
    cache.invalidate(address + 200, 1).expect("one");
    assert_eq!(counts(&cache), (3, 210, 0, 4));
    cache.invalidate(address + 99, 2).expect("two");
    assert_eq!(counts(&cache), (1, 10, 0, 4));
    cache.invalidate(address + 260, usize::MAX).expect("none");
    assert_eq!(counts(&cache), (1, 10, 0, 4));
    cache.clear().expect("all");
    assert_eq!(counts(&cache), (0, 0, 0, 4));
    assert_eq!(get(&cache, address, 0).err(), Some(Error::EmptyRange));
    let beyond = get(&cache, u64::MAX - 1, 3).err();
    assert_eq!(beyond, Some(Error::RangeOverflow));
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn forked_child_is_not_served() {
    let (cuda, cache) = (Cuda::new(), cache(UNLIMITED));
    let address = cuda.alloc(BUFFER);
    let slice = get(&cache, address, 100).expect("GPU memory");
    let child = fork();
    if child == 0 {
        let refused = are_refused(&[
            get(&cache, address, 100).err(),
            cache.invalidate(address, 1).err(),
            cache.clear().err(),
            cache.report().err(),
            slice.write(0, &[2]).err(),
        ]);
        drop((cache, slice));
        leave_child(refused)
    }
    await_child(child, "the child was served, or ended by a signal");
    slice.write(0, &[1]).expect("the parent's mapping is as it was");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc,
    Free(usize),
    /// Pins via the cache, each with buffer, offset and length in pages.
    Get(usize, usize, usize),
    Invalidate(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let any = any::<usize>;
    prop_oneof![
        2 => Just(Step::Alloc),
        2 => any().prop_map(Step::Free),
        6 => (any(), 0..3_usize, 1..4_usize).prop_map(|(which, from, len)| Step::Get(which, from, len)),
        1 => any().prop_map(Step::Invalidate),
    ]
}

/// Live buffers with the byte that they are full of. The cache always serves the memory of a live buffer, never of an
/// earlier one at its address. Unit tests compare what it keeps with a model.
#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn cache_serves_what_is_allocated_now() {
    const CAPACITY: usize = 6 * PAGE;
    let cuda = Cuda::new();
    let config = Config { failure_persistence: None, cases: 32, ..Config::default() };
    let steps = prop::collection::vec(step(), 1..60);
    let result = TestRunner::new(config).run(&steps, |steps| {
        let cache = cache(CAPACITY);
        let mut buffers: Vec<(u64, u8)> = Vec::new();
        let mut freed = BTreeMap::new();
        let mut stamp = 0_u8;
        for step in steps {
            match step {
                Step::Alloc if buffers.len() < 4 => {
                    stamp += 1;
                    let address = cuda.alloc(BUFFER);
                    cuda.write(address, &[stamp; 6 * PAGE]);
                    buffers.push((address, stamp));
                }
                Step::Alloc => {}
                _ if buffers.is_empty() => {}
                Step::Free(which) => {
                    let (address, stamp) = buffers.swap_remove(which % buffers.len());
                    cuda.free(address);
                    freed.insert(address, stamp);
                }
                Step::Get(which, from, len) => {
                    let (address, stamp) = buffers[which % buffers.len()];
                    let (from, len) = (address + (from * PAGE) as u64, len * PAGE);
                    let slice = get(&cache, from, len).expect("live memory");
                    prop_assert_eq!(slice.len(), len);
                    let before = freed.get(&address);
                    prop_assert_eq!(byte_of(&slice), stamp, "there was {:?} before", before);
                    slice.write(len - 1, &[stamp]).expect("inside");
                    prop_assert_eq!(cuda.read(from + len as u64 - 1, 1), [stamp]);
                    let again = get(&cache, from, len).expect("live memory");
                    prop_assert!(is_same(&slice, &again), "not kept");
                    prop_assert!(report(&cache).pinned_bytes <= CAPACITY as u64);
                }
                Step::Invalidate(which) => {
                    let (address, _) = buffers[which % buffers.len()];
                    cache.invalidate(address, BUFFER).expect("this process");
                }
            }
        }
        for (address, _) in buffers {
            cuda.free(address);
        }
        Ok(())
    });
    result.expect("the cache is as the model");
}
