//! Functions that tests find by `dlsym(RTLD_DEFAULT, …)`.

use std::ffi::{CStr, c_char, c_int, c_long};

use gdremu_core::config::ProviderKind;

use crate::{settings, state};

/// The kernel's count of pinned page tables.
const REFCOUNT: &str = "/proc/driver/gdrdrv/nv_get_pages_refcount";

/// The value of `--provider`, that is `host`, `nvidia` or `emugpu`.
pub(crate) extern "C" fn gdremu_provider() -> *const c_char {
    match settings::config().gpu.provider {
        ProviderKind::Host => c"host",
        ProviderKind::Nvidia => c"nvidia",
        ProviderKind::Emugpu => c"emugpu",
    }
    .as_ptr()
}

/// The driver calls that this process made since the last call of this function, in order and
/// separated by blanks. They are `open`, `mmap`, `munmap`, `close`, and the commands by name. The
/// text is valid until the next call.
pub(crate) extern "C" fn gdremu_calls_take() -> *const c_char {
    state::lock().calls.take().as_ptr()
}

/// Number of page tables that this process has pinned. With the kernel's gdrdrv, that of all
/// processes, or -1 if the module does not report it.
pub(crate) extern "C" fn gdremu_pins() -> c_long {
    if !settings::config().gpu.provider.emulates_gdrdrv() {
        let text = std::fs::read_to_string(REFCOUNT).ok();
        let count = text.and_then(|text| text.trim().parse().ok());
        return count.unwrap_or(-1);
    }
    let mut process = state::lock();
    process.reap_all();
    process.driver.pins() as c_long
}

/// Replaces the faults to inject by those of a text as `--fault` takes it; the calls count from 1
/// again. Returns 0, or -1 if the text is wrong.
///
/// # Safety
/// `text` is NULL, for no faults, or ends with a NUL byte.
pub(crate) unsafe extern "C" fn gdremu_faults_set(text: *const c_char) -> c_int {
    let text = if text.is_null() {
        c""
    } else {
        // SAFETY: `text` ends with a NUL byte: contract of this function.
        unsafe { CStr::from_ptr(text) }
    };
    match text.to_str().map(str::parse) {
        Ok(Ok(faults)) => {
            state::lock().faults = faults;
            0
        }
        _ => -1,
    }
}
