//! A stand-in for libcuda.so.1: the driver API over the emulated GPUs.
//!
//! ```text
//! init device primary context peer buffer host copy fill vmm pool pointer stream event module ipc
//! kernel export proc_address   one topic each: the exported functions and what only they need
//!   nvml     the functions of libnvidia-ml.so.1
//!   runtime  the CUDA runtime over the functions of the driver
//!   exported the table of them all, and their exported entry points
//!   entry    the bodies of all run inside one of its functions: errors and panics become CUresults
//!   args     pointers from C, checked and used nowhere else
//!   work     what streams have not done yet, once a kernel was launched
//!   state    contexts, streams, events, modules, who allocated what; behind one lock
//!   gpus     the way to the emulated GPUs, shared with the emulated driver
//! ```
//!
//! Streams are in order. Without kernels they are finished at once: an asynchronous call has done
//! its work when it returns. Kernels run on threads of their own, and what comes after them in
//! their stream is done when they have ended.
//!
//! A name is exported as libcuda exports it, with its suffix. Of names without suffix whose ABI has
//! changed since (cuMemAlloc of CUDA 3.1 had 32-bit addresses) none is: a program that looks one up
//! has lost a macro of cuda.h.
#![allow(non_snake_case, reason = "the exported names are NVIDIA's")]

mod address_space;
mod args;
mod attributes;
mod buffer;
mod context;
mod copy;
mod device;
mod entry;
mod error;
mod event;
mod export;
mod exported;
mod fill;
mod gpus;
mod handles;
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
