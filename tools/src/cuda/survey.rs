//! The CUDA driver's report without a context, on its version, the GPUs, and their features.

use std::ffi::{CStr, c_char, c_int, c_uint};

use anyhow::Result;

use super::driver::{CudaError, Driver, functions};

functions! {
    struct Functions {
        init: c"cuInit" (c_uint);
        device_count: c"cuDeviceGetCount" (*mut c_int);
        device_get: c"cuDeviceGet" (*mut c_int, c_int);
        device_name: c"cuDeviceGetName" (*mut c_char, c_int, c_int);
        device_memory: c"cuDeviceTotalMem_v2" (*mut usize, c_int);
        pci_address: c"cuDeviceGetPCIBusId" (*mut c_char, c_int, c_int);
        attribute: c"cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    }
}

functions! {
    struct VersionFunction {
        driver_version: c"cuDriverGetVersion" (*mut c_int);
    }
}

// CUdevice_attribute, as plain numbers, because older drivers know fewer of them.
const TCC_DRIVER: c_int = 35;
const HOST_PAGE_TABLES: c_int = 100;
const RDMA_WITH_VMM: c_int = 110;
const MEMORY_POOLS: c_int = 115;
const RDMA: c_int = 116;
const DMA_BUF: c_int = 124;
const DMA_BUF_MMAP: c_int = 152;

/// CUDA_ERROR_NO_DEVICE.
const NO_DEVICE: c_int = 100;

/// CUDA's report.
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
    pub(crate) number: c_int,
    pub(crate) name: String,
    /// In the form of sysfs, `0000:1b:00.0`.
    pub(crate) pci_address: String,
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
    let driver = match Driver::load() {
        Ok(driver) => driver,
        Err(error) => {
            // The loader's message only, because doctor has its own advice.
            let why = error.root_cause().to_string();
            return Cuda { version: Err(why.clone()), gpus: Err(why) };
        }
    };
    Cuda {
        version: version(driver).map_err(|error| format!("{error:#}")),
        gpus: gpus(driver).map_err(|error| format!("{error:#}")),
    }
}

fn version(driver: &Driver) -> Result<c_int> {
    let mut version = 0;
    // SAFETY: the version is a local variable.
    let result = unsafe { (VersionFunction::get(driver)?.driver_version)(&mut version) };
    driver.check("cuDriverGetVersion", result)?;
    Ok(version)
}

fn gpus(driver: &Driver) -> Result<Vec<Gpu>> {
    let functions = Functions::get(driver)?;
    let mut count = 0;
    // SAFETY: the count is a local variable.
    unsafe {
        match (functions.init)(0) {
            NO_DEVICE => return Ok(Vec::new()),
            result => driver.check("cuInit", result)?,
        }
        driver.check("cuDeviceGetCount", (functions.device_count)(&mut count))?;
    }
    let gpus = (0..count).map(|number| gpu(driver, functions, number));
    Ok(gpus.collect::<Result<_, _>>()?)
}

fn gpu(driver: &Driver, functions: &Functions, number: c_int) -> Result<Gpu, CudaError> {
    let (mut device, mut name, mut address, mut memory) = (0, [0; 256], [0; 32], 0);
    // SAFETY: the driver writes into local variables, of the lengths that it receives.
    unsafe {
        driver.check("cuDeviceGet", (functions.device_get)(&mut device, number))?;
        let named = (functions.device_name)(name.as_mut_ptr(), 256, device);
        driver.check("cuDeviceGetName", named)?;
        let placed = (functions.pci_address)(address.as_mut_ptr(), 32, device);
        driver.check("cuDeviceGetPCIBusId", placed)?;
        let measured = (functions.device_memory)(&mut memory, device);
        driver.check("cuDeviceTotalMem", measured)?;
    }
    let has = |attribute| {
        let mut value = 0;
        // SAFETY: the value is a local variable.
        let result = unsafe { (functions.attribute)(&mut value, attribute, device) };
        (result == 0).then_some(value != 0)
    };
    Ok(Gpu {
        number,
        name: text(&name),
        pci_address: text(&address).to_lowercase(),
        memory: memory as u64,
        rdma: has(RDMA),
        rdma_with_vmm: has(RDMA_WITH_VMM),
        memory_pools: has(MEMORY_POOLS),
        dmabuf: has(DMA_BUF),
        dmabuf_mmap: has(DMA_BUF_MMAP),
        coherent: has(HOST_PAGE_TABLES),
        tcc: has(TCC_DRIVER),
    })
}

fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|&char| char as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    text.to_string_lossy().into_owned()
}
