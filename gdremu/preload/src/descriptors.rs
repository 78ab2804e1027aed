//! The descriptors of emulated devices and of exported GPU memory (dma-bufs) that this process uses. Behind each is an
//! ordinary file in a directory that all processes under one gdremu share ([`gdremu_core::session`]). A lock on this
//! file shows whether any process still uses the descriptor.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::path::PathBuf;

use gdremu_core::driver::Access;
use gdremu_core::errno::Errno;
use gdremu_core::gpu::{Exported, HostProvider, PageTableId};
use gdremu_core::keeper;
use gdremu_core::session::{Identity, Record, Session};

use crate::hints::device_fds;
use crate::next;
use crate::system::file_status;

/// The kinds of descriptors that gdremu serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A device that this process opened.
    Device,
    /// A device that another process opened.
    Foreign,
    /// A dma-buf that this process exported. Its memory is kept as long as the dma-buf is mapped or open.
    Export(PageTableId),
    /// A dma-buf that another process exported, or that this process exported before it called execve.
    Received,
}

/// A device or dma-buf that may still be in use. Another process's dma-buf is recorded only while this process
/// maps it.
struct Made {
    kind: Kind,
    record: Record,
    /// While the program maps the device, gdremu maps a page of the descriptor's file at this address.
    /// That keeps the file open after the program closes the descriptor, just as a mapping keeps a real device open.
    anchor: Option<usize>,
    /// True if the parent process made the descriptor. Then the parent, not this process, frees the memory.
    inherited: bool,
}

pub(crate) struct Descriptors {
    session: &'static Session,
    /// This is not a HashMap, which needs random keys, because glibc 2.41 maps memory to make them. After mlockall,
    /// such a mapping fails if the limit of locked memory is reached.
    made: BTreeMap<Identity, Made>,
}

impl Descriptors {
    pub(crate) fn new(session: &'static Session) -> Descriptors {
        Descriptors { session, made: BTreeMap::new() }
    }

    pub(crate) fn add_device(&mut self, access: Access, flags: c_int) -> Result<(c_int, Identity), Errno> {
        let (record, device) = self.session.open_device(access.read, access.write)?;
        let identity = record.identity()?;
        let fd = device.into_raw_fd();
        if flags & libc::O_CLOEXEC == 0 {
            // SAFETY: `fd` was just opened, and only its flag changes.
            unsafe { next::fcntl()(fd, libc::F_SETFD, 0) };
        }
        self.add(identity, record, Kind::Device, fd);
        Ok((fd, identity))
    }

    /// Makes a dma-buf descriptor for GPU memory. The descriptor takes over the caller's reference to the memory.
    pub(crate) fn add_export(&mut self, export: PageTableId, len: u64, gpu: &mut HostProvider) -> Result<c_int, Errno> {
        // The file behind the descriptor is as long as the memory, because lseek(fd, 0, SEEK_END) on a dma-buf returns
        // its size.
        let (record, file) = self.session.open_export(len)?;
        let identity = record.identity()?;
        let (memory, memory_file) = gpu.exported(export)?;
        // The gdremu command keeps the memory, so that other processes can get it from the command. If this fails, they
        // get an error when they map the dma-buf.
        let _ = keeper::keep(self.session, record.name(), memory, memory_file);
        let fd = file.into_raw_fd();
        self.add(identity, record, Kind::Export(export), fd);
        Ok(fd)
    }

    fn add(&mut self, identity: Identity, record: Record, kind: Kind, fd: c_int) {
        self.made.insert(identity, Made { kind, record, anchor: None, inherited: false });
        device_fds::add(fd);
    }

    pub(crate) fn received(&self, fd: c_int) -> Result<(Exported, OwnedFd), Errno> {
        let path = path_of(fd).unwrap_or_default();
        let (session, name) = Session::of_export(&path).ok_or(Errno::ENODEV)?;
        keeper::find(&session, name).map_err(|error| {
            let place = session.directory.display();
            eprintln!("gdremu: cannot map a dma-buf of another process: {error}; is the gdremu of {place} running?");
            Errno::ENODEV
        })
    }

    /// While this process maps another process's dma-buf, keeps the dma-buf in use (see [`Self::anchor`]).
    pub(crate) fn anchor_received(&mut self, fd: c_int, identity: Identity) {
        let path = path_of(fd).unwrap_or_default();
        if let Some((session, name)) = Session::of_export(&path) {
            let record = session.export(name);
            self.made.entry(identity).or_insert(Made { kind: Kind::Received, record, anchor: None, inherited: false });
            self.anchor(fd, identity);
        }
    }

    /// Makes a descriptor keep its dma-buf alive, by a lock on the file behind it. A descriptor that was opened through
    /// /proc/PID/fd has no lock yet.
    pub(crate) fn hold(&self, fd: c_int) {
        if let Some((_, Kind::Export(_) | Kind::Received)) = self.find(fd) {
            // SAFETY: the call accesses no memory.
            unsafe { libc::flock(fd, libc::LOCK_SH) };
        }
    }

    /// Returns the device or dma-buf of a descriptor. Looks at the file behind it, because the program may have closed
    /// the device, and then opened another file that got the same number.
    pub(crate) fn find(&self, fd: c_int) -> Option<(Identity, Kind)> {
        let status = file_status(fd)?;
        let identity = (status.st_dev, status.st_ino);
        if let Some(made) = self.made.get(&identity) {
            return Some((identity, made.kind));
        }
        if status.st_mode & libc::S_IFMT != libc::S_IFREG || status.st_blocks != 0 {
            return None;
        }
        let path = path_of(fd)?;
        if path.starts_with(self.session.devices()) {
            return Some((identity, Kind::Foreign));
        }
        Session::of_export(&path)?;
        Some((identity, Kind::Received))
    }

    pub(crate) fn all(&self) -> Vec<Identity> {
        self.made.keys().copied().collect()
    }

    /// Maps a page of the file behind the descriptor of a device or dma-buf. So the file stays in use while the program
    /// maps the device or dma-buf, even if the program closes the descriptor.
    pub(crate) fn anchor(&mut self, fd: c_int, identity: Identity) {
        let Some(device @ Made { anchor: None, .. }) = self.made.get_mut(&identity) else {
            return;
        };
        // SAFETY: Linux chooses the address, so no memory is replaced.
        let anchor = unsafe { next::mmap()(std::ptr::null_mut(), 1, libc::PROT_NONE, libc::MAP_SHARED, fd, 0) };
        if anchor == libc::MAP_FAILED {
            return;
        }
        // SAFETY: the page was just mapped.
        unsafe { libc::madvise(anchor, 1, libc::MADV_DONTFORK) };
        device.anchor = Some(anchor as usize);
    }

    /// Forgets a device or dma-buf that this process no longer maps. Keeps it if the parent process made it; or if this
    /// process made it, and any process still has it open.
    pub(crate) fn remove_closed(&mut self, identity: Identity) -> Option<Kind> {
        let made = self.made.get_mut(&identity)?;
        if let Some(anchor) = made.anchor.take() {
            // SAFETY: the function `anchor` has mapped this page, which no code accesses.
            unsafe { next::munmap()(anchor as *mut _, 1) };
        }
        if made.kind != Kind::Received {
            if made.inherited || made.record.is_open() {
                return None;
            }
            made.record.remove();
        }
        Some(self.made.remove(&identity)?.kind)
    }

    pub(crate) fn publish_pins(&self, identity: Identity, pins: usize) {
        if let Some(Made { kind: Kind::Device, record, .. }) = self.made.get(&identity) {
            record.set_pins(pins as u64);
        }
    }

    /// Forgets devices in a forked child, since they are the parent's. Keeps the dma-bufs that the parent exported,
    /// because the child may use the descriptors of dma-bufs that it inherited.
    pub(crate) fn after_fork(&mut self) {
        self.made.retain(|_, made| matches!(made.kind, Kind::Export(_)));
        self.made.values_mut().for_each(|export| export.inherited = true);
    }
}

fn path_of(fd: c_int) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()
}
