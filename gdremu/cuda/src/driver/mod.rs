//! A stand-in for libcuda.so.1: the driver API over the emulated GPUs.
//!
//! ```text
//! unversioned runtime   older names of functions; the CUDA runtime over the functions of the driver
//! init device primary context peer buffer host copy fill vmm pool pointer stream capture event module ipc
//! kernel export error_text   one topic each: the exported functions and what only they need
//!   nvml     the functions of libnvidia-ml.so.1
//!   entry    runs the bodies of entry points: errors and panics become CUresults
//!   work     runs the work of streams behind GPU kernels
//!   state/   contexts, streams, events, modules, queues, allocations; behind one lock
//!   args     the only module that dereferences pointers from C
//!   gpus     access to the emulated GPUs, shared with the emulated driver
//!   error    CUresults
//! exported, proc_address   the table of all functions and versions, and the search in it
//! ```
//!
//! Streams are in order. Without GPU kernels an asynchronous call has done its work when it returns.
//! GPU kernels run on threads of their own, and later work of their stream waits until they end.
//!
//! A name is exported as libcuda exports it, with its suffix. Names without suffix whose ABI has
//! changed since (cuMemAlloc of CUDA 3.1 had 32-bit addresses) are not exported: only a program
//! without cuda.h's macros looks them up.

pub(crate) mod attributes;
pub(crate) mod buffer;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod entry;
pub(crate) mod entry_points;
pub(crate) mod error_text;
pub(crate) mod event;
pub(crate) mod export;
pub(crate) mod fill;
pub(crate) mod host;
pub(crate) mod init;
pub(crate) mod ipc;
pub(crate) mod kernel;
pub(crate) mod kernel_memory;
pub(crate) mod module;
pub(crate) mod peer;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod primary;
pub(crate) mod proc_address;
pub(crate) mod signals;
pub(crate) mod state;
pub(crate) mod stream;
pub(crate) mod types;
pub(crate) mod vmm;
pub(crate) mod work;
