//! Kernels: a part of PTX, interpreted.
//!
//! ```text
//! text → lex → parse (module, entries, variables) → decode (one instruction) → kernel
//! grid → block (threads in turn, barriers, shared memory) → thread (one instruction) → alu
//!                                                         → memory (global memory, the embedder's)
//! ```
//!
//! What is understood; anything else is refused by name when the text is parsed:
//!
//! | | |
//! | --- | --- |
//! | module | `.version`, `.target`, `.address_size 64`, `.entry` with its `.param`s and `.maxntid`, `.reqntid`, `.shared` variables, also `.extern` ones of any size; debug information and pragmas are skipped |
//! | types | `.pred`, `.b8` to `.b64`, `.u8` to `.u64`, `.s8` to `.s64`; `.f32` and `.f64` are moved, not computed with |
//! | moves | `mov`, `selp`, `cvt` between integers, `cvta` |
//! | arithmetic | `add`, `sub`, `mul` and `mad` (`.lo`, `.hi`, `.wide`), `div`, `rem`, `min`, `max`, `neg`, `and`, `or`, `xor`, `not`, `shl`, `shr`, `setp` |
//! | control | guards, `bra`, `ret`, `exit`, `trap`, `nanosleep` |
//! | memory | `ld` and `st` on generic addresses, `.global`, `.shared`, `.param` (`ld` alone), plain and `.v2`, `.v4`; `.weak`, `.volatile`, `.relaxed`, `.acquire`, `.release`; cache hints have no effect |
//! | atomics | `atom` and `red` with `.add`, `.and`, `.or`, `.xor`, `.min`, `.max`, `.exch`, `.cas` on 32 and 64-bit integers |
//! | order | `fence`, `membar`, `bar.sync`, `bar.arrive` and their spellings as `barrier` |
//! | special registers | `%tid`, `%ntid`, `%ctaid`, `%nctaid`, `%laneid`, `%warpid`, `%clock`, `%clock64`, `%globaltimer` |
//!
//! Every thread is scheduled by itself, in turn with all others of its launch, so that one that
//! waits for another never keeps it from running. All scopes are the system's.
#![forbid(unsafe_code)]

mod alu;
mod block;
mod decode;
mod grid;
mod instruction;
mod kernel;
mod lex;
mod memory;
mod parse;
#[cfg(test)]
mod tests;
mod thread;
mod types;

pub use grid::{Launch, Stopped, run};
pub use kernel::{Kernel, Module, Parameter};
pub use memory::{Fault, GlobalMemory};
pub use parse::{Refused, parse};
pub use thread::Trap;
pub use types::Width;
