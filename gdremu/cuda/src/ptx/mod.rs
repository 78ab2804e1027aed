//! A PTX interpreter for gdrcopy's own two GPU kernels: `ping_pong` of `gdrcopy pplat`
//! (tools/src/commands/pplat/kernel.ptx) and `produce` of c_tests/freshness.c.
//!
//! ```text
//! parse (modules, declarations, operands)      run (blocks and threads take turns)
//!   │      └─ tokens                             └─ launch (Launch, Trap, GlobalMemory)
//!   ├─ opcodes (the instruction set)                  │
//!   └─ kernel (what parse produces) ──────────────────┘
//! ```
//!
//! It interprets what these two use. [`parse`] rejects anything else with the line and the name of
//! what it does not know:
//!
//! | | |
//! | --- | --- |
//! | module | `.version`, `.target`, `.address_size 64`, `.visible .entry`, comments after `//` |
//! | parameters | `.u32`, `.u64` |
//! | registers | `.pred`, `.u32`, `.u64`; `%tid.x`, `%ntid.x`, `%ctaid.x`, `%nctaid.x` |
//! | shared variables | `.u32` without array, accessed by name |
//! | mnemonics | 16: `ld` `st` `mov` `add` `sub` `mul` `mad` `setp` `and` `xor` `bra` `bar` `fence` `atom` `red` `ret` |
//! | opcodes | the table in opcodes.rs: a test fails if no GPU kernel uses one of them |
//! | operands | registers, decimal and hexadecimal numbers, `[register]`, `[register+number]` |
//! | guards | `@%p`, `@!%p` |
//!
//! Global memory is accessed by 32-bit words. All scopes are the system's.
//!
//! All threads of all blocks of a launch take turns, so a thread that waits for another one, or for
//! the CPU, stops none of them.
#![forbid(unsafe_code)]

mod kernel;
mod launch;
mod opcodes;
mod parse;
mod run;
#[cfg(test)]
mod tests;
mod tokens;

pub(crate) use kernel::{Kernel, Width};
pub(crate) use launch::{Fault, GlobalMemory, Launch, Stopped, Trap};
pub(crate) use parse::parse;
pub(crate) use run::run;
