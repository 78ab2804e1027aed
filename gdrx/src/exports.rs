//! The functions of the library, in the order of `include/gdrx.h`, which documents them.
//!
//! # Safety
//! The header's contract holds for all functions: pointer arguments are NULL or valid for what the function reads or writes,
//! and a map that was attached describes a live mapping.
#![expect(clippy::missing_safety_doc, reason = "documented once, above")]

use std::ffi::{c_int, c_void};

use gdrcopy_core::copy;
use gdrcopy_core::routines::Item;

use crate::error::{Error, Result};
use crate::map::{Copies, gdrx_copy, gdrx_map};

/// Major and minor version, packed.
const VERSION: u32 = 1 << 16;

/// Describes a mapping.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdrx_attach_mapping(
    map: *mut gdrx_map,
    mapping_type: u32,
    mapped_size: u64,
    address: *mut c_void,
    size: usize,
) -> c_int {
    let attached = match map.is_null() {
        true => Err(Error::Null("map")),
        false => gdrx_map::attach(mapping_type, mapped_size, address, size),
    };
    done(
        "gdrx_attach_mapping",
        attached.map(|attached| {
            // SAFETY: not NULL, so valid for writes: contract of the header.
            unsafe { map.write(attached) }
        }),
    )
}

/// Makes writes with one fence.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdrx_write_many(
    map: *const gdrx_map,
    copies: *const gdrx_copy,
    n: usize,
) -> c_int {
    // SAFETY: contract of the header.
    let copies = unsafe { Copies::new(map, copies, n) };
    done(
        "gdrx_write_many",
        copies.map(|copies| {
            copy::begin_batch();
            for index in 0..copies.len() {
                let (dst, src, len) = copies.get(index);
                // SAFETY: inside a mapping of this kind, and readable: invariant, and contract of the header.
                unsafe { copy::write_unfenced(copies.kind, dst, src, len) };
            }
            copy::end_batch();
        }),
    )
}

/// Makes reads whose loads overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdrx_read_many(
    map: *const gdrx_map,
    copies: *const gdrx_copy,
    n: usize,
) -> c_int {
    // SAFETY: contract of the header.
    let copies = unsafe { Copies::new(map, copies, n) };
    done(
        "gdrx_read_many",
        copies.map(|copies| {
            let item = |index| {
                let (src, dst, len) = copies.get(index);
                Item { dst, src, len }
            };
            // SAFETY: as in `gdrx_write_many`; writable.
            unsafe { copy::gather(copies.kind, copies.len(), item) };
        }),
    )
}

/// Waits for earlier writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdrx_flush(map: *const gdrx_map) -> c_int {
    // SAFETY: contract of the header.
    let map = unsafe { map.as_ref() }.ok_or(Error::Null("map"));
    let checked = map.and_then(|map| map.kind().map(|_| map));
    done(
        "gdrx_flush",
        checked.map(|map| {
            // SAFETY: a map has at least one byte, which is mapped: contract of the header.
            unsafe { copy::flush(map.start()) }
        }),
    )
}

/// Makes one write of a row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdrx_write_unfenced(
    map: *const gdrx_map,
    offset: usize,
    host: *const c_void,
    size: usize,
) -> c_int {
    let one = gdrx_copy { offset, host: host.cast_mut(), size };
    // SAFETY: contract of the header.
    let copies = unsafe { Copies::new(map, &one, 1) };
    done(
        "gdrx_write_unfenced",
        copies.map(|copies| {
            let (dst, src, len) = copies.get(0);
            // SAFETY: as in `gdrx_write_many`.
            unsafe { copy::write_unfenced(copies.kind, dst, src, len) };
        }),
    )
}

/// The version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn gdrx_version() -> u32 {
    VERSION
}

/// What a function of this name returns.
#[inline(always)]
fn done(function: &str, result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => error.report(function),
    }
}
