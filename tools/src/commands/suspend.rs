//! `gdrcopy suspend` and `gdrcopy resume` take GPU memory from the CPU side of processes for a checkpoint, and return it.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{getsockopt, sockopt};

use crate::system::interrupt::{Interrupt, SIGNALS, not_ignored};

#[derive(Debug, Args)]
#[command(after_long_help = "\
A process listens once it has called gdr_open with GDRCOPY_SUSPEND=1 in its environment. Needs the process's user, or root.

Examples:
  gdrcopy suspend 1234
  gdrcopy resume 1234
  gdrcopy suspend --tree 1234")]
pub(crate) struct Options {
    /// Include what these processes have started, and leave out processes that do not listen
    #[arg(long)]
    tree: bool,

    /// Processes that were started with GDRCOPY_SUSPEND=1
    #[arg(required = true, value_name = "PID")]
    pids: Vec<u32>,
}

/// `gdrcopy suspend`: all of them, or none that was not suspended before.
pub(crate) fn suspend(options: &Options) -> Result<ExitCode> {
    // Signals that are ignored, as in the background of a script, stay so.
    let interrupt = Interrupt::quiet(&not_ignored(&SIGNALS))?;
    let mut taken = Vec::new();
    let Err(error) = suspend_all(options, &interrupt, &mut taken) else {
        return Ok(ExitCode::SUCCESS);
    };
    interrupt.reset();
    for suspended in taken {
        if let Err(error) = suspended.request("resume", Some(&interrupt)) {
            eprintln!("gdrcopy suspend: {error:#}");
        }
    }
    Err(error)
}

/// Suspends all, and adds those to the list that were not suspended before.
fn suspend_all(options: &Options, interrupt: &Interrupt, taken: &mut Vec<Listener>) -> Result<()> {
    let mut asked = BTreeSet::new();
    loop {
        let mut listeners = options.listeners()?;
        listeners.retain(|listener| asked.insert((listener.pid, listener.inode.clone())));
        if listeners.is_empty() {
            return Ok(());
        }
        for listener in listeners {
            if let Answer::Done = listener.request("suspend", Some(interrupt))? {
                taken.push(listener);
            }
        }
        if !options.tree {
            return Ok(());
        }
        // Others may have begun to listen while these were waited for.
    }
}

/// `gdrcopy resume`: goes on after errors.
pub(crate) fn resume(options: &Options) -> Result<ExitCode> {
    let mut status = ExitCode::SUCCESS;
    for listener in options.listeners()? {
        if let Err(error) = listener.request("resume", None) {
            eprintln!("gdrcopy resume: {error:#}");
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

impl Options {
    fn listeners(&self) -> Result<Vec<Listener>> {
        let (mut pids, mut all) = (self.pids.clone(), Vec::new());
        if self.tree {
            let mut next = 0;
            while let Some(&pid) = pids.get(next) {
                pids.extend(children(pid));
                next += 1;
            }
        }
        for (number, pid) in pids.into_iter().enumerate() {
            let found = match Listener::all_of(pid) {
                Ok(found) => found,
                Err(error) if number < self.pids.len() => match error.kind() {
                    ErrorKind::NotFound => bail!("there is no process {pid}"),
                    _ => Err(error).context(format!("process {pid}: run it as its user, or as root"))?,
                },
                Err(error) => {
                    // Those that have ended belong to root, until their parents know.
                    if error.kind() != ErrorKind::NotFound && !matches!(state(pid), 'Z' | 'X') {
                        eprintln!("gdrcopy: process {pid} is left out, as it cannot be read: {error}");
                    }
                    continue;
                }
            };
            ensure!(
                self.tree || !found.is_empty(),
                "process {pid} does not listen: start it with GDRCOPY_SUSPEND=1, which gdr_open of this libgdrapi reads"
            );
            all.extend(found);
        }
        Ok(all)
    }
}

/// A socket on which a libgdrapi of a process listens. Each copy of the library has one.
struct Listener {
    pid: u32,
    /// Abstract.
    name: String,
    inode: String,
}

impl Listener {
    /// The sockets of a process with such a name. Its descriptors are examined, because the number in a name is that of
    /// the process's own PID namespace, or of before a restore.
    fn all_of(pid: u32) -> io::Result<Vec<Listener>> {
        let inodes = sockets(pid)?;
        let sockets = fs::read(format!("/proc/{pid}/net/unix"))?;
        let sockets = String::from_utf8_lossy(&sockets);
        let named = sockets.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace().skip(6);
            let (inode, path) = (words.next()?, words.next()?);
            let name = path.strip_prefix('@').filter(|name| name.starts_with(NAME))?;
            let is_own = inodes.iter().any(|own| own == inode);
            is_own.then(|| Listener { pid, name: name.to_owned(), inode: inode.to_owned() })
        });
        // A forked child also has its parent's socket.
        let own = named.filter(|listener| listener.is_of_the_process().unwrap_or(true));
        let mut own: Vec<Listener> = own.collect();
        own.sort_by(|a, b| a.name.cmp(&b.name)); // The kernel has no order.
        Ok(own)
    }

    fn is_of_the_process(&self) -> io::Result<bool> {
        let listening = getsockopt(&self.connect()?, sockopt::PeerCredentials)?.pid();
        Ok(u32::try_from(listening) == Ok(self.pid))
    }

    /// Returns whether the process still has the socket. It gets no connection, which a checkpoint would find.
    fn is_still_there(&self) -> bool {
        sockets(self.pid).is_ok_and(|inodes| inodes.contains(&self.inode))
    }

    /// Connects, in the network namespace of the process.
    fn connect(&self) -> io::Result<UnixStream> {
        let theirs = format!("/proc/{}/ns/net", self.pid);
        if fs::metadata(&theirs)?.ino() != fs::metadata("/proc/thread-self/ns/net")?.ino() {
            setns(File::open(theirs)?, CloneFlags::CLONE_NEWNET)?;
        }
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(&self.name)?)
    }

    fn request(&self, word: &str, interrupt: Option<&Interrupt>) -> Result<Answer> {
        let exchange = || -> io::Result<String> {
            let (mut listener, mut answer, mut more) = (self.connect()?, Vec::new(), [0; 1000]);
            listener.write_all(word.as_bytes())?;
            // Any process may listen by such a name, and answer what it likes.
            while answer.len() < LONGEST {
                self.wait_for_answer(&listener, interrupt)?;
                match listener.read(&mut more)? {
                    0 => break,
                    len => answer.extend(&more[..len]),
                }
            }
            Ok(String::from_utf8_lossy(&answer).replace(char::is_control, " "))
        };
        let answer = exchange().with_context(|| format!("process {} does not answer", self.pid))?;
        match answer.as_str() {
            // The end of the process, and exec, also leave the request without an answer.
            "" if !self.is_still_there() => bail!("process {} has ended, or listens no more", self.pid),
            "" => Ok(Answer::Done),
            "suspended already" => Ok(Answer::Already),
            _ => bail!("process {}: {answer}", self.pid),
        }
    }

    /// Waits without limit, as calls of the process may take any time, and says so once.
    fn wait_for_answer(&self, listener: &UnixStream, interrupt: Option<&Interrupt>) -> io::Result<()> {
        let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let mut said = false;
        loop {
            let ready = poll(&mut polled, UNTIL_HINT);
            if ready.is_ok_and(|ready| ready > 0) {
                return Ok(());
            }
            if interrupt.is_some_and(Interrupt::requested) {
                return Err(io::Error::other("interrupted"));
            }
            let hint = match state(self.pid) {
                // Children that it has forked may keep its socket open.
                'Z' | 'X' => return Err(io::Error::other("it has ended")),
                'T' | 't' => "it is stopped: let it continue (SIGCONT), or detach the debugger",
                _ => "one of its calls may take long, or it has no free descriptor",
            };
            if ready.is_ok() && !said {
                eprintln!("gdrcopy: waiting for process {}: {hint}", self.pid);
                said = true;
            }
        }
    }
}

/// Success of a request.
enum Answer {
    Done,
    /// It was suspended before.
    Already,
}

/// Milliseconds.
const UNTIL_HINT: u16 = 2000;

/// The longest answer in bytes.
const LONGEST: usize = 1000;

/// The beginning of the names of the sockets.
const NAME: &str = "gdrcopy-suspend-";

/// The numbers of the inodes of all sockets of a process.
fn sockets(pid: u32) -> io::Result<Vec<String>> {
    let mut inodes = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // It may be closed by now.
        if let Ok(target) = fs::read_link(entry?.path())
            && let Some(inode) = target.to_str().and_then(|it| it.strip_prefix("socket:["))
        {
            inodes.push(inode.trim_end_matches(']').to_owned());
        }
    }
    Ok(inodes)
}

/// The letter of a process's state; X if there is none.
fn state(pid: u32) -> char {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.and_then(|state| state.trim_start().chars().next()).unwrap_or('X')
}

/// The processes that a process has started, and that have not ended.
fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let all: Vec<String> = lists.collect();
    all.iter().flat_map(|list| list.split_ascii_whitespace()).filter_map(|it| it.parse().ok()).collect()
}
