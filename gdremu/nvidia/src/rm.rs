//! The commands of the GPU driver's resource manager that map exported GPU memory for the CPU, through the GPU's PCI
//! BAR1. They are ioctls of the open kernel driver (580 series) on `/dev/nvidiactl` and `/dev/nvidiaN`.
//!
//! NVIDIA documents none of this and may change it in any driver. So each status is checked, and errors name the step.

use std::fs::{File, OpenOptions};
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gdremu_core::errno::Errno;
use gdremu_core::gpu::mmap::out_of_the_way;

use crate::cuda::Failure;

/// The handles of gdremu's objects in the GPU driver's resource manager. gdremu may choose any numbers. Imported
/// memory has handles from `FIRST_MEMORY` on.
const DEVICE: u32 = 0x6764_0001;
const SUBDEVICE: u32 = 0x6764_0002;
const FIRST_MEMORY: u32 = 0x6764_1000;

/// The number of the ioctl that registers an open `/dev/nvidiaN` with an open `/dev/nvidiactl`.
const REGISTER: u8 = 201;

const CLASS_CLIENT: u32 = 0x41;
const CLASS_DEVICE: u32 = 0x80;
const CLASS_SUBDEVICE: u32 = 0x2080;

/// The control command that returns the GPU of an exported descriptor of GPU memory.
const GET_EXPORT_INFO: u32 = 0x3d08;
/// The control command that imports GPU memory from an exported descriptor.
const IMPORT: u32 = 0x3d0c;

/// Statuses of the driver for a lack of resources or memory. The usual cause is that BAR1 has no room left.
const NO_RESOURCES: u32 = 0x1a;
const NO_MEMORY: u32 = 0x51;

/// Declares a struct for the argument of each ioctl command, from the command's number, the argument's size and its
/// fields. The struct's function `call` makes the ioctl.
macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $size:literal { $($field:ident: $type:ty),+ };)*) => {$(
        $(#[$doc])*
        #[derive(Default)]
        #[repr(C)]
        struct $name { $($field: $type),+ }

        impl $name {
            fn call(&mut self, file: &File, step: &'static str) -> Result<(), Failure> {
                const { assert!(size_of::<$name>() == $size) };
                ioctl(file, step, $number, self)?;
                check(step, self.status)
            }
        }
    )*};
}

commands! {
    Alloc = 0x2b, 48 {
        root: u32, parent: u32, object: u32, class: u32, params: u64, rights: u64, params_size: u32, flags: u32,
        status: u32, _pad: u32
    };
    Control = 0x2a, 32 {
        client: u32, object: u32, command: u32, flags: u32, params: u64, params_size: u32, status: u32
    };
    Free = 0x29, 16 { root: u32, parent: u32, object: u32, status: u32 };
    /// Prepares a mapping of memory. A later mmap of `fd` makes the mapping.
    MapMemory = 0x4e, 56 {
        client: u32, device: u32, memory: u32, _pad: u32, offset: u64, length: u64, linear: u64, status: u32,
        flags: u32, fd: i32, _tail: u32
    };
}

#[repr(C)]
struct ExportInfo {
    fd: i32,
    device_instance: u32,
    gpu_instance: u32,
    max_objects: u16,
    metadata: [u8; 64],
}

#[repr(C)]
struct ImportObjects {
    fd: i32,
    parent: u32,
    objects: [u32; 128],
    types: [u8; 128],
    count: u16,
    index: u16,
}

const _: () = assert!(size_of::<ExportInfo>() == 80 && size_of::<ImportObjects>() == 652);

/// A connection to the resource manager for one GPU. Dropping it frees all its objects there.
pub(crate) struct Client {
    control: File,
    /// An open `/dev/nvidiaN` that is registered with `control`. It must stay open as long as `control`.
    _device: File,
    path: String,
    root: u32,
    memories: AtomicU32,
    /// The process that made the client. A forked child does not free the imported memory, which is its parent's.
    owner: u32,
}

/// An imported GPU allocation. The physical memory stays alive until this is dropped.
pub(crate) struct Memory {
    client: Arc<Client>,
    handle: u32,
}

impl Client {
    /// Makes a client for the GPU `/dev/nvidia{minor}`. `exported` is a descriptor of memory of this GPU.
    pub(crate) fn new(minor: u32, exported: &impl AsRawFd) -> Result<Client, Failure> {
        let control: File = out_of_the_way(open("/dev/nvidiactl")?.into()).into();
        let path = format!("/dev/nvidia{minor}");
        let device = out_of_the_way(open(&path)?.into()).into();
        ioctl(&device, "registration of the device file", REGISTER, &mut control.as_raw_fd())?;
        let mut client = Alloc { class: CLASS_CLIENT, ..Default::default() };
        client.call(&control, "client")?;
        let root = client.object;
        let fd = exported.as_raw_fd();
        let mut info = ExportInfo { fd, device_instance: 0, gpu_instance: 0, max_objects: 0, metadata: [0; 64] };
        send(&control, "which GPU the memory is of", root, GET_EXPORT_INFO, &mut info)?;
        // The first parameter of a device object is the number of the GPU. The others are 0, the default.
        let mut params = [0_u32; 14];
        params[0] = info.device_instance;
        let device_object = Alloc { root, parent: root, object: DEVICE, class: CLASS_DEVICE, ..Default::default() };
        alloc(&control, "device", device_object, &mut params)?;
        let subdevice = Alloc { parent: DEVICE, object: SUBDEVICE, class: CLASS_SUBDEVICE, root, ..Default::default() };
        alloc(&control, "sub-device", subdevice, &mut [0])?;
        Ok(Client {
            control,
            _device: device,
            path,
            root,
            memories: AtomicU32::new(FIRST_MEMORY),
            owner: std::process::id(),
        })
    }

    pub(crate) fn import(self: &Arc<Self>, exported: &impl AsRawFd) -> Result<Memory, Failure> {
        let handle = self.memories.fetch_add(1, Ordering::Relaxed);
        let fd = exported.as_raw_fd();
        let mut import = ImportObjects { fd, parent: DEVICE, objects: [0; 128], types: [0; 128], count: 1, index: 0 };
        import.objects[0] = handle;
        send(&self.control, "import of exported memory", self.root, IMPORT, &mut import)?;
        Ok(Memory { client: self.clone(), handle })
    }
}

impl Memory {
    /// Returns a file whose mmap maps `len` bytes of the allocation from `offset` on, write-combined through BAR1.
    pub(crate) fn prepare_map(&self, offset: u64, len: usize) -> Result<File, Failure> {
        // An mmap of a descriptor maps the memory prepared for this descriptor. So each mapping needs a new one.
        let fresh = open(&self.client.path)?;
        let mut map = MapMemory {
            client: self.client.root,
            device: DEVICE,
            memory: self.handle,
            offset,
            length: len as u64,
            fd: fresh.as_raw_fd(),
            ..Default::default()
        };
        map.call(&self.client.control, "a BAR1 mapping")?;
        Ok(fresh)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.client.owner != std::process::id() {
            return;
        }
        let mut free = Free { root: self.client.root, parent: DEVICE, object: self.handle, ..Default::default() };
        if let Err(failure) = free.call(&self.client.control, "free of imported memory") {
            eprintln!("{failure}");
        }
    }
}

fn open(path: &str) -> Result<File, Failure> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(|error| Failure::system("opening the GPU driver's device files", error))
}

fn alloc(control: &File, step: &'static str, mut object: Alloc, params: &mut [u32]) -> Result<(), Failure> {
    object.params = params.as_mut_ptr().expose_provenance() as u64;
    object.params_size = size_of_val(params) as u32;
    object.call(control, step)
}

fn send<T>(control: &File, step: &'static str, client: u32, command: u32, params: &mut T) -> Result<(), Failure> {
    let mut message = Control {
        client,
        object: client,
        command,
        params: std::ptr::from_mut(params).expose_provenance() as u64,
        params_size: size_of::<T>() as u32,
        ..Default::default()
    };
    message.call(control, step)
}

/// Turns a status of the driver into a result. `step` names what was tried, for the error message.
fn check(step: &'static str, status: u32) -> Result<(), Failure> {
    match status {
        0 => Ok(()),
        NO_RESOURCES | NO_MEMORY => Err(Failure { errno: Errno::ENOMEM, ..Failure::refused(step, status) }),
        _ => Err(Failure::refused(step, status)),
    }
}

fn ioctl<T>(file: &File, step: &'static str, number: u8, argument: &mut T) -> Result<(), Failure> {
    const READ_WRITE: u64 = 3;
    let request = READ_WRITE << 30 | (size_of::<T>() as u64) << 16 | u64::from(b'F') << 8 | u64::from(number);
    // SAFETY: the driver accesses one T, and the memory to which pointers in the T point. Callers keep both alive.
    match unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(argument)) } {
        0 => Ok(()),
        _ => Err(Failure::system(step, std::io::Error::last_os_error())),
    }
}
