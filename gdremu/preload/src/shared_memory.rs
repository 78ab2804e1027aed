//! Descriptors that CUDA gives out for GPU memory: dma-bufs, which can be mapped, and shareable
//! handles of physical objects.
//!
//! A descriptor is one of an empty file of the export's size in the session directory, and holds a
//! lock on it: as with devices, the lock is free once all copies are closed. The memory lives until
//! then, and as long as it is mapped.

use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::os::fd::IntoRawFd;

use gdremu_core::errno::Errno;
use gdremu_core::gpu::physical::ObjectId;
use gdremu_core::gpu::{PageTableId, Provider};
use gdremu_core::session::{Identity, Record, Session};
use gdremu_core::vmas::Vmas;

use crate::hints::device_fds;
use crate::settings;
use crate::system::{file_status, page_size};

/// The memory behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Export {
    /// Part of the device address space, as a dma-buf.
    Range(PageTableId),
    /// A physical object, to be imported again.
    Object(ObjectId),
}

/// An export that may still be in use.
#[derive(Debug)]
struct Live {
    export: Export,
    record: Record,
    /// It belongs to the parent process, which releases it.
    inherited: bool,
}

/// All exports of this process.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    live: HashMap<Identity, Live>,
    /// Where they are mapped.
    pub(crate) vmas: Vmas<Identity>,
    /// Number of exports from which on to look for closed ones.
    reap_at: usize,
}

impl Exports {
    /// Creates a descriptor for GPU memory that the caller holds a reference to. The descriptor takes over
    /// the reference.
    ///
    /// # Errors
    /// The file system's error; the reference is released.
    pub(crate) fn add(
        &mut self,
        session: &Session,
        gpu: &mut dyn Provider,
        export: Export,
        len: u64,
    ) -> Result<c_int, Errno> {
        // Looking for closed ones costs a system call per export, so it is twice as far away each time.
        if self.live.len() >= self.reap_at {
            self.reap(gpu);
            self.reap_at = 2 * self.live.len() + 16;
        }
        let created = self.create(session, export, len);
        let fd = created.inspect_err(|_| release(gpu, export))?;
        device_fds::add(fd);
        Ok(fd)
    }

    fn create(&mut self, session: &Session, export: Export, len: u64) -> io::Result<c_int> {
        // lseek(fd, 0, SEEK_END) returns the size of a dma-buf.
        let (record, file) = session.open_export(len)?;
        let identity = record.identity().inspect_err(|_| record.remove())?;
        self.live.insert(identity, Live { export, record, inherited: false });
        Ok(file.into_raw_fd())
    }

    /// The memory behind a descriptor.
    pub(crate) fn find(&self, fd: c_int) -> Option<(Identity, Export)> {
        if self.live.is_empty() {
            return None;
        }
        let status = file_status(fd)?;
        let identity = (status.st_dev, status.st_ino);
        self.live.get(&identity).map(|live| (identity, live.export))
    }

    /// Maps a dma-buf.
    pub(crate) fn map(
        &mut self,
        gpu: &mut dyn Provider,
        fd: c_int,
        offset: u64,
        len: usize,
    ) -> Result<usize, Errno> {
        let (identity, export) = self.find(fd).ok_or(Errno::EBADF)?;
        let Export::Range(table) = export else {
            return Err(Errno::ENODEV);
        };
        let found = gpu.host().memory().page_table(table);
        let number = found.ok_or(Errno::EINVAL)?.runs[0].gpu;
        if !settings::config().gpu.maps_dmabufs(number) {
            return Err(Errno::ENOTSUPP);
        }
        let len = len.checked_next_multiple_of(page_size()).ok_or(Errno::ENOMEM)?;
        let addr = gpu.map(table, offset, len)?;
        self.vmas.insert(addr, len, identity);
        Ok(addr)
    }

    /// A range of addresses was unmapped: releases the exports that are closed and have no mapping left.
    pub(crate) fn unmapped(&mut self, gpu: &mut dyn Provider, addr: usize, len: usize) {
        for (_, _, identity) in self.vmas.remove(addr, len) {
            self.reap_one(gpu, identity);
        }
    }

    /// In a forked child, which may use what it inherited. Mappings are absent from it.
    pub(crate) fn after_fork(&mut self) {
        self.live.values_mut().for_each(|live| live.inherited = true);
        self.vmas = Vmas::default();
    }

    /// Releases the memory of exports whose descriptors and mappings are all closed, by any process and
    /// in any manner.
    pub(crate) fn reap(&mut self, gpu: &mut dyn Provider) {
        for identity in self.live.keys().copied().collect::<Vec<_>>() {
            self.reap_one(gpu, identity);
        }
    }

    /// Releases the memory of an export if all its descriptors and mappings are closed.
    pub(crate) fn reap_one(&mut self, gpu: &mut dyn Provider, identity: Identity) {
        let is_mapped = || self.vmas.shown().any(|shown| *shown == identity);
        let is_used = |live: &Live| live.inherited || is_mapped() || live.record.is_open();
        if self.live.get(&identity).is_none_or(is_used) {
            return;
        }
        if let Some(live) = self.live.remove(&identity) {
            live.record.remove();
            release(gpu, live.export);
        }
    }
}

fn release(gpu: &mut dyn Provider, export: Export) {
    match export {
        Export::Range(table) => gpu.put_pages(table),
        Export::Object(object) => {
            let released = gpu.host().change(|memory| memory.release(object));
            debug_assert!(released.is_ok(), "an export holds its object");
        }
    }
}
