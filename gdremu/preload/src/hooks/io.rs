//! The driver's commands: ioctl.

use std::ffi::{c_int, c_ulong, c_void};

use gdremu_core::abi::{self, Argument, Command};
use gdremu_core::errno::Errno;

use super::{fail, to_libc};
use crate::next;
use crate::state::{self, Descriptor};

/// No program has a mapping below this address.
const LOWEST_ADDRESS: usize = 4096;

pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // The kernel only reads the lower half.
    let number = request as u32;
    if abi::is_gdrdrv(number) {
        // SAFETY: the caller's arguments are passed on unchanged.
        if let Some(result) = unsafe { command(fd, number, argument) } {
            return result;
        }
    }
    // SAFETY: the caller's arguments are passed on unchanged.
    unsafe { next::ioctl()(fd, request, argument) }
}

/// Runs a command if the descriptor is a device.
///
/// # Safety
/// `argument` points to the command's argument, or is NULL.
unsafe fn command(fd: c_int, number: u32, argument: *mut c_void) -> Option<c_int> {
    let (identity, file) = match state::enter()?.descriptor_of(fd) {
        Descriptor::Own(identity, file) => (identity, file),
        Descriptor::Foreign => return Some(fail(Errno::EACCES)),
        Descriptor::Other => return None,
    };
    let size = Command::from_number(number).map_or(0, Command::argument_size);
    if size > 0 && (argument as usize) < LOWEST_ADDRESS {
        return Some(fail(Errno::EFAULT));
    }
    // Access the program's memory without the lock: an invalid pointer only faults the calling thread.
    let mut bytes = Argument::default();
    // SAFETY: `argument` is readable: contract of this function; `bytes` has room for the largest argument.
    unsafe {
        argument
            .cast::<u8>()
            .copy_to_nonoverlapping(bytes.0.as_mut_ptr(), size)
    };
    let result = state::enter()?.ioctl(identity, file, number, &mut bytes);
    if result.is_ok() {
        // SAFETY: `argument` is writable: contract of this function.
        unsafe {
            argument
                .cast::<u8>()
                .copy_from_nonoverlapping(bytes.0.as_ptr(), size)
        };
    }
    Some(to_libc(result.map(|()| 0)))
}
