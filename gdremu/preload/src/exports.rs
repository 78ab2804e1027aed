//! Descriptors that CUDA gives out for GPU memory: dma-bufs, which can be mapped, and shareable
//! handles of physical objects.
//!
//! A descriptor is one of an empty file of the export's size in the session directory, and holds a
//! lock on it: as with devices, the lock is free once all copies are closed. The memory lives until
//! then, and as long as it is mapped.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gdremu_core::gpu::PageTableId;
use gdremu_core::gpu::physical::ObjectId;

use crate::system::{Identity, file_status};

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
    path: PathBuf,
    /// It belongs to the parent process, which releases it.
    inherited: bool,
    /// Where it is mapped: (start, end).
    mappings: Vec<(usize, usize)>,
}

/// All exports of this process.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    live: HashMap<Identity, Live>,
    made: u64,
    /// Number of exports from which on to look for closed ones.
    reap_at: usize,
}

impl Exports {
    /// Makes a descriptor for an export.
    pub(crate) fn add(&mut self, directory: &Path, export: Export, len: u64) -> io::Result<c_int> {
        self.made += 1;
        let path = directory.join(format!("export-{}-{}", std::process::id(), self.made));
        let open = || -> io::Result<_> {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path)?;
            file.set_len(len)?; // lseek(fd, 0, SEEK_END) returns the size of a dma-buf.
            file.lock()?;
            let metadata = file.metadata()?;
            Ok((file, (metadata.dev(), metadata.ino())))
        };
        let (file, identity) = open().inspect_err(|_| drop(fs::remove_file(&path)))?;
        self.live.insert(
            identity,
            Live {
                export,
                path,
                inherited: false,
                mappings: Vec::new(),
            },
        );
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

    /// Whether to look for closed exports before adding one.
    pub(crate) fn is_reaping_due(&self) -> bool {
        self.live.len() >= self.reap_at
    }

    /// Schedules the next look. It costs a system call per export, so it is twice as far away each time.
    pub(crate) fn schedule_reaping(&mut self) {
        self.reap_at = 2 * self.live.len() + 16;
    }

    /// Records a mapping of an export.
    pub(crate) fn mapped(&mut self, identity: Identity, addr: usize, len: usize) {
        if let Some(live) = self.live.get_mut(&identity) {
            live.mappings.push((addr, addr + len));
        }
    }

    /// Whether any address of a range maps an export.
    pub(crate) fn maps(&self, addr: usize, len: usize) -> bool {
        let mut mappings = self.live.values().flat_map(|live| &live.mappings);
        mappings.any(|&(start, end)| start < addr.saturating_add(len) && addr < end)
    }

    /// The lowest mapped address and the end of the highest.
    pub(crate) fn mapped_bounds(&self) -> Option<(usize, usize)> {
        let mappings = || self.live.values().flat_map(|live| &live.mappings);
        let low = mappings().map(|mapping| mapping.0).min()?;
        let high = mappings().map(|mapping| mapping.1).max()?;
        Some((low, high))
    }

    /// A range of addresses was unmapped. Returns the exports whose last mapping that was.
    pub(crate) fn unmapped(&mut self, addr: usize, len: usize) -> Vec<Identity> {
        let end = addr.saturating_add(len);
        let mut unmapped = Vec::new();
        for (identity, live) in &mut self.live {
            if live.mappings.is_empty() {
                continue;
            }
            live.mappings = live
                .mappings
                .iter()
                .flat_map(|&(from, to)| [(from, to.min(addr)), (from.max(end), to)])
                .filter(|(from, to)| from < to)
                .collect();
            if live.mappings.is_empty() {
                unmapped.push(*identity);
            }
        }
        unmapped
    }

    /// A range of addresses was moved by mremap(2).
    pub(crate) fn moved(&mut self, from: usize, len: usize, to: usize) {
        for live in self.live.values_mut() {
            for (start, end) in &mut live.mappings {
                if *start >= from && *end <= from + len {
                    (*start, *end) = (*start - from + to, *end - from + to);
                }
            }
        }
    }

    /// In a forked child, which may use what it inherited.
    pub(crate) fn after_fork(&mut self) {
        for live in self.live.values_mut() {
            live.inherited = true;
            live.mappings.clear(); // They are absent from children.
        }
    }

    /// Removes the exports that are no longer open or mapped, and returns them.
    pub(crate) fn reap(&mut self) -> Vec<Export> {
        let closed: Vec<_> = self.live.keys().copied().collect();
        closed
            .into_iter()
            .filter_map(|one| self.reap_one(one))
            .collect()
    }

    /// Removes an export if it is no longer open or mapped, and returns it.
    pub(crate) fn reap_one(&mut self, identity: Identity) -> Option<Export> {
        let live = self.live.get(&identity)?;
        if live.inherited || !live.mappings.is_empty() || is_open(&live.path) {
            return None;
        }
        // A session that is gone has removed it already.
        let _ = fs::remove_file(&live.path);
        self.live.remove(&identity).map(|live| live.export)
    }
}

/// Whether a descriptor of the file is left, in any process.
fn is_open(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => file.try_lock_shared().is_err(),
        // Out of descriptors, say: better kept too long.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}
