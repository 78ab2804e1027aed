//! Finds the file that the running library was loaded from.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;

/// Logs the version and the path of the library, because several libgdrapi may be installed.
pub(crate) fn log() {
    // The crate gdrapi-sys is built from these sources, too. Its version ends in a plus sign and the library's version.
    let version = env!("CARGO_PKG_VERSION").rsplit('+').next().unwrap_or("");
    log::debug!("libgdrapi {version} (gdrapi) from {}", path());
}

fn path() -> String {
    let address: *const c_void = (path as fn() -> String as *const ()).cast();
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr accepts any address. The name stays NULL, or is a C string that lives while the library is loaded.
    unsafe {
        libc::dladdr(address, info.as_mut_ptr());
        let name = info.assume_init_ref().dli_fname;
        if name.is_null() {
            return "an unknown file".into();
        }
        CStr::from_ptr(name).to_string_lossy().into_owned()
    }
}
