//! Maps GPU memory without a kernel module. CUDA exports the memory as a dma-buf, whose descriptor is mapped.
//!
//! This needs CUDA 13.3. `DmaBuf::open` never calls cuInit, because some programs only try whether `open` works and
//! fork afterwards, and CUDA cannot be used in children of a process that has initialized CUDA. So the first pin calls
//! cuInit. If the program has initialized CUDA itself, `open` also checks that the memory of a GPU can be mapped,
//! because programs expect pins to work after a successful `open`.
#![forbid(unsafe_code)]

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open};
use nix::sys::stat::Mode;

use crate::backend::source::{PinRequest, PinState, Source, SourcePin, check_type, round_out};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::sys::cuda::context::Place;
use crate::sys::cuda::{self, Device, DeviceAttribute, Driver};
use crate::sys::fork::{self, Descriptor, OpenFile};
use crate::sys::mmap::{Region, whole_pages};
use crate::types::cuda_version::{EXPORTS_DMA_BUFS, MAPS_DMA_BUFS};
use crate::types::{Attribute, Info, MapFlag, MappingType, PinFlags, Version};

/// The source of GPU memory that needs no kernel module, only a CUDA driver whose dma-bufs the CPU can map.
#[derive(Debug)]
pub struct DmaBuf {
    driver: &'static Driver,
    force_pcie_compat: bool,
}

impl DmaBuf {
    /// Loads the CUDA driver, and checks that it is new enough. If the process has initialized CUDA, checks that the
    /// memory of at least one GPU can be mapped. Does not initialize CUDA.
    pub fn open(options: &Options) -> Result<DmaBuf> {
        let backend = DmaBuf { driver: cuda::load(MAPS_DMA_BUFS)?, force_pcie_compat: options.force_pcie_compat };
        if let Some(gpus) = backend.driver.device_count_if_initialized()?
            && !any_gpu_maps(backend.driver, gpus)?
        {
            return Err(Error::NoDmaBufGpu { gpus });
        }
        log::debug!("backend dma-buf");
        Ok(backend)
    }
}

/// Returns whether memory of the device can be mapped as a dma-buf.
pub fn can_map(driver: &Driver, device: Device) -> Result<bool> {
    match driver.attribute(device, DeviceAttribute::DmaBufMmap)? {
        Some(can) => Ok(can != 0),
        // Some drivers do not know this attribute. For them, memory counts as mappable if it can be exported.
        None => can_export(driver, device),
    }
}

/// Returns whether memory of the device can be exported as a dma-buf.
pub fn can_export(driver: &Driver, device: Device) -> Result<bool> {
    let can = driver.attribute(device, DeviceAttribute::DmaBuf)?;
    Ok(can.unwrap_or(0) != 0)
}

/// Returns whether memory of any of the first `gpus` GPUs can be mapped as a dma-buf.
fn any_gpu_maps(driver: &Driver, gpus: i32) -> Result<bool> {
    for gpu in 0..gpus {
        let answer = match driver.device(gpu) {
            Ok(device) => can_map(driver, device),
            Err(error) => Err(error),
        };
        match answer {
            Ok(true) => return Ok(true),
            Err(missing @ Error::NoCudaFunction(_)) => return Err(missing),
            Ok(false) | Err(_) => {}
        }
    }
    Ok(false)
}

/// GPU memory as a dma-buf.
#[derive(Debug)]
#[non_exhaustive]
pub struct DmaBufExport {
    /// The descriptor of the dma-buf, which has `FD_CLOEXEC` set. The dma-buf keeps the memory in place, even after the
    /// program has unpinned and freed the memory.
    pub fd: OwnedFd,
    /// The offset in bytes of the exported address in the dma-buf. It is less than the host's page size.
    pub offset: u64,
    /// The size of the dma-buf in bytes, a multiple of the host's page size.
    pub len: usize,
}

/// Exports `len` bytes of GPU memory as a new dma-buf for other devices. The CPU need not be able to map the memory.
pub fn export(address: u64, len: usize, flags: PinFlags) -> Result<DmaBufExport> {
    if len == 0 {
        return Err(Error::EmptyRange);
    }
    let pages = pages_around(address, len as u64)?;
    let driver = cuda::load(EXPORTS_DMA_BUFS)?;
    driver.init()?;
    let place = driver.place_of(address, len as u64)?;
    if !can_export(driver, place.device)? {
        let gpu = place.device.ordinal();
        return Err(Error::NoDmaBufExport { gpu });
    }
    // A GPU that is not coherent is linked to the CPU by PCIe only. It refuses the flag that forces accesses over PCIe.
    let over_pcie = flags.force_pcie() && is_coherent(driver, place.device)?;
    let fd = export_pages(driver, &place, &pages, over_pcie)?;
    Ok(DmaBufExport { fd, offset: address - pages.start, len: len_of(&pages) })
}

/// Rounds the range out to whole pages of the host. Fails if the result has no page.
fn pages_around(address: u64, len: u64) -> Result<Range<u64>> {
    let pages = round_out(address, len, fork::page_size() as u64)?;
    if pages.is_empty() {
        return Err(Error::EmptyRange);
    }
    Ok(pages)
}

/// Returns the number of bytes in a range. It fits a `usize`, because the crate needs a 64-bit CPU.
fn len_of(range: &Range<u64>) -> usize {
    (range.end - range.start) as usize
}

/// Returns whether the CPU and the GPU share page tables.
fn is_coherent(driver: &Driver, device: Device) -> Result<bool> {
    let shared = driver.attribute(device, DeviceAttribute::HostPageTables)?;
    Ok(shared == Some(1))
}

fn export_pages(driver: &Driver, place: &Place, pages: &Range<u64>, over_pcie: bool) -> Result<OwnedFd> {
    let exported = driver.export(place, pages.start, len_of(pages), over_pcie);
    if exported.is_err() {
        check_descriptors()?;
    }
    let fd = exported?;
    // Some CUDA drivers set FD_CLOEXEC, others do not.
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(Error::no_descriptor)?;
    Ok(fd)
}

/// Fails if the process cannot open two more files. An export by CUDA may need two descriptors, and if it fails, CUDA's
/// error does not say that they were missing. Opens two files to find out.
fn check_descriptors() -> Result<()> {
    let mut kept = [None, None];
    for descriptor in &mut kept {
        match open("/dev/null", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()) {
            Ok(fd) => *descriptor = Some(fd),
            Err(errno @ (Errno::EMFILE | Errno::ENFILE)) => return Err(Error::no_descriptor(errno)),
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

impl Source for DmaBuf {
    fn version(&self) -> Version {
        // No gdrdrv is used, so no version of one is returned. Dma-bufs have all features of this version of the API.
        Version::API
    }

    fn page_size(&self) -> u64 {
        fork::page_size() as u64
    }

    fn attribute(&self, _: Attribute) -> Result<i32> {
        Ok(1)
    }

    fn pin(self: Arc<Self>, request: &PinRequest) -> Result<Arc<PinState>> {
        let pages = pages_around(request.address, request.size)?;
        self.driver.init()?;
        let place = self.driver.place_of(request.address, request.size)?;
        // If CUDA does not know the range, `place_of` only guesses the device. So the device is not checked then.
        if place.is_known && !can_map(self.driver, place.device)? {
            let gpu = place.device.ordinal();
            return Err(Error::NoDmaBufSupport { gpu });
        }
        let coherent = is_coherent(self.driver, place.device)?;
        // A GPU that has no other link than PCIe refuses the flag that forces accesses over PCIe. For such a GPU, the
        // flag is left out if the program has allowed that (`Options::force_pcie_compat`).
        let asked = request.flags.force_pcie();
        let over_pcie = asked && (coherent || !self.force_pcie_compat);
        let fd = Descriptor::new(export_pages(self.driver, &place, &pages, over_pcie)?);
        let mapping_type = if coherent && !asked { MappingType::Caching } else { MappingType::WriteCombining };
        log::debug!("pinned {:#x}+{:#x} as dma-buf {}", request.address, request.size, fd.file().number);
        PinState::of_range(DmaBufPin { fd, pages, mapping_type })
    }
}

/// A dma-buf, which keeps its memory in place until its descriptor is closed.
#[derive(Debug)]
struct DmaBufPin {
    fd: Descriptor,
    pages: Range<u64>,
    /// The only type that mappings of the dma-buf can have.
    mapping_type: MappingType,
}

impl SourcePin for DmaBufPin {
    fn handle(&self) -> u64 {
        self.fd.file().number as u64
    }

    fn file(&self) -> Option<OpenFile> {
        Some(self.fd.file())
    }

    fn info(&self, mapped: Option<MappingType>) -> Result<Info> {
        Ok(Info {
            va: self.pages.start,
            mapped_size: self.pages.end - self.pages.start,
            page_size: fork::page_size() as u32,
            mapping_type: mapped,
            ..Info::default()
        })
    }

    fn callback_flag(&self) -> Result<bool> {
        // The pinned memory is never freed before it is unpinned, because the dma-buf keeps it allocated.
        Ok(false)
    }

    fn map(&self, len: usize, flag: MapFlag) -> Result<(Region, MappingType)> {
        check_type(flag, self.mapping_type)?;
        let len = whole_pages(len)?;
        let pinned = len_of(&self.pages);
        if len > pinned {
            return Err(Error::OutOfPin { len, pinned });
        }
        let region = Region::map(&self.fd, 0, len)?;
        log::debug!("mapped {:#x}+{len:#x} at {region:?}: {}", self.pages.start, self.mapping_type);
        Ok((region, self.mapping_type))
    }

    fn unpin(&self) -> Result<()> {
        // Nothing is done here. Dropping the pin closes the dma-buf's descriptor, which unpins the memory.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use nix::sys::resource::{Resource, setrlimit};

    use super::*;
    use crate::sys::fork::tests::in_child;

    /// Calls `check_descriptors` in a forked child that can open `left` more files. Returns the error's errno, or 0.
    fn check_with(left: u64) -> i32 {
        in_child(|| {
            let Ok(free) = nix::unistd::dup(std::io::stderr()) else {
                return 255;
            };
            let number = free.as_raw_fd() as u64;
            drop(free);
            let limit = number + left;
            setrlimit(Resource::RLIMIT_NOFILE, limit, limit).expect("lower than before");
            match check_descriptors() {
                Ok(()) => 0,
                Err(error) => error.errno(),
            }
        })
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no fork")]
    fn fewer_than_two_descriptors_are_too_few() {
        assert_eq!([0, 1, 2].map(check_with), [libc::EMFILE, libc::EMFILE, 0]);
    }
}
