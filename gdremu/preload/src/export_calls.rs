//! Creating, mapping and releasing descriptors of emulated GPU memory.

use std::ffi::c_int;

use gdremu_core::errno::Errno;
use gdremu_core::gpu::Provider;

use crate::exports::Export;
use crate::hooks::device_fds;
use crate::state::EmulatedProcess;
use crate::system::{Identity, page_size};

impl EmulatedProcess {
    /// Creates a descriptor for GPU memory that the caller holds a reference to. The descriptor takes over
    /// the reference.
    ///
    /// # Errors
    /// The file system's error; the reference is released.
    pub fn export(&mut self, export: Export, len: u64) -> Result<c_int, Errno> {
        if self.exports.is_reaping_due() {
            self.reap_exports();
            self.exports.schedule_reaping();
        }
        self.exports
            .add(&self.config.session, export, len)
            .inspect(|fd| device_fds::add(*fd))
            .map_err(|error| {
                self.release_export(export);
                error.into()
            })
    }

    /// The export of a descriptor.
    pub fn exported(&self, fd: c_int) -> Option<Export> {
        self.exports.find(fd).map(|(_, export)| export)
    }

    /// The export of a descriptor, by which file it is.
    pub(crate) fn export_of(&self, fd: c_int) -> Option<Identity> {
        self.exports.find(fd).map(|(identity, _)| identity)
    }

    /// Maps a dma-buf; `None` if the descriptor is not an export.
    pub(crate) fn map_export(
        &mut self,
        fd: c_int,
        offset: u64,
        len: usize,
    ) -> Option<Result<usize, Errno>> {
        let (identity, export) = self.exports.find(fd)?;
        let arguments = [("length", len as u64), ("offset", offset)];
        let mapped = self.call("mmap", &arguments, |process| {
            let Export::Range(table) = export else {
                return Err(Errno::ENODEV);
            };
            let gpu = process.gpu.host().memory().page_table(table);
            let gpu = gpu.ok_or(Errno::EINVAL)?.runs[0].gpu;
            if !process.config.gpu.maps_dmabufs(gpu) {
                return Err(Errno::ENOTSUPP);
            }
            let len = len
                .checked_next_multiple_of(page_size())
                .ok_or(Errno::ENOMEM)?;
            let addr = process.gpu.map(table, offset, len)?;
            process.exports.mapped(identity, addr, len);
            process.publish_bounds();
            Ok(addr as u64)
        });
        Some(mapped.map(|addr| addr as usize))
    }

    /// Releases the memory of exports whose descriptors and mappings are all closed, by any process and
    /// in any manner.
    pub fn reap_exports(&mut self) {
        for export in self.exports.reap() {
            self.release_export(export);
        }
    }

    /// Releases the memory of an export if all its descriptors and mappings are closed.
    pub(crate) fn reap_export(&mut self, identity: Identity) {
        if let Some(export) = self.exports.reap_one(identity) {
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
