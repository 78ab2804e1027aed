//! The errors of the crate.
#![forbid(unsafe_code)]

pub use gdrcopy_core::error::{CudaError, Error, OsError, Result};
