//! Queries the CUDA driver, without a context, for its version, the GPUs, and their features.

use std::ffi::c_int;

use serde::{Deserialize, Serialize};

use super::driver::CudaError;
use super::gpu::{Device, Functions};
use crate::system::process;

// Values of CUdevice_attribute. Older drivers do not know all of them.
const RDMA: c_int = 116;
const DMA_BUF: c_int = 124;
const DMA_BUF_MMAP: c_int = 152;

/// CUDA_ERROR_NO_DEVICE.
const NO_DEVICE: c_int = 100;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cuda {
    /// The driver's CUDA version, 1000 × major + 10 × minor, or why there is no driver.
    pub(crate) version: Result<c_int, Failure>,
    pub(crate) gpus: Result<Vec<Gpu>, Failure>,
    /// The file that was loaded as libcuda.so.1.
    pub(crate) file: Option<String>,
}

/// The reason why CUDA does not work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// The `CUresult` of the failed call.
    pub(crate) code: Option<c_int>,
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Failure {
        Failure { text: error.to_string(), code: Some(error.code) }
    }
}

/// A GPU and its features. A feature is `None` if this driver is too old to report it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Gpu {
    /// The GPU, with its address in the form of sysfs, `0000:1b:00.0`.
    pub(crate) device: Device,
    /// The size of the GPU's memory in bytes.
    pub(crate) memory: u64,
    pub(crate) rdma: Option<bool>,
    pub(crate) dmabuf: Option<bool>,
    pub(crate) dmabuf_mmap: Option<bool>,
}

pub(crate) fn query() -> Cuda {
    let functions = match Functions::get() {
        Ok(functions) => functions,
        Err(error) => {
            // The text is only the loader's message, because `gdrcopy doctor` adds its own advice.
            let failure = Failure { text: error.root_cause().to_string(), code: None };
            return Cuda { version: Err(failure.clone()), gpus: Err(failure), file: None };
        }
    };
    let version = functions.version().map_err(Failure::from);
    let file = process::own_file(|object| object.path.contains("/libcuda.so"));
    Cuda { version, gpus: gpus(functions).map_err(Failure::from), file }
}

fn gpus(functions: &Functions) -> Result<Vec<Gpu>, CudaError> {
    // SAFETY: 0 is the only valid value for the flags of cuInit.
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
    let [rdma, dmabuf, dmabuf_mmap] = [RDMA, DMA_BUF, DMA_BUF_MMAP].map(|attribute| {
        let value = functions.attribute_of(&device, attribute);
        value.map(|value| value != 0)
    });
    Ok(Gpu { memory: memory as u64, rdma, dmabuf, dmabuf_mmap, device })
}
