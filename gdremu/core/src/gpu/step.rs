//! Operations that a metadata change must apply to the backing memory.
#![forbid(unsafe_code)]

use super::physical::{ObjectId, Run};

/// A step; lengths, addresses and offsets are multiples of the GPU page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Create an object, whose pages may be pinned or not.
    Created { object: ObjectId, len: u64, rdma: bool },
    /// Map an object of `len` bytes into the address space.
    Mapped { va: u64, len: u64, object: ObjectId },
    /// Remove whole mappings.
    Unmapped { va: u64, len: u64 },
    /// Pages of a block that buffers share hold no live byte any more, but stay mapped.
    Emptied { va: u64, len: u64 },
    /// An object no longer exists.
    Removed(Run),
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::{BASE, memory};
    use super::super::physical::{BLOCK, GPU_PAGE};
    use super::*;

    #[test]
    fn freed_small_buffer_empties_its_unshared_pages() {
        let mut memory = memory();
        let a = memory.alloc(0, GPU_PAGE + 512, true).unwrap();
        let b = memory.alloc(0, 2 * GPU_PAGE, true).unwrap();
        memory.take_steps();
        memory.free(a).unwrap();
        // Its second page holds the start of the other.
        assert_eq!(memory.take_steps(), [Step::Emptied { va: BASE, len: GPU_PAGE }]);
        memory.free(b).unwrap();
        assert_eq!(memory.take_steps()[0], Step::Unmapped { va: BASE, len: BLOCK });
    }
}
