//! NVML, NVIDIA's management library. Programs find this shared object under the name libnvidia-ml.so.1. It has the
//! functions that UCX, libfabric and NIXL call. They report GPUs, PCI addresses and links as /sys and libcuda do.
#![forbid(unsafe_code)]

use std::ffi::c_char;
use std::sync::atomic::{AtomicI32, Ordering};

use gdremu_core::gpu::pci;

use crate::args::Out;
use crate::error::ensure;
use crate::gpus;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Error(i32);

impl Error {
    const UNINITIALIZED: Error = Error(1);
    const INVALID_ARGUMENT: Error = Error(2);
    const NOT_SUPPORTED: Error = Error(3);
    const ARGUMENT_VERSION_MISMATCH: Error = Error(25);
}

type Result<T = ()> = std::result::Result<T, Error>;

/// The functions of CUDA that are called here fail only for wrong arguments.
impl From<crate::error::Error> for Error {
    fn from(_: crate::error::Error) -> Self {
        Error::INVALID_ARGUMENT
    }
}

/// nvmlDevice_t: a GPU's number, encoded as a value that is not a valid pointer.
type Device = usize;

const DEVICE: Device = 0xC8 << 40;

fn handle(gpu: usize) -> Device {
    DEVICE | (gpu + 1) << 8
}

static USERS: AtomicI32 = AtomicI32::new(0);

fn check_initialized() -> Result {
    ensure(USERS.load(Ordering::SeqCst) != 0, Error::UNINITIALIZED)
}

fn gpu_of(device: Device) -> Result<usize> {
    check_initialized()?;
    (0..gpus::count()).find(|gpu| handle(*gpu) == device).ok_or(Error::INVALID_ARGUMENT)
}

/// nvmlPciInfo_t: the PCI address as a short text and as numbers, the PCI ids, and the address as a longer text.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PciInfo {
    legacy_address: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    id: u32,
    subsystem: u32,
    address: [u8; 32],
}

/// Returns a text as an array of bytes for a field of a structure, padded with zeros.
fn field<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

fn pci_info(gpu: usize) -> PciInfo {
    let address = pci::address(gpu);
    PciInfo {
        legacy_address: field(&address),
        domain: (pci::bus(gpu) >> 8) as u32,
        bus: (pci::bus(gpu) & 0xff) as u32,
        device: 0,
        id: u32::from(gpus::config().pci_device) << 16 | pci::VENDOR,
        subsystem: pci::SUBSYSTEM << 16 | pci::VENDOR,
        address: field(&format!("0000{address}")),
    }
}

/// Versions 2 and 3 of nvmlGpuFabricInfoV_t. The low bits are the size of the structure in bytes. All fields after the
/// version are set to 0, which means NVML_SUCCESS, no clique, no fabric, unknown health.
const FABRIC_VERSIONS: [u32; 2] = [2 << 24 | 36, 3 << 24 | 40];

/// nvmlFieldValue_t. The low 32 bits of `question[0]` are the number of the field that the program asks for. The other
/// bits of `question` are not used. `kind` is the type of the value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FieldValue {
    question: [u64; 3],
    kind: u32,
    status: i32,
    value: u64,
}

const C2C_LINK_COUNT: u32 = 170; // This is the number of a field whose value is an unsigned int.

const _: () = assert!(size_of::<FieldValue>() == 40 && size_of::<PciInfo>() == 68);

macro_rules! entry_points {
    ($(fn $symbol:ident($($argument:ident: $type:ty),*) $body:block)*) => {$(
        const _: () = {
            fn body($($argument: $type),*) -> Result $body

            extern "C" fn function($($argument: $type),*) -> i32 {
                match body($($argument),*) {
                    Ok(()) => 0,
                    Err(error) => error.0,
                }
            }
            gdremu_preload::entry_point!($symbol = function);
        };
    )*};
}

entry_points! {
    fn nvmlInit_v2() {
        USERS.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn nvmlShutdown() {
        check_initialized()?;
        USERS.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
    fn nvmlDeviceGetCount_v2(count: Out<u32>) {
        check_initialized()?;
        Ok(count.set(gpus::count() as u32)?)
    }
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: Out<Device>) {
        check_initialized()?;
        ensure((index as usize) < gpus::count(), Error::INVALID_ARGUMENT)?;
        Ok(device.set(handle(index as usize))?)
    }
    fn nvmlDeviceGetPciInfo_v3(device: Device, info: Out<PciInfo>) {
        Ok(info.set(pci_info(gpu_of(device)?))?)
    }
    // nvmlBAR1Memory_t has three numbers of bytes: total, free and used.
    fn nvmlDeviceGetBAR1MemoryInfo(device: Device, memory: Out<[u64; 3]>) {
        let gpu = gpu_of(device)?;
        let used = gpus::with(|gpus| gpus.memory().pinned_bytes(gpu));
        let total = *gpus::config().bar1_size.of(gpu);
        Ok(memory.set([total, total - used, used])?)
    }
    // The emulated GPUs have no NVLink.
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(device: Device, _link: u32, _info: Out<u8>) {
        gpu_of(device)?;
        Err(Error::NOT_SUPPORTED)
    }
    // All fields of nvmlGpuFabricInfo_t are set to 0, which means NVML_SUCCESS, no clique and no fabric.
    fn nvmlDeviceGetGpuFabricInfo(device: Device, info: Out<[u32; 7]>) {
        gpu_of(device)?;
        Ok(info.set([0; 7])?)
    }
    fn nvmlDeviceGetGpuFabricInfoV(device: Device, info: Out<u32>) {
        gpu_of(device)?;
        let version = info.as_in().get()?;
        ensure(FABRIC_VERSIONS.contains(&version), Error::ARGUMENT_VERSION_MISMATCH)?;
        let mut words = vec![0; (version & 0xff_ffff) as usize / size_of::<u32>()];
        words[0] = version;
        Ok(info.set_all(words.into_iter())?)
    }
    fn nvmlDeviceGetFieldValues(device: Device, count: i32, values: Out<FieldValue>) {
        gpu_of(device)?;
        let mut answers = Vec::new();
        for index in 0..usize::try_from(count).map_err(|_| Error::INVALID_ARGUMENT)? {
            let asked: FieldValue = values.as_in().at(index)?;
            answers.push(match asked.question[0] as u32 {
                C2C_LINK_COUNT if gpus::config().coherent => FieldValue { kind: 1, status: 0, value: 10, ..asked },
                _ => FieldValue { status: Error::NOT_SUPPORTED.0, ..asked },
            });
        }
        Ok(values.set_all(answers.into_iter())?)
    }
}

extern "C" fn error_string(error: i32) -> *const c_char {
    let text = match error {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        25 => c"Argument version mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

gdremu_preload::entry_point!(nvmlErrorString = error_string);
