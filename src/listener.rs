//! Suspends and resumes everything at the request of `gdrcopy suspend` and `gdrcopy resume`, where `GDRCOPY_SUSPEND=1`
//! allows it.
//!
//! A thread listens on an abstract socket. The program finds it among the descriptors of the process, so its name only
//! has to be unused. A request is the word `suspend` or `resume`; the answer is empty, [`ALREADY`], or what went wrong.

use std::ffi::c_void;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, mem, process, ptr, thread};

use gdrcopy_core::sync::Mutex;
use gdrcopy_core::sys::fork::PerProcess;
use gdrcopy_core::sys::thread::Thread;
use gdrcopy_core::{memory, suspension};
use nix::sys::socket::{self, getsockopt, sockopt};
use nix::unistd::geteuid;

use crate::error::{Error, Result};
use crate::guard::{caught_in_listener, others_are_inside};
use crate::handles;

/// The first part of the sockets' names. The process's number follows, and a number of its own.
const NAME: &str = "gdrcopy-suspend";

/// The answer to a request to suspend everything again, so that the client does not resume it.
const ALREADY: &str = "suspended already";

/// The usual number for users that a user namespace does not have.
const OVERFLOW: u32 = 65534;

/// The time in which a client must send its request. The end of the process waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The thread, and the socket that it listens on.
struct Listener {
    thread: Thread,
    /// Owned: freed when the thread is gone.
    socket: *mut Socket,
}

/// The socket. The program may close its descriptor, and open another file with the same number.
struct Socket {
    listener: UnixListener,
    /// Also identifies it, as a checkpoint keeps its name, and not its inode.
    address: SocketAddr,
}

impl Socket {
    fn new() -> io::Result<Socket> {
        let listener = listen()?;
        Ok(Socket { address: listener.local_addr()?, listener })
    }

    /// Returns whether the descriptor is still the socket's.
    fn is_open(&self) -> bool {
        let named = self.listener.local_addr();
        named.is_ok_and(|it| it.as_abstract_name() == self.address.as_abstract_name())
    }

    /// Lets the thread's accept return, and returns whether it does.
    fn wake(&self) -> bool {
        match self.is_open() {
            true => socket::shutdown(self.listener.as_raw_fd(), socket::Shutdown::Both).is_ok(),
            // The thread that waits keeps the socket and its name.
            false => UnixStream::connect_addr(&self.address).is_ok(),
        }
    }

    fn close(self) {
        if !self.is_open() {
            mem::forget(self.listener);
        }
    }
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
        let socket = ptr::from_mut(Box::leak(Box::new(Socket::new()?)));
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

    /// Called inside a call.
    fn join(self) {
        // SAFETY: freed below.
        let wakes = unsafe { (*self.socket).wake() };
        // A request waits for calls in progress. The end of the process does not, as the handler of a signal that has
        // interrupted one may call exit.
        if !wakes || others_are_inside() {
            return; // It might wait forever.
        }
        self.thread.join();
        // SAFETY: leaked by `start`; the thread that used it has ended.
        unsafe { Box::from_raw(self.socket) }.close();
    }
}

/// A socket with a name that no one uses.
fn listen() -> io::Result<UnixListener> {
    let with = |number: u32| {
        let name = format!("{NAME}-{}-{number}", process::id());
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
    };
    match with(0) {
        // Another copy of this library has it, or another user, who can take every name that can be guessed.
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            with(SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.subsec_nanos()))
        }
        result => result,
    }
}

/// The loop of the thread.
extern "C" fn serve(socket: *mut c_void) -> *mut c_void {
    // SAFETY: the socket that `start` leaked, which `join` frees after the thread's end.
    let socket = unsafe { &*socket.cast::<Socket>() };
    while socket.is_open() {
        match socket.listener.accept() {
            Ok((client, _)) => {
                // A client that is gone needs no answer.
                drop(answer(&client));
                // Children that were forked since then have the connection as well, and would leave it open.
                let _ = client.shutdown(Shutdown::Both);
            }
            // Ended by `join`; or closed by the program.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EBADF | libc::ENOTSOCK)) => break,
            // This client has gone, or no descriptor is free, which `accept` reports until one is.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
    ptr::null_mut()
}

/// Does what a client requests, if it is of the same user, or root.
fn answer(mut client: &UnixStream) -> io::Result<()> {
    let user = getsockopt(client, sockopt::PeerCredentials)?.uid();
    if user != 0 && (user != geteuid().as_raw() || stands_for_others(user)) {
        log::warn!("user {user} may not suspend or resume this process: only its own user and root");
        return client.write_all(b"the process belongs to another user: run it as that user, or as root");
    }
    let mut word = [0; 16];
    client.set_read_timeout(Some(PATIENCE))?;
    let len = client.read(&mut word)?;
    client.set_nonblocking(true)?;
    let mut has_gone = || matches!(client.read(&mut [0]), Ok(0));
    if has_gone() {
        return Ok(()); // Perhaps while this process was stopped, and its user takes that for a failure.
    }
    let result = match &word[..len] {
        b"suspend" => match caught_in_listener("suspend", suspend) {
            // Interrupted while calls were waited for.
            Ok("") if has_gone() => caught_in_listener("resume", resume).map(|()| ""),
            result => result,
        },
        b"resume" => caught_in_listener("resume", resume).map(|()| ""),
        _ => return client.write_all(b"no such request: update one of gdrcopy and libgdrapi"),
    };
    match result {
        Ok(answer) => client.write_all(answer.as_bytes()),
        Err(error) => client.write_all(error.to_string().as_bytes()),
    }
}

/// Returns whether the number also stands for users that this process's user namespace does not have.
fn stands_for_others(user: u32) -> bool {
    let words = |file| fs::read_to_string(file).unwrap_or_default();
    let has_all = || words("/proc/self/uid_map").split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    words("/proc/sys/kernel/overflowuid").trim().parse().unwrap_or(OVERFLOW) == user && !has_all()
}

fn suspend() -> Result<&'static str> {
    memory::require()?;
    if suspension::is_suspended()? {
        return Ok(ALREADY);
    }
    suspension::suspend()?;
    handles::show_all();
    Ok("")
}

fn resume() -> Result<()> {
    memory::require()?;
    let lost = suspension::resume()?;
    handles::show_all();
    if lost > 0 { Err(Error::Lost { pins: lost }) } else { Ok(()) }
}
