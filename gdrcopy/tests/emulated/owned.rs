//! Words and signals that keep their memory, in a forked child under gdremu.

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
    let flag = pool.flag().expect("memory");
    let mut sender = pool.ring_to_gpu::<u32>(4).expect("memory");
    let child = fork();
    if child == 0 {
        std::panic::set_hook(Box::new(|_| {}));
        let refused = catch_unwind(AssertUnwindSafe(|| flag.view().set(1))).is_err()
            && sender.try_send(&[1]) == Err(Error::ForkedChild)
            && pool.flag().err() == Some(Error::ForkedChild);
        drop((flag, sender, pool));
        leave_child(refused)
    }
    await_child(child, "the child was served");
    flag.view().set(2);
    assert_eq!((flag.view().get(), sender.try_send(&[5])), (2, Ok(1)));
}
