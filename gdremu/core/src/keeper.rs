//! Lets the launcher (the gdremu command) keep dma-bufs, so that processes other than the exporter can map them.
//!
//! The process that exports a dma-buf sends the launcher the file that holds the memory. Processes that receive the
//! descriptor of the dma-buf ask the launcher for that file. The launcher keeps the file open while any process has the
//! dma-buf open or mapped, even if the exporter has ended.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::fstat;
use serde::{Deserialize, Serialize};

use crate::gpu::Exported;
use crate::session::{Identity, Session};
use crate::sockets;

/// A message to the launcher. The name in it is that of a file in the session directory, which all processes under one
/// gdremu share. This file stands for a dma-buf.
#[derive(Serialize, Deserialize)]
enum Request {
    /// Asks the launcher to keep a dma-buf. The message carries a descriptor of the file that holds its memory.
    Keep(OsString, Exported),
    /// Asks for a dma-buf. The message carries a descriptor of the socket to which the launcher sends its answer.
    Find(OsString),
}

/// The launcher's data: the socket on which it gets requests, and the dma-bufs that it keeps.
pub struct Keeper {
    session: Session,
    socket: UnixDatagram,
    kept: HashMap<OsString, (Exported, Arc<OwnedFd>)>,
    /// The files in `kept`, by device and inode number. A file that has many dma-bufs in it is kept open only once.
    files: HashMap<Identity, Weak<OwnedFd>>,
    /// When `kept` has this many dma-bufs, those that no process uses any more are removed.
    purge_at: usize,
    /// The id of the process whose dma-buf was kept last. If another process exports one, unused dma-bufs are removed.
    last: Option<String>,
}

impl Keeper {
    pub fn new(session: &Session) -> io::Result<Keeper> {
        let (place, _directory) = place(session)?;
        let socket = UnixDatagram::bind(place)?;
        let session = session.clone();
        Ok(Keeper { session, socket, kept: HashMap::new(), files: HashMap::new(), purge_at: 0, last: None })
    }

    /// Serves all processes under this gdremu. A message that cannot be understood is dropped.
    pub fn serve(mut self) {
        loop {
            let Ok((message, descriptor)) = sockets::receive(&self.socket) else { continue };
            match serde_json::from_slice(&message) {
                Ok(Request::Keep(name, exported)) => self.keep(name, exported, descriptor),
                Ok(Request::Find(name)) => self.answer(&name, descriptor.as_fd()),
                Err(_) => {}
            }
        }
    }

    fn keep(&mut self, name: OsString, exported: Exported, file: OwnedFd) {
        let owner = self.session.export(&name).owner().map(str::to_owned);
        if owner != self.last || self.kept.len() >= self.purge_at {
            self.purge();
            self.purge_at = 2 * self.kept.len() + 16;
        }
        self.last = owner;
        let Ok(status) = fstat(&file) else { return };
        // With --provider emugpu, the file is /dev/emugpu. The launcher does not keep it, because that device frees the
        // exporter's memory and pins only when all copies of the exporter's descriptor are closed.
        if status.st_mode & libc::S_IFMT != libc::S_IFREG {
            return;
        }
        let identity = (status.st_dev, status.st_ino);
        let file = self.files.get(&identity).and_then(Weak::upgrade).unwrap_or(Arc::new(file));
        self.files.insert(identity, Arc::downgrade(&file));
        self.kept.insert(name, (exported, file));
    }

    fn purge(&mut self) {
        self.kept.retain(|name, _| self.session.export(name).is_open());
        self.files.retain(|_, file| file.strong_count() > 0);
    }

    /// Sends a dma-buf's description and file to the socket `to`, or nothing if the dma-buf does not exist. In that
    /// case, the process that asked finds the connection closed, because the caller closes `to`.
    fn answer(&self, name: &OsStr, to: BorrowedFd<'_>) {
        if let Some((exported, file)) = self.kept.get(name)
            && let Ok(answer) = serde_json::to_vec(exported)
        {
            // The process that asked may have ended, so errors are ignored.
            let _ = sockets::send(to, &answer, file.as_fd());
        }
    }
}

pub fn keep(session: &Session, name: &OsStr, exported: Exported, file: BorrowedFd<'_>) -> io::Result<()> {
    request(session, &Request::Keep(name.to_owned(), exported), file)
}

pub fn find(session: &Session, name: &OsStr) -> io::Result<(Exported, OwnedFd)> {
    let (answers, to) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    request(session, &Request::Find(name.to_owned()), to.as_fd())?;
    drop(to);
    let (answer, file) = sockets::receive(answers)?;
    Ok((serde_json::from_slice(&answer)?, file))
}

fn request(session: &Session, request: &Request, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    let (place, _directory) = place(session)?;
    socket.connect(place)?;
    sockets::send(socket.as_fd(), &serde_json::to_vec(request)?, descriptor)
}

/// Returns the path of the launcher's socket, and a directory that must stay open while the path is used. Linux limits
/// the length of such paths, so a long path is replaced by a short one through the directory's descriptor.
fn place(session: &Session) -> io::Result<(PathBuf, Option<File>)> {
    const MAX: usize = 100;

    let place = session.directory.join("keeper");
    if place.as_os_str().len() <= MAX {
        return Ok((place, None));
    }
    let directory = File::open(&session.directory)?;
    Ok((Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join("keeper"), Some(directory)))
}
