//! An interpreter for PTX, the assembly language that nvcc makes of GPU kernels. It runs integer code and accesses to
//! memory.
//!
//! ```text
//! module (parses a module and its variables)           run (blocks and threads take turns)
//!   ├─ entry (compiles the text of a GPU kernel)          │
//!   │    └─ opcodes (the instruction set, as tables)      │
//!   ├─ declaration (names, and places of variables)       │
//!   ├─ tokens                                             │
//!   └─ kernel (a compiled GPU kernel) ────────────────────┘
//! ```
//!
//! `fatbin` finds the PTX text in the fat binaries that nvcc embeds in programs.
//!
//! A GPU kernel with an instruction that is not supported is refused, with the line and the name of the instruction.
//! The other GPU kernels of its module run. Every memory scope is treated as `.sys`, the whole system.
//!
//! All threads of the blocks that run at the same time take turns. So a thread that waits for another thread or for the
//! CPU does not stop the others.
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
