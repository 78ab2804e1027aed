//! An open connection to a source of GPU memory.

use std::sync::Arc;

use crate::backend::{self, Backend};
use crate::error::Result;
use crate::options::Options;
use crate::pin::Pin;
use crate::sys::fork::{self, OpenFile, Owner};
use crate::types::{Attribute, P2pTokens, PinFlags, Version};

/// An open driver. Cloning it is cheap; it is closed when the last clone is dropped and the last of
/// its pins is gone.
///
/// It may be used from any thread. A forked child must open its own: every call on an inherited one
/// fails with [`Error::ForkedChild`](crate::Error::ForkedChild) and touches nothing. Dropping it closes the child's copy
/// of the descriptor, which otherwise keeps the parent's pins if the parent ends.
#[derive(Clone, Debug)]
pub struct Gdr {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    backend: Box<dyn Backend>,
    owner: Owner,
}

impl Gdr {
    /// Opens the first source of GPU memory that works: gdrdrv, then dma-bufs.
    ///
    /// # Errors
    /// As for [`Options::open`].
    pub fn open() -> Result<Gdr> {
        Gdr::options().open()
    }

    /// Opens another source, or in another manner.
    pub fn options() -> Options {
        Options::default()
    }

    pub(crate) fn open_with(options: &Options) -> Result<Gdr> {
        fork::enter()?;
        Ok(Gdr::of_backend(backend::open(options)?))
    }

    pub(crate) fn of_backend(backend: Box<dyn Backend>) -> Gdr {
        let owner = Owner::current();
        Gdr {
            shared: Arc::new(Shared { backend, owner }),
        }
    }

    /// The driver's version.
    pub fn driver_version(&self) -> Result<Version> {
        self.shared.owner.check()?;
        Ok(self.shared.backend.version())
    }

    /// Returns the value of an attribute; 0 if the driver does not know it.
    ///
    /// # Errors
    /// What the driver answered. It is asked once for each attribute.
    pub fn attribute(&self, attribute: Attribute) -> Result<i32> {
        self.shared.owner.check()?;
        self.shared.backend.attribute(attribute)
    }

    /// Pins `len` bytes of GPU memory from device address `address` on. Any alignment will do.
    ///
    /// # Safety
    /// From here on, everything is safe; so until the pin and its mapping are gone:
    /// - the range must stay allocated. The driver keeps a freed range from being given to others only in
    ///   persistent mode ([`Attribute::UsePersistentMapping`]) and with dma-bufs;
    /// - whatever is written through the mapping must not break anyone else's memory safety: the range
    ///   must hold no memory that other code of this process, or a GPU kernel, relies on to be unchanged,
    ///   such as the GPU memory behind a live `&[T]` of a managed allocation;
    /// - GPU kernels and CUDA may write the range at any time. A reader then sees old, new or mixed bytes.
    ///
    /// # Errors
    /// [`Error::EmptyRange`](crate::Error::EmptyRange) for address 0;
    /// [`Error::RangeOverflow`](crate::Error::RangeOverflow); otherwise what the driver answered: `EINVAL` for
    /// memory that cannot be pinned, `ENOMEM` when BAR1 is used up.
    pub unsafe fn pin(&self, address: u64, len: usize, flags: PinFlags) -> Result<Pin> {
        // SAFETY: contract of this function.
        unsafe { self.pin_with_tokens(address, len, flags, P2pTokens::default()) }
    }

    /// [`Gdr::pin`] with the tokens that drivers before 2.5 still look at.
    ///
    /// # Safety
    /// As for [`Gdr::pin`].
    ///
    /// # Errors
    /// As for [`Gdr::pin`].
    pub unsafe fn pin_with_tokens(
        &self,
        address: u64,
        len: usize,
        flags: PinFlags,
        tokens: P2pTokens,
    ) -> Result<Pin> {
        self.shared.owner.check()?;
        if flags.unknown() != 0 {
            log::warn!("pin flags {:#x} are unknown and ignored", flags.unknown());
        }
        Pin::new(&*self.shared.backend, address, len, flags, tokens)
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
    #[doc(hidden)]
    pub fn file(&self) -> Option<OpenFile> {
        self.shared.backend.file()
    }
}
