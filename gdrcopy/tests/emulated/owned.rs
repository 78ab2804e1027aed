//! Words and signals that keep their memory, under gdremu, at the addresses that they give to kernels, and in children.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gdrcopy::memory::CudaAllocator;
use gdrcopy::{Error, Gdr, Pool};

use crate::cuda::Cuda;

fn pool() -> Pool {
    let allocator = CudaAllocator::new(0).expect("an emulated GPU");
    Pool::new(&Gdr::open().expect("a driver"), allocator)
}

#[test]
#[ignore = "owned_under_gdremu runs it"]
fn owned_views_are_the_memory_of_the_gpu() {
    let (cuda, pool) = (Cuda::new(), pool());
    let word = pool.word(0x0102_0304_u32).expect("memory");
    let (flag, counter) = (pool.flag().expect("memory"), pool.counter().expect("memory"));
    let array = pool.array::<u16>(1000).expect("memory");
    let mut sender = pool.ring_to_gpu::<u32>(4).expect("memory");
    let receiver = pool.ring_from_gpu::<u32>(4).expect("memory");
    drop(pool);
    assert_eq!(cuda.read(word.view().device_address(), 4), [4, 3, 2, 1]);
    assert_eq!(cuda.read(flag.view().device_address(), 4), [0; 4]);
    cuda.write(counter.view().device_address(), &9_u64.to_ne_bytes());
    assert_eq!(counter.into_writer().add(1), 10);
    array.view().scatter(&[999], &[0x0506]).expect("inside");
    let end = array.view().as_bytes().device_address() + 1996;
    assert_eq!(cuda.read(end, 4), [0, 0, 6, 5]);
    assert_eq!(sender.try_send(&[77]), Ok(1));
    assert_eq!(cuda.read(sender.device_address() + 128, 4), 77_u32.to_ne_bytes());
    // The sequence word of the message that fills slot 0 next.
    let empty = 1_u32.wrapping_sub(4).to_ne_bytes();
    assert_eq!(cuda.read(receiver.device_address() + 64, 4), empty);
}

#[test]
#[ignore = "owned_under_gdremu runs it"]
fn forked_child_is_refused_and_frees_nothing() {
    let pool = pool();
    let flag = pool.flag().expect("memory");
    let mut sender = pool.ring_to_gpu::<u32>(4).expect("memory");
    // SAFETY: the child uses this library only, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        std::panic::set_hook(Box::new(|_| {}));
        let refused = catch_unwind(AssertUnwindSafe(|| flag.view().set(1))).is_err()
            && sender.try_send(&[1]) == Err(Error::ForkedChild)
            && pool.flag().err() == Some(Error::ForkedChild);
        drop((flag, sender, pool));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!refused)) }
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child was served");
    flag.view().set(2);
    assert_eq!((flag.view().get(), sender.try_send(&[5])), (2, Ok(1)));
}
