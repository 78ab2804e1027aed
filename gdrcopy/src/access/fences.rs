//! The fences of accesses to many places, seen by stepping through them, one instruction at a time.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use libc::{siginfo_t, ucontext_t};

use crate::access::Words;
use crate::testing::Memory;

/// The byte that changes, from 0.
static WATCHED: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static LOAD_FENCE_BEFORE: AtomicBool = AtomicBool::new(false);
static CHANGED: AtomicBool = AtomicBool::new(false);
static STORE_FENCE_AFTER: AtomicBool = AtomicBool::new(false);

extern "C" fn on_step(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context, in which RIP points to an instruction of at least one byte. Three are
    // read only where the first says that there are more. The watched byte is the test's.
    unsafe {
        if WATCHED.load(Relaxed).read_volatile() != 0 {
            CHANGED.store(true, Relaxed);
        }
        let next = (*context.cast::<ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize];
        let next = ptr::with_exposed_provenance::<u8>(next as usize);
        if *next == 0x0f && *next.add(1) == 0xae {
            let (is_load_fence, is_store_fence) = match *next.add(2) {
                0xe8 => (true, false),
                0xf0 => (true, true),
                0xf8 => (false, true),
                _ => return,
            };
            if CHANGED.load(Relaxed) {
                STORE_FENCE_AFTER.fetch_or(is_store_fence, Relaxed);
            } else {
                LOAD_FENCE_BEFORE.fetch_or(is_load_fence, Relaxed);
            }
        }
    }
}

/// Steps through `work`, which changes the byte from 0. Returns whether a fence for loads comes before that, and one
/// for stores after it.
fn stepped(watched: *mut u8, work: impl FnOnce()) -> (bool, bool) {
    WATCHED.store(watched, Relaxed);
    for flag in [&LOAD_FENCE_BEFORE, &CHANGED, &STORE_FENCE_AFTER] {
        flag.store(false, Relaxed);
    }
    // SAFETY: the handler only reads, and sets flags; the trap flag is set and cleared in this thread.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = on_step as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, ptr::null_mut()), 0);
        std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        work();
        std::arch::asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq");
    }
    assert!(CHANGED.load(Relaxed), "nothing is copied");
    (LOAD_FENCE_BEFORE.load(Relaxed), STORE_FENCE_AFTER.load(Relaxed))
}

#[test]
fn groups_of_writes_end_and_groups_of_reads_begin_with_a_fence() {
    let memory = Memory::new(4096);
    let slice = memory.slice();
    let array = slice.array::<[u64; 8]>(0, 64).expect("inside");
    let word = slice.word::<u64>(1024).expect("aligned");
    let bytes = [7; 64];
    let writes: [(&str, &dyn Fn()); 5] = [
        ("write", &|| slice.write(1024, &bytes).expect("inside")),
        ("fill", &|| slice.fill(7).expect("this process")),
        ("scatter", &|| array.scatter(&[1, 16], &[[7; 8]; 2]).expect("inside")),
        ("commit", &|| {
            let mut batch = slice.batch().expect("this process");
            batch.write(1024, &bytes).expect("inside");
            batch.commit();
        }),
        ("drop of a batch", &|| slice.batch().expect("this process").store(word, 7)),
    ];
    let watched = slice.as_mut_ptr().wrapping_add(1024);
    for (name, write) in writes {
        slice.fill(0).expect("this process");
        assert!(stepped(watched, write).1, "{name} ends without a fence");
    }
    slice.fill(7).expect("this process");
    let words: Words<'_, u64> = [word].into_iter().collect();
    let mut value = [0_u64];
    let watched = value.as_mut_ptr().cast();
    assert!(stepped(watched, || words.load_all(&mut value)).0, "load_all begins without a fence");
    let mut element = [[0_u64; 8]];
    let watched = element.as_mut_ptr().cast();
    assert!(stepped(watched, || array.gather(&[16], &mut element).expect("inside")).0, "gather begins without a fence");
    let mut found = [0; 64];
    let watched = found.as_mut_ptr();
    let read = || slice.read_many(&mut [(1024, &mut found[..])]).expect("inside");
    assert!(stepped(watched, read).0, "read_many begins without a fence");
}
