//! Words that keep their memory, in a forked child under gdremu.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gdrcopy::memory::CudaAllocator;
use gdrcopy::{Error, Gdr, Pool};

use crate::ownership::{await_child, fork, leave_child};

fn pool() -> Pool {
    let allocator = CudaAllocator::new(0).expect("an emulated GPU");
    Pool::new(&Gdr::open().expect("a driver"), allocator)
}

#[test]
#[ignore = "owned_under_gdremu runs it"]
fn forked_child_is_refused_and_frees_nothing() {
    let pool = pool();
    let word = pool.word(0_u32).expect("memory");
    let child = fork();
    if child == 0 {
        std::panic::set_hook(Box::new(|_| {}));
        let refused = catch_unwind(AssertUnwindSafe(|| word.view().store(1))).is_err()
            && pool.word(0_u32).err() == Some(Error::ForkedChild);
        drop((word, pool));
        leave_child(refused)
    }
    await_child(child, "the child was served");
    word.view().store(2);
    assert_eq!(word.view().load(), 2);
}
