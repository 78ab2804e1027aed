//! An open connection to a source of GPU memory.
#![forbid(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::backend::{self, Backend};
use crate::copy;
use crate::error::Result;
use crate::log;
use crate::pin::Pin;
use crate::settings::Settings;
use crate::sys::fork::{self, Owner};
use crate::types::{Attribute, P2pTokens, PinFlags, Version};

/// An open driver. Cloning it is cheap; it is closed when the last clone is dropped and the last of
/// its pins is gone.
///
/// It may be used from any thread. A forked child must open its own: every call on an inherited one
/// fails with [`Error::ForkedChild`](crate::Error::ForkedChild) and touches nothing.
#[derive(Clone, Debug)]
pub struct Gdr {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    backend: Box<dyn Backend>,
    allow_unaligned_map: bool,
    owner: Owner,
}

impl Gdr {
    /// Opens the driver, and reads the environment variables. Creates no thread, does not initialize CUDA,
    /// prints nothing unless logging is on.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) with what opening `/dev/gdrdrv` answered; [`Error::DriverTooOld`](crate::Error::DriverTooOld) below 2.0;
    /// [`Error::LibraryTooOld`](crate::Error::LibraryTooOld) where the driver serves only newer API versions than 2.6;
    /// [`Error::DummyGpuDriver`](crate::Error::DummyGpuDriver) where it was loaded without a GPU driver.
    pub fn open() -> Result<Gdr> {
        fork::enter()?;
        let settings = Settings::from_env();
        log::set_level(settings.log_level);
        let backend = backend::open(&settings)?;
        copy::select_routine(settings.isa.as_deref());
        copy::set_threads(settings.threads.as_deref());
        let shared = Shared {
            backend,
            allow_unaligned_map: settings.allow_unaligned_map,
            owner: Owner::current(),
        };
        Ok(Gdr {
            shared: Arc::new(shared),
        })
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

    /// Pins `size` bytes of GPU memory from device address `address` on, rounded out to pages of 64 KiB.
    ///
    /// # Errors
    /// [`Error::EmptyRange`](crate::Error::EmptyRange) for address 0; otherwise what the driver answered: `EINVAL` for memory
    /// that cannot be pinned, `ENOMEM` when BAR1 is used up.
    pub fn pin(&self, address: u64, size: usize, flags: PinFlags) -> Result<Pin> {
        self.pin_with_tokens(address, size, flags, P2pTokens::default())
    }

    /// [`Gdr::pin`] with the tokens that drivers before 2.5 still look at.
    pub fn pin_with_tokens(
        &self,
        address: u64,
        size: usize,
        flags: PinFlags,
        tokens: P2pTokens,
    ) -> Result<Pin> {
        self.shared.owner.check()?;
        if flags.unknown() != 0 {
            log::warning!("pin flags {:#x} are unknown and ignored", flags.unknown());
        }
        let shared = &*self.shared;
        Pin::new(
            &*shared.backend,
            shared.allow_unaligned_map,
            address,
            size,
            flags,
            tokens,
        )
    }

    /// Closes the driver, if this is its last clone and its last pin is gone, and returns its result.
    pub fn close(self) -> Result<()> {
        self.shared.owner.check()?;
        match Arc::into_inner(self.shared) {
            Some(shared) => shared.backend.close(),
            None => Ok(()),
        }
    }

    /// The driver's descriptor, for C programs that read it from their handle.
    #[doc(hidden)]
    pub fn descriptor(&self) -> RawFd {
        self.shared.backend.descriptor()
    }
}
