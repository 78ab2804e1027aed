//! Runs code one instruction at a time, and records its fences and its accesses to a range of pages.
//!
//! Only another agent, such as a GPU, can observe what a fence does (`c_tests/freshness.c`). So tests check that a
//! fence is there, and on which side of the accesses to device memory. The crate gdrcopy's tests include this file.

use std::ffi::{c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{mem, ptr};

use libc::{PROT_NONE, PROT_READ, PROT_WRITE, SIGSEGV, SIGTRAP, siginfo_t, ucontext_t};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// An access to the watched pages.
    Access,
    /// LFENCE.
    LoadFence,
    /// SFENCE.
    StoreFence,
    /// MFENCE.
    FullFence,
}

/// The address of the watched pages. Faults at other addresses end the test.
static START: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);
static EVENTS: Mutex<Vec<Event>> = Mutex::new(Vec::new());

/// # Safety
/// The pages are the test's own.
unsafe fn protect(rights: c_int) {
    let start = ptr::with_exposed_provenance_mut(START.load(Ordering::Relaxed));
    // SAFETY: contract of this function.
    let result = unsafe { libc::mprotect(start, LEN.load(Ordering::Relaxed), rights) };
    assert_eq!(result, 0, "mprotect");
}

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes the siginfo; the pages are the test's own.
    unsafe {
        let offset = (*info).si_addr().addr().wrapping_sub(START.load(Ordering::Relaxed));
        if offset >= LEN.load(Ordering::Relaxed) {
            libc::signal(signal, libc::SIG_DFL); // The fault is a bug. On return it recurs, and ends the process.
            return;
        }
        EVENTS.lock().expect("one thread").push(Event::Access);
        protect(PROT_READ | PROT_WRITE);
    }
}

/// Makes the pages inaccessible again after `on_fault`. Records the next instruction if it is a fence.
extern "C" fn on_step(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context, in which RIP points to an instruction of at least one byte. The second
    // and the third byte are read only if the bytes before them are those of a longer instruction.
    let event = unsafe {
        protect(PROT_NONE);
        let next = (*context.cast::<ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize];
        let next = ptr::with_exposed_provenance::<u8>(next as usize);
        if *next != 0x0f || *next.add(1) != 0xae {
            return;
        }
        match *next.add(2) {
            0xe8 => Event::LoadFence,
            0xf0 => Event::FullFence,
            0xf8 => Event::StoreFence,
            _ => return,
        }
    };
    EVENTS.lock().expect("one thread").push(event);
}

pub(crate) type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Installs a signal handler, which stays. Only handlers of SIGSEGV remove themselves, at a fault that no test caused.
pub(crate) fn handle(signal: c_int, handler: Handler) {
    // SAFETY: a zeroed sigaction is a valid one, and the handler has the parameters that SA_SIGINFO requires.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal, &action, ptr::null_mut()), 0, "sigaction");
    }
}

/// Raises SIGTRAP in front of each instruction of `work`.
///
/// # Safety
/// A handler for SIGTRAP must be installed.
pub(crate) unsafe fn single_step(work: impl FnOnce()) {
    // SAFETY: the trap flag is set and cleared in this thread only, whose SIGTRAP is handled.
    unsafe {
        std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        work();
        std::arch::asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq");
    }
}

/// Single-steps `work`, and returns its fences and its accesses to these pages, in order. Panics if it accesses none.
pub(crate) fn stepped(case: &str, pages: *mut u8, len: usize, work: impl FnOnce()) -> Vec<Event> {
    handle(SIGSEGV, on_fault);
    handle(SIGTRAP, on_step);
    START.store(pages.expose_provenance(), Ordering::Relaxed);
    LEN.store(len, Ordering::Relaxed);
    // There is room for all events, so that the handlers allocate nothing.
    *EVENTS.lock().expect("one thread") = Vec::with_capacity(1 << 16);
    // SAFETY: the pages are the test's own; SIGTRAP is handled.
    unsafe {
        protect(PROT_NONE);
        single_step(work);
        protect(PROT_READ | PROT_WRITE);
    }
    let events = mem::take(&mut *EVENTS.lock().expect("one thread"));
    assert!(events.contains(&Event::Access), "{case}: no access");
    events
}

/// Checks that a fence comes before the first access.
pub(crate) fn assert_read_is_fenced(case: &str, events: &[Event]) {
    let loads = events.iter().position(|event| *event == Event::Access).unwrap_or(0);
    let fenced = events[..loads].iter().any(|event| matches!(event, Event::LoadFence | Event::FullFence));
    assert!(fenced, "{case}: no fence in front of the loads: {events:?}");
}

/// Checks that a fence comes after the last access.
pub(crate) fn assert_write_is_fenced(case: &str, events: &[Event]) {
    let stores = events.iter().rposition(|event| *event == Event::Access).unwrap_or(0);
    let fenced = events[stores..].iter().any(|event| matches!(event, Event::StoreFence | Event::FullFence));
    assert!(fenced, "{case}: no fence after the stores: {events:?}");
}
