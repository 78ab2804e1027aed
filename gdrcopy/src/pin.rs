//! A pinned range of GPU memory.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::backend::{Backend, PinRequest, dmabuf};
use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::pin_state::{MappingGuard, PinState};
use crate::sys::fork::{OpenFile, Owner};
use crate::types::{Info, MapFlag, P2pTokens, PinFlags};

/// A range of GPU memory that stays where it is, and can be mapped once at a time.
///
/// The driver's pin lasts until both the `Pin` and its [`Mapping`] are gone: a mapping is always
/// taken down first, because NVIDIA's gdrdrv up to 2.6 otherwise corrupts its list of pins.
#[derive(Debug)]
pub struct Pin {
    pinned: Arc<PinState>,
    len: usize,
    /// Bytes from the start of the driver's first page to the pinned address.
    head: usize,
    flags: PinFlags,
    owner: Owner,
}

/// GPU memory as a dma-buf: [`Pin::dma_buf`].
#[derive(Debug)]
#[non_exhaustive]
pub struct DmaBufExport {
    /// The dma-buf, which has `FD_CLOEXEC` set. It keeps the memory in place, also after the pin and the memory's
    /// own end.
    pub fd: OwnedFd,
    /// Where in the dma-buf the pinned address is, in bytes: less than a page of the host.
    pub offset: u64,
    /// Bytes of the dma-buf: a multiple of the host's page size.
    pub len: usize,
}

impl Pin {
    pub(crate) fn new(
        backend: &dyn Backend,
        address: u64,
        len: usize,
        flags: PinFlags,
        tokens: P2pTokens,
    ) -> Result<Pin> {
        if address == 0 {
            return Err(Error::EmptyRange);
        }
        if address.checked_add(len as u64).is_none() {
            return Err(Error::RangeOverflow);
        }
        let head = address % backend.page_size();
        let request = PinRequest {
            address: address - head,
            size: len as u64 + head,
            flags,
            tokens,
        };
        Ok(Pin {
            pinned: PinState::new(backend.pin(&request)?, address),
            len,
            head: head as usize,
            flags,
            owner: Owner::current(),
        })
    }

    /// Device address of the first pinned byte, as it was passed to [`Gdr::pin`](crate::Gdr::pin).
    pub fn address(&self) -> u64 {
        self.pinned.device_address()
    }

    /// Pinned bytes, as passed to [`Gdr::pin`](crate::Gdr::pin).
    #[expect(clippy::len_without_is_empty, reason = "an empty pin cannot be used")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Describes the pin, mapped or not.
    ///
    /// # Errors
    /// What the driver answered. In persistent mode it is asked once.
    pub fn info(&self) -> Result<Info> {
        self.pinned.range().info(self.pinned.mapping_type())
    }

    /// Returns whether the memory was freed while pinned (non-persistent mode; the mapping is then gone too).
    ///
    /// # Errors
    /// What the driver answered.
    pub fn callback_flag(&self) -> Result<bool> {
        self.pinned.range().callback_flag()
    }

    /// Maps the first `len` pinned bytes. Byte 0 of the mapping is the byte at [`Pin::address`], whatever its
    /// alignment.
    ///
    /// # Errors
    /// [`Error::AlreadyMapped`]; [`Error::EmptyRange`] for length 0;
    /// [`Error::MappingRevoked`] if the memory is freed at the same time;
    /// [`Error::MappingTypeRefused`], or `EOPNOTSUPP` from the driver, where the platform cannot map
    /// as `flag` requests; otherwise what the driver answered (`EINVAL` for more than is pinned).
    pub fn map(&self, len: usize, flag: MapFlag) -> Result<Mapping> {
        let mark = MappingGuard::set(&self.pinned)?;
        if len == 0 {
            return Err(Error::EmptyRange);
        }
        let reach = len.checked_add(self.head).ok_or(Error::RangeOverflow)?;
        let (region, kind) = self.pinned.range().map(reach, flag)?;
        mark.made(kind);
        Ok(Mapping::new(region, self.head, len, kind, mark))
    }

    /// Exports the pinned memory as a dma-buf, such as `ibv_reg_dmabuf_mr` takes. Each call makes a new one.
    ///
    /// Works with gdrdrv and with dma-bufs as backend. A pin with [`PinFlags::FORCE_PCIE`] gives a dma-buf that goes
    /// over PCIe on a coherent platform too. Initializes CUDA in a process that has not done so.
    ///
    /// # Errors
    /// [`Error::CudaTooOld`] below CUDA 11.7; [`Error::NoDmaBufExport`] where the GPU or the kernel cannot;
    /// [`Error::EmptyRange`] for an empty pin; [`Error::Descriptors`] when the process has none left;
    /// [`Error::Cuda`] with CUDA's answer: `EINVAL` for memory of a pool, host memory, or if the pages around the
    /// pinned bytes are not of the same allocation. [`Error::ForkedChild`].
    pub fn dma_buf(&self) -> Result<DmaBufExport> {
        self.owner.check()?;
        let exported = dmabuf::export(self.address(), self.len, self.flags)?;
        Ok(DmaBufExport {
            fd: exported.fd,
            offset: self.address() - exported.va,
            len: exported.len,
        })
    }

    /// Unpins the range if its mapping is gone; otherwise it is unpinned when the mapping is dropped.
    ///
    /// # Errors
    /// What the driver answered, with the pin, which is unchanged: `unpin` can be called again.
    pub fn unpin(mut self) -> std::result::Result<(), (Pin, Error)> {
        self.release().map_err(|error| (self, error))
    }

    /// [`Pin::unpin`] for callers that keep the pin. After success it can only be dropped.
    #[doc(hidden)]
    pub fn release(&mut self) -> Result<()> {
        match Arc::get_mut(&mut self.pinned) {
            Some(pinned) => pinned.range().unpin(),
            None => Ok(()),
        }
    }

    /// Whether its address starts a page of the backend: C programs can map only such pins by default.
    #[doc(hidden)]
    pub fn starts_page(&self) -> bool {
        self.head == 0
    }

    /// The pin's own open file, if it has one.
    #[doc(hidden)]
    pub fn file(&self) -> Option<OpenFile> {
        self.pinned.range().file()
    }

    /// The driver's number for the pin.
    #[doc(hidden)]
    pub fn driver_handle(&self) -> u64 {
        self.pinned.range().handle()
    }
}
