//! Functions by which tests examine the emulation. Tests find them by `dlsym(RTLD_DEFAULT, …)`, see gdremu/README.md.
#![forbid(unsafe_code)]

use std::ffi::{c_char, c_int, c_long};

use gdremu_core::config::ProviderKind;

use crate::next::Text;
use crate::{settings, state};

const REFCOUNT: &str = "/proc/driver/gdrdrv/nv_get_pages_refcount";

pub(crate) extern "C" fn gdremu_provider() -> *const c_char {
    match settings::config().gpu.provider {
        ProviderKind::Host => c"host",
        ProviderKind::Nvidia => c"nvidia",
        ProviderKind::Emugpu => c"emugpu",
    }
    .as_ptr()
}

pub(crate) extern "C" fn gdremu_calls_take() -> *const c_char {
    state::lock().calls.take().as_ptr()
}

/// Returns the number of pins. With the real gdrdrv, reads it from /proc, and returns -1 if that fails.
pub(crate) extern "C" fn gdremu_pins() -> c_long {
    if !settings::config().gpu.provider.emulates_gdrdrv() {
        return std::fs::read_to_string(REFCOUNT).unwrap_or_default().trim().parse().unwrap_or(-1);
    }
    let mut process = state::lock();
    process.reap_all();
    process.driver.pins() as c_long
}

pub(crate) extern "C" fn gdremu_faults_set(list: Text) -> c_int {
    let list = list.get().unwrap_or_default().to_str();
    match list.map(str::parse) {
        Ok(Ok(faults)) => {
            state::lock().faults = faults;
            0
        }
        _ => -1,
    }
}
