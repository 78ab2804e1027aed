//! Runs the program, forwards signals to it, and waits for its end.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::ptr;

use libc::sigset_t;

/// Signals to forward to the program, and SIGCHLD, which reports its end.
const SIGNALS: [i32; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCONT,
    libc::SIGCHLD,
];

/// Runs a command and waits for its end.
///
/// # Errors
/// The error of a failed start.
pub(crate) fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let signals = signal_set();
    let old = block(&signals)?;
    // SAFETY: `sigprocmask` may be called between fork and exec.
    unsafe {
        command.pre_exec(move || set_mask(&old));
    }
    let mut child = command.spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let signal = wait(&signals)?;
        // A terminal signals the child too; a process (si_code <= 0) signals only us.
        if signal.si_signo != libc::SIGCHLD && signal.si_code <= 0 {
            let pid = i32::try_from(child.id()).expect("Linux counts processes in 31 bits");
            // SAFETY: the child has not been waited for, so its id is not reused.
            unsafe { libc::kill(pid, signal.si_signo) };
        }
    }
}

/// Ends gdremu by the signal that ended the program, so that the caller sees the same status as
/// without gdremu. Only the program dumps a core.
pub(crate) fn die_by(signal: i32) -> ExitCode {
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: these calls only change this process, which is about to end.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::signal(signal, libc::SIG_DFL);
        let mut none = MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        libc::raise(signal);
    }
    // Unreachable for signals that end a process.
    ExitCode::FAILURE
}

fn signal_set() -> sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initializes the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in SIGNALS {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Blocks signals for `sigwaitinfo` and returns the previous mask.
fn block(signals: &sigset_t) -> io::Result<sigset_t> {
    let mut old = MaybeUninit::uninit();
    // SAFETY: both sets are live, and `old` is written on success.
    unsafe {
        check(libc::sigprocmask(libc::SIG_BLOCK, signals, old.as_mut_ptr()))?;
        Ok(old.assume_init())
    }
}

fn set_mask(signals: &sigset_t) -> io::Result<()> {
    // SAFETY: the set is live.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, signals, ptr::null_mut()) })
}

/// Waits for one of the signals.
fn wait(signals: &sigset_t) -> io::Result<libc::siginfo_t> {
    let mut info = MaybeUninit::uninit();
    loop {
        // SAFETY: the set is live, and `info` is written on success.
        unsafe {
            if libc::sigwaitinfo(signals, info.as_mut_ptr()) > 0 {
                return Ok(info.assume_init());
            }
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
