//! Tests host memory that stands in for GPU memory, under gdremu.

use std::ffi::{c_int, c_uint, c_void};

use gdrcopy::memory::{CudaAllocator, DeviceAllocator, DeviceMemory, HostMemory};
use gdrcopy::{Backend, Error, Gdr, GdrError, MapFlag, Mapped, MappingType, Pin, PinFlags, Result};
use gdrcopy_core::error::out_of_pin;

use crate::assert_outside;
use crate::cuda::Cuda;
use crate::ownership::PAGE;
use crate::under_gdremu::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    mapping_is_the_memory_that_the_gpu_sees,
    registered_memory_is_as_good_as_allocated,
    other_memory_is_refused,
    memory_is_freed_when_dropped,
    memory_outlives_the_context_of_its_thread,
    memory_comes_and_goes_while_a_graph_is_captured,
];

fn open() -> Gdr {
    let options = Gdr::options().backend(Backend::HostMemory);
    options.open().expect("CUDA is all it needs")
}

fn pin(gdr: &Gdr, address: u64, len: usize) -> Result<Pin> {
    // SAFETY: the memory outlives the pins of these tests, and nothing else uses it.
    unsafe { gdr.pin(address, len, PinFlags::DEFAULT) }
}

fn mapping_is_the_memory_that_the_gpu_sees() {
    let memory = HostMemory::alloc(PAGE).expect("CUDA initialized by it");
    let cuda = Cuda::new();
    assert_eq!(cuda.read(memory.address(), PAGE), vec![0; PAGE]);
    let gdr = open();
    assert_eq!(gdr.uses_dma_bufs(), Ok(false));
    // The range neither starts nor ends at a page boundary.
    let address = memory.address() + 4099;
    let pin = pin(&gdr, address, 1000).expect("host memory");
    let info = pin.info().expect("known");
    assert_eq!((info.address, info.len, info.page_size, info.mapping_type), (address, 1000, 1, None));
    let mapping = pin.map(900, MapFlag::Default).expect("any range");
    assert_eq!(mapping.mapping_type(), MappingType::Caching);
    assert_eq!(pin.info().expect("known").mapping_type, Some(MappingType::Caching));
    assert_eq!(mapping.device_address(), address);
    mapping.write(1, b"to the GPU").expect("inside");
    assert_eq!(cuda.read(address + 1, 10), b"to the GPU");
    cuda.write(address + 890, b"to the CPU");
    assert_eq!(mapping.read_vec(890, 10), Ok(b"to the CPU".to_vec()));
    assert_outside(mapping.write(900, &[1]), [900, 1], 900);
    drop((pin, gdr));
    mapping.unmap().expect("nothing to unmap");
    assert_eq!(cuda.read(address + 1, 10), b"to the GPU");
}

fn registered_memory_is_as_good_as_allocated() {
    let cuda = Cuda::new();
    let mut memory = vec![0_u8; 3 * PAGE];
    let start = memory.as_mut_ptr();
    let len = memory.len();
    // SAFETY: the signatures are those of the CUDA driver API; the memory outlives its registration.
    let device_address = unsafe {
        let mut address = 0;
        cuda.call::<extern "C" fn(*mut u8, usize, c_uint) -> c_int>("cuMemHostRegister_v2", |f| f(start, len, 2));
        cuda.call::<extern "C" fn(*mut u64, *mut u8, c_uint) -> c_int>("cuMemHostGetDevicePointer_v2", |f| {
            f(&mut address, start, 0)
        });
        address
    };
    let pin = pin(&open(), device_address + 7, len - 7).expect("registered memory");
    let mapping = pin.map(len - 7, MapFlag::Caching).expect("host memory");
    mapping.write(0, b"registered").expect("inside");
    assert_eq!(mapping.as_mut_ptr(), start.wrapping_add(7));
    assert_eq!(memory[7..17], *b"registered");
}

fn other_memory_is_refused() {
    let cuda = Cuda::new();
    let gdr = open();
    let memory = HostMemory::alloc(1000).expect("room");
    let inside = memory.address();
    let mut managed = 0;
    // SAFETY: the signature is that of the CUDA driver API; the output is a local variable.
    unsafe {
        cuda.call::<extern "C" fn(*mut u64, usize, c_uint) -> c_int>("cuMemAllocManaged", |f| f(&mut managed, PAGE, 1));
    }
    let heap = vec![0_u8; PAGE];
    for (address, len) in [
        (cuda.alloc(PAGE), PAGE),
        (managed, PAGE),
        (heap.as_ptr().addr() as u64, PAGE),
        (inside, 1001),
        (inside + 999, 2),
    ] {
        assert_eq!(pin(&gdr, address, len).err(), Some(GdrError::NotHostMemory.into()));
    }
    assert_eq!(pin(&gdr, inside, 0).err(), Some(GdrError::EmptyRange.into()));
    assert_eq!(HostMemory::alloc(0).err(), Some(GdrError::EmptyRange.into()));
    let pin = pin(&gdr, inside, 1000).expect("host memory");
    let refused = pin.map(1001, MapFlag::Default).err();
    assert_eq!(refused, Some(out_of_pin(1001, 1000).into()));
    let refused = pin.map(1000, MapFlag::WriteCombining).err();
    assert!(
        matches!(refused, Some(Error::Gdr(GdrError::MappingTypeRefused { given: MappingType::Caching, .. }))),
        "{refused:?}"
    );
    assert!(pin.export_dma_buf().is_err());
}

fn memory_is_freed_when_dropped() {
    let cuda = Cuda::new();
    let memory = HostMemory::alloc(PAGE).expect("room");
    let gdr = open();
    let address = memory.address();
    // A thread without a context can free the memory, too.
    std::thread::spawn(move || drop(memory)).join().expect("freed");
    assert_eq!(pin(&gdr, address, 1).err(), Some(GdrError::NotHostMemory.into()));
    drop(cuda);
}

fn memory_outlives_the_context_of_its_thread() {
    type Create = extern "C" fn(*mut *mut c_void, c_uint, c_int) -> c_int;
    type Destroy = extern "C" fn(*mut c_void) -> c_int;
    let cuda = Cuda::new();
    let mut context = std::ptr::null_mut();
    // SAFETY: the signatures are those of the CUDA driver API; the out-pointer is valid.
    unsafe { cuda.call::<Create>("cuCtxCreate_v2", |create| create(&mut context, 0, 0)) };
    let memory = HostMemory::alloc(PAGE).expect("room");
    // SAFETY: the signature is that of the CUDA driver API, and nothing uses the context any more.
    unsafe { cuda.call::<Destroy>("cuCtxDestroy_v2", |destroy| destroy(context)) };
    pin(&open(), memory.address(), PAGE).expect("host memory");
    // gdremu would end the program if the drop made the destroyed context current.
    drop(memory);
}

/// While a stream is captured, CUDA refuses calls that allocate or free memory, and the capture becomes invalid, unless
/// the calling thread is in the relaxed capture mode. The crate must set this mode for its calls.
fn memory_comes_and_goes_while_a_graph_is_captured() {
    type Create = extern "C" fn(*mut *mut c_void, c_uint) -> c_int;
    type Begin = extern "C" fn(*mut c_void, c_uint) -> c_int;
    type End = extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int;
    let cuda = Cuda::new();
    let allocator = CudaAllocator::new(0).expect("a GPU");
    let mut stream = std::ptr::null_mut();
    let mut graph = std::ptr::null_mut();
    // SAFETY: the signatures are those of the CUDA driver API; the out-pointers are valid.
    unsafe {
        cuda.call::<Create>("cuStreamCreate", |create| create(&mut stream, 0));
        cuda.call::<Begin>("cuStreamBeginCapture_v2", |begin| begin(stream, 0));
        drop(HostMemory::alloc(PAGE).expect("room"));
        drop(allocator.allocate(PAGE).expect("room"));
        cuda.call::<End>("cuStreamEndCapture", |end| end(stream, &mut graph));
    }
}
