//! A stand-in for libcuda.so.1, the driver API over the emulated GPUs.
//!
//! ```text
//! entry_points   the exported functions: their arguments, preconditions, and bodies of a few lines
//!   entry        checks preconditions, and turns errors and panics into CUresults
//!   device context buffer host copy vmm pointer stream capture module ipc kernel kernel_memory export
//!   proc_address   one topic each: longer bodies, and what the bodies need
//!     work       runs the work of streams in their order
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
