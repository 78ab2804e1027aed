//! Suspends and resumes everything at the request of `gdrcopy suspend` and `gdrcopy resume`, where `GDRCOPY_SUSPEND=1`
//! allows it.
//!
//! A thread listens on an abstract socket. The program finds it among the descriptors of the process, so its name only
//! has to be unused. A request is the word `suspend` or `resume`; the answer is empty, or what went wrong.

use std::ffi::c_void;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;
use std::{process, ptr, thread};

use gdrcopy_core::sync::Mutex;
use gdrcopy_core::sys::fork::PerProcess;
use gdrcopy_core::sys::thread::Thread;
use gdrcopy_core::{memory, suspension};
use nix::sys::socket::{self, getsockopt, sockopt};
use nix::unistd::geteuid;

use crate::error::{Error, Result};
use crate::guard::caught;
use crate::handles;

/// The first part of the sockets' names. The process's number follows, and a number of its own.
const NAME: &str = "gdrcopy-suspend";

/// More than the copies of this library in one process.
const MAX_SOCKETS: usize = 64;

/// The time in which a client must send its request. The end of the process waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The thread, and the socket that it listens on.
struct Listener {
    thread: Thread,
    /// Owned: freed when the thread is gone.
    socket: *mut UnixListener,
}

// SAFETY: a thread may be joined by any other thread, and the socket used by any.
unsafe impl Send for Listener {}

/// A forked child has neither the thread nor this.
static LISTENER: PerProcess<Mutex<Option<Listener>>> = PerProcess::new();

/// Starts the thread, if the process has none.
pub(crate) fn start() {
    let mut listener = LISTENER.get(|_| Mutex::default()).lock();
    if listener.is_none() {
        match Listener::start() {
            Ok(started) => *listener = Some(started),
            Err(error) => {
                log::error!("this process cannot be suspended, as it has no socket or thread for that: {error}")
            }
        }
    }
}

/// Ends the thread, when the library is unloaded and at the end of the process.
pub(crate) fn end() {
    if let Some(listener) = LISTENER.current().and_then(|listener| listener.lock().take()) {
        listener.join();
    }
}

/// Frees the memory, when the library is unloaded.
///
/// # Safety
/// Where `may` returns true, no thread is inside a call.
pub(crate) unsafe fn unload(may: impl FnOnce() -> bool) {
    // SAFETY: references to the listener live as long as a call.
    unsafe { LISTENER.free(|_| may()) }
}

impl Listener {
    fn start() -> io::Result<Listener> {
        let socket = ptr::from_mut(Box::leak(Box::new(listen()?)));
        // SAFETY: the socket is freed after the thread was joined.
        match unsafe { Thread::start(serve, socket.cast()) } {
            Some(thread) => Ok(Listener { thread, socket }),
            None => {
                // SAFETY: leaked above; no thread has it.
                drop(unsafe { Box::from_raw(socket) });
                Err(ErrorKind::WouldBlock.into())
            }
        }
    }

    fn join(self) {
        // SAFETY: freed below.
        let socket = unsafe { (*self.socket).as_raw_fd() };
        // The thread's accept then fails. If the program has closed the descriptor, that might wait forever, so it is left.
        if socket::shutdown(socket, socket::Shutdown::Both).is_err() {
            return;
        }
        self.thread.join();
        // SAFETY: leaked by `start`; the thread that used it has ended.
        drop(unsafe { Box::from_raw(self.socket) });
    }
}

/// A socket with a name that no one uses.
fn listen() -> io::Result<UnixListener> {
    let mut result = Err(ErrorKind::AddrInUse.into());
    for number in 0..MAX_SOCKETS {
        let name = format!("{NAME}-{}-{number}", process::id());
        result = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?);
        if !result.as_ref().is_err_and(|error| error.kind() == ErrorKind::AddrInUse) {
            break;
        }
    }
    result
}

/// The loop of the thread.
extern "C" fn serve(socket: *mut c_void) -> *mut c_void {
    // SAFETY: the socket that `start` leaked, which `join` frees after the thread's end.
    let socket = unsafe { &*socket.cast::<UnixListener>() };
    loop {
        match socket.accept() {
            // A client that is gone needs no answer.
            Ok((client, _)) => drop(answer(client)),
            // Ended by `join`; or closed by the program.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EBADF | libc::ENOTSOCK)) => {
                return ptr::null_mut();
            }
            // This client has gone, or no descriptor is free, which `accept` reports until one is.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Does what a client requests, if it is of the same user, or root.
fn answer(mut client: UnixStream) -> io::Result<()> {
    let user = getsockopt(&client, sockopt::PeerCredentials)?.uid();
    if user != 0 && user != geteuid().as_raw() {
        log::warn!("user {user} may not suspend or resume this process: only its own user and root");
        return client.write_all(b"the process belongs to another user: run it as that user, or as root");
    }
    let mut word = [0; 16];
    client.set_read_timeout(Some(PATIENCE))?;
    let len = client.read(&mut word)?;
    let result = match &word[..len] {
        b"suspend" => caught("suspend", suspend),
        b"resume" => caught("resume", resume),
        _ => return client.write_all(b"no such request: update one of gdrcopy and libgdrapi"),
    };
    match result {
        Ok(()) => Ok(()),
        Err(error) => client.write_all(error.to_string().as_bytes()),
    }
}

fn suspend() -> Result<()> {
    memory::require()?;
    suspension::suspend()?;
    handles::show_all();
    Ok(())
}

fn resume() -> Result<()> {
    memory::require()?;
    let lost = suspension::resume()?;
    handles::show_all();
    if lost > 0 { Err(Error::Lost { pins: lost }) } else { Ok(()) }
}
