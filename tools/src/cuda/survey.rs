//! The CUDA driver's report without a context, on its version, the GPUs, and their features.

use std::ffi::c_int;

use super::driver::CudaError;
use super::gpu::{Device, Functions, MEMORY_POOLS};

// CUdevice_attribute, as plain numbers, because older drivers know fewer of them.
const TCC_DRIVER: c_int = 35;
const HOST_PAGE_TABLES: c_int = 100;
const RDMA_WITH_VMM: c_int = 110;
const RDMA: c_int = 116;
const DMA_BUF: c_int = 124;
const DMA_BUF_MMAP: c_int = 152;

/// CUDA_ERROR_NO_DEVICE.
const NO_DEVICE: c_int = 100;

#[derive(Debug)]
pub(crate) struct Cuda {
    /// The driver's CUDA version, 1000 × major + 10 × minor, or why there is no driver.
    pub(crate) version: Result<c_int, String>,
    /// The GPUs, or why CUDA does not work.
    pub(crate) gpus: Result<Vec<Gpu>, String>,
}

/// A GPU, and what it supports; `None` where this driver does not know the attribute.
#[derive(Debug)]
pub(crate) struct Gpu {
    /// With the address in the form of sysfs, `0000:1b:00.0`.
    pub(crate) device: Device,
    /// Bytes.
    pub(crate) memory: u64,
    pub(crate) rdma: Option<bool>,
    /// GPUDirect RDMA of memory from cuMemCreate.
    pub(crate) rdma_with_vmm: Option<bool>,
    pub(crate) memory_pools: Option<bool>,
    pub(crate) dmabuf: Option<bool>,
    pub(crate) dmabuf_mmap: Option<bool>,
    /// CPU and GPU share a coherent link.
    pub(crate) coherent: Option<bool>,
    /// The driver model of Windows for GPUs without a display.
    pub(crate) tcc: Option<bool>,
}

pub(crate) fn query() -> Cuda {
    let functions = match Functions::get() {
        Ok(functions) => functions,
        Err(error) => {
            // The loader's message only, because doctor has its own advice.
            let why = error.root_cause().to_string();
            return Cuda { version: Err(why.clone()), gpus: Err(why) };
        }
    };
    let text = |error: CudaError| error.to_string();
    Cuda { version: functions.version().map_err(text), gpus: gpus(functions).map_err(text) }
}

fn gpus(functions: &Functions) -> Result<Vec<Gpu>, CudaError> {
    // SAFETY: CUDA has no flags for it.
    match unsafe { functions.init(0) } {
        Err(error) if error.code == NO_DEVICE => return Ok(Vec::new()),
        result => result?,
    }
    functions.devices()?.into_iter().map(|device| gpu(functions, device)).collect()
}

fn gpu(functions: &Functions, mut device: Device) -> Result<Gpu, CudaError> {
    let mut memory = 0;
    // SAFETY: the size is a local variable.
    unsafe { functions.device_memory(&mut memory, device.handle) }?;
    device.pci_address.make_ascii_lowercase();
    let has = |attribute| functions.attribute_of(&device, attribute).map(|value| value != 0);
    Ok(Gpu {
        memory: memory as u64,
        rdma: has(RDMA),
        rdma_with_vmm: has(RDMA_WITH_VMM),
        memory_pools: has(MEMORY_POOLS),
        dmabuf: has(DMA_BUF),
        dmabuf_mmap: has(DMA_BUF_MMAP),
        coherent: has(HOST_PAGE_TABLES),
        tcc: has(TCC_DRIVER),
        device,
    })
}
