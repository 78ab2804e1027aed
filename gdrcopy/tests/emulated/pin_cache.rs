//! Pins that are kept for later use, under gdremu.

use std::collections::BTreeMap;
use std::sync::Arc;

use gdrcopy::{Error, Gdr, Mapped, Mapping, PinCache};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::cuda::Cuda;
use crate::ownership::PAGE;

/// gdremu gives such buffers addresses of their own, which are used again once they are freed.
const BUFFER: usize = 2 << 20;

fn cache(capacity: usize) -> PinCache {
    let gdr = Gdr::open().expect("an emulated driver");
    PinCache::new(&gdr, capacity).expect("an emulated CUDA driver")
}

fn get(cache: &PinCache, address: u64, len: usize) -> gdrcopy::Result<Arc<Mapping>> {
    // SAFETY: no Rust code but these tests uses emulated GPU memory, and mappings are not used after a free.
    unsafe { cache.get(address, len) }
}

/// Entries, bytes, hits and misses.
fn report(cache: &PinCache) -> (usize, u64, u64, u64) {
    let report = cache.report().expect("this process");
    (report.entries, report.bytes, report.hits, report.misses)
}

fn byte_of(mapping: &Mapping) -> u8 {
    let mut byte = [0];
    mapping.read(0, &mut byte).expect("inside");
    byte[0]
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn same_range_is_pinned_once() {
    let (cuda, cache) = (Cuda::new(), cache(1 << 30));
    let address = cuda.alloc(BUFFER);
    let first = get(&cache, address + 3, 1000).expect("GPU memory");
    let second = get(&cache, address + 3, 1000).expect("the same");
    assert!(Arc::ptr_eq(&first, &second));
    first.write(0, &[0x42]).expect("inside");
    assert_eq!(cuda.read(address + 3, 1), [0x42]);
    let longer = get(&cache, address + 3, 1001).expect("another range");
    assert!(!Arc::ptr_eq(&first, &longer));
    assert_eq!(report(&cache), (2, 2001, 1, 2));
    drop((first, second, longer));
    get(&cache, address + 3, 1000).expect("kept");
    assert_eq!(report(&cache), (2, 2001, 2, 2));
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn memory_allocated_again_at_the_same_address_is_pinned_again() {
    let (cuda, cache) = (Cuda::new(), cache(1 << 30));
    let address = cuda.alloc(BUFFER);
    cuda.write(address, b"old");
    let old = get(&cache, address, 3).expect("GPU memory");
    assert_eq!(byte_of(&old), b'o');
    drop(old);
    get(&cache, address + 1, 7).expect("a second entry of the same buffer");
    cuda.free(address);
    assert_eq!(
        cuda.alloc(BUFFER),
        address,
        "the test needs the address again"
    );
    cuda.write(address, b"new");
    let new = get(&cache, address, 3).expect("GPU memory");
    assert_eq!(byte_of(&new), b'n');
    assert_eq!(
        report(&cache),
        (1, 3, 0, 3),
        "all entries of the old buffer are gone"
    );
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
    get(&cache, place(0), PAGE).expect("kept");
    assert_eq!(report(&cache), (3, 3 * PAGE as u64, 1, 3));
    get(&cache, place(3), PAGE).expect("in place of 1");
    get(&cache, place(0), PAGE).expect("kept");
    assert_eq!(report(&cache), (3, 3 * PAGE as u64, 2, 4));
    let gone = get(&cache, place(1), PAGE).expect("in place of 2");
    assert_eq!(report(&cache), (3, 3 * PAGE as u64, 2, 5));
    let all = get(&cache, address, 3 * PAGE).expect("in place of all");
    assert_eq!(report(&cache), (1, 3 * PAGE as u64, 2, 6));
    gone.write(0, &[7]).expect("a mapping outlives its entry");
    assert_eq!(cuda.read(place(1), 1), [7]);
    let too_large = get(&cache, address, 3 * PAGE + 1).expect("not kept");
    assert_eq!(too_large.len(), 3 * PAGE + 1);
    assert_eq!(report(&cache), (1, 3 * PAGE as u64, 2, 7));
    let same = get(&cache, address, 3 * PAGE).expect("kept");
    assert!(Arc::ptr_eq(&all, &same));
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn invalidate_forgets_what_overlaps() {
    let (cuda, cache) = (Cuda::new(), cache(1 << 30));
    let address = cuda.alloc(BUFFER);
    for (offset, len) in [(0, 100), (100, 100), (150, 100), (250, 10)] {
        get(&cache, address + offset, len).expect("GPU memory");
    }
    cache.invalidate(address + 199, 0).expect("nothing");
    cache.invalidate(address + 200, 1).expect("one");
    assert_eq!(report(&cache), (3, 210, 0, 4));
    cache.invalidate(address + 99, 2).expect("two");
    assert_eq!(report(&cache), (1, 10, 0, 4));
    cache.invalidate(address + 260, usize::MAX).expect("none");
    assert_eq!(report(&cache), (1, 10, 0, 4));
    cache.clear().expect("all");
    assert_eq!(report(&cache), (0, 0, 0, 4));
    assert_eq!(get(&cache, address, 0).err(), Some(Error::EmptyRange));
    let beyond = get(&cache, u64::MAX - 1, 3).err();
    assert_eq!(beyond, Some(Error::RangeOverflow));
}

#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn forked_child_is_not_served() {
    let (cuda, cache) = (Cuda::new(), cache(1 << 30));
    let address = cuda.alloc(BUFFER);
    let mapping = get(&cache, address, 100).expect("GPU memory");
    // SAFETY: the child uses this library only, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = [
            get(&cache, address, 100).err(),
            cache.invalidate(address, 1).err(),
            cache.clear().err(),
            cache.report().err(),
        ];
        let all_refused = refused
            .iter()
            .all(|error| *error == Some(Error::ForkedChild));
        drop((cache, mapping));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!all_refused)) }
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child was served, or ended by a signal");
    mapping
        .write(0, &[1])
        .expect("the parent's mapping is as it was");
}

fn bytes(kept: &[(u64, usize, u8)]) -> usize {
    kept.iter().map(|&(_, len, _)| len).sum()
}

fn overlap((a, a_len, _): (u64, usize, u8), (b, b_len, _): (u64, usize, u8)) -> bool {
    a < b + b_len as u64 && b < a + a_len as u64
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc,
    Free(usize),
    /// Pins via the cache: which buffer, offset and length in pages.
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

/// The model: live buffers with the byte that they are full of, and what the cache keeps of them, in the order of
/// use. What the cache serves is always the memory of a live buffer, never of an earlier one at its address.
#[test]
#[ignore = "pin_cache_under_gdremu runs it"]
fn cache_serves_what_is_allocated_now() {
    const CAPACITY: usize = 6 * PAGE;
    let cuda = Cuda::new();
    let config = Config {
        failure_persistence: None,
        cases: 32,
        ..Config::default()
    };
    let steps = prop::collection::vec(step(), 1..60);
    let result = TestRunner::new(config).run(&steps, |steps| {
        let cache = cache(CAPACITY);
        let mut buffers: Vec<(u64, u8)> = Vec::new();
        let mut freed = BTreeMap::new();
        let mut stamp = 0_u8;
        // Address, length and the buffer's byte.
        let mut kept: Vec<(u64, usize, u8)> = Vec::new();
        let (mut hits, mut misses) = (0, 0);
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
                    let mapping = get(&cache, from, len).expect("live memory");
                    prop_assert_eq!(mapping.len(), len);
                    let before = freed.get(&address);
                    prop_assert_eq!(byte_of(&mapping), stamp, "there was {:?} before", before);
                    mapping.write(len - 1, &[stamp]).expect("inside");
                    prop_assert_eq!(cuda.read(from + len as u64 - 1, 1), [stamp]);
                    let again = get(&cache, from, len).expect("live memory");
                    prop_assert!(Arc::ptr_eq(&mapping, &again), "not kept");
                    let entry = (from, len, stamp);
                    if kept.contains(&entry) {
                        hits += 1;
                        kept.retain(|other| *other != entry);
                    } else {
                        misses += 1;
                        kept.retain(|other| other.2 == stamp || !overlap(*other, entry));
                        while bytes(&kept) + len > CAPACITY {
                            kept.remove(0);
                        }
                    }
                    hits += 1;
                    kept.push(entry);
                }
                Step::Invalidate(which) => {
                    let (address, _) = buffers[which % buffers.len()];
                    cache.invalidate(address, BUFFER).expect("this process");
                    kept.retain(|other| !overlap(*other, (address, BUFFER, 0)));
                }
            }
            prop_assert!(bytes(&kept) <= CAPACITY);
            let expected = (kept.len(), bytes(&kept) as u64, hits, misses);
            prop_assert_eq!(report(&cache), expected);
        }
        for (address, _) in buffers {
            cuda.free(address);
        }
        Ok(())
    });
    result.expect("the cache is as the model");
}
