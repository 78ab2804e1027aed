//! Registers GPU memory with an RDMA device, and accesses the same memory by the CPU.
//!
//! A network card reads and writes GPU memory once the memory is registered. Register the memory by its dma-buf or,
//! with the kernel module nvidia-peermem, by its device address. The registration itself is a function of libibverbs.
//! This example does not link libibverbs: `RdmaDevice` stands for the protection domain of a program that does.
//!
//! Run it without a GPU with `gdremu -- target/debug/examples/register_for_rdma`.

use std::error::Error;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use gdrcopy::memory::{CudaAllocator, DeviceAllocator};
use gdrcopy::{Gdr, MapFlag, Mapped, Pin, PinFlags};

/// The calls by which a program registers memory with libibverbs. Each returns the key by which RDMA operations name
/// the memory.
trait RdmaDevice {
    /// `ibv_reg_dmabuf_mr(domain, offset, len, iova, fd, access)`
    fn register_dma_buf(&self, offset: u64, len: usize, iova: u64, fd: RawFd) -> u32;
    /// `ibv_reg_mr(domain, address, len, access)`
    fn register_address(&self, address: u64, len: usize) -> u32;
}

/// A directory that exists while nvidia-peermem is loaded.
const PEERMEM: &str = "/sys/module/nvidia_peermem";

/// Registers the pinned bytes, and returns the key. RDMA operations name the bytes by their device address and the key.
fn register(pin: &Pin, device: &impl RdmaDevice) -> Result<u32, gdrcopy::Error> {
    let (address, len) = (pin.address(), pin.len());
    match pin.export_dma_buf() {
        Ok(exported) => {
            // At the registration, Linux takes a reference of its own to the dma-buf, so `fd` may be closed afterwards.
            let fd = exported.fd.as_raw_fd();
            Ok(device.register_dma_buf(exported.offset, len, address, fd))
        }
        Err(_) if Path::new(PEERMEM).exists() => Ok(device.register_address(address, len)),
        Err(error) => Err(error),
    }
}

/// A device that only prints the memory instead of registering it.
struct Printer;

impl RdmaDevice for Printer {
    fn register_dma_buf(&self, offset: u64, len: usize, iova: u64, fd: RawFd) -> u32 {
        println!("dma-buf {fd}: {len} bytes from {offset} on, as address {iova:#x}");
        1
    }

    fn register_address(&self, address: u64, len: usize) -> u32 {
        println!("address {address:#x}: {len} bytes");
        1
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let memory = CudaAllocator::new(0)?.allocate(1 << 20)?;
    let address = memory.address();
    // SAFETY: the memory stays allocated; only this program and the RDMA device use it.
    let pin = unsafe { Gdr::open()?.pin(address, 1 << 20, PinFlags::DEFAULT)? };
    let key = register(&pin, &Printer)?;

    // The CPU fills a small message in; the card sends it without another copy.
    let mapping = pin.map(pin.len(), MapFlag::Default)?;
    mapping.write(64, b"header")?;
    mapping.flush()?;
    println!("post a send of {address:#x} with key {key}");
    Ok(())
}
