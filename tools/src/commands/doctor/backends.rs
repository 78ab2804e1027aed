//! The backends that work, which the findings of several sections depend on.
#![forbid(unsafe_code)]

/// Which backends work, and which one is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backends {
    /// The kernel module works.
    pub(super) gdrdrv: bool,
    /// CUDA maps dma-bufs, of at least one GPU.
    pub(super) dmabuf: bool,
    /// `GDRCOPY_USE_DMABUF_MMAP=1`: the module is not even tried.
    pub(super) dmabuf_forced: bool,
    /// The engine does without libgdrapi where the module does not work.
    pub(super) module_only: bool,
}

impl Backends {
    /// Returns whether gdrcopy cannot work without the module.
    pub(super) fn need_gdrdrv(self) -> bool {
        self.module_only || !self.dmabuf && !self.dmabuf_forced
    }

    /// Returns whether gdrcopy cannot work without dma-bufs.
    pub(super) fn need_dmabuf(self) -> bool {
        self.dmabuf_forced || !self.gdrdrv && !self.module_only
    }
}
