//! Pins of a cache that BAR1, or what the process may have, has no room for.

use std::os::fd::AsRawFd;
use std::sync::Barrier;

use gdrcopy::pin_cache::CachedSlice;
use gdrcopy::{Mapped, PinCache};

use super::{UNLIMITED, cache, calls, get, report};
use crate::cuda::Cuda;
use crate::ownership::PAGE;
use crate::pool::pins_of_the_machine;

/// GPU pages in BAR1.
const PAGES: usize = (16 << 20) / PAGE;

/// A cache without a limit, and memory of twice the size of BAR1.
fn start(cuda: &Cuda) -> (PinCache, impl Fn(usize) -> u64) {
    let address = cuda.alloc(2 * PAGES * PAGE);
    (cache(UNLIMITED), move |page| address + (page * PAGE) as u64)
}

#[test]
#[ignore = "pin_cache_without_room_under_gdremu runs it"]
fn bar1_of_the_least_recently_used_idle_entries_is_used_again() {
    let cuda = Cuda::new();
    let (cache, place) = start(&cuda);
    for page in 0..PAGES {
        get(&cache, place(page), 64).expect("room in BAR1");
    }
    assert_eq!(report(&cache).evictions, 0);
    get(&cache, place(0), 64).expect("kept");
    get(&cache, place(PAGES), 64).expect("in place of page 1");
    let full = report(&cache);
    assert_eq!((full.entries, full.evictions), (PAGES, 1));
    assert_eq!((full.bytes, full.pinned_bytes), (64 * PAGES as u64, (PAGES * PAGE) as u64));
    assert_eq!(pins_of_the_machine(), PAGES);
    assert_eq!(calls(&cache), (1, PAGES as u64 + 1));
    get(&cache, place(0), 64).expect("kept");
    get(&cache, place(2), 64).expect("kept");
    assert_eq!(calls(&cache), (3, PAGES as u64 + 1));
    get(&cache, place(1), 64).expect("in place of page 3");
    assert_eq!(calls(&cache), (3, PAGES as u64 + 2));

    let large = get(&cache, place(PAGES), 16 * PAGE).expect("in place of 16 pages or more");
    large.write(16 * PAGE - 1, &[7]).expect("inside");
    assert_eq!(cuda.read(place(PAGES + 16) - 1, 1), [7]);
    let after = report(&cache);
    assert_eq!(after.entries, pins_of_the_machine());
    assert!(after.entries > PAGES / 2 && after.evictions >= 17, "{after:?}");
    get(&cache, place(0), 64).expect("used later than most");
    assert_eq!(calls(&cache), (4, PAGES as u64 + 3));
}

#[test]
#[ignore = "pin_cache_without_room_under_gdremu runs it"]
fn bar1_is_free_before_the_next_pin() {
    let cuda = Cuda::new();
    let (_, place) = start(&cuda);
    let cache = cache(PAGES * PAGE);
    for page in 0..2 * PAGES {
        get(&cache, place(page), 64).expect("room in BAR1");
        let evictions = (page + 1).saturating_sub(PAGES) as u64;
        assert_eq!(report(&cache).evictions, evictions, "one for each");
    }
    assert_eq!(pins_of_the_machine(), PAGES);
}

#[test]
#[ignore = "pin_cache_without_room_under_gdremu runs it"]
fn bar1_in_use_gives_the_error_of_the_driver() {
    let cuda = Cuda::new();
    let (cache, place) = start(&cuda);
    let all = (0..PAGES).map(|page| get(&cache, place(page), 64).expect("room in BAR1"));
    let mut all: Vec<CachedSlice> = all.collect();
    let before = report(&cache);
    let refused = get(&cache, place(PAGES), 64).expect_err("all is in use");
    assert_eq!(refused.errno(), libc::ENOMEM);
    assert_eq!(report(&cache), before, "nothing is evicted, nothing is added");

    let clone = all[7].clone();
    drop(all.remove(7));
    let refused = get(&cache, place(PAGES), 64).expect_err("a clone is in use");
    assert_eq!(refused.errno(), libc::ENOMEM);
    drop(clone);
    get(&cache, place(PAGES), 64).expect("in place of page 7");
    assert_eq!(report(&cache).evictions, 1);
    for slice in &all {
        get(&cache, slice.device_address(), 64).expect("kept");
    }
    assert_eq!(calls(&cache), (PAGES as u64 - 1, PAGES as u64 + 1));
}

#[test]
#[ignore = "pin_cache_without_room_under_gdremu runs it"]
fn bar1_is_shared_by_threads() {
    const THREADS: usize = 4;
    const LONGEST: usize = 16;
    let cuda = Cuda::new();
    let (cache, place) = start(&cuda);
    let barrier = Barrier::new(THREADS);
    let run = |thread: usize| {
        barrier.wait();
        // Own bytes of pages that all threads use.
        let (mut random, byte) = (thread as u64 + 1, thread as u64 * 8);
        for round in 0..500_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (page, len) = ((random >> 33) as usize, 1 + (random >> 60) as usize);
            let page = page % (2 * PAGES - LONGEST);
            let slice = get(&cache, place(page), len * PAGE).expect("what is in use leaves room");
            let last = (len - 1) * PAGE + byte as usize;
            slice.write(last, &round.to_le_bytes()).expect("inside");
            let again = get(&cache, place(page) + last as u64, 8).expect("as before");
            let mut back = [0; 8];
            again.read(0, &mut back).expect("inside");
            assert_eq!(u64::from_le_bytes(back), round, "someone else's memory");
        }
    };
    std::thread::scope(|s| {
        let run = &run;
        for thread in 0..THREADS {
            s.spawn(move || run(thread));
        }
    });
    let report = report(&cache);
    assert!(report.evictions > 0, "BAR1 had room for all: {report:?}");
    assert_eq!(report.entries, pins_of_the_machine());
}

#[test]
#[ignore = "pin_cache_without_room_under_gdremu runs it"]
fn mmap_without_room_is_tried_again() {
    let cuda = Cuda::new();
    let (cache, place) = start(&cuda);
    get(&cache, place(0), PAGE).expect("the first mmap");
    let second = get(&cache, place(1), PAGE).expect("the second mmap");
    get(&cache, place(2), PAGE).expect("the fourth mmap");
    let report = report(&cache);
    assert_eq!((report.entries, report.misses, report.evictions), (2, 3, 1));
    assert_eq!(pins_of_the_machine(), 2, "the pin that was not mapped is gone");
    get(&cache, second.device_address(), 1).expect("kept");
    assert_eq!(calls(&cache), (1, 3));
}

#[test]
#[ignore = "pin_cache_without_room_under_gdremu runs it"]
fn descriptors_of_idle_entries_are_used_again() {
    let cuda = Cuda::new();
    let (cache, place) = start(&cuda);
    get(&cache, place(0), 1).expect("a descriptor");
    let lowest_free = std::fs::File::open("/dev/null").expect("Linux has it");
    let lowest_free = lowest_free.as_raw_fd() as u64;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is a local variable.
    let answer = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    assert_eq!(answer, 0);
    limit.rlim_cur = lowest_free + 20;
    // SAFETY: as above.
    let answer = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    assert_eq!(answer, 0);
    for page in 0..100 {
        get(&cache, place(page), 1).expect("a descriptor of an idle entry");
    }
    let report = report(&cache);
    assert!(report.evictions > 50 && report.entries > 5, "{report:?}");
}
