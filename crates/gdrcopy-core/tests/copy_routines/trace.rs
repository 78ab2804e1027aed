//! Records every access to device memory, one by one.
//!
//! The tests copy to and from a page without access rights, so that each access faults. The handler of faults makes the
//! page accessible, and sets the CPU's trap flag, which causes a trap after one instruction. The handler of traps
//! records the changed bytes, and makes the page inaccessible again.

use std::ffi::{c_int, c_void};
use std::fmt::Arguments;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{PROT_NONE, PROT_READ, PROT_WRITE, SIGSEGV, SIGTRAP, siginfo_t, ucontext_t};

use crate::bytes;
use crate::edges::{LonePage, PAGE};
use crate::routines::{self, Item, Routine, Shape};
use crate::steps::handle;
use crate::subject::{read, write};

const LINE: usize = 64;
const MAX_LEN: usize = 150;
/// The number of bytes, from the start of the page, that the copies may access.
const WINDOW: usize = 5 * LINE;
const POISON: u8 = 0xff;
const TRAP_FLAG: i64 = 1 << 8;

/// One instruction's access to the traced page, in offsets from the start of the page.
#[derive(Clone, Debug)]
struct Access {
    /// The offset at which the instruction faulted.
    at: usize,
    /// The bytes that the instruction changed; empty for a load.
    stored: Range<usize>,
}

/// A range of bytes of the traced page.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    len: usize,
}

impl Place {
    fn range(self) -> Range<usize> {
        self.at..self.at + self.len
    }
}

/// The traced page.
struct Trace {
    page: *mut u8,
    /// The page's contents before each access.
    clean: [u8; WINDOW],
    /// The bytes of all stores. After each store, the page is reset to `clean`, so that a repeated store is noticed.
    result: [u8; WINDOW],
    accesses: Vec<Access>,
}

/// The trace in progress. It needs no lock, because the signal handlers run in the thread that owns it.
static TRACE: AtomicPtr<Trace> = AtomicPtr::new(ptr::null_mut());

impl Trace {
    /// Runs `copy` and records every access to the page.
    fn of(page: &LonePage, clean: [u8; WINDOW], copy: impl FnOnce(*mut u8)) -> Trace {
        let page = page.start();
        let accesses = Vec::with_capacity(WINDOW);
        let mut trace = Trace { page, clean, result: clean, accesses };
        // SAFETY: the page has more than `WINDOW` bytes; the handlers use the trace only during the copy.
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

    /// Records the bytes that the last access changed, and resets them to `clean`.
    fn note_stores(&mut self) {
        // SAFETY: the page is accessible and has more than `WINDOW` bytes, and nothing else uses it.
        let window = unsafe { &mut *self.page.cast::<[u8; WINDOW]>() };
        let mut stored = 0..0;
        for (at, byte) in window.iter_mut().enumerate() {
            if *byte == self.clean[at] {
                continue;
            }
            if stored.is_empty() {
                stored = at..at;
            }
            assert_eq!(stored.end, at, "an access with a gap");
            stored.end = at + 1;
            self.result[at] = *byte;
            *byte = self.clean[at];
        }
        self.accesses.last_mut().expect("the access that faulted").stored = stored;
    }

    /// Returns the offset of each access, in order. Panics if one is a store.
    fn loads(&self, case: Arguments) -> Vec<usize> {
        assert_eq!(self.stored_bytes(), 0, "{case}: a store");
        self.accesses.iter().map(|access| access.at).collect()
    }

    fn stored_bytes(&self) -> usize {
        self.accesses.iter().map(|access| access.stored.len()).sum()
    }
}

unsafe fn protect(page: *mut u8, rights: c_int) {
    // SAFETY: the caller passes its own page.
    let result = unsafe { libc::mprotect(page.cast(), PAGE, rights) };
    assert_eq!(result, 0, "mprotect");
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes `info` and `context`; the trace outlives the copy that faulted.
    unsafe {
        let trace = TRACE.load(Ordering::Relaxed);
        let fault = (*info).si_addr().addr();
        if trace.is_null() || fault.wrapping_sub((*trace).page.addr()) >= PAGE {
            libc::signal(signal, libc::SIG_DFL); // The fault is a bug. On return it recurs, and ends the process.
            return;
        }
        let trace = &mut *trace;
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

/// Traces copies of many sizes from and to all alignments. Also traces gathers and batches, of two items each. Leaves
/// out the routine for cached mappings, which may access such mappings in any way.
pub(crate) fn check() {
    handle(SIGSEGV, on_fault);
    handle(SIGTRAP, on_step);
    let page = LonePage::new();
    for routine in routines::supported() {
        for at in bytes::alignments() {
            for len in 0..=MAX_LEN {
                check_write(routine, &page, LINE + at, len);
                check_read(routine, &page, LINE + at, len);
                let places = [Place { at: LINE + at, len }, Place { at: 4 * LINE + at / 2, len: 9 }];
                check_gather(routine, &page, places, Shape::MIXED);
            }
        }
        for len in [4, 8, 16, 64] {
            let places = [Place { at: LINE, len }, Place { at: 3 * LINE, len }];
            check_gather(routine, &page, places, Shape::new(len, LINE));
        }
        for len in [1, 2, 3, 4, 8, 16, 24, 60, 64, 100, 128] {
            for at in [0, 1, 4, 20, 56] {
                let places = [Place { at, len }, Place { at: 3 * LINE, len }];
                check_batch(routine, &page, places, Shape::new(len, LINE | at));
                let places = [Place { at: LINE + at, len }, Place { at: 4 * LINE, len: 9 }];
                check_batch(routine, &page, places, Shape::MIXED);
            }
        }
    }
}

/// Checks that a gather loads once each aligned block with bytes of the first place, then of the second, and no other.
fn check_gather(routine: &Routine, page: &LonePage, places: [Place; 2], shape: Shape) {
    let device = std::array::from_fn(|n| n as u8);
    let mut host = places.map(|place| vec![POISON; place.len]);
    let to = host.each_mut().map(|bytes| bytes.as_mut_ptr());
    let trace = Trace::of(page, device, |page| {
        let items = [0, 1].map(|n| Item { dst: to[n], src: page.wrapping_add(places[n].at), len: places[n].len });
        // SAFETY: the page contains the items and the cache lines around them.
        unsafe { routines::gather(routine, shape, 2, |n| items[n]) };
    });
    let case = format_args!("{}: gather of {places:?}", routine.name());

    let mut expected = Vec::new();
    for (n, place) in places.into_iter().enumerate() {
        assert_eq!(host[n], device[place.range()], "{case}");
        expected.extend(blocks(place, width(routine)));
    }
    assert_eq!(trace.loads(case), expected, "{case}");
}

/// Checks that each byte is stored once, each word by one store, and that the portable routine stores aligned words.
fn check_batch(routine: &Routine, page: &LonePage, places: [Place; 2], shape: Shape) {
    let source: [u8; WINDOW] = std::array::from_fn(|n| (n % 251) as u8);
    let from = source.as_ptr();
    let trace = Trace::of(page, [POISON; WINDOW], |page| {
        let items =
            places.map(|Place { at, len }| Item { dst: page.wrapping_add(at), src: from.wrapping_add(at), len });
        // SAFETY: the page holds the items.
        unsafe { routines::write_many_unfenced(routine, shape, 2, |n| items[n]) };
    });
    let case = format_args!("{}: batch of {places:?}: {:?}", routine.name(), trace.accesses);

    for Access { stored, .. } in &trace.accesses {
        let len = stored.len();
        let natural = len.is_power_of_two() && stored.start.is_multiple_of(len);
        assert!(natural || routine.name() != "portable", "{case}");
    }
    for place in places {
        assert_eq!(trace.result[place.range()], source[place.range()], "{case}");
        let accesses = trace.accesses.iter().filter(|access| place.range().contains(&access.at)).count();
        assert!(!is_natural(place) || accesses == 1, "{case}");
    }
    assert_eq!(trace.stored_bytes(), places[0].len + places[1].len, "{case}");
}

/// Returns the width in bytes of a routine's loads, which is also the width of its widest stores.
fn width(routine: &Routine) -> usize {
    match routine.name() {
        "portable" => 8,
        "sse41" => 16,
        "avx2" => 32,
        "avx512" => 64,
        name => unreachable!("no width is known for {name}"),
    }
}

fn is_natural(place: Place) -> bool {
    [1, 2, 4, 8].contains(&place.len) && place.at.is_multiple_of(place.len)
}

/// Returns the starts of the aligned blocks of `width` bytes that hold bytes of the place.
fn blocks(place: Place, width: usize) -> Vec<usize> {
    if place.len == 0 {
        return Vec::new();
    }
    (place.at - place.at % width..place.range().end).step_by(width).collect()
}

/// Checks that a write stores each byte once, by naturally aligned stores that are no wider than the routine's widest.
fn check_write(routine: &Routine, page: &LonePage, at: usize, len: usize) {
    let widest = width(routine);
    let source: Vec<u8> = (0..len).map(|n| n as u8).collect();
    let trace = Trace::of(page, [POISON; WINDOW], |page| {
        // SAFETY: the page holds the range.
        unsafe { write(routine, page.add(at), source.as_ptr(), len) }
    });
    let case = format_args!("{}: write of {len} bytes to {at}", routine.name());

    assert_eq!(trace.result[at..at + len], source, "{case}");
    assert_eq!(trace.stored_bytes(), len, "{case}: {:?}", trace.accesses);
    for Access { at, stored } in &trace.accesses {
        assert_eq!(*at, stored.start, "{case}");
        let width = stored.len();
        let natural = width.is_power_of_two() && at.is_multiple_of(width);
        assert!(natural && width <= widest, "{case}: store of {width} at {at}");
    }
    if is_natural(Place { at, len }) {
        assert_eq!(trace.accesses.len(), 1, "{case}");
    }
}

/// Checks that a read of a word makes one load, and that others load once each aligned block with bytes of the range.
fn check_read(routine: &Routine, page: &LonePage, at: usize, len: usize) {
    let device = std::array::from_fn(|n| n as u8);
    let mut bytes = vec![POISON; len];
    let trace = Trace::of(page, device, |page| {
        // SAFETY: the page contains the range and the cache lines around it.
        unsafe { read(routine, bytes.as_mut_ptr(), page.add(at), len) }
    });
    let case = format_args!("{}: read of {len} bytes from {at}", routine.name());

    assert_eq!(bytes, device[at..at + len], "{case}");
    let mut loads = trace.loads(case);
    loads.sort_unstable();
    let place = Place { at, len };
    let expected = if is_natural(place) { vec![at] } else { blocks(place, width(routine)) };
    assert_eq!(loads, expected, "{case}");
}
