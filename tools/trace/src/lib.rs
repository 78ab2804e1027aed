//! The tracer of `gdrcopy trace`: an object for LD_PRELOAD that has libgdrapi's SONAME and functions, so that linked
//! programs and dlopen get it. It forwards each call to the real library, and records it in a file of the process.
//!
//! ```text
//! exports.rs       17 symbols, and the address to which each call returns
//!   calls.rs       each function: forward, time, record
//!     recording.rs counts in the tables: pins, copies, misuse, events
//!     real.rs      the real library
//!       process.rs the process's file; forked children; settings from the environment
//! ```
//!
//! Imports point downwards. It prints nothing, does not change errno, and makes its system calls directly: functions
//! that other preloaded objects replace do not see them. Its functions unwind ("C-unwind"): a thread can be canceled in them.

mod calls;
mod exports;
mod process;
mod real;
mod recording;
