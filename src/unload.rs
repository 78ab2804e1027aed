//! Cleans up when dlclose unloads the library, and at the end of the process. The loader calls `unload` in
//! both cases, without saying which it is.

use gdrcopy_core::sys::fork;

use crate::{guard, handles};

/// Frees all memory if no handle is open and no other thread is inside a call. One page stays, which copies look at
/// without being counted as calls.
extern "C" fn unload() {
    // SAFETY: a call counts itself before it looks the table up. So if none is in progress after the
    // table has become unreachable, none has a reference to it.
    if unsafe { handles::unload(guard::is_idle) } {
        // SAFETY: no handle is open, so no mapping is live, and no driver is open.
        unsafe { fork::unload(guard::is_idle) };
    }
}

// The section holds pointers to functions of this type.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_UNLOAD: extern "C" fn() = unload;
