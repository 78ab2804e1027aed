//! The backends, gdrdrv and dma-bufs.
#![forbid(unsafe_code)]

/// The remedy if dma-bufs do not work, and are all that the library tries.
pub(super) const UNSET: &str = "unset GDRCOPY_USE_DMABUF_MMAP, with which the library does without gdrdrv";

/// Which backends work, and which one is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Backends {
    /// The kernel module works.
    pub(super) gdrdrv: bool,
    /// CUDA maps dma-bufs, of at least one GPU.
    pub(super) dmabuf: bool,
    /// `GDRCOPY_USE_DMABUF_MMAP=1`: the module is not even tried.
    pub(super) dmabuf_forced: bool,
}

impl Backends {
    /// Returns whether gdrcopy cannot work without the module.
    pub(super) fn need_gdrdrv(self) -> bool {
        !self.dmabuf && !self.dmabuf_forced
    }

    /// A remedy for dma-bufs, which are not needed if the variable is unset.
    pub(super) fn for_dmabufs(self, remedy: &str) -> String {
        match self.dmabuf_forced {
            true => format!("{UNSET}, or {remedy}"),
            false => remedy.into(),
        }
    }

    /// Returns whether gdrcopy cannot work without dma-bufs.
    pub(super) fn need_dmabuf(self) -> bool {
        self.dmabuf_forced || !self.gdrdrv
    }
}
