//! The names that bindgen gives the types and constants of `include/gdrapi.h`, for the crate `gdrapi-sys`.
#![forbid(unsafe_code)]
#![expect(missing_docs, reason = "`include/gdrapi.h` documents them")]
#![expect(non_camel_case_types, non_upper_case_globals, reason = "they carry the names of C and of bindgen")]

use std::ffi::c_uint;

use gdrcopy_core::types::Version;

use crate::types::{gdr_info_v2_t, gdr_mh_t};

pub type gdr_mh_s = gdr_mh_t;
pub type gdr_info_v2 = gdr_info_v2_t;
pub type gdr_map_flags_t = c_uint;
pub type gdr_pin_flags_t = c_uint;
pub const GDR_API_MAJOR_VERSION: u32 = Version::API.major;
pub const GDR_API_MINOR_VERSION: u32 = Version::API.minor;
pub const GDR_API_VERSION: u32 = (GDR_API_MAJOR_VERSION << 16) | GDR_API_MINOR_VERSION;
pub const GPU_PAGE_SHIFT: u32 = 16;
pub const GPU_PAGE_SIZE: u64 = 1 << GPU_PAGE_SHIFT;
pub const GPU_PAGE_OFFSET: u64 = GPU_PAGE_SIZE - 1;
pub const GPU_PAGE_MASK: u64 = !GPU_PAGE_OFFSET;

/// Defines each constant under both names that bindgen can give it: the name in the header, and the name that is
/// bindgen's default, in which the name of the enumeration comes before the name in the header.
macro_rules! values {
    ($($name:ident, $long:ident = $value:literal;)+) => { $(
        pub const $name: c_uint = $value;
        pub const $long: c_uint = $value;
    )+ };
}

values! {
    GDR_MAPPING_TYPE_NONE, gdr_mapping_type_GDR_MAPPING_TYPE_NONE = 0;
    GDR_MAPPING_TYPE_WC, gdr_mapping_type_GDR_MAPPING_TYPE_WC = 1;
    GDR_MAPPING_TYPE_CACHING, gdr_mapping_type_GDR_MAPPING_TYPE_CACHING = 2;
    GDR_MAPPING_TYPE_DEVICE, gdr_mapping_type_GDR_MAPPING_TYPE_DEVICE = 3;
    GDR_MAP_FLAG_DEFAULT, gdr_map_flags_GDR_MAP_FLAG_DEFAULT = 0;
    GDR_MAP_FLAG_REQ_WC_MAPPING, gdr_map_flags_GDR_MAP_FLAG_REQ_WC_MAPPING = 1;
    GDR_MAP_FLAG_REQ_CACHE_MAPPING, gdr_map_flags_GDR_MAP_FLAG_REQ_CACHE_MAPPING = 2;
    GDR_MAP_FLAG_REQ_DEVICE_MAPPING, gdr_map_flags_GDR_MAP_FLAG_REQ_DEVICE_MAPPING = 3;
    GDR_PIN_FLAG_DEFAULT, gdr_pin_flags_GDR_PIN_FLAG_DEFAULT = 0;
    GDR_PIN_FLAG_FORCE_PCIE, gdr_pin_flags_GDR_PIN_FLAG_FORCE_PCIE = 1;
    GDR_ATTR_USE_PERSISTENT_MAPPING, gdr_attr_GDR_ATTR_USE_PERSISTENT_MAPPING = 1;
    GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, gdr_attr_GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE = 2;
    GDR_ATTR_USING_DMA_BUF_MMAP, gdr_attr_GDR_ATTR_USING_DMA_BUF_MMAP = 3;
}
