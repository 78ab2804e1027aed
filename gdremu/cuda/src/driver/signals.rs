//! Threads of the stand-in take no signals, which are the program's to handle.

use std::mem::MaybeUninit;
use std::ptr;

/// Blocks all signals in the calling thread. Those that its own faults raise come through.
pub(super) fn leave_to_the_program() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` initializes `all` before it is read; a NULL old mask is allowed.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), ptr::null_mut());
    }
}
