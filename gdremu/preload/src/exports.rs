//! Descriptors that CUDA gives out for GPU memory: dma-bufs, which can be mapped, and shareable
//! handles of physical objects.
//!
//! A descriptor is one of an empty file of the export's size in the session's folder, and holds a
//! lock on it: as with devices, the kernel itself thus counts who still has it. The memory lives
//! as long as anybody does, and as long as it is mapped.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gdremu_core::errno::Errno;
use gdremu_core::gpu::physical::ObjectId;
use gdremu_core::gpu::{PageTableId, Provider};

use crate::state::{Identity, Machine, file_status, page_size};

/// What a descriptor stands for.
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
    /// It is a parent's, who alone decides when it ends.
    inherited: bool,
    /// Where it is mapped: (start, end).
    mappings: Vec<(usize, usize)>,
}

/// All exports of this process.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    live: HashMap<Identity, Live>,
    made: u64,
    /// With so many it is worth looking for those that nobody has any more.
    reap_at: usize,
}

impl Exports {
    /// Makes a descriptor for an export.
    fn add(&mut self, folder: &Path, export: Export, len: u64) -> io::Result<c_int> {
        self.made += 1;
        let path = folder.join(format!("export-{}-{}", std::process::id(), self.made));
        let open = || -> io::Result<_> {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path)?;
            file.set_len(len)?; // Where a dma-buf tells its size: lseek(fd, 0, SEEK_END).
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

    /// What a descriptor stands for.
    fn find(&self, fd: c_int) -> Option<(Identity, Export)> {
        if self.live.is_empty() {
            return None;
        }
        let status = file_status(fd)?;
        let identity = (status.st_dev, status.st_ino);
        self.live.get(&identity).map(|live| (identity, live.export))
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

    /// A range of addresses was unmapped.
    pub(crate) fn unmapped(&mut self, addr: usize, len: usize) {
        let end = addr.saturating_add(len);
        for live in self.live.values_mut() {
            live.mappings = live
                .mappings
                .iter()
                .flat_map(|&(from, to)| [(from, to.min(addr)), (from.max(end), to)])
                .filter(|(from, to)| from < to)
                .collect();
        }
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

    /// Forgets the exports that nobody has any more, and returns them.
    fn reap(&mut self) -> Vec<Export> {
        let mut gone = Vec::new();
        self.live.retain(|_, live| {
            let in_use = live.inherited || !live.mappings.is_empty() || is_open(&live.path);
            if !in_use {
                // A session that is gone has removed it already.
                let _ = fs::remove_file(&live.path);
                gone.push(live.export);
            }
            in_use
        });
        gone
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

impl Machine {
    /// Makes a descriptor for GPU memory that the caller has taken hold of. The hold passes to the
    /// descriptor.
    ///
    /// # Errors
    /// What the file system answers; the hold is given up.
    pub fn export(&mut self, export: Export, len: u64) -> Result<c_int, Errno> {
        // Each look costs a system call an export: doubling keeps the sum of them small.
        if self.exports.live.len() >= self.exports.reap_at {
            self.reap_exports();
            self.exports.reap_at = 2 * self.exports.live.len() + 16;
        }
        self.exports
            .add(&self.config.session, export, len)
            .map_err(|error| {
                self.release_export(export);
                Errno(error.raw_os_error().unwrap_or(libc::EIO))
            })
    }

    /// What CUDA exported under a descriptor.
    pub fn exported(&self, fd: c_int) -> Option<Export> {
        self.exports.find(fd).map(|(_, export)| export)
    }

    /// Maps a dma-buf; `None` if the descriptor is not one of CUDA's.
    pub(crate) fn map_export(
        &mut self,
        fd: c_int,
        offset: u64,
        len: usize,
    ) -> Option<Result<usize, Errno>> {
        let (identity, export) = self.exports.find(fd)?;
        let arguments = [("length", len as u64), ("offset", offset)];
        let mapped = self.call("mmap", &arguments, |machine| {
            let Export::Range(table) = export else {
                return Err(Errno::ENODEV);
            };
            let gpu = machine.gpu.host().memory().page_table(table);
            let gpu = gpu.ok_or(Errno::EINVAL)?.runs[0].gpu;
            if !machine.config.gpu.maps_dmabufs(gpu) {
                return Err(Errno::ENOTSUPP);
            }
            let len = len
                .checked_next_multiple_of(page_size())
                .ok_or(Errno::ENOMEM)?;
            let addr = machine.gpu.map(table, offset, len)?;
            if let Some(live) = machine.exports.live.get_mut(&identity) {
                live.mappings.push((addr, addr + len));
            }
            machine.publish_bounds();
            Ok(addr as u64)
        });
        Some(mapped.map(|addr| addr as usize))
    }

    /// Gives up the memory of exports that nobody has any more.
    pub fn reap_exports(&mut self) {
        for export in self.exports.reap() {
            self.release_export(export);
        }
    }

    fn release_export(&mut self, export: Export) {
        match export {
            Export::Range(table) => self.gpu.put_pages(table),
            Export::Object(object) => {
                let released = self.gpu.host().change(|memory| memory.release(object));
                debug_assert!(released.is_ok(), "an export holds its object");
            }
        }
    }
}
