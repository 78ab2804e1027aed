//! The CUDA runtime, over the driver API, for programs that are linked with it dynamically.
//!
//! ```text
//! entry_points   every function, and how it begins; copies
//! properties errors kernels   the functions that do more than call the driver
//!   entry        the GPU of a thread, and its primary context
//! ```
//!
//! NVIDIA's own runtime does not start on a driver that cannot prove to be NVIDIA's. It asks for a
//! private table (cuGetExportTable), and checks its answer against a secret. Programs that are linked
//! with it statically find no GPU.
//!
//! These functions come before those of a libcudart that the program brings, as the library is
//! preloaded.
#![forbid(unsafe_code)]

mod entry;
pub(crate) mod entry_points;
mod errors;
mod kernels;
mod properties;

pub(crate) use errors::remember;
