//! Running the program: it gets the signals that gdremu is sent, and gdremu outlives it.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::ptr;

use libc::sigset_t;

/// Signals by which a program is told something from outside, and the one that tells of its end.
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

/// Runs a command to its end.
///
/// # Errors
/// What the system answers when it cannot be started.
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
        // What a terminal sends, it sends to the child too; what a process sends, it sends to us alone.
        if signal.si_signo != libc::SIGCHLD && signal.si_code <= 0 {
            let pid = i32::try_from(child.id()).expect("Linux counts processes in 31 bits");
            // SAFETY: the child has not been waited for: its id is still its own.
            unsafe { libc::kill(pid, signal.si_signo) };
        }
    }
}

/// Ends gdremu by the signal that ended the program, so that its caller sees what it would have seen
/// without gdremu; but leaves the core dump to the program.
pub(crate) fn die_by(signal: i32) -> ExitCode {
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: these calls change this process alone, which is about to end.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::signal(signal, libc::SIG_DFL);
        let mut none = MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        libc::raise(signal);
    }
    // Reached by none of the signals that end a program.
    ExitCode::FAILURE
}

fn signal_set() -> sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` makes a set of what was none.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in SIGNALS {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Blocks signals, so that they can be waited for, and returns what was blocked before.
fn block(signals: &sigset_t) -> io::Result<sigset_t> {
    let mut old = MaybeUninit::uninit();
    // SAFETY: both sets are there, and `old` is written on success.
    unsafe {
        check(libc::sigprocmask(
            libc::SIG_BLOCK,
            signals,
            old.as_mut_ptr(),
        ))?;
        Ok(old.assume_init())
    }
}

fn set_mask(signals: &sigset_t) -> io::Result<()> {
    // SAFETY: the set is there.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, signals, ptr::null_mut()) })
}

/// Waits for one of the signals.
fn wait(signals: &sigset_t) -> io::Result<libc::siginfo_t> {
    let mut info = MaybeUninit::uninit();
    loop {
        // SAFETY: the set is there, and `info` is written on success.
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
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
