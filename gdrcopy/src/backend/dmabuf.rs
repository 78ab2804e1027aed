//! The backend without a kernel module: CUDA exports GPU memory as a dma-buf, whose descriptor is mapped.
//!
//! Needs CUDA 13.3. Opening it never calls cuInit: programs open and close libraries while they probe,
//! before they fork, and CUDA is unusable in children of a process that has initialized it. So the first
//! pin calls cuInit. Where the program has initialized CUDA already, opening asks the GPUs whether their
//! memory can be mapped: programs expect pins to work once they have a handle.
#![forbid(unsafe_code)]

use std::os::fd::{AsRawFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open};
use nix::sys::stat::Mode;

use crate::backend::{Backend, BackendPin, PinRequest};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::sys::cuda::{self, Device, DeviceAttribute, Driver};
use crate::sys::fork::{self, Descriptor, Owner};
use crate::sys::mmap::Region;
use crate::types::{Attribute, Info, MapFlag, MappingType, Version};

/// The first CUDA version whose dma-bufs can be mapped: 13.3.
const NEEDED_CUDA: i32 = 13030;

/// CUDA, ready to export memory.
#[derive(Debug)]
pub(crate) struct DmaBuf {
    driver: &'static Driver,
    force_pcie_compat: bool,
    owner: Owner,
}

impl DmaBuf {
    /// Loads the CUDA driver, and checks that it is new enough and, where it is initialized, that it
    /// shows a GPU whose memory can be mapped. Does not initialize it.
    pub(crate) fn open(options: &Options) -> Result<DmaBuf> {
        let backend = DmaBuf {
            driver: cuda::load(NEEDED_CUDA)?,
            force_pcie_compat: options.force_pcie_compat,
            owner: Owner::current(),
        };
        if let Some(gpus) = backend.driver.device_count_if_initialized()? {
            let is_mappable = |gpu| {
                let device = backend.driver.device(gpu)?;
                backend.check_support(device)
            };
            if !(0..gpus).any(|gpu| is_mappable(gpu).is_ok()) {
                return Err(Error::NoDmaBufGpu { gpus });
            }
        }
        log::debug!("backend dma-buf");
        Ok(backend)
    }

    /// Refuses a device whose memory cannot be mapped as a dma-buf.
    fn check_support(&self, device: Device) -> Result<()> {
        let has = |attribute| self.driver.attribute(device, attribute);
        // Drivers that do not know the exact attribute are asked for the wider one.
        let can_mmap = has(DeviceAttribute::DmaBufMmap).or_else(|| has(DeviceAttribute::DmaBuf));
        match can_mmap {
            Some(0) | None => Err(Error::NoDmaBufSupport {
                gpu: device.ordinal(),
            }),
            Some(_) => Ok(()),
        }
    }

    /// Exports the pages from `va` on.
    fn export(&self, device: Device, va: u64, len: usize, over_pcie: bool) -> Result<Descriptor> {
        let fd = self
            .driver
            .export(device, va, len, over_pcie)
            .map_err(|error| descriptors_used_up().unwrap_or(error))?;
        // Some drivers set this flag, others do not.
        fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(|errno| Error::Descriptors {
            errno: errno as i32,
        })?;
        Ok(Descriptor::new(fd))
    }
}

/// Whether the process has no descriptor left, which CUDA does not report: opens one to find out.
fn descriptors_used_up() -> Option<Error> {
    match open(
        "/dev/null",
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    ) {
        Err(errno @ (Errno::EMFILE | Errno::ENFILE)) => Some(Error::Descriptors {
            errno: errno as i32,
        }),
        _ => None,
    }
}

impl Backend for DmaBuf {
    fn descriptor(&self) -> RawFd {
        -1
    }

    fn version(&self) -> Version {
        // The level whose features this backend has.
        Version::API
    }

    fn page_size(&self) -> u64 {
        fork::page_size() as u64
    }

    fn attribute(&self, attribute: Attribute) -> Result<i32> {
        match attribute {
            Attribute::UsePersistentMapping
            | Attribute::SupportPinFlagForcePcie
            | Attribute::UsingDmaBufMmap => Ok(1),
        }
    }

    fn pin(&self, request: &PinRequest) -> Result<Box<dyn BackendPin>> {
        self.owner.check()?;
        let page = self.page_size();
        let va = request.address - request.address % page;
        let end = request
            .address
            .checked_add(request.size)
            .and_then(|end| end.checked_next_multiple_of(page))
            .ok_or(Error::RangeOverflow)?;
        if end == va {
            return Err(Error::EmptyRange);
        }
        self.driver.init()?;
        let device = self.driver.device_of(request.address)?;
        self.check_support(device)?;
        let coherent = self
            .driver
            .attribute(device, DeviceAttribute::HostPageTables)
            == Some(1);
        // A GPU that has PCIe only refuses the flag, and needs none.
        let asked = request.flags.force_pcie();
        let over_pcie = asked && (coherent || !self.force_pcie_compat);
        let len = usize::try_from(end - va).map_err(|_| Error::RangeOverflow)?;
        let fd = self.export(device, va, len, over_pcie)?;
        let kind = if coherent && !asked {
            MappingType::Caching
        } else {
            MappingType::WriteCombining
        };
        log::debug!(
            "pinned {:#x}+{:#x} as dma-buf {}",
            request.address,
            request.size,
            fd.as_raw_fd()
        );
        Ok(Box::new(DmaBufPin {
            fd,
            va,
            len,
            page_size: page as u32,
            kind,
        }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A dma-buf, which keeps its memory in place until its descriptor is closed.
#[derive(Debug)]
struct DmaBufPin {
    fd: Descriptor,
    va: u64,
    len: usize,
    page_size: u32,
    /// The only type it can be mapped as.
    kind: MappingType,
}

impl BackendPin for DmaBufPin {
    fn handle(&self) -> u64 {
        self.fd.as_raw_fd() as u64
    }

    fn info(&self, mapped: Option<MappingType>) -> Result<Info> {
        self.fd.owner().check()?;
        Ok(Info {
            va: self.va,
            mapped_size: self.len as u64,
            page_size: self.page_size,
            tm_cycles: 0,
            cycles_per_ms: 0,
            mapping_type: mapped,
        })
    }

    fn callback_flag(&self) -> Result<bool> {
        // The memory lives as long as the dma-buf.
        self.fd.owner().check().map(|()| false)
    }

    fn map(&self, len: usize, flag: MapFlag) -> Result<(Region, MappingType)> {
        self.fd.owner().check()?;
        let given = self.kind;
        if let Some(wanted) = flag.wanted().filter(|&wanted| wanted != given) {
            return Err(Error::MappingTypeRefused { wanted, given });
        }
        let len = len
            .checked_next_multiple_of(fork::page_size())
            .ok_or(Error::RangeOverflow)?;
        if len > self.len {
            return Err(Error::OutOfPin);
        }
        let region = Region::map(&self.fd, 0, len)?;
        log::debug!("mapped {:#x}+{len:#x} at {region:?}: {given}", self.va);
        Ok((region, given))
    }

    fn unpin(&self) -> Result<()> {
        // Closing the descriptor unpins the memory.
        self.fd.owner().check()
    }
}
