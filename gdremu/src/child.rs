//! Runs the program, forwards signals to it, and waits for its end.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Signals to forward to the program, and SIGCHLD, which reports its end.
const SIGNALS: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
    Signal::SIGCHLD,
];

/// Runs work in a thread that gets no signals.
pub(crate) fn in_background(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let old = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let started = thread::Builder::new().spawn(work);
    old.thread_set_mask()?;
    started.map(drop)
}

pub(crate) fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let signals: SigSet = SIGNALS.into_iter().collect();
    let old = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let arrived = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;
    // SAFETY: the signal mask may be set between fork and exec.
    unsafe {
        command.pre_exec(move || Ok(old.thread_set_mask()?));
    }
    let mut child = command.spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let signal = match arrived.read_signal() {
            Err(Errno::EINTR) => continue,
            result => result?.expect("reads wait"),
        };
        // Only a signal that a process has sent to gdremu (ssi_code <= 0) is forwarded. The terminal sends its signals,
        // such as that of Ctrl-C, to both gdremu and the program.
        if signal.ssi_signo != Signal::SIGCHLD as u32 && signal.ssi_code <= 0 {
            // SAFETY: the child has not been waited for, so its id is not reused.
            unsafe { libc::kill(child.id().cast_signed(), signal.ssi_signo.cast_signed()) };
        }
    }
}

/// Ends gdremu by the signal that ended the program, so that gdremu's caller gets the program's status. Only the
/// program dumps a core.
pub(crate) fn die_by(signal: i32) -> ExitCode {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    // SAFETY: this process has no handler, and is about to end.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    let _ = SigSet::empty().thread_set_mask();
    // SAFETY: this process has no handler, and is about to end.
    unsafe { libc::raise(signal) };
    // Execution never gets here for signals that end a process.
    ExitCode::FAILURE
}
