//! A signal to one thread of another process, with a number, which nix does not have.

use std::io;
use std::mem::size_of;

/// Queues it, if the sender may signal the process.
pub(crate) fn queue(pid: u32, thread: u32, signal: i32, number: i32) -> io::Result<()> {
    // A siginfo_t begins with si_signo, si_errno, si_code, padding, si_pid, si_uid and si_value.
    let mut info = [0i32; 128 / size_of::<i32>()];
    (info[0], info[2], info[6]) = (signal, libc::SI_QUEUE, number);
    // SAFETY: a siginfo_t has 128 bytes, which the kernel only reads.
    let result = unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, thread, signal, &raw const info) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
