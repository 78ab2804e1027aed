//! Operations that a metadata change must apply to the backing memory.
#![forbid(unsafe_code)]

use super::physical::{ObjectId, Run};

/// A step; lengths, addresses and offsets are multiples of the GPU page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Create an object, whose pages may be pinned or not.
    Created { object: ObjectId, len: u64, rdma: bool },
    /// Map `len` bytes of an object, from `offset` on, into the address space.
    Mapped { va: u64, len: u64, object: ObjectId, offset: u64 },
    /// Remove whole mappings.
    Unmapped { va: u64, len: u64 },
    /// Pages of a block that buffers share hold no live byte any more, but stay mapped.
    Emptied { va: u64, len: u64 },
    /// The contents of part of an object that lives on are no longer needed.
    Scrubbed(Run),
    /// An object no longer exists.
    Removed(Run),
}

#[cfg(test)]
mod tests {
    use super::super::memory::GPU_PAGE;
    use super::super::memory::tests::{BASE, memory};
    use super::super::physical::BLOCK;
    use super::*;

    #[test]
    fn a_large_buffer_is_an_object_of_its_own() {
        let mut memory = memory();
        let va = memory.alloc(0, BLOCK, true).unwrap();
        let [Step::Created { object, len: BLOCK, rdma: true }, mapped] = memory.take_steps()[..]
        else {
            panic!("not created and mapped");
        };
        let wanted = Step::Mapped { va, len: BLOCK, object, offset: 0 };
        assert_eq!(mapped, wanted);
        memory.free(va).unwrap();
        assert_eq!(memory.take_steps()[0], Step::Unmapped { va, len: BLOCK });
    }

    #[test]
    fn freed_small_buffer_empties_its_unshared_pages() {
        let mut memory = memory();
        let a = memory.alloc(0, GPU_PAGE + 512, true).unwrap();
        let b = memory.alloc(0, 2 * GPU_PAGE, true).unwrap();
        memory.take_steps();
        memory.free(a).unwrap();
        // Its second page holds the start of the other.
        let first = Step::Emptied { va: BASE, len: GPU_PAGE };
        assert_eq!(memory.take_steps()[1..], [first]);
        memory.free(b).unwrap();
        assert_eq!(memory.take_steps()[0], Step::Unmapped { va: BASE, len: BLOCK });
    }

    #[test]
    fn vmm_memory_comes_and_goes_as_the_program_says() {
        let mut memory = memory();
        let va = memory.reserve(BLOCK, 0, 0).unwrap();
        let object = memory.create(0, 2 * BLOCK, false, false).unwrap();
        memory.map(va, BLOCK, BLOCK, object).unwrap();
        memory.unmap(va, BLOCK).unwrap();
        let steps = [
            Step::Created { object, len: 2 * BLOCK, rdma: false },
            Step::Mapped { va, len: BLOCK, object, offset: BLOCK },
            Step::Unmapped { va, len: BLOCK },
        ];
        assert_eq!(memory.take_steps(), steps);
    }
}
