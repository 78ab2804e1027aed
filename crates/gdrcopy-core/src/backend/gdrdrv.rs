//! The backend over the kernel module gdrdrv, versions 2.0 to 2.6 and later versions that stay compatible.
//!
//! A connection caches the driver's version and attributes. If the driver keeps pins until they are released
//! ([`Attribute::UsePersistentMapping`]), their descriptions are cached too, because only this library changes them.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use once_cell::race::OnceBool;

use crate::backend::source::{PinRequest, PinState, Source, SourcePin, check_type, round_out};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::sync::Mutex;
use crate::sys::fork::{self, OpenFile, Owner};
use crate::sys::gdrdrv::{
    DeviceFile, GetAttr, GetCbFlag, GetInfo, GetInfoV2, GetVersion, PinBuffer, PinBufferV2, ReqMappingType, UnpinBuffer,
};
use crate::sys::mmap::{Region, whole_pages};
use crate::types::{Attribute, GPU_PAGE_SIZE, Info, MapFlag, MappingType, P2pTokens, PinFlags, Version, raw};

/// The first version of gdrdrv with the ioctl GET_INFO_V2.
const INFO_V2: Version = Version::new(2, 4);
/// The first version of gdrdrv with the ioctls PIN_BUFFER_V2, REQ_MAPPING_TYPE and GET_ATTR. For an older gdrdrv, this
/// library rounds the end of a range up to a GPU page, because newer versions of the GPU driver refuse other ends.
const PIN_V2: Version = Version::new(2, 5);

/// An open connection to the module gdrdrv. The pins made through it share it.
#[derive(Debug)]
pub struct Gdrdrv {
    /// The device file stays open as long as a pin exists.
    file: DeviceFile,
    version: Version,
    /// The answers to GET_ATTR for [`Attribute::UsePersistentMapping`] and [`Attribute::SupportPinFlagForcePcie`].
    attributes: [OnceBool; 2],
    owner: Owner,
    force_pcie_compat: bool,
}

impl Gdrdrv {
    /// Opens the device file and checks that module and library versions are compatible.
    pub fn open(options: &Options) -> Result<Gdrdrv> {
        let file = DeviceFile::open(options.device_path.as_deref())?;
        let mut answer = GetVersion::default();
        file.get_version(&mut answer)?;
        let version = Version::unpack(answer.gdrdrv_version);
        let oldest_library = Version::unpack(answer.minimum_gdr_api_version);
        if version < Version::OLDEST_GDRDRV {
            return Err(Error::DriverTooOld { driver: version });
        }
        if oldest_library > Version::API {
            return Err(Error::LibraryTooOld { wanted: oldest_library });
        }
        if DeviceFile::is_bound_to_dummy() {
            return Err(Error::DummyGpuDriver);
        }
        log::debug!("backend gdrdrv {version} (/dev/gdrdrv), serves API {oldest_library} and later");
        Ok(Gdrdrv {
            file,
            version,
            attributes: Default::default(),
            owner: Owner::current(),
            force_pcie_compat: options.force_pcie_compat,
        })
    }

    fn pin_as_asked(self: Arc<Self>, request: &PinRequest) -> Result<GdrdrvPin> {
        let &PinRequest { address: addr, size, flags, tokens } = request;
        let handle = if self.version >= PIN_V2 {
            let flags = flags.0 & PinFlags::FORCE_PCIE.0;
            let mut argument = PinBufferV2 { addr, size, flags, ..Default::default() };
            self.file.pin_buffer_v2(&mut argument)?;
            argument.handle
        } else if flags == PinFlags::DEFAULT {
            let P2pTokens { p2p_token, va_space } = tokens;
            let pages = round_out(addr, size, GPU_PAGE_SIZE)?;
            let mut argument = PinBuffer { addr, size: pages.end - addr, p2p_token, va_space, handle: 0 };
            self.file.pin_buffer(&mut argument)?;
            argument.handle
        } else {
            return Err(Error::PinFlagsNeedNewerDriver { driver: self.version });
        };
        log::debug!("pinned {addr:#x}+{size:#x} as driver handle {handle:#x}");
        Ok(GdrdrvPin {
            gdrdrv: self,
            handle,
            facts: Mutex::default(),
            requested_type: AtomicU32::new(0),
            released: AtomicBool::new(false),
        })
    }

    /// Pins without FORCE_PCIE if the GPU has no other link than PCIe ([`Options::force_pcie_compat`]), and otherwise
    /// returns `refusal`. Makes a mapping to find out: only memory behind a coherent link has the type `Caching`.
    fn pin_without_force_pcie(self: Arc<Self>, request: &PinRequest, refusal: Error) -> Result<GdrdrvPin> {
        let pin = self.pin_as_asked(&PinRequest { flags: PinFlags::DEFAULT, ..*request })?;
        match pin.map(1, MapFlag::Default) {
            Ok((_, MappingType::Caching)) | Err(_) => Err(refusal),
            Ok(_) => {
                log::info!("FORCE_PCIE is satisfied by an ordinary pin: this GPU has PCIe only");
                Ok(pin)
            }
        }
    }

    /// Returns an attribute of the driver. Asks the driver only once, and keeps its answer.
    fn driver_attribute(&self, attribute: Attribute) -> Result<bool> {
        if self.version < PIN_V2 {
            return Ok(false);
        }
        let cache = &self.attributes[attribute as usize - 1];
        if let Some(value) = cache.get() {
            return Ok(value);
        }
        let mut argument = GetAttr { attr: attribute as u32, val: 0 };
        let value = match self.file.get_attr(&mut argument) {
            Ok(()) => argument.val != 0,
            // A driver that does not know the attribute does not have the feature.
            Err(error) if [libc::EINVAL, libc::ENOTTY].contains(&error.errno()) => false,
            Err(error) => return Err(error),
        };
        let _ = cache.set(value);
        Ok(value)
    }

    /// Returns whether the driver has reported that pins and mappings last until they are released.
    fn is_known_persistent(&self) -> bool {
        self.attributes[Attribute::UsePersistentMapping as usize - 1].get() == Some(true)
    }
}

impl Source for Gdrdrv {
    fn page_size(&self) -> u64 {
        GPU_PAGE_SIZE
    }

    fn file(&self) -> Option<OpenFile> {
        Some(self.file.file())
    }

    fn version(&self) -> Version {
        self.version
    }

    fn attribute(&self, attribute: Attribute) -> Result<i32> {
        match attribute {
            Attribute::UsingDmaBufMmap => Ok(0),
            asked => self.driver_attribute(asked).map(i32::from),
        }
    }

    fn pin(self: Arc<Self>, request: &PinRequest) -> Result<Arc<PinState>> {
        let may_do_without = request.flags.force_pcie() && self.force_pcie_compat;
        let pin = match Arc::clone(&self).pin_as_asked(request) {
            Err(refusal @ Error::Driver { .. }) if may_do_without => self.pin_without_force_pcie(request, refusal),
            answer => answer,
        }?;
        PinState::of_range(pin)
    }

    fn close(self: Arc<Self>) -> Result<()> {
        // If pins or calls in other threads still hold references, dropping the last reference closes the device file.
        match Arc::into_inner(self) {
            Some(gdrdrv) => gdrdrv.file.close(),
            None => Ok(()),
        }
    }
}

/// A pin that the module has made.
#[derive(Debug)]
struct GdrdrvPin {
    gdrdrv: Arc<Gdrdrv>,
    handle: u64,
    /// The driver's description of the pin; `None` until the driver was asked. Only the mapping type in it changes.
    facts: Mutex<Option<Info>>,
    /// The mapping type last requested from the driver; 0 leaves the type to the driver.
    requested_type: AtomicU32,
    released: AtomicBool,
}

impl GdrdrvPin {
    /// Asks the driver for the pin's description.
    fn ask(&self) -> Result<Info> {
        let file = &self.gdrdrv.file;
        let mut answer = GetInfoV2 { handle: self.handle, ..Default::default() };
        let mapping_type = if self.gdrdrv.version >= INFO_V2 {
            file.get_info_v2(&mut answer)?;
            MappingType::from_driver(answer.mapping_type)
        } else {
            let mut older = GetInfo { handle: self.handle, ..Default::default() };
            file.get_info(&mut older)?;
            let GetInfo { va, mapped_size, page_size, tsc_khz, tm_cycles, mapped, wc_mapping, .. } = older;
            answer = GetInfoV2 { va, mapped_size, page_size, tsc_khz, tm_cycles, ..answer };
            match (mapped, wc_mapping) {
                (0, _) => None,
                (_, 0) => Some(MappingType::Caching),
                _ => Some(MappingType::WriteCombining),
            }
        };
        let GetInfoV2 { va, mapped_size, page_size, tsc_khz: cycles_per_ms, tm_cycles, .. } = answer;
        let info = Info { va, mapped_size, page_size, tm_cycles, cycles_per_ms, mapping_type };
        *self.facts.lock() = Some(info);
        Ok(info)
    }

    /// Asks the driver to use this type for the next mapping, unless the last request was for the same type.
    fn request_type(&self, flag: MapFlag) -> Result<()> {
        let mapping_type = raw::of_mapping_type(flag.wanted());
        let requested = self.requested_type.load(Ordering::Relaxed);
        if self.gdrdrv.version < PIN_V2 || requested == mapping_type {
            return Ok(());
        }
        let mut argument = ReqMappingType { handle: self.handle, mapping_type };
        self.gdrdrv.file.req_mapping_type(&mut argument)?;
        self.requested_type.store(mapping_type, Ordering::Relaxed);
        Ok(())
    }
}

impl SourcePin for GdrdrvPin {
    fn handle(&self) -> u64 {
        self.handle
    }

    fn info(&self, mapped: Option<MappingType>) -> Result<Info> {
        let facts = *self.facts.lock();
        if let Some(facts) = facts {
            // The description from an earlier call is still valid if the driver keeps pins until they are released.
            // GET_ATTR reports whether it does. Its answer is cached, so with such a driver later calls need no ioctl.
            if self.gdrdrv.is_known_persistent() || self.gdrdrv.driver_attribute(Attribute::UsePersistentMapping)? {
                return Ok(Info { mapping_type: mapped, ..facts });
            }
        }
        self.ask()
    }

    fn callback_flag(&self) -> Result<bool> {
        if self.gdrdrv.is_known_persistent() {
            return Ok(false);
        }
        let mut argument = GetCbFlag { handle: self.handle, flag: 0 };
        self.gdrdrv.file.get_cb_flag(&mut argument).map(|()| argument.flag != 0)
    }

    fn map(&self, len: usize, flag: MapFlag) -> Result<(Region, MappingType)> {
        let len = whole_pages(len)?;
        let Some(offset) = self.handle.checked_mul(fork::page_size() as u64) else {
            return Err(Error::RangeOverflow);
        };
        self.request_type(flag)?;
        let region = Region::map(&self.gdrdrv.file, offset, len)?;
        // On failure, dropping `region` unmaps it.
        let Info { va, mapping_type, .. } = self.ask()?;
        let Some(mapping_type) = mapping_type else {
            return Err(Error::MappingRevoked);
        };
        check_type(flag, mapping_type)?;
        log::debug!("mapped {va:#x}+{len:#x} at {region:?}: {mapping_type}");
        Ok((region, mapping_type))
    }

    fn unpin(&self) -> Result<()> {
        if self.released.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.gdrdrv.file.unpin_buffer(&mut UnpinBuffer { handle: self.handle })?;
        self.released.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for GdrdrvPin {
    fn drop(&mut self) {
        // A forked child does not unpin, because the pin belongs to its parent.
        if !self.released.load(Ordering::Relaxed)
            && self.gdrdrv.owner.is_current()
            && let Err(error) = self.unpin()
        {
            log::warn!("unpin of driver handle {:#x}: {error}", self.handle);
        }
    }
}
