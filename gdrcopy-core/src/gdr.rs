//! An open connection to a source of GPU memory.

use std::sync::Arc;

use crate::backend::{self, Backend};
use crate::error::Result;
use crate::options::Options;
use crate::pin::RawPin;
use crate::sys::fork::{self, OpenFile, Owner};
use crate::types::{Attribute, P2pTokens, PinFlags, Version};

/// An open driver. Cloning it is cheap; it is closed when the last clone is dropped and the last of
/// its pins is gone.
///
/// It may be used from any thread. In a forked child, every call fails with
/// [`Error::ForkedChild`](crate::Error::ForkedChild) and touches nothing; dropping it there closes the child's copy of
/// the descriptor, which otherwise keeps the parent's pins if the parent ends.
#[derive(Clone, Debug)]
pub struct RawGdr {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    backend: Box<dyn Backend>,
    owner: Owner,
}

impl RawGdr {
    /// Opens it. Reads no environment variable, creates no thread, does not initialize CUDA.
    pub fn open(options: &Options) -> Result<RawGdr> {
        fork::enter()?;
        Ok(RawGdr::of_backend(backend::open(options)?))
    }

    /// Of a backend that is open.
    pub fn of_backend(backend: Box<dyn Backend>) -> RawGdr {
        let owner = Owner::current();
        RawGdr { shared: Arc::new(Shared { backend, owner }) }
    }

    /// The driver's version.
    pub fn driver_version(&self) -> Result<Version> {
        self.shared.owner.check()?;
        Ok(self.shared.backend.version())
    }

    /// Size in bytes of the pages that pins are rounded out to.
    pub fn page_size(&self) -> u64 {
        self.shared.backend.page_size()
    }

    /// The value of an attribute; 0 if the driver does not know it. It is asked once for each attribute.
    pub fn attribute(&self, attribute: Attribute) -> Result<i32> {
        self.shared.owner.check()?;
        self.shared.backend.attribute(attribute)
    }

    /// Pins `len` bytes of GPU memory from device address `address` on. Any alignment will do. Only drivers before 2.5
    /// look at the tokens.
    ///
    /// # Safety
    /// As for `gdrcopy::Gdr::pin`.
    pub unsafe fn pin(
        &self,
        address: u64,
        len: usize,
        flags: PinFlags,
        tokens: P2pTokens,
    ) -> Result<RawPin> {
        self.shared.owner.check()?;
        if flags.unknown() != 0 {
            log::warn!("pin flags {:#x} are unknown and ignored", flags.unknown());
        }
        RawPin::new(&*self.shared.backend, address, len, flags, tokens)
    }

    /// Closes the driver, if this is its last clone and its last pin is gone, and returns its result. In a forked child,
    /// closes the child's copy of the descriptor.
    pub fn close(self) -> Result<()> {
        match Arc::into_inner(self.shared) {
            Some(shared) => shared.backend.close(),
            None => Ok(()),
        }
    }

    /// The driver's open file, if it has one.
    pub fn file(&self) -> Option<OpenFile> {
        self.shared.backend.file()
    }
}
