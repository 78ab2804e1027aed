//! An open connection to a source of GPU memory.

use std::sync::Arc;

use crate::backend::{self, Source};
use crate::error::Result;
use crate::options::Options;
use crate::pin::RawPin;
use crate::sys::fork::{self, OpenFile, Owner};
use crate::types::{Attribute, P2pTokens, PinFlags, Version};

/// An open connection to a source of GPU memory. The crate `gdrcopy` wraps it as `Gdr`, and documents it there.
#[derive(Clone, Debug)]
pub struct RawGdr {
    backend: Arc<dyn Source>,
    owner: Owner,
}

impl RawGdr {
    /// Opens the backend in `options`. Reads no environment variable, creates no thread, does not initialize CUDA.
    pub fn open(options: &Options) -> Result<RawGdr> {
        fork::enter()?;
        Ok(RawGdr::of_backend(backend::open(options)?))
    }

    /// Wraps a backend that is open.
    pub fn of_backend(backend: Arc<dyn Source>) -> RawGdr {
        RawGdr { backend, owner: Owner::current() }
    }

    /// The driver's version.
    pub fn driver_version(&self) -> Result<Version> {
        self.owner.check()?;
        Ok(self.backend.version())
    }

    /// Returns the value of an attribute; 0 if the driver does not know it. Asks the driver once for each attribute.
    pub fn attribute(&self, attribute: Attribute) -> Result<i32> {
        self.owner.check()?;
        self.backend.attribute(attribute)
    }

    /// Pins `len` bytes at device address `address`, with any alignment. Only gdrdrv before 2.5 looks at the tokens.
    ///
    /// # Safety
    /// The contract of `gdrcopy::Gdr::pin`.
    pub unsafe fn pin(&self, address: u64, len: usize, flags: PinFlags, tokens: P2pTokens) -> Result<RawPin> {
        self.owner.check()?;
        if flags.unknown() != 0 {
            log::warn!("pin flags {:#x} are unknown and ignored", flags.unknown());
        }
        RawPin::new(&self.backend, address, len, flags, tokens)
    }

    /// Closes the connection to the driver, unless a clone of this value or a pin still uses it, and returns the
    /// driver's result. In a forked child, closes the child's copy of the descriptor.
    pub fn close(self) -> Result<()> {
        self.backend.close()
    }

    /// The descriptor of `/dev/gdrdrv` that this connection has opened; `None` for a backend without a device file.
    pub fn file(&self) -> Option<OpenFile> {
        self.backend.file()
    }
}
