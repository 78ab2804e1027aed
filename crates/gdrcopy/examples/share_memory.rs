//! Shares GPU memory with a process that has no CUDA.
//!
//! A client exports memory as a dma-buf. A daemon maps the dma-buf and writes its answer there. The daemon uses neither
//! CUDA nor gdrdrv. Here the client starts the daemon, and passes the descriptor as its standard input. If the daemon
//! runs already, pass it the descriptor over a Unix socket (SCM_RIGHTS). Sharing needs CUDA 13.3.
//!
//! Run it without a GPU with `gdremu --profile dmabuf -- target/debug/examples/share_memory`.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::stdin;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use gdrcopy::memory::{CudaAllocator, DeviceAllocator, MapOptions, SharedMapping};
use gdrcopy::{Gdr, Mapped, MappingType, PinFlags, export_dma_buf};

const SIZE: usize = 256 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(offset) => run_daemon(offset.parse()?),
        None => run_client(),
    }
}

fn run_client() -> Result<(), Box<dyn Error>> {
    let memory = Gdr::open()?.map_owned(CudaAllocator::new(0)?.allocate(SIZE)?, MapOptions::default())?;
    memory.write(0, b"asked")?;
    // With FORCE_PCIE, the daemon's mapping is write-combining on every platform, so no type is passed to it.
    let exported = export_dma_buf(memory.device_address(), SIZE, PinFlags::FORCE_PCIE)?;
    let daemon = Command::new(std::env::current_exe()?)
        .arg(exported.offset.to_string())
        .stdin(Stdio::from(exported.fd))
        .status()?;
    assert!(daemon.success());
    assert_eq!(memory.read_vec(8, 6)?, b"answer");
    println!("the client reads the answer");
    Ok(())
}

fn run_daemon(offset: u64) -> Result<(), Box<dyn Error>> {
    let fd = stdin().as_fd().try_clone_to_owned()?;
    let memory = SharedMapping::new(fd, offset, SIZE, MappingType::WriteCombining)?;
    assert_eq!(memory.read_vec(0, 5)?, b"asked");
    println!("the daemon reads the question");
    memory.write(8, b"answer")?;
    memory.flush()?;
    Ok(())
}
