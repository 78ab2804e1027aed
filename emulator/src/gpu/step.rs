//! What a change of the books asks of the memory itself.
#![forbid(unsafe_code)]

use super::physical::ObjectId;

/// A step; lengths, addresses and offsets are multiples of the GPU page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is a new object.
    Created {
        /// Which.
        object: ObjectId,
        /// Bytes.
        len: u64,
        /// Whether its pages may be pinned.
        rdma: bool,
    },
    /// Part of an object appeared in the address space.
    Mapped {
        /// Where.
        va: u64,
        /// Bytes.
        len: u64,
        /// The object.
        object: ObjectId,
        /// Where the part starts in it.
        offset: u64,
    },
    /// Whole mappings ended.
    Unmapped {
        /// Start of the first.
        va: u64,
        /// Bytes of all.
        len: u64,
    },
    /// Pages of a block that buffers share hold no live byte any more, but stay mapped.
    Emptied {
        /// Where.
        va: u64,
        /// Bytes.
        len: u64,
    },
}
