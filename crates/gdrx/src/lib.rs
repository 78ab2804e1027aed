//! libgdrx: `include/gdrx.h` on one side, the copies of the crate `gdrcopy-core` on the other.
//!
//! A call goes down through these modules and then into that crate:
//!
//! ```text
//! exports   the functions of the library
//! map       mappings that callers have described, and copies through them, which are checked first
//! error     the errors of the functions
//! ```
//!
//! The header's inline functions have the fences of `gdrcopy_core::routines`. `tests/header.rs` compares the fences.

mod error;
mod exports;
mod map;

pub use exports::*;
pub use map::{gdrx_copy, gdrx_map};
