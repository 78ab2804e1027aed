//! A dlsym that returns gdremu's replacements of libcuda's functions.
//!
//! dlvsym, which looks up a version of a symbol, is not replaced, because libcuda's symbols have no versions. So this
//! module can call dlvsym to find the real dlsym.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::{replaced, state};

type DlSym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The real dlsym. NULL until [`ours`] runs for the first time.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Returns a replacement, or jumps to the real dlsym. With RTLD_NEXT and RTLD_DEFAULT, the real one looks at its return
/// address to find out which library calls. A jump keeps the program's return address.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    naked_asm!(
        "mov eax, 0", // All exported functions begin like this, see gdremu_preload::entry_point.
        "mov eax, 0",
        "mov eax, 0",
        "push rdi",
        "push rsi",
        "sub rsp, 8", // The stack pointer must be a multiple of 16 at a call.
        "call {ours}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "jmp qword ptr [rip + {real}]",
        ours = sym ours,
        real = sym REAL,
    )
}

/// Returns the replacement of the function that the real dlsym would find; NULL if it has no replacement.
unsafe extern "C" fn ours(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let real = real();
    // SAFETY: dlsym's argument ends with a NUL byte, and the caller's arguments are passed on unchanged.
    unsafe {
        if let Ok(symbol) = CStr::from_ptr(name).to_str()
            && let Some(ours) = replaced::by_symbol(symbol)
            && !state::is_held_here()
            && !real(handle, name).is_null()
        {
            return ours; // The real dlsym finds the function, so `handle` is libcuda or depends on it.
        }
    }
    ptr::null_mut()
}

fn real() -> DlSym {
    let mut real = REAL.load(Ordering::Relaxed);
    if real.is_null() {
        real = find_real();
        REAL.store(real, Ordering::Relaxed);
    }
    // SAFETY: libc's dlsym has this type.
    unsafe { std::mem::transmute::<*mut c_void, DlSym>(real) }
}

fn find_real() -> *mut c_void {
    // These are the versions of the symbol dlsym in glibc 2.34 and later, and in older ones on x86-64.
    for version in [c"GLIBC_2.34", c"GLIBC_2.2.5"] {
        // SAFETY: both strings end with a NUL byte.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            return found;
        }
        // SAFETY: dlerror only clears the message of the failed search.
        unsafe { libc::dlerror() };
    }
    // The program cannot run without the real dlsym, and this function cannot report an error.
    std::process::abort();
}
