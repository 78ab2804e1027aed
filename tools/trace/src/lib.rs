//! The tracer of `gdrcopy trace`, an object for LD_PRELOAD that has libgdrapi's SONAME and functions, so that linked
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
//! Imports point downwards. It prints nothing and does not change errno. It makes its system calls directly, unseen
//! by functions that other preloaded objects replace. Its functions unwind ("C-unwind"), as threads can be canceled there.

mod calls;
mod exports;
mod process;
mod real;
mod recording;
