//! The CUDA runtime for programs that are linked with it dynamically. It calls the driver API.
//!
//! ```text
//! entry_points   the exported functions, and copies
//! properties errors kernels   the functions that do more than call the driver
//!   entry        the GPU of a thread, and its primary context
//! ```
//!
//! The library is preloaded, so these functions come before those of the program's own libcudart.
#![forbid(unsafe_code)]

mod entry;
pub(crate) mod entry_points;
mod errors;
mod kernels;
mod properties;

pub(crate) use errors::remember;
