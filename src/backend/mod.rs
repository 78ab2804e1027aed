//! What the library needs from whatever gives it GPU memory: the kernel module, or CUDA's dma-bufs.
#![forbid(unsafe_code)]

mod dmabuf;
mod gdrdrv;

use std::fmt::Debug;
use std::os::fd::RawFd;

use dmabuf::DmaBuf;
use gdrdrv::Gdrdrv;

use crate::error::Result;
use crate::log;
use crate::region::Region;
use crate::settings::Settings;
use crate::types::{Attribute, Info, MapFlag, MappingType, P2pTokens, PinFlags, Version};

/// An open way to GPU memory.
pub(crate) trait Backend: Debug + Send + Sync {
    /// The descriptor that stands for it, or -1. Shown to C programs, not used by them.
    fn descriptor(&self) -> RawFd;

    /// The driver's version.
    fn version(&self) -> Version;

    /// Bytes of the pages that pins are rounded out to.
    fn page_size(&self) -> u64;

    /// The value of an attribute; what the driver does not know is 0.
    fn attribute(&self, attribute: Attribute) -> Result<i32>;

    /// Pins the range, rounded out to pages.
    fn pin(&self, range: &PinRequest) -> Result<Box<dyn PinnedRange>>;

    /// Closes it, with the driver's answer; pins must be gone.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What to pin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PinRequest {
    /// Device address of the first byte.
    pub(crate) address: u64,
    /// Bytes; may be 0 only for what the driver then rounds out to a page.
    pub(crate) size: u64,
    pub(crate) flags: PinFlags,
    /// Passed on to drivers that still look at them.
    pub(crate) tokens: P2pTokens,
}

/// A pinned range. Dropping it unpins it.
pub(crate) trait PinnedRange: Debug + Send + Sync {
    /// The driver's number for it.
    fn handle(&self) -> u64;

    /// What is known of it; `mapped` says how it is mapped now.
    fn info(&self, mapped: MappingType) -> Result<Info>;

    /// Whether its memory was freed meanwhile.
    fn callback_flag(&self) -> Result<bool>;

    /// Maps its first `len` bytes, rounded up to host pages, and tells which type the mapping has.
    fn map(&self, len: usize, flag: MapFlag) -> Result<(Region, MappingType)>;

    /// Unpins it, with the driver's answer. It is gone in any case.
    fn unpin(self: Box<Self>) -> Result<()>;
}

/// Opens the first backend that works here: the kernel module, then dma-bufs, unless these are asked for.
pub(crate) fn open(settings: &Settings) -> Result<Box<dyn Backend>> {
    if settings.use_dmabuf {
        return Ok(Box::new(DmaBuf::open(settings.force_pcie_compat)?));
    }
    let no_gdrdrv = match Gdrdrv::open(settings.force_pcie_compat) {
        Ok(gdrdrv) => return Ok(Box::new(gdrdrv)),
        Err(error) => error,
    };
    match DmaBuf::open(settings.force_pcie_compat) {
        Ok(dmabuf) => {
            log::info!("backend gdrdrv is not usable: {no_gdrdrv}");
            Ok(Box::new(dmabuf))
        }
        Err(no_dmabuf) => {
            log::error!("backend dma-buf is not usable either: {no_dmabuf}");
            Err(no_gdrdrv)
        }
    }
}
