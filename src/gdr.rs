//! An open way to GPU memory.
#![forbid(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::backend::{self, Backend};
use crate::error::{Error, Result};
use crate::log;
use crate::pin::Pin;
use crate::settings::Settings;
use crate::types::{Attribute, P2pTokens, PinFlags, Version};
use crate::{copy, process};

/// An open driver. Cloning it is cheap; it is closed when the last clone is dropped and the last of
/// its pins is gone.
///
/// It may be used from any thread. A forked child must open its own: every call on an inherited one
/// fails with [`Error::ForkedChild`] and touches nothing.
#[derive(Clone, Debug)]
pub struct Gdr {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    backend: Box<dyn Backend>,
    settings: Settings,
    epoch: u64,
}

impl Gdr {
    /// Opens the driver. Starts no thread, does not touch CUDA, prints nothing unless logging is on.
    ///
    /// # Errors
    /// [`Error::Driver`] with what opening `/dev/gdrdrv` answered; [`Error::DriverTooOld`] below 2.0;
    /// [`Error::LibraryTooOld`] where the driver serves only newer API versions than 2.6.
    pub fn open() -> Result<Gdr> {
        process::enter().map_err(Error::OutOfHandles)?;
        let settings = Settings::from_env();
        let backend = backend::open(&settings)?;
        log::debug!(
            "copy kernels for write-combined mappings: {}",
            copy::isa_name()
        );
        if let Some(name) = copy::isa_refused() {
            let used = copy::isa_name();
            log::warning!(
                "GDRCOPY_ISA={}: no kernel of this machine, using {used}",
                name.display()
            );
        }
        let shared = Shared {
            backend,
            settings,
            epoch: process::epoch(),
        };
        Ok(Gdr {
            shared: Arc::new(shared),
        })
    }

    /// The driver's version.
    pub fn driver_version(&self) -> Result<Version> {
        self.check_process()?;
        Ok(self.shared.backend.version())
    }

    /// The value of an attribute; 0 where the driver does not know it.
    ///
    /// # Errors
    /// What the driver answered. It is asked once for each attribute.
    pub fn attribute(&self, attribute: Attribute) -> Result<i32> {
        self.check_process()?;
        self.shared.backend.attribute(attribute)
    }

    /// Pins `size` bytes of GPU memory from device address `address` on, rounded out to pages of 64 KiB.
    ///
    /// # Errors
    /// [`Error::EmptyRange`] for address 0; otherwise what the driver answered: `EINVAL` for memory
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
        self.check_process()?;
        if flags.unknown() != 0 {
            log::warning!(
                "pin flags {:#x} have no meaning and are ignored",
                flags.unknown()
            );
        }
        let Shared {
            backend, settings, ..
        } = &*self.shared;
        Pin::new(
            &**backend,
            settings.allow_unaligned_map,
            address,
            size,
            flags,
            tokens,
        )
    }

    /// Closes the driver, if this is its last clone and its last pin is gone, with the driver's answer.
    pub fn close(self) -> Result<()> {
        self.check_process()?;
        match Arc::into_inner(self.shared) {
            Some(shared) => shared.backend.close(),
            None => Ok(()),
        }
    }

    /// What C programs find where they expect the driver's descriptor.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.shared.backend.descriptor()
    }

    fn check_process(&self) -> Result<()> {
        if self.shared.epoch == process::epoch() {
            Ok(())
        } else {
            Err(Error::ForkedChild)
        }
    }
}
