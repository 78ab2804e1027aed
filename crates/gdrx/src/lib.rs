//! libgdrx, which provides the functions of `include/gdrx.h`, and makes the copies by the crate `gdrcopy-core`.
//!
//! A call goes down through these modules and then into that crate:
//!
//! ```text
//! exports   the functions of the library
//! map       mappings that callers have described, and copies through them, which are checked first
//! error     the errors of the functions
//! ```
//!
//! The header's inline functions must have the same fences as `gdrcopy_core::routines`. `tests/header.rs` compares the
//! fences.

mod error;
mod exports;
mod map;

pub use exports::*;
pub use map::{gdrx_copy, gdrx_map};
