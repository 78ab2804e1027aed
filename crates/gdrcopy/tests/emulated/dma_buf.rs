//! Tests, under gdremu, dma-bufs of pins, which other devices and other processes can use.

use std::os::fd::AsRawFd;

use gdrcopy::memory::SharedMapping;
use gdrcopy::{Error, Gdr, GdrError, Mapped, MappingType, Pin, PinFlags};

use crate::cuda::Cuda;
use crate::ownership::{PAGE, pin};
use crate::under_gdremu::{Test, options, tests};

pub(crate) const EXPORTED: &[Test] = tests![exported_range_starts_before_the_pin_by_its_offset];
pub(crate) const MAPPED: &[Test] = tests![mapped_shared_memory_is_the_exporters];
pub(crate) const REFUSED: &[Test] = tests![refused_dma_buf_names_the_reason];

/// Pins 1,000 bytes that do not start at a page boundary.
fn unaligned_pin(cuda: &Cuda) -> Pin {
    let address = cuda.alloc(3 * PAGE).next_multiple_of(PAGE as u64) + 4099;
    pin(&Gdr::open().expect("a driver"), address, 1000).expect("GPU memory")
}

fn exported_range_starts_before_the_pin_by_its_offset() {
    let cuda = Cuda::new();
    let pin = unaligned_pin(&cuda);
    let exported = pin.export_dma_buf().expect("CUDA exports it");
    assert_eq!((exported.offset, exported.len), (3, 4096));
    let fd = exported.fd.as_raw_fd();
    // SAFETY: the descriptor is open.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    let second = pin.export_dma_buf().expect("a second one");
    assert_ne!(second.fd.as_raw_fd(), fd);
    gdrcopy::export_dma_buf(pin.address(), 1000, PinFlags::FORCE_PCIE).expect("the GPU has no other link");
}

fn mapped_shared_memory_is_the_exporters() {
    let cuda = Cuda::new();
    let pin = unaligned_pin(&cuda);
    cuda.write(pin.address(), b"of the exporter");
    let exported = pin.export_dma_buf().expect("CUDA exports it");
    let fd = exported.fd.try_clone().expect("a descriptor");
    let error = SharedMapping::new(fd, exported.offset, 0, MappingType::WriteCombining).expect_err("no bytes");
    assert!(matches!(error, Error::Gdr(GdrError::EmptyRange)), "{error}");
    let shared = SharedMapping::new(exported.fd, exported.offset, pin.len(), MappingType::WriteCombining);
    let shared = shared.expect("this CUDA maps dma-bufs");
    assert_eq!(shared.read_vec(0, 15).expect("inside"), b"of the exporter");
    shared.write(985, b"of the receiver").expect("inside");
    shared.flush().expect("mapped");
    assert_eq!(cuda.read(pin.address() + 985, 15), b"of the receiver");
    shared.write(986, b"of the receiver").expect_err("outside");
}

fn refused_dma_buf_names_the_reason() {
    let Err(Error::Gdr(error)) = unaligned_pin(&Cuda::new()).export_dma_buf() else {
        panic!("not refused");
    };
    let expected = match options().as_str() {
        "--dmabuf no" => "NoDmaBufExport { gpu: 0 }",
        _ => "CudaTooOld { version: 11060, needed: 11070 }",
    };
    assert_eq!(format!("{error:?}"), expected);
}
