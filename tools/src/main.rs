//! `gdrcopy TOOL`, or a link to it with the name `gdrcopy_TOOL`.
//!
//! Rust's own start aborts where a sandbox refuses poll, so this has one of its own.
#![no_main]

use std::process::ExitCode;
use std::thread;

use nix::sys::resource::{Resource, getrlimit};

/// Enough for all tools, and less than the usual limit of 8 MiB.
const STACK: u64 = 4 << 20;

/// The start of the program.
#[unsafe(no_mangle)]
extern "C" fn main() -> i32 {
    // SAFETY: nothing runs yet. Standard streams that are closed are opened, so that no other file gets their numbers.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        for stream in 0..3 {
            if libc::fcntl(stream, libc::F_GETFD) < 0 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            }
        }
    }
    let status = on_a_stack_of_enough_size();
    // The number in an ExitCode cannot be read.
    (0..=u8::MAX).find(|&number| ExitCode::from(number) == status).unwrap_or(1).into()
}

/// Uses a thread only where the limit is small, because a second one keeps a process out of some namespaces.
fn on_a_stack_of_enough_size() -> ExitCode {
    if getrlimit(Resource::RLIMIT_STACK).is_ok_and(|(soft, _)| soft < STACK)
        && let Ok(thread) = thread::Builder::new().stack_size(STACK as usize).spawn(run)
    {
        return thread.join().unwrap_or(ExitCode::from(101));
    }
    run()
}

fn run() -> ExitCode {
    gdrcopy_tools::cli::run(std::env::args_os())
}
