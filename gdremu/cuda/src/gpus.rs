//! Access to the emulated GPUs. The stand-in for CUDA and the emulated gdrdrv use the same GPUs.
#![forbid(unsafe_code)]

use std::env;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use gdremu_core::config::GpuConfig;
use gdremu_core::cuda::types::Uuid;
use gdremu_core::gpu::address_space::{self, Memory, PageTableId, Place};
use gdremu_core::gpu::{HostProvider, Shared};

use crate::error::{Error, Result};
use crate::state as process;

/// The number of calls of [`memory_changed`]. When it has changed, running GPU kernels look addresses up again.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Records that memory was mapped or unmapped, or that the access to it changed.
pub(crate) fn memory_changed() {
    CHANGES.fetch_add(1, Ordering::SeqCst);
}

pub(crate) fn memory_changes() -> u64 {
    CHANGES.load(Ordering::SeqCst)
}

pub(crate) fn config() -> GpuConfig {
    process::lock().config.gpu.clone()
}

pub(crate) fn check_fault(function: &str) -> Result {
    let fault = process::lock().faults.take(function);
    fault.map_or(Ok(()), |fault| Err(Error(fault.0)))
}

pub(crate) fn place(address: u64) -> Option<Place> {
    with(|gpu| gpu.memory().place(address))
}

pub(crate) fn with<T>(call: impl FnOnce(&mut HostProvider) -> T) -> T {
    call(process::lock().gpu.host())
}

pub(crate) fn change<T>(
    mut call: impl FnMut(&mut Memory) -> std::result::Result<T, address_space::Error>,
) -> Result<T> {
    let mut process = process::lock();
    let result = match process.gpu.host().change(&mut call) {
        Err(address_space::Error::NoMemory) => {
            process.reap_all(); // This frees memory that dma-bufs and pins held until their descriptors were closed.
            process.gpu.host().change(call)
        }
        result => result,
    };
    memory_changed();
    Ok(result?)
}

pub(crate) fn import(shared: &Shared, id: u64, file: BorrowedFd<'_>) -> Result<u64> {
    let imported = process::lock().gpu.host().import(shared, id, file);
    memory_changed();
    Ok(imported?)
}

pub(crate) fn free_bytes(gpu: usize) -> u64 {
    let mut process = process::lock();
    process.reap_all();
    process.gpu.host().memory().free_bytes(gpu)
}

/// Frees or unmaps memory of the program, and ends the non-persistent pins of this memory before any other thread can
/// use the GPUs.
pub(crate) fn take_away(
    call: impl FnMut(&mut Memory) -> std::result::Result<Vec<PageTableId>, address_space::Error>,
) -> Result {
    let mut process = process::lock();
    let revoked = process.gpu.host().change(call)?;
    memory_changed();
    process.revoke(&revoked);
    Ok(())
}

/// Returns the GPUs that CUDA shows the program, in the order of CUDA's device numbers. These are the entries of
/// CUDA_VISIBLE_DEVICES up to the first one that names no GPU. NVIDIA's driver also reads the variable only once.
pub(crate) fn visible() -> &'static [usize] {
    static VISIBLE: OnceLock<Vec<usize>> = OnceLock::new();
    VISIBLE.get_or_init(|| match env::var("CUDA_VISIBLE_DEVICES") {
        Ok(list) => list.split(',').map_while(by_name).collect(),
        Err(_) => (0..count()).collect(),
    })
}

/// Returns the GPU of an entry of CUDA_VISIBLE_DEVICES, which is a number or the beginning of a UUID.
fn by_name(entry: &str) -> Option<usize> {
    let entry = entry.trim();
    if entry.starts_with("GPU-") {
        return (0..count()).find(|&gpu| uuid_text(gpu).starts_with(entry));
    }
    let number = entry.parse().ok()?;
    if number < count() { Some(number) } else { None }
}

pub(crate) fn by_ordinal(device: i32) -> Result<usize> {
    visible().get(device as usize).copied().ok_or(Error::INVALID_DEVICE)
}

/// Returns the CUdevice of a GPU, or CU_DEVICE_INVALID if the program does not see the GPU.
pub(crate) fn ordinal(gpu: usize) -> i32 {
    visible().iter().position(|&visible| visible == gpu).map_or(-2, |ordinal| ordinal as i32)
}

pub(crate) fn count() -> usize {
    config().gpus as usize
}

pub(crate) fn uuid(gpu: usize) -> Uuid {
    Uuid([b'g', b'd', b'r', b'e', b'm', b'u', 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, gpu as u8])
}

/// Returns the UUID as nvidia-smi prints it.
pub(crate) fn uuid_text(gpu: usize) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(uuid(gpu).0));
    format!("GPU-{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}
