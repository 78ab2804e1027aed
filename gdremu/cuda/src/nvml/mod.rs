//! The management library, libnvidia-ml.so.1, which is this object under another name. It reports the
//! GPUs, their addresses and their links, the same as /sys and libcuda.

use std::ffi::{c_char, c_uchar};
use std::sync::atomic::{AtomicI32, Ordering};

use gdremu_core::cuda::name_of;
use gdremu_core::gpu::pci;
use gdremu_core::gpu::physical::GPU_BYTES;

use crate::args::{In, Out};
use crate::driver::{attributes, device};
use crate::error::ensure;
use crate::gpus;

/// nvmlReturn_t other than NVML_SUCCESS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Error(i32);

impl Error {
    const UNINITIALIZED: Error = Error(1);
    const INVALID_ARGUMENT: Error = Error(2);
    const NOT_SUPPORTED: Error = Error(3);
    const NOT_FOUND: Error = Error(6);
    const INSUFFICIENT_SIZE: Error = Error(7);
    const ARGUMENT_VERSION_MISMATCH: Error = Error(25);
}

type Result<T = ()> = std::result::Result<T, Error>;

/// The functions of CUDA that are called here fail for wrong arguments only.
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

fn gpu_of(device: Device) -> Result<usize> {
    (0..gpus::count()).find(|&gpu| handle(gpu) == device).ok_or(Error::INVALID_ARGUMENT)
}

/// Calls of nvmlInit less those of nvmlShutdown.
static USERS: AtomicI32 = AtomicI32::new(0);

/// Runs a function, unless `--fault` makes it fail.
fn without_init<E: Into<Error>>(name: &str, body: impl FnOnce() -> std::result::Result<(), E>) -> i32 {
    match gpus::fault(name) {
        Some(fault) => fault.0,
        None => body().map_or_else(|error| error.into().0, |()| 0),
    }
}

/// Runs a function that needs nvmlInit.
fn initialized<E: Into<Error>>(name: &str, body: impl FnOnce() -> std::result::Result<(), E>) -> i32 {
    without_init(name, || {
        ensure(USERS.load(Ordering::SeqCst) != 0, Error::UNINITIALIZED)?;
        body().map_err(Into::into)
    })
}

/// Runs a function about a GPU.
fn about<E: Into<Error>>(name: &str, device: Device, body: impl FnOnce(usize) -> std::result::Result<(), E>) -> i32 {
    initialized(name, || body(gpu_of(device)?).map_err(Into::into))
}

fn set_text(to: Out<c_char>, text: &str, room: u32) -> Result {
    to.check()?;
    ensure(room as usize > text.len(), Error::INSUFFICIENT_SIZE)?;
    Ok(to.set_text(text, room as i32)?)
}

/// A text in a field of a structure, with zeros behind it.
fn field<const N: usize>(text: &str) -> [c_uchar; N] {
    let mut bytes = [0; N];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

fn change_users(by: i32) -> Result {
    USERS.fetch_add(by, Ordering::SeqCst);
    Ok(())
}

/// Stores the handle of the GPU that `search` finds.
fn find(device: Out<Device>, search: impl FnOnce() -> Result<Option<usize>>) -> Result {
    device.check()?;
    Ok(device.set(handle(search()?.ok_or(Error::NOT_FOUND)?))?)
}

extern "C" fn error_string(error: i32) -> *const c_char {
    match error {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        15 => c"GPU is lost",
        25 => c"Argument version mismatch",
        _ => c"Unknown Error",
    }
    .as_ptr()
}

/// The drivers of CUDA versions; a driver serves all versions below the next one's.
const DRIVERS: &[(u32, &str)] = &[
    (11000, "450.51.06"),
    (11040, "470.57.02"),
    (11080, "520.61.05"),
    (12000, "525.60.13"),
    (12020, "535.54.03"),
    (12040, "550.54.14"),
    (12060, "560.28.03"),
    (12080, "570.86.10"),
    (12090, "575.51.03"),
    (13000, "580.65.06"),
    (13010, "590.44.01"),
];

fn driver_version() -> &'static str {
    let version = gpus::config().cuda_version;
    let old = DRIVERS.iter().rev().find(|(cuda, _)| *cuda <= version);
    old.unwrap_or(&DRIVERS[0]).1
}

/// nvmlMemory_t: total, free, used; nvmlBAR1Memory_t has the same members.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Memory([u64; 3]);

impl Memory {
    fn with_used(total: u64, used: u64) -> Memory {
        Memory([total, total - used, used])
    }
}

/// The first bytes of nvmlPciInfo_t, whose older versions are shorter. They are its address, its numbers,
/// ids, and address.
fn pci_info(gpu: usize, len: usize) -> impl Iterator<Item = u8> {
    let address = pci::address(gpu);
    let domain = (pci::bus(gpu) >> 8) as u32;
    let bus = (pci::bus(gpu) & 0xff) as u32;
    let device = 0;
    let id = u32::from(gpus::config().pci_device) << 16 | pci::VENDOR;
    let numbers = [domain, bus, device, id, pci::SUBSYSTEM << 16 | pci::VENDOR];
    field::<16>(&address)
        .into_iter()
        .chain(numbers.into_iter().flat_map(u32::to_ne_bytes))
        .chain(field::<32>(&format!("0000{address}")))
        .take(len)
}

/// Returns whether a GPU can use its peer in this manner.
fn p2p_status(gpu: usize, peer: Device, capability: u32) -> Result<u32> {
    const OK: u32 = 0;
    const NOT_SUPPORTED: u32 = 5;

    let other = gpu_of(peer)? != gpu;
    Ok(match capability {
        0 | 1 | 4 if other => OK, // reads, writes, over PCIe
        0..=4 => NOT_SUPPORTED,   // NVLink, atomics
        _ => return Err(Error::INVALID_ARGUMENT),
    })
}

/// The state of a fabric of several hosts, which does not exist.
const NO_FABRIC: u8 = 0;

/// nvmlGpuFabricInfo_t.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct FabricInfo {
    cluster: [u8; 16],
    status: i32,
    clique: u32,
    state: u8,
}

fn fabric_info(info: Out<u32>) -> Result {
    /// Version and size of the versions of nvmlGpuFabricInfoV_t that there are.
    const VERSIONS: [u32; 2] = [2 << 24 | 36, 3 << 24 | 40];

    let version = info.as_in().get()?;
    ensure(VERSIONS.contains(&version), Error::ARGUMENT_VERSION_MISMATCH)?;
    // Behind the version all is 0, which is NVML_SUCCESS, no clique, NO_FABRIC, nothing known of its
    // health.
    let words = (version & 0xff_ffff) as usize / size_of::<u32>();
    Ok(info.set_all((0..words).map(|word| if word == 0 { version } else { 0 }))?)
}

/// nvmlFieldValue_t.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FieldValue {
    field: u32,
    scope: u32,
    timestamp: i64,
    latency: i64,
    kind: u32,
    status: i32,
    value: u64,
}

const _: () = assert!(size_of::<FieldValue>() == 40);

/// Links between CPU and GPU as in a Grace Hopper, with MB/s of each.
const C2C_LINKS: u32 = 10;
const C2C_BANDWIDTH: u32 = 44_712;

fn field_value(field: u32, scope: u32) -> Result<u32> {
    ensure(gpus::config().coherent, Error::NOT_SUPPORTED)?;
    match field {
        170 => Ok(C2C_LINKS),                          // C2C_LINK_COUNT
        171 if scope < C2C_LINKS => Ok(1),             // C2C_LINK_GET_STATUS
        172 if scope < C2C_LINKS => Ok(C2C_BANDWIDTH), // C2C_LINK_GET_MAX_BW
        171 | 172 => Err(Error::INVALID_ARGUMENT),
        _ => Err(Error::NOT_SUPPORTED),
    }
}

fn field_values(count: i32, values: Out<FieldValue>) -> Result {
    const UNSIGNED_INT: u32 = 1;

    let count = usize::try_from(count).map_err(|_| Error::INVALID_ARGUMENT)?;
    let asked: Vec<FieldValue> =
        (0..count).map(|index| values.as_in().at(index)).collect::<std::result::Result<_, _>>()?;
    Ok(values.set_all(asked.into_iter().map(|asked| {
        let value = field_value(asked.field, asked.scope);
        FieldValue {
            timestamp: 0,
            latency: 0,
            kind: UNSIGNED_INT,
            status: value.err().map_or(0, |error| error.0),
            value: value.unwrap_or(0).into(),
            ..asked
        }
    }))?)
}

/// Exports a function under its names. Those that are `about` a GPU take it first.
macro_rules! entry_point {
    (about ($($argument:ident: $type:ty),*) $body:expr, $name:ident $($symbol:ident)*) => {
        const _: () = {
            extern "C" fn function(device: Device, $($argument: $type),*) -> i32 {
                about(name_of(stringify!($name)), device, $body)
            }
            $(gdremu_preload::entry_point!($symbol = function);)*
        };
    };
    ($entry:ident ($($argument:ident: $type:ty),*) $body:expr, $name:ident $($symbol:ident)*) => {
        const _: () = {
            extern "C" fn function($($argument: $type),*) -> i32 {
                $entry(name_of(stringify!($name)), $body)
            }
            $(gdremu_preload::entry_point!($symbol = function);)*
        };
    };
}

/// Exports functions as libnvidia-ml does, some under several names, with preconditions and bodies.
macro_rules! entry_points {
    ($($entry:ident fn $symbol:ident $arguments:tt $(, $also:ident)* => $body:expr;)*) => {
        $(entry_point!($entry $arguments $body, $symbol $symbol $($also)*);)*
    };
}

entry_points! {
    without_init fn nvmlInitWithFlags(_flags: u32) => || change_users(1);
    without_init fn nvmlInit_v2(), nvmlInit => || change_users(1);
    initialized fn nvmlShutdown() => || change_users(-1);
    initialized fn nvmlSystemGetDriverVersion(text: Out<c_char>, room: u32)
        => || set_text(text, driver_version(), room);
    initialized fn nvmlSystemGetNVMLVersion(text: Out<c_char>, room: u32)
        => || set_text(text, &format!("{}.{}", gpus::config().cuda_version / 1000, driver_version()), room);
    without_init fn nvmlSystemGetCudaDriverVersion(version: Out<i32>), nvmlSystemGetCudaDriverVersion_v2
        => || version.set(gpus::config().cuda_version as i32);
    initialized fn nvmlDeviceGetCount_v2(count: Out<u32>), nvmlDeviceGetCount => || count.set(gpus::count() as u32);
    initialized fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: Out<Device>), nvmlDeviceGetHandleByIndex
        => || {
            ensure((index as usize) < gpus::count(), Error::INVALID_ARGUMENT)?;
            Ok::<_, Error>(device.set(handle(index as usize))?)
        };
    initialized fn nvmlDeviceGetHandleByPciBusId_v2(address: In<c_char>, device: Out<Device>),
        nvmlDeviceGetHandleByPciBusId
        => || find(device, || Ok(device::at_pci_address(address.text()?)?));
    initialized fn nvmlDeviceGetHandleByUUID(uuid: In<c_char>, device: Out<Device>) => || find(device, || {
            let wanted = uuid.text()?;
            Ok((0..gpus::count()).find(|&gpu| gpus::uuid_text(gpu) == wanted))
        });
    about fn nvmlDeviceGetIndex(index: Out<u32>) => |gpu| index.set(gpu as u32);
    about fn nvmlDeviceGetMinorNumber(minor: Out<u32>) => |gpu| minor.set(gpu as u32);
    about fn nvmlDeviceGetName(text: Out<c_char>, room: u32) => |_| set_text(text, device::NAME, room);
    about fn nvmlDeviceGetUUID(text: Out<c_char>, room: u32) => |gpu| set_text(text, &gpus::uuid_text(gpu), room);
    about fn nvmlDeviceGetCudaComputeCapability(major: Out<i32>, minor: Out<i32>)
        => |gpu| attributes::compute_capability(gpu, major, minor);
    // No GPU is divided.
    about fn nvmlDeviceGetMigMode(current: Out<u32>, pending: Out<u32>)
        => |_| current.set(0).and_then(|()| pending.set(0));
    about fn nvmlDeviceGetMaxMigDeviceCount(count: Out<u32>) => |_| count.set(0);
    about fn nvmlDeviceGetMemoryInfo(memory: Out<Memory>)
        => |gpu| memory.set(Memory::with_used(GPU_BYTES, GPU_BYTES - gpus::free_bytes(gpu)));
    about fn nvmlDeviceGetBAR1MemoryInfo(memory: Out<Memory>) => |gpu| {
            let used = gpus::with(|gpus| gpus.memory().pinned_bytes(gpu));
            memory.set(Memory::with_used(*gpus::config().bar1_size.of(gpu), used))
        };
    about fn nvmlDeviceGetPciInfo(info: Out<u8>) => |gpu| info.set_all(pci_info(gpu, 32));
    about fn nvmlDeviceGetPciInfo_v2(info: Out<u8>) => |gpu| info.set_all(pci_info(gpu, 36));
    about fn nvmlDeviceGetPciInfo_v3(info: Out<u8>) => |gpu| info.set_all(pci_info(gpu, 68));
    // The link that /sys also shows, 16 lanes of generation 5.
    about fn nvmlDeviceGetMaxPcieLinkGeneration(to: Out<u32>), nvmlDeviceGetCurrPcieLinkGeneration => |_| to.set(5);
    about fn nvmlDeviceGetMaxPcieLinkWidth(to: Out<u32>), nvmlDeviceGetCurrPcieLinkWidth => |_| to.set(16);
    // There is no NVLink, whose functions have all the same answer.
    about fn nvmlDeviceGetNvLinkState(), nvmlDeviceGetNvLinkCapability, nvmlDeviceGetNvLinkRemotePciInfo,
        nvmlDeviceGetNvLinkRemotePciInfo_v2 => |_| Err(Error::NOT_SUPPORTED);
    about fn nvmlDeviceGetP2PStatus(peer: Device, capability: u32, status: Out<u32>)
        => |gpu| Ok::<_, Error>(status.set(p2p_status(gpu, peer, capability)?)?);
    about fn nvmlDeviceGetGpuFabricInfo(info: Out<FabricInfo>)
        => |_| info.set(FabricInfo { state: NO_FABRIC, ..FabricInfo::default() });
    about fn nvmlDeviceGetGpuFabricInfoV(info: Out<u32>) => |_| fabric_info(info);
    about fn nvmlDeviceGetFieldValues(count: i32, values: Out<FieldValue>) => |_| field_values(count, values);
}

gdremu_preload::entry_point!(nvmlErrorString = error_string);
