//! The errors of the crate.
#![forbid(unsafe_code)]

pub use gdrcopy_core::error::{Call, CudaError, Error, OsError, Result};
