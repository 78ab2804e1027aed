//! The driver's commands: ioctl.

use std::ffi::{c_int, c_ulong, c_void};

use gdremu_core::abi::{self, Argument, Command};
use gdremu_core::errno::Errno;

use super::{fail, to_libc};
use crate::devices::Descriptor;
use crate::system::copy_memory;
use crate::{next, settings, state};

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
/// If the argument can be accessed, it is the command's.
unsafe fn command(fd: c_int, number: u32, argument: *mut c_void) -> Option<c_int> {
    let (identity, file) = match state::enter()?.descriptor_of(fd) {
        Descriptor::Own(identity, file) => (identity, file),
        Descriptor::Foreign => return Some(fail(Errno::EACCES)),
        Descriptor::Other => return None,
    };
    let command = Command::from_number(number).filter(|c| settings::config().driver.knows(*c));
    let size = command.map_or(0, Command::argument_size);
    let mut bytes = Argument::default();
    let inside = bytes.0.as_mut_ptr().cast::<c_void>();
    // SAFETY: `bytes` has room for the largest argument.
    if command.is_some_and(Command::reads) && !unsafe { copy_memory(argument, inside, size) } {
        return Some(fail(Errno::EFAULT));
    }
    let result = state::enter()?.ioctl(identity, file, number, &mut bytes);
    let inside = bytes.0.as_ptr().cast::<c_void>();
    if result.is_ok()
        && let Some(command) = command.filter(|c| c.answers())
        // SAFETY: `bytes` has the argument; the program's is written as the kernel would.
        && !unsafe { copy_memory(inside, argument, size) }
    {
        if let Some(handle) = command.new_handle() {
            state::enter()?.undo_pin(identity, file, bytes.get(handle));
        }
        return Some(fail(Errno::EFAULT));
    }
    Some(to_libc(result.map(|()| 0)))
}
