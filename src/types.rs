//! The types of `include/gdrapi.h`.
#![forbid(unsafe_code)]
#![expect(non_camel_case_types, reason = "they carry their C names")]

use std::ffi::{c_uint, c_ulong};

use gdrcopy_core::types::{Info, MappingType, raw};

/// An open driver, opaque to C programs. Its first four bytes are the driver's file descriptor.
#[derive(Debug)]
#[repr(C)]
pub struct gdr {
    _opaque: [u8; 0],
}

/// Handle of an open driver.
pub type gdr_t = *mut gdr;

/// Handle of a pinned buffer, passed by value. `h` is never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct gdr_mh_t {
    /// Address of at least 128 readable bytes.
    pub h: c_ulong,
}

/// A value of the C enumeration of this name. C callers may pass any number.
pub type gdr_mapping_type_t = c_uint;

/// A value of the C enumeration of this name. C callers may pass any number.
pub type gdr_attr_t = c_uint;

/// The description of a pin in the API before version 2.4. The symbol `gdr_get_info` writes exactly this struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "as in `gdr_info_v2_t`")]
pub struct gdr_info_v1_t {
    pub va: u64,
    pub mapped_size: u64,
    pub page_size: u32,
    pub tm_cycles: u64,
    pub cycles_per_ms: u32,
    pub bits: c_uint,
}

/// The description of a pin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct gdr_info_v2_t {
    /// Device address of the first pinned page.
    pub va: u64,
    /// The number of pinned bytes.
    pub mapped_size: u64,
    /// Size of a page in bytes.
    pub page_size: u32,
    /// The time that the driver took to pin, in CPU cycles or other ticks.
    pub tm_cycles: u64,
    /// The number of ticks of `tm_cycles` per millisecond.
    pub cycles_per_ms: u32,
    /// The bit-fields `mapped` (bit 0) and `wc_mapping` (bit 1).
    pub bits: c_uint,
    /// The type of the pin's mapping; 0 if it is not mapped.
    pub mapping_type: gdr_mapping_type_t,
}

impl gdr_info_v2_t {
    /// Returns 1 if the pin is mapped.
    pub fn mapped(&self) -> c_uint {
        self.bits & 1
    }

    /// Returns 1 if the pin is mapped write-combining.
    pub fn wc_mapping(&self) -> c_uint {
        self.bits >> 1 & 1
    }
}

/// The description of a pin.
pub type gdr_info_t = gdr_info_v2_t;

impl From<Info> for gdr_info_v2_t {
    fn from(info: Info) -> gdr_info_v2_t {
        let mapped = c_uint::from(info.mapping_type.is_some());
        let wc_mapping = c_uint::from(info.mapping_type == Some(MappingType::WriteCombining));
        gdr_info_v2_t {
            va: info.va,
            mapped_size: info.mapped_size,
            page_size: info.page_size,
            tm_cycles: info.tm_cycles,
            cycles_per_ms: info.cycles_per_ms,
            bits: mapped | wc_mapping << 1,
            mapping_type: raw::of_mapping_type(info.mapping_type),
        }
    }
}

impl From<Info> for gdr_info_v1_t {
    fn from(info: Info) -> gdr_info_v1_t {
        let gdr_info_v2_t { va, mapped_size, page_size, tm_cycles, cycles_per_ms, bits, .. } = info.into();
        gdr_info_v1_t { va, mapped_size, page_size, tm_cycles, cycles_per_ms, bits }
    }
}
