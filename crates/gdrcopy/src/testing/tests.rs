//! Tests that the simulated GPU behaves as a GPU and its driver do.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Gpu;
use crate::access::Mapped;
use crate::error::Error;
use crate::memory::{DeviceAllocator, MapOptions};
use crate::{MapFlag, MappingType, Pin, PinFlags, Pool};

const PAGE: usize = 1 << 16;

/// Returns the text of the panic that the call ends with.
fn panic_of(panics: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(panics)).expect_err("no panic");
    *panic.downcast::<String>().expect("a text")
}

fn pin(gpu: &Gpu, address: u64, len: usize) -> Result<Pin, Error> {
    // SAFETY: the memory of this GPU exists as long as a pin does.
    unsafe { gpu.open().pin(address, len, PinFlags::DEFAULT) }
}

#[test]
fn mapping_is_the_memory_that_a_kernel_reads_and_writes() {
    let gpu = Gpu::default();
    let memory = gpu.allocate(5000).expect("memory");
    let address = memory.address();
    let mapping = gpu.open().map_owned(memory, MapOptions::default()).expect("pinned");
    mapping.write(4990, b"0123456789").expect("inside");
    let mut found = [0; 10];
    gpu.read(address + 4990, &mut found);
    assert_eq!(&found, b"0123456789");
    gpu.write(address + 3, b"kernel");
    assert_eq!(mapping.read_vec(2, 8).expect("inside"), b"\0kernel\0");
    let slice = gpu.memory(address + 64, 100);
    assert_eq!((slice.device_address(), slice.len()), (address + 64, 100));
    assert_eq!(slice.mapping_type(), MappingType::WriteCombining);
    drop(mapping);
    gpu.assert_unused();
}

#[test]
fn kernel_that_leaves_its_allocation_panics() {
    let gpu = Gpu::new();
    let [first, second] = [(); 2].map(|()| gpu.allocate(256).expect("memory"));
    let address = first.address();
    gpu.read(address, &mut [0; 256]);
    for (at, len) in [(address, 257), (address + 256 * 9, 1), (address - 1, 1), (7, u64::MAX)] {
        let text = panic_of(|| _ = gpu.memory(at, len as usize));
        assert!(text.contains("not all in one allocation"), "{text}");
    }
    drop((first, second));
    assert!(panic_of(|| gpu.write(address, &[1])).contains("1 bytes at"));
}

#[test]
fn used_up_memory_is_an_error_and_freed_memory_is_allocated_again() {
    let gpu = Gpu::with_memory(3 * PAGE - 5);
    let all = gpu.allocate(3 * PAGE).expect("whole pages");
    let none = gpu.allocate(1).map(drop);
    assert_eq!(none.as_ref().map_err(Error::errno), Err(libc::ENOMEM), "{none:?}");
    assert!(none.is_err_and(|error| error.is_shortage()));
    assert_eq!(gpu.allocate(0).map(drop).map_err(|error| error.errno()), Err(libc::EINVAL));
    let address = all.address();
    drop(all);
    assert_eq!(gpu.allocate(3 * PAGE).expect("freed").address(), address);
    let pool = Pool::new(&gpu.open(), gpu.clone());
    assert_eq!(pool.alloc(64).map(drop).map_err(|error| error.errno()), Err(libc::ENOMEM));
    gpu.assert_unused();
    assert!(panic_of(|| drop(Gpu::with_memory(usize::MAX))).contains("more than 1 TiB"));
}

#[test]
fn pins_are_refused_as_the_driver_refuses_them() {
    let gpu = Gpu::new();
    let memory = gpu.allocate(2 * PAGE).expect("memory");
    let small = gpu.allocate(100).expect("memory");
    let address = memory.address();
    let end = address + 2 * PAGE as u64;
    for (at, len, errno) in [
        (address, 2 * PAGE + 1, libc::EINVAL),
        (end + 4 * PAGE as u64, 1, libc::EINVAL),
        (1, 1, libc::EINVAL),
        (address, 0, libc::EINVAL),
        (small.address() + 90, 11, libc::EINVAL),
        (0, 1, libc::EINVAL),
    ] {
        let error = pin(&gpu, at, len).expect_err("not allocated");
        assert_eq!(error.errno(), errno, "{len} at {at:#x}: {error}");
    }
    // SAFETY: the memory of this GPU exists as long as a pin does.
    let forced = unsafe { gpu.open().pin(address, 1, PinFlags::FORCE_PCIE) };
    assert_eq!(forced.map(drop).map_err(|error| error.errno()), Err(libc::EOPNOTSUPP));

    let pins = [pin(&gpu, address + 5, PAGE), pin(&gpu, address + 5, PAGE), pin(&gpu, small.address(), 100)];
    let [first, second, third] = pins.map(|pin| pin.expect("allocated"));
    let info = first.info().expect("this process");
    assert_eq!((info.address, info.len, info.page_size), (address, 2 * PAGE, PAGE as u32));
    assert!(first.map(PAGE, MapFlag::Caching).is_err_and(|error| error.errno() == libc::EOPNOTSUPP));
    let one = first.map(PAGE, MapFlag::WriteCombining).expect("the type that it has");
    let other = second.map(PAGE, MapFlag::Default).expect("another pin");
    one.write(9, b"twice").expect("inside");
    assert_eq!(other.read_vec(9, 5).expect("inside"), b"twice");
    assert!(gpu.open().is_persistent().expect("this process"));
    assert!(!third.is_revoked().expect("this process"));
    drop((first, second, third, one, other, memory, small));
    gpu.assert_unused();
}

#[test]
fn leaks_are_listed_and_a_free_under_a_pin_is_a_panic() {
    let gpu = Gpu::new();
    let memory = gpu.allocate(PAGE).expect("memory");
    let address = memory.address();
    let text = panic_of(|| gpu.assert_unused());
    assert!(text.contains(&format!("allocated: [\"65536 bytes at {address:#x}\"]")), "{text}");
    let [pin, other] = [(); 2].map(|()| pin(&gpu, address + 10, 1).expect("allocated"));
    drop(other);
    let text = panic_of(|| drop(memory));
    assert!(text.contains("is freed while it is pinned"), "{text}");
    // The memory that was freed while it was pinned is not allocated again.
    assert_ne!(gpu.allocate(PAGE).expect("memory").address(), address);
    drop(pin);
    assert!(panic_of(|| gpu.assert_unused()).contains("still pinned: []"));
}

/// CUDA's addresses have at most 57 bits on all CPUs. A real driver refuses the larger addresses of a simulated GPU.
#[test]
fn addresses_are_none_of_cuda_or_of_another_gpu() {
    let gpu = Gpu::new();
    let memory = gpu.allocate(1).expect("memory");
    assert!(memory.address() >= 1 << 57);
    let other = Gpu::new();
    let _theirs = other.allocate(1).expect("memory");
    let refused = pin(&other, memory.address(), 1).expect_err("memory of another GPU");
    assert_eq!(refused.errno(), libc::EINVAL);
}
