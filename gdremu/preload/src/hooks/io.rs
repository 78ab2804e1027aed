//! The hook of ioctl, which runs the driver's commands.

use std::ffi::{c_int, c_ulong, c_void};

use gdremu_core::abi::{self, Argument};
use gdremu_core::errno::Errno;

use crate::descriptors::Kind;
use crate::next::Pointer;
use crate::system::{copy_memory, fail, to_libc};
use crate::{settings, state};

/// # Safety
/// `argument` must point to the command's argument, or to memory that cannot be accessed.
pub(super) unsafe fn ioctl(fd: c_int, request: c_ulong, argument: Pointer, next: impl FnOnce() -> c_int) -> c_int {
    // Linux uses only the low 32 bits of an ioctl's number.
    let number = request as u32;
    if abi::is_gdrdrv(number) {
        // SAFETY: contract of this function.
        if let Some(result) = unsafe { command(fd, number, argument) } {
            return result;
        }
    }
    next()
}

/// Runs a command of gdrdrv if the descriptor is an emulated device. Returns `None` if it is not.
///
/// # Safety
/// The contract of [`ioctl`].
unsafe fn command(fd: c_int, number: u32, argument: Pointer) -> Option<c_int> {
    let file = match state::enter()?.descriptors.find(fd)? {
        (file, Kind::Device) => file,
        (_, Kind::Foreign) => return Some(fail(Errno::EACCES)),
        _ => return None,
    };
    let mut bytes = Argument::ZERO;
    let Ok(command) = settings::config().driver.command(number) else {
        return Some(to_libc(state::enter()?.ioctl(file, number, &mut bytes).map(|()| 0)));
    };
    let size = command.argument_size();
    let inside = bytes.0.as_mut_ptr().cast::<c_void>();
    // SAFETY: `bytes` has room for the largest argument.
    if command.reads() && !unsafe { copy_memory(argument, inside, size) } {
        return Some(fail(Errno::EFAULT));
    }
    if let Err(errno) = state::enter()?.ioctl(file, number, &mut bytes) {
        return Some(fail(errno));
    }
    let inside = bytes.0.as_ptr().cast::<c_void>();
    // SAFETY: `bytes` contains the argument. A real driver would also write it to the program's memory.
    if command.answers() && !unsafe { copy_memory(inside, argument, size) } {
        if let Some(handle) = command.new_handle() {
            state::enter()?.undo_pin(file, bytes.get(handle));
        }
        return Some(fail(Errno::EFAULT));
    }
    Some(0)
}
