//! Records every access to device memory, one by one.
//!
//! The device side is a page without access rights. Each access to it faults; the handler opens the
//! page for one instruction by the trap flag, then records what changed and closes it again.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{PROT_NONE, PROT_READ, PROT_WRITE, SIGSEGV, SIGTRAP, siginfo_t, ucontext_t};

use crate::bytes;
use crate::edges::{LonePage, PAGE};
use crate::routines::{self, Item, Routine, Shape};
use crate::steps::Handled;
use crate::subject::{read, write};

const LINE: usize = 64;
const MAX_LEN: usize = 150;
/// Bytes of the page that the copies may reach.
const WINDOW: usize = 5 * LINE;
const POISON: u8 = 0xff;
const TRAP_FLAG: i64 = 1 << 8;

/// The access of one instruction to the page, in offsets from its start.
#[derive(Clone, Debug)]
struct Access {
    /// The first byte at which it faulted.
    at: usize,
    /// The bytes that it changed; empty for a load.
    stored: Range<usize>,
}

/// The traced page.
struct Trace {
    page: *mut u8,
    /// The page's contents before each access.
    clean: [u8; WINDOW],
    /// The page with all stores made to it. The page itself is cleaned after each access, so that
    /// a second store of a byte shows.
    result: [u8; WINDOW],
    accesses: Vec<Access>,
}

/// The trace in progress; the faults come on the thread that owns it.
static TRACE: AtomicPtr<Trace> = AtomicPtr::new(ptr::null_mut());

impl Trace {
    /// Runs `copy` and records every access to the page.
    fn of(page: &LonePage, clean: [u8; WINDOW], copy: impl FnOnce(*mut u8)) -> Trace {
        let page = page.start();
        let accesses = Vec::with_capacity(WINDOW);
        let mut trace = Trace { page, clean, result: clean, accesses };
        // SAFETY: the page holds the window; the handlers use the trace only during the copy.
        unsafe {
            page.copy_from_nonoverlapping(clean.as_ptr(), WINDOW);
            TRACE.store(&mut trace, Ordering::Relaxed);
            protect(page, PROT_NONE);
            copy(page);
            protect(page, PROT_READ | PROT_WRITE);
            TRACE.store(ptr::null_mut(), Ordering::Relaxed);
        }
        trace
    }

    /// Records the bytes that an access changed, and resets them.
    fn note_stores(&mut self) {
        // SAFETY: the page is open, holds the window, and nothing else uses it.
        let window = unsafe { &mut *self.page.cast::<[u8; WINDOW]>() };
        let changed = |n: &usize| window[*n] != self.clean[*n];
        let first = (0..WINDOW).find(changed).unwrap_or(0);
        let end = (0..WINDOW).rfind(changed).map_or(0, |last| last + 1);
        assert!((first..end).all(|n| changed(&n)), "an access with a gap");
        self.result[first..end].copy_from_slice(&window[first..end]);
        window[first..end].copy_from_slice(&self.clean[first..end]);
        self.accesses.last_mut().expect("the access that faulted").stored = first..end;
    }
}

unsafe fn protect(page: *mut u8, rights: c_int) {
    // SAFETY: the caller passes its own page.
    let result = unsafe { libc::mprotect(page.cast(), PAGE, rights) };
    assert_eq!(result, 0, "mprotect");
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both; the trace outlives the copy that faulted.
    unsafe {
        let trace = TRACE.load(Ordering::Relaxed).as_mut();
        let fault = (*info).si_addr().addr();
        let Some(trace) = trace.filter(|t| fault.wrapping_sub(t.page.addr()) < PAGE) else {
            libc::signal(signal, libc::SIG_DFL); // A real fault. Let it happen again, and end us.
            return;
        };
        trace.accesses.push(Access { at: fault - trace.page.addr(), stored: 0..0 });
        protect(trace.page, PROT_READ | PROT_WRITE);
        (*context.cast::<ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] |= TRAP_FLAG;
    }
}

extern "C" fn on_step(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context; the trace outlives the copy that is being stepped.
    unsafe {
        let trace = &mut *TRACE.load(Ordering::Relaxed);
        trace.note_stores();
        protect(trace.page, PROT_NONE);
        (*context.cast::<ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
    }
}

/// Traces copies of many sizes from and to all alignments. A cached mapping may be accessed in any way.
pub(crate) fn check(alignments: &[usize]) {
    let _handled = [Handled::by(SIGSEGV, on_fault), Handled::by(SIGTRAP, on_step)];
    let page = LonePage::new();
    for routine in routines::supported() {
        for &at in alignments {
            for len in 0..=MAX_LEN {
                check_write(routine, &page, LINE + at, len);
                check_read(routine, &page, LINE + at, len);
            }
        }
    }
}

/// Traces gathers of two items of many sizes and alignments.
pub(crate) fn check_gathers() {
    let _handled = [Handled::by(SIGSEGV, on_fault), Handled::by(SIGTRAP, on_step)];
    let page = LonePage::new();
    for routine in routines::supported() {
        for len in 0..=MAX_LEN {
            for at in bytes::alignments() {
                check_gather(routine, &page, [(LINE + at, len), (4 * LINE + at / 2, 9)], Shape::MIXED);
            }
        }
        for len in [4, 8, 16, 64] {
            check_gather(routine, &page, [(LINE, len), (3 * LINE, len)], Shape::new(len, LINE));
            check_batch(routine, &page, [(LINE, len), (3 * LINE, len)], Shape::new(len, LINE));
        }
        for len in [1, 2, 4, 8] {
            check_batch(routine, &page, [(LINE + len, len), (3 * LINE + 3, 9)], Shape::MIXED);
        }
    }
}

/// Each aligned block that holds bytes of an item is loaded once for that item, and nothing else is.
fn check_gather(routine: &Routine, page: &LonePage, places: [(usize, usize); 2], shape: Shape) {
    let width = width(routine);
    let device = std::array::from_fn(|n| n as u8);
    let mut read = places.map(|(_, len)| vec![POISON; len]);
    let trace = Trace::of(page, device, |page| {
        let to = read.each_mut().map(|read| read.as_mut_ptr());
        let item = |n: usize| Item { dst: to[n], src: page.wrapping_add(places[n].0), len: places[n].1 };
        // SAFETY: the page holds the items and the lines around them.
        unsafe { routines::gather(routine, shape, 2, item) }
    });
    let what = || format!("{}: gather of {places:?}", routine.name());

    let mut expected = Vec::new();
    for ((at, len), read) in places.into_iter().zip(read) {
        assert_eq!(read, device[at..at + len], "{}", what());
        if len > 0 {
            expected.extend((at - at % width..at + len).step_by(width));
        }
    }
    let loads: Vec<usize> = trace.accesses.iter().map(|access| access.at).collect();
    assert_eq!(loads, expected, "{}", what());
    let stored = trace.accesses.iter().any(|a| !a.stored.is_empty());
    assert!(!stored, "{}: a store", what());
}

/// Each byte is stored once, words by one store.
fn check_batch(routine: &Routine, page: &LonePage, places: [(usize, usize); 2], shape: Shape) {
    let source: [u8; WINDOW] = std::array::from_fn(|n| (n % 251) as u8);
    let from = source.as_ptr();
    let trace = Trace::of(page, [POISON; WINDOW], |page| {
        let item = |n: usize| Item {
            dst: page.wrapping_add(places[n].0),
            src: from.wrapping_add(places[n].0),
            len: places[n].1,
        };
        // SAFETY: the page holds the items.
        unsafe { routines::write_many_unfenced(routine, shape, 2, item) }
    });
    let what = || format!("{}: batch of {places:?}: {:?}", routine.name(), trace.accesses);

    let mut stored = 0;
    for (at, len) in places {
        assert_eq!(trace.result[at..at + len], source[at..at + len], "{}", what());
        let into = trace.accesses.iter().filter(|access| (at..at + len).contains(&access.at));
        assert!(!is_natural(at, len) || into.count() == 1, "{}", what());
        stored += len;
    }
    let bytes: usize = trace.accesses.iter().map(|access| access.stored.len()).sum();
    assert_eq!(bytes, stored, "{}", what());
}

/// The width of a routine's loads, and of its widest stores.
fn width(routine: &Routine) -> usize {
    match routine.name() {
        "portable" => 8,
        "sse41" => 16,
        "avx2" => 32,
        "avx512" => 64,
        name => unreachable!("no width is known for {name}"),
    }
}

fn is_natural(at: usize, len: usize) -> bool {
    [1, 2, 4, 8].contains(&len) && at.is_multiple_of(len)
}

/// Each store is naturally aligned and not too wide, and each byte is stored once.
fn check_write(routine: &Routine, page: &LonePage, at: usize, len: usize) {
    let widest = width(routine);
    let source: Vec<u8> = (0..len).map(|n| n as u8).collect();
    let trace = Trace::of(page, [POISON; WINDOW], |page| {
        // SAFETY: the page holds the range.
        unsafe { write(routine, page.add(at), source.as_ptr(), len) }
    });
    let what = || format!("{}: write of {len} bytes to {at}", routine.name());

    assert_eq!(trace.result[at..at + len], source, "{}", what());
    let stored: usize = trace.accesses.iter().map(|access| access.stored.len()).sum();
    assert_eq!(stored, len, "{}: {:?}", what(), trace.accesses);
    for Access { at, stored } in &trace.accesses {
        assert_eq!(*at, stored.start, "{}", what());
        let width = stored.len();
        let natural = width.is_power_of_two() && at.is_multiple_of(width);
        assert!(natural && width <= widest, "{}: store of {width} at {at}", what());
    }
    if is_natural(at, len) {
        assert_eq!(trace.accesses.len(), 1, "{}", what());
    }
}

/// Each aligned block that holds a byte of the range is loaded once, and nothing else is.
fn check_read(routine: &Routine, page: &LonePage, at: usize, len: usize) {
    let width = width(routine);
    let device = std::array::from_fn(|n| n as u8);
    let mut bytes = vec![POISON; len];
    let trace = Trace::of(page, device, |page| {
        // SAFETY: the page holds the range and the lines around it.
        unsafe { read(routine, bytes.as_mut_ptr(), page.add(at), len) }
    });
    let what = || format!("{}: read of {len} bytes from {at}", routine.name());

    assert_eq!(bytes, device[at..at + len], "{}", what());
    let mut loads: Vec<usize> = trace.accesses.iter().map(|access| access.at).collect();
    loads.sort_unstable();
    let expected: Vec<usize> = if is_natural(at, len) {
        vec![at]
    } else {
        (at - at % width..at + len).step_by(width).take_while(|_| len > 0).collect()
    };
    assert_eq!(loads, expected, "{}", what());
    assert!(trace.accesses.iter().all(|a| a.stored.is_empty()), "{}: a store", what());
}
