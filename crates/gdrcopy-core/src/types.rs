//! Public types shared by all modules (versions, flags, attributes, mapping types, the description of a pin).
#![forbid(unsafe_code)]

use std::fmt;

/// The size of a GPU page in bytes. gdrdrv rounds pins out to GPU pages.
pub const GPU_PAGE_SIZE: u64 = 1 << 16;

/// A version `major.minor` of the driver or of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Changes when old programs stop working.
    pub major: u32,
    /// Changes when something is added.
    pub minor: u32,
}

impl Version {
    /// The API level this library implements, 2.6.
    pub const API: Version = Version::new(2, 6);
    /// The oldest kernel module this library works with, 2.0.
    pub const OLDEST_GDRDRV: Version = Version::new(2, 0);

    /// The version `major.minor`.
    pub const fn new(major: u32, minor: u32) -> Version {
        Version { major, minor }
    }

    /// Splits the driver's packed form, `major << 16 | minor`.
    pub(crate) const fn unpack(packed: u32) -> Version {
        Version::new(packed >> 16, packed & 0xffff)
    }

    /// Splits CUDA's packed form, 1000 × major + 10 × minor.
    pub(crate) const fn of_cuda(packed: i32) -> Version {
        Version::new(packed as u32 / 1000, packed as u32 % 1000 / 10)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Versions of the CUDA driver, 1000 × major + 10 × minor.
pub mod cuda_version {
    /// The first version that has all functions needed to allocate GPU memory, 11.0.
    pub const OLDEST: i32 = 11000;
    /// The first version that exports dma-bufs, 11.7.
    pub const EXPORTS_DMA_BUFS: i32 = 11070;
    /// The first version whose dma-bufs can be mapped, 13.3.
    pub const MAPS_DMA_BUFS: i32 = 13030;
}

/// The method by which the CPU caches a mapping of GPU memory. The values are those of the C API and of the driver,
/// where 0 stands for "not mapped".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u32)]
pub enum MappingType {
    /// Write-combining: stores gather in the CPU's write buffers, loads are uncached round trips.
    WriteCombining = 1,
    /// Cached like ordinary memory (coherent platforms such as Grace-Hopper and POWER9).
    Caching = 2,
    /// Device memory, for naturally aligned accesses of at most 8 bytes (some arm64 platforms).
    Device = 3,
}

impl MappingType {
    /// Converts the driver's number for a mapping's type; `None` if the driver has taken the mapping away.
    ///
    /// A type that this library does not know is treated as device memory, because naturally aligned accesses of at
    /// most 8 bytes suit every kind of memory.
    pub(crate) const fn from_driver(raw: u32) -> Option<MappingType> {
        match (raw, raw::mapping_type(raw)) {
            (0, _) => None,
            (_, None) => Some(MappingType::Device),
            (_, known) => known,
        }
    }
}

impl fmt::Display for MappingType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MappingType::WriteCombining => "Write Combining",
            MappingType::Caching => "Caching",
            MappingType::Device => "Device",
        })
    }
}

/// The mapping type that a caller asks for. The values are those of the C API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapFlag {
    /// The platform's default.
    #[default]
    Default,
    /// Write-combining. If the driver gives another type, the call fails.
    WriteCombining,
    /// Cached. If the driver gives another type, the call fails.
    Caching,
    /// Device memory. If the driver gives another type, the call fails.
    Device,
}

impl MapFlag {
    /// The mapping type asked for; `None` leaves the type to the driver.
    pub(crate) const fn wanted(self) -> Option<MappingType> {
        raw::mapping_type(self as u32)
    }
}

/// Options of a pin. The bits are those of the C API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinFlags(pub(crate) u32);

impl PinFlags {
    /// No option is set.
    pub const DEFAULT: PinFlags = PinFlags(0);
    /// Accesses go through PCIe even if the CPU and the GPU have a coherent link.
    pub const FORCE_PCIE: PinFlags = PinFlags(1);

    /// Returns whether the pin must go through PCIe.
    pub const fn force_pcie(self) -> bool {
        self.0 & PinFlags::FORCE_PCIE.0 != 0
    }

    /// The bits that are set, but have no meaning.
    pub(crate) const fn unknown(self) -> u32 {
        self.0 & !PinFlags::FORCE_PCIE.0
    }
}

/// CUDA's peer-to-peer tokens of a buffer, which old drivers require for a pin. Zeros mean none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct P2pTokens {
    /// `p2pToken` of `CUDA_POINTER_ATTRIBUTE_P2P_TOKENS`.
    pub p2p_token: u64,
    /// `vaSpaceToken` of `CUDA_POINTER_ATTRIBUTE_P2P_TOKENS`.
    pub va_space: u32,
}

/// A property of an open driver. The values are those of the C API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attribute {
    /// 1 if pinned memory stays alive and mapped until it is unpinned, even if the program frees it before.
    UsePersistentMapping = 1,
    /// 1 if the driver knows [`PinFlags::FORCE_PCIE`].
    SupportPinFlagForcePcie = 2,
    /// 1 if the dma-buf backend is in use, else 0.
    UsingDmaBufMmap = 3,
}

/// The description of a pin. `tm_cycles` and `cycles_per_ms` are 0 if the source measures no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Device address of the first pinned page, which is at most the address that was pinned.
    pub va: u64,
    /// The size of all pinned pages in bytes.
    pub mapped_size: u64,
    /// Size of a page in bytes.
    pub page_size: u32,
    /// The time that the driver took to pin, in CPU cycles or other ticks.
    pub tm_cycles: u64,
    /// The number of ticks of `tm_cycles` per millisecond.
    pub cycles_per_ms: u32,
    /// The type of the pin's live mapping; `None` while the pin is not mapped.
    pub mapping_type: Option<MappingType>,
}

/// Converts the types above from and to the numbers that C programs and the driver pass.
pub mod raw {
    use super::{Attribute, MapFlag, MappingType, PinFlags};

    /// Returns the mapping type with this value in the C API, if there is one.
    pub const fn mapping_type(raw: u32) -> Option<MappingType> {
        match raw {
            1 => Some(MappingType::WriteCombining),
            2 => Some(MappingType::Caching),
            3 => Some(MappingType::Device),
            _ => None,
        }
    }

    /// Returns the value of a mapping type in the C API; 0 for no mapping.
    pub const fn of_mapping_type(mapping_type: Option<MappingType>) -> u32 {
        match mapping_type {
            Some(mapping_type) => mapping_type as u32,
            None => 0,
        }
    }

    /// Returns the flag with this value in the C API, if there is one.
    pub const fn map_flag(raw: i32) -> Option<MapFlag> {
        match raw {
            0 => Some(MapFlag::Default),
            1 => Some(MapFlag::WriteCombining),
            2 => Some(MapFlag::Caching),
            3 => Some(MapFlag::Device),
            _ => None,
        }
    }

    /// Returns the attribute with this value in the C API, if there is one.
    pub const fn attribute(raw: u32) -> Option<Attribute> {
        match raw {
            1 => Some(Attribute::UsePersistentMapping),
            2 => Some(Attribute::SupportPinFlagForcePcie),
            3 => Some(Attribute::UsingDmaBufMmap),
            _ => None,
        }
    }

    /// Returns the flags with these bits in the C API. Unknown bits are kept here, but not passed to the driver.
    pub const fn pin_flags(bits: u32) -> PinFlags {
        PinFlags(bits)
    }
}
