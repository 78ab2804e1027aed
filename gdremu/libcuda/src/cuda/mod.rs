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
#![allow(non_snake_case, reason = "the exported names are NVIDIA's")]

mod address_space;
mod args;
mod attributes;
mod buffer;
mod capture;
mod context;
mod copy;
mod device;
mod entry;
mod error;
mod error_text;
mod event;
mod export;
mod exported;
mod fill;
mod gpus;
mod host;
mod init;
mod ipc;
mod kernel;
mod kernel_memory;
mod module;
mod nvml;
mod peer;
mod pointer;
mod pool;
mod primary;
mod proc_address;
mod runtime;
mod signals;
mod state;
mod stream;
mod types;
mod unversioned;
mod vmm;
mod work;
