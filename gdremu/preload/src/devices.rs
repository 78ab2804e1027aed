//! The devices that this process opened.
//!
//! A device's descriptor is that of a locked record in the session directory (see
//! [`gdremu_core::session`]): the kernel tracks every use of it, by any process.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::IntoRawFd;

use gdremu_core::driver::Access;
use gdremu_core::errno::Errno;
use gdremu_core::session::{Identity, Record, Session};

use crate::next;
use crate::system::file_status;

/// A device that this process opened.
#[derive(Debug)]
struct Device {
    record: Record,
    /// A page of the record that stays mapped as long as the device is: it keeps the file open, as
    /// a mapping of a real device would.
    anchor: Option<usize>,
}

/// The kind of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// A device that this process opened.
    Own(Identity),
    /// A device that another process opened.
    Foreign,
    /// No device.
    Other,
}

/// All devices that this process opened.
#[derive(Debug)]
pub(crate) struct Devices {
    session: Session,
    open: HashMap<Identity, Device>,
}

impl Devices {
    /// None, of a session.
    pub(crate) fn new(session: Session) -> Devices {
        Devices { session, open: HashMap::new() }
    }

    /// The session.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Creates the descriptor of an open device, with the flags of open(2).
    pub(crate) fn add(&mut self, access: Access, flags: c_int) -> Result<(c_int, Identity), Errno> {
        let (record, device) = self.session.open_device(access.read, access.write)?;
        let identity = record.identity()?;
        let fd = device.into_raw_fd();
        if flags & libc::O_CLOEXEC == 0 {
            // SAFETY: `fd` was just opened; only its flag changes.
            unsafe { next::fcntl()(fd, libc::F_SETFD, 0) };
        }
        self.open.insert(identity, Device { record, anchor: None });
        Ok((fd, identity))
    }

    /// Identifies a descriptor by its file, not by its number.
    pub(crate) fn descriptor(&self, fd: c_int) -> Descriptor {
        let Some(status) = file_status(fd) else {
            return Descriptor::Other;
        };
        let identity = (status.st_dev, status.st_ino);
        if self.open.contains_key(&identity) {
            return Descriptor::Own(identity);
        }
        let is_record = status.st_mode & libc::S_IFMT == libc::S_IFREG
            && status.st_blocks == 0
            && std::fs::read_link(format!("/proc/self/fd/{fd}"))
                .is_ok_and(|path| path.starts_with(self.session.devices()));
        if is_record { Descriptor::Foreign } else { Descriptor::Other }
    }

    /// Every device.
    pub(crate) fn all(&self) -> Vec<Identity> {
        self.open.keys().copied().collect()
    }

    /// Makes the kernel count this process's mappings of a device as a use of it.
    pub(crate) fn anchor(&mut self, fd: c_int, identity: Identity) {
        let Some(device) = self.open.get_mut(&identity) else {
            return;
        };
        if device.anchor.is_some() {
            return;
        }
        // SAFETY: the kernel chooses the address, so no memory is replaced.
        let anchor = unsafe {
            next::mmap()(std::ptr::null_mut(), 1, libc::PROT_NONE, libc::MAP_SHARED, fd, 0)
        };
        if anchor == libc::MAP_FAILED {
            return;
        }
        // SAFETY: the page was just mapped.
        unsafe { libc::madvise(anchor, 1, libc::MADV_DONTFORK) };
        device.anchor = Some(anchor as usize);
    }

    /// A device has no mapping any more.
    pub(crate) fn remove_anchor(&mut self, identity: Identity) {
        let device = self.open.get_mut(&identity);
        if let Some(anchor) = device.and_then(|device| device.anchor.take()) {
            // SAFETY: the anchor's own page, which nothing touches.
            unsafe { next::munmap()(anchor as *mut _, 1) };
        }
    }

    /// Removes a device if no process has it open.
    pub(crate) fn remove_closed(&mut self, identity: Identity) -> bool {
        let device = self.open.get(&identity);
        let is_closed = device.is_some_and(|device| !device.record.is_open());
        if is_closed && let Some(device) = self.open.remove(&identity) {
            device.record.remove();
        }
        is_closed
    }

    /// Lets other processes know how many page tables a device has pinned.
    pub(crate) fn publish_pins(&self, identity: Identity, pins: usize) {
        if let Some(device) = self.open.get(&identity) {
            device.record.set_pins(pins as u64);
        }
    }

    /// In a forked child: all of them are the parent's.
    pub(crate) fn after_fork(&mut self) {
        self.open.clear();
    }
}
