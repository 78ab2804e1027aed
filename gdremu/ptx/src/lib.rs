//! A PTX interpreter for the integer code that nvcc makes of GPU kernels which communicate through memory.
//!
//! ```text
//! module (text to module: its variables)                run (blocks and threads take turns)
//!   ├─ entry (the text of a GPU kernel to code)           │
//!   │    └─ opcodes (the instruction set, as tables)      │
//!   ├─ declaration (names, and where variables are)       │
//!   ├─ tokens                                             │
//!   └─ kernel (what the text becomes) ────────────────────┘
//! ```
//!
//! `fatbin` finds the text in what nvcc embeds in programs.
//!
//! A GPU kernel that needs anything else is refused with the line and the name of the first instruction that is
//! not supported. The others of its module run. All scopes are the system's.
//!
//! All threads of all resident blocks take turns, so a thread that waits for another one, or for the CPU, stops
//! none of them.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "not published: a name that says it all needs no comment")]

mod declaration;
mod entry;
pub mod fatbin;
mod kernel;
mod module;
mod opcodes;
mod run;
#[cfg(test)]
mod tests;
mod tokens;

pub use kernel::{Kernel, Launch};
pub use module::{Module, parse};
pub use run::{Change, Fault, GlobalMemory, Stopped, Trap, run};
