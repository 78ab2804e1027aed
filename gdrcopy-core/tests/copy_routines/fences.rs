//! The fences of a copy, seen by stepping through it, one instruction at a time.
//!
//! Only another agent, such as a GPU, can observe what a fence does (`c_tests/freshness.c`). These tests check that
//! it is there, and on which side of the accesses to device memory.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libc::{PROT_NONE, PROT_READ, PROT_WRITE, SIGSEGV, SIGTRAP, siginfo_t, ucontext_t};

use crate::edges::{LonePage, PAGE};
use crate::subject::Subject;
use crate::trace::{Handled, protect};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// An access to the page.
    Access,
    /// LFENCE or MFENCE.
    LoadFence,
    /// SFENCE or MFENCE.
    StoreFence,
    /// MFENCE.
    FullFence,
}

/// The page under watch; faults elsewhere are real.
static PAGE_START: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static EVENTS: Mutex<Vec<Event>> = Mutex::new(Vec::new());
static STEPS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    let page = PAGE_START.load(Ordering::Relaxed);
    // SAFETY: the kernel passes the siginfo; the page is the test's own.
    unsafe {
        if (*info).si_addr().addr().wrapping_sub(page.addr()) >= PAGE {
            libc::signal(signal, libc::SIG_DFL); // A real fault. Let it happen again, and end us.
            return;
        }
        EVENTS.lock().expect("one thread").push(Event::Access);
        protect(page, PROT_READ | PROT_WRITE);
    }
}

/// Before each instruction, closes the page that the last one may have opened, and looks at the next.
extern "C" fn on_step(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context, in which RIP points to an instruction of at least one byte. Three are
    // read only where the first says that there are more.
    let event = unsafe {
        protect(PAGE_START.load(Ordering::Relaxed), PROT_NONE);
        let next = (*context.cast::<ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize];
        let next = ptr::with_exposed_provenance::<u8>(next as usize);
        match *next == 0x0f && *next.add(1) == 0xae {
            true => match *next.add(2) {
                0xe8 => Some(Event::LoadFence),
                0xf0 => Some(Event::FullFence),
                0xf8 => Some(Event::StoreFence),
                _ => None,
            },
            false => None,
        }
    };
    STEPS.fetch_add(1, Ordering::Relaxed);
    if let Some(event) = event {
        EVENTS.lock().expect("one thread").push(event);
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

/// Steps through `copy`, whose device side is the page, and returns what happened.
fn stepped(page: &LonePage, copy: impl FnOnce(*mut u8)) -> Vec<Event> {
    let start = page.start();
    PAGE_START.store(start, Ordering::Relaxed);
    // Room for all, so that the handlers allocate nothing.
    *EVENTS.lock().expect("one thread") = Vec::with_capacity(1 << 12);
    // SAFETY: the page is the test's own; SIGTRAP is handled.
    unsafe {
        protect(start, PROT_NONE);
        single_step(|| copy(start));
        protect(start, PROT_READ | PROT_WRITE);
    }
    std::mem::take(&mut *EVENTS.lock().expect("one thread"))
}

/// Every read has its fence before its loads, every write after its stores.
pub(crate) fn check(subjects: &[Subject]) {
    let _handled = [Handled::by(SIGSEGV, on_fault), Handled::by(SIGTRAP, on_step)];
    let page = LonePage::new();
    let mut host = [0_u8; 256];
    for subject in subjects {
        for len in [1, 3, 4, 8, 16, 63, 64, 200] {
            for at in [64, 65, 68, 100] {
                let what = format!("{}: {len} bytes at {at}", subject.name());

                // SAFETY: the page holds the range and the lines around it, the host side the bytes.
                let events = stepped(&page, |page| unsafe {
                    subject.read(host.as_mut_ptr(), page.add(at), len);
                });
                let first = events.iter().position(|event| *event == Event::Access);
                let loads = first.unwrap_or_else(|| panic!("read of {what}: no access"));
                assert!(
                    events[..loads].iter().any(|event| matches!(event, Event::LoadFence | Event::FullFence)),
                    "read of {what}: no fence in front of the loads: {events:?}"
                );

                // SAFETY: as above.
                let events = stepped(&page, |page| unsafe {
                    subject.write(page.add(at), host.as_ptr(), len);
                });
                let last = events.iter().rposition(|event| *event == Event::Access);
                let stores = last.unwrap_or_else(|| panic!("write of {what}: no access"));
                assert!(
                    events[stores..].iter().any(|event| matches!(event, Event::StoreFence | Event::FullFence)),
                    "write of {what}: no fence after the stores: {events:?}"
                );
            }
        }
    }
    assert!(STEPS.load(Ordering::Relaxed) > 0, "nothing was stepped through");
}
