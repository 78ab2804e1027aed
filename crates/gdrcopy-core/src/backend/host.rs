//! Lets host memory that CUDA has mapped for GPUs stand in for GPU memory.
//!
//! A pin looks up the memory's CPU address. A mapping is that memory, so nothing is pinned, mapped or unmapped here.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::backend::source::{PinRequest, PinState, Source, SourcePin, check_type};
use crate::error::{Error, Result};
use crate::sys::cuda::{self, Driver};
use crate::sys::mmap::Region;
use crate::types::cuda_version::EXPORTS_DMA_BUFS;
use crate::types::{Attribute, Info, MapFlag, MappingType, Version};

/// The type of all mappings, because the CPU caches host memory.
const MAPPING_TYPE: MappingType = MappingType::Caching;

/// The backend for host memory. The CUDA driver looks up the memory's addresses.
#[derive(Debug)]
pub(super) struct Host {
    driver: &'static Driver,
}

impl Host {
    /// Loads the CUDA driver. Does not initialize CUDA.
    pub(super) fn open() -> Result<Host> {
        let driver = cuda::load(EXPORTS_DMA_BUFS)?;
        log::debug!("backend host memory");
        Ok(Host { driver })
    }
}

impl Source for Host {
    fn version(&self) -> Version {
        Version::API
    }

    fn page_size(&self) -> u64 {
        // Pins are rounded out to pages. A page has one byte here, because any range of host memory can be pinned.
        1
    }

    fn attribute(&self, _: Attribute) -> Result<i32> {
        Ok(0)
    }

    fn pin(self: Arc<Self>, request: &PinRequest) -> Result<Arc<PinState>> {
        let len = usize::try_from(request.size).map_err(|_| Error::RangeOverflow)?;
        if len == 0 {
            return Err(Error::EmptyRange);
        }
        self.driver.init()?;
        let pin = HostPin {
            address: self.driver.host_address(request.address, len)?.addr(),
            device_address: request.address,
            len,
        };
        log::debug!("host memory {:#x}+{len:#x} stands in for a pin", request.address);
        PinState::of_range(pin)
    }
}

/// A range of host memory, with its CPU address and its device address.
#[derive(Debug)]
struct HostPin {
    address: NonZeroUsize,
    device_address: u64,
    len: usize,
}

impl SourcePin for HostPin {
    fn handle(&self) -> u64 {
        self.device_address
    }

    fn info(&self, mapped: Option<MappingType>) -> Result<Info> {
        Ok(Info {
            va: self.device_address,
            mapped_size: self.len as u64,
            page_size: 1,
            mapping_type: mapped,
            ..Info::default()
        })
    }

    fn callback_flag(&self) -> Result<bool> {
        Ok(false)
    }

    fn map(&self, len: usize, flag: MapFlag) -> Result<(Region, MappingType)> {
        check_type(flag, MAPPING_TYPE)?;
        if len > self.len {
            return Err(Error::OutOfPin { len, pinned: self.len });
        }
        let address = NonNull::with_exposed_provenance(self.address);
        // SAFETY: until the range is unpinned, it stays allocated, and no reference to it relies on its bytes: contract
        // of pinning.
        Ok((unsafe { Region::borrow(address, len) }, MAPPING_TYPE))
    }

    fn unpin(&self) -> Result<()> {
        Ok(())
    }
}
