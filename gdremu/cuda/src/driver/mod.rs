//! A stand-in for libcuda.so.1, the driver API over the emulated GPUs.
//!
//! ```text
//! entry_points   the exported functions: their arguments, how they begin, and the bodies of a few lines
//!   entry        how they begin: errors and panics become CUresults
//!   device context buffer host copy vmm pointer stream capture module ipc kernel kernel_memory export
//!   proc_address   one topic each: what the bodies need
//!     work       runs the work of streams behind GPU kernels
//!     state/     contexts, streams, events, modules, queues, allocations; behind one lock
//! ```

mod buffer;
mod capture;
mod context;
mod copy;
mod device;
mod entry;
pub(crate) mod entry_points;
mod export;
mod host;
mod ipc;
pub(crate) mod kernel;
mod kernel_memory;
mod module;
mod pointer;
mod proc_address;
mod state;
mod stream;
mod vmm;
mod work;
