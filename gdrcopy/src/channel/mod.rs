//! Flags, counters and rings in mapped GPU memory, between this process and GPU kernels.
//!
//! A kernel polls its own GPU's memory at full speed, and a write of the CPU takes a tenth of a microsecond of CPU
//! time. But each poll of the CPU is a PCIe round trip of about a microsecond. So all of these live in GPU memory, and
//! the CPU polls no more than it must.
//!
//! All borrow their memory. [`owned`](crate::owned) has those that structs, threads and tasks hold.
//!
//! # Order
//!
//! | operation | order |
//! | --- | --- |
//! | [`Flag::set`], [`Flag::clear`], [`CounterWriter::publish`], [`RingSender::try_send`] | release: whatever the thread wrote before is visible to the kernel that sees the new value |
//! | [`Flag::wait`], [`Counter::wait_for`], [`RingReceiver::try_receive`] | acquire: whatever the kernel wrote before it released the value is visible to later reads of the thread |
//!
//! The kernel's side needs release stores and acquire loads at system scope, or relaxed ones with
//! `__threadfence_system()`. [`DEVICE_HEADER`] has them.
#![forbid(unsafe_code)]

mod counter;
mod flag;
mod keeper;
mod ring;

pub use counter::{Counter, CounterWriter};
pub use flag::Flag;
pub use ring::{Ring, RingReceiver, RingSender};

/// The CUDA C++ header for the GPU's side, `include/gdrcopy_device.cuh`. Write it to a file for nvcc, or pass it to
/// NVRTC. It includes nothing. Compiled without CUDA, its functions run on the CPU, for tests.
pub const DEVICE_HEADER: &str = include_str!("../../include/gdrcopy_device.cuh");
