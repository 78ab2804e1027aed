//! Bindgen's names for items of `include/gdrapi.h` besides the functions, for the crate `gdrapi-sys`.
#![forbid(unsafe_code)]
#![expect(non_camel_case_types, non_upper_case_globals, reason = "they carry the names of C and of bindgen")]

use std::ffi::c_uint;

use gdrcopy_core::types::Version;

use crate::types::{gdr_info_v2_t, gdr_mh_t};

/// Handle of a pinned buffer.
pub type gdr_mh_s = gdr_mh_t;
/// The description of a pin.
pub type gdr_info_v2 = gdr_info_v2_t;
/// A value of the C enumeration of this name.
pub type gdr_map_flags_t = c_uint;
/// A value of the C enumeration of this name.
pub type gdr_pin_flags_t = c_uint;
/// Major version of the API.
pub const GDR_API_MAJOR_VERSION: u32 = Version::API.major;
/// Minor version of the API.
pub const GDR_API_MINOR_VERSION: u32 = Version::API.minor;
/// Both, packed.
pub const GDR_API_VERSION: u32 = (GDR_API_MAJOR_VERSION << 16) | GDR_API_MINOR_VERSION;
/// Size of a GPU page is 2 to this power.
pub const GPU_PAGE_SHIFT: u32 = 16;
/// Size of a GPU page in bytes.
pub const GPU_PAGE_SIZE: u64 = 1 << GPU_PAGE_SHIFT;
/// The bits of an address inside a GPU page.
pub const GPU_PAGE_OFFSET: u64 = GPU_PAGE_SIZE - 1;
/// The bits of an address above a GPU page.
pub const GPU_PAGE_MASK: u64 = !GPU_PAGE_OFFSET;

/// Defines each value under its own name, and under the one with the enumeration's in front.
macro_rules! values {
    ($($(#[$doc:meta])* $name:ident, $long:ident = $value:literal;)+) => { $(
        $(#[$doc])*
        pub const $name: c_uint = $value;
        $(#[$doc])*
        pub const $long: c_uint = $value;
    )+ };
}

values! {
    /// Not mapped.
    GDR_MAPPING_TYPE_NONE, gdr_mapping_type_GDR_MAPPING_TYPE_NONE = 0;
    /// Write-combining.
    GDR_MAPPING_TYPE_WC, gdr_mapping_type_GDR_MAPPING_TYPE_WC = 1;
    /// Cached.
    GDR_MAPPING_TYPE_CACHING, gdr_mapping_type_GDR_MAPPING_TYPE_CACHING = 2;
    /// Device memory.
    GDR_MAPPING_TYPE_DEVICE, gdr_mapping_type_GDR_MAPPING_TYPE_DEVICE = 3;
    /// The platform's default.
    GDR_MAP_FLAG_DEFAULT, gdr_map_flags_GDR_MAP_FLAG_DEFAULT = 0;
    /// Write-combining, or an error.
    GDR_MAP_FLAG_REQ_WC_MAPPING, gdr_map_flags_GDR_MAP_FLAG_REQ_WC_MAPPING = 1;
    /// Cached, or an error.
    GDR_MAP_FLAG_REQ_CACHE_MAPPING, gdr_map_flags_GDR_MAP_FLAG_REQ_CACHE_MAPPING = 2;
    /// Device memory, or an error.
    GDR_MAP_FLAG_REQ_DEVICE_MAPPING, gdr_map_flags_GDR_MAP_FLAG_REQ_DEVICE_MAPPING = 3;
    /// Nothing special.
    GDR_PIN_FLAG_DEFAULT, gdr_pin_flags_GDR_PIN_FLAG_DEFAULT = 0;
    /// Through PCIe also where there is a coherent link.
    GDR_PIN_FLAG_FORCE_PCIE, gdr_pin_flags_GDR_PIN_FLAG_FORCE_PCIE = 1;
    /// Reports whether pins outlive a free.
    GDR_ATTR_USE_PERSISTENT_MAPPING, gdr_attr_GDR_ATTR_USE_PERSISTENT_MAPPING = 1;
    /// Reports whether `FORCE_PCIE` can work.
    GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, gdr_attr_GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE = 2;
    /// Reports whether dma-bufs are used, without gdrdrv.
    GDR_ATTR_USING_DMA_BUF_MMAP, gdr_attr_GDR_ATTR_USING_DMA_BUF_MMAP = 3;
}
