//! Access to mapped GPU memory: slices, single words, arrays, batches of writes, gathers.
//!
//! Everything here copies between host memory and the mapping; no reference to GPU memory ever exists.
//!
//! # Order
//!
//! In terms of Rust's memory model, a mapping behaves as memory that the GPU shares, and:
//!
//! | operation | order |
//! | --- | --- |
//! | `write`, `Word::store`, `Batch::commit` | release: the GPU sees it after all that the thread wrote before, and before all that the thread writes later |
//! | writes of one batch | none among each other; all come before what follows `commit` |
//! | `read`, `Word::load`, `read_many`, `Words::load_all` | acquire: the value is no older than the start of the call; later accesses of the thread come after it |
//! | reads of one gather | none among each other |
//! | `flush` | returns when all earlier writes of the thread have arrived in GPU memory |
//!
//! A write that has returned has left the CPU or is about to; it arrives about a microsecond later. PCIe
//! keeps writes in order, so a flag written after data arrives after it.

mod array;
mod batch;
mod gather;
mod slice;
mod word;

pub use array::Array;
pub use batch::Batch;
pub use gather::Words;
pub use slice::MappedSlice;
pub use word::{Scalar, Word};
