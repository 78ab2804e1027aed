//! Threads of the libraries.
//!
//! They are plain POSIX threads. A thread of the standard library has destructors of its own, which would keep the library
//! loaded after dlclose. They must not touch anything thread-local. Its first use may wait for the loader, and so for a
//! dlclose that waits for the thread.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

/// A thread, which must be joined.
#[derive(Debug)]
pub struct Thread(libc::pthread_t);

impl Thread {
    /// Starts a thread that calls `run` with the program's signals blocked; `None` if there can be no more threads.
    ///
    /// # Safety
    /// `run` may be called with `argument`, in any thread, until the thread is joined.
    pub unsafe fn start(run: extern "C" fn(*mut c_void) -> *mut c_void, argument: *mut c_void) -> Option<Thread> {
        // SAFETY: plain calls on local variables, and the contract of this function.
        unsafe {
            let (mut blocked, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
            libc::sigfillset(blocked.as_mut_ptr());
            for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
                libc::sigdelset(blocked.as_mut_ptr(), fault);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr());
            let mut thread = MaybeUninit::uninit();
            let failed = libc::pthread_create(thread.as_mut_ptr(), ptr::null(), run, argument);
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
            (failed == 0).then(|| Thread(thread.assume_init()))
        }
    }

    /// Waits for its end.
    pub fn join(self) {
        // SAFETY: `start` created the thread, and `self` is consumed, so it is joined once.
        unsafe { libc::pthread_join(self.0, ptr::null_mut()) };
    }
}
