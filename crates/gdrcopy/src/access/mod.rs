//! Access to mapped GPU memory by slices, single words, arrays, batches of writes, and gathers.
//!
//! All functions copy between host memory and the mapping; no Rust reference to GPU memory ever exists. The crate's
//! front page (README.md) states in which order the GPU sees the operations.

mod array;
mod batch;
mod gather;
mod mapped;
mod slice;
#[cfg(test)]
mod tests;
mod word;

pub use array::Array;
pub use batch::Batch;
pub use gather::Words;
pub use mapped::Mapped;
pub(crate) use mapped::sealed;
pub use slice::MappedSlice;
pub use word::Word;
