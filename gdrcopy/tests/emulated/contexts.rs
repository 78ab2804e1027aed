//! Owners that keep their context. One test at a time, because each counts who retains the
//! context.

use gdrcopy::memory::HostMemory;
use gdrcopy::transfer::Route;
use gdrcopy::{Mapped, Transfer};

use crate::access::mapped;
use crate::cuda::Cuda;
use crate::ownership::PAGE;

#[test]
#[ignore = "contexts_under_gdremu runs it"]
fn host_memory_keeps_the_context_that_it_is_of() {
    let cuda = Cuda::new();
    let memory = HostMemory::alloc(PAGE).expect("host memory");
    assert!(cuda.release(), "retained by the memory");
    // SAFETY: the memory's own bytes, which nothing else uses.
    unsafe { memory.as_mut_ptr().write_bytes(7, memory.len()) };
    drop(memory);
    let other = Cuda::new();
    assert!(!other.release(), "the only one that retains it");
}

#[test]
#[ignore = "contexts_under_gdremu runs it"]
fn transfer_keeps_the_context_of_its_streams() {
    let cuda = Cuda::new();
    let (mapping, _) = mapped(&cuda, PAGE);
    let transfer = Transfer::options().read_crossover(1).build();
    let route = transfer.read(mapping.as_slice(), &mut [0; PAGE]);
    assert_eq!(route, Ok(Route::Buffered));
    drop(mapping);
    assert!(cuda.release(), "retained by the transfer");
    drop(transfer);
    assert!(!Cuda::new().release(), "the only one that retains it");
}
