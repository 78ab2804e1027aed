//! NVIDIA's libcuda: which allocation an address belongs to, memory that can be exported,
//! and the functions that the preload library stands in front of.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::FromRawFd;
use std::sync::OnceLock;
use std::{fs, mem, ptr};

use super::Failure;
use crate::errno::Errno;

/// The step that fails when an address is no GPU memory of the process.
pub(super) const NOT_GPU_MEMORY: &str = "the search for the allocation of a device address";

type DlOpen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// CUresult: 0 is success.
pub type Status = c_uint;

/// CUDA_ERROR_INVALID_VALUE
pub(super) const INVALID_VALUE: Status = 1;
/// CUDA_ERROR_OUT_OF_MEMORY
const OUT_OF_MEMORY: Status = 2;

const POINTER_ATTRIBUTE_P2P_TOKENS: c_int = 5;
const POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_int = 9;
const DEVICE_ATTRIBUTE_POSIX_FD_SUPPORTED: c_int = 103;
const DEVICE_ATTRIBUTE_RDMA_WITH_VMM_SUPPORTED: c_int = 110;
const ALLOCATION_PINNED: c_int = 1;
const LOCATION_DEVICE: c_int = 1;
const HANDLE_POSIX_FD: c_int = 1;
const GRANULARITY_MINIMUM: c_int = 0;
const ACCESS_READ_WRITE: c_int = 3;

/// CUmemAllocationProp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AllocationProperties {
    kind: c_int,
    handle_types: c_int,
    location: c_int,
    gpu: c_int,
    win32: usize,
    compression: u8,
    rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}

/// CUmemAccessDesc.
#[derive(Debug)]
#[repr(C)]
pub struct AccessDescription {
    location: c_int,
    gpu: c_int,
    flags: c_int,
}

/// CUDA_POINTER_ATTRIBUTE_P2P_TOKENS.
#[derive(Default)]
#[repr(C)]
struct Tokens {
    token: u64,
    va_space: u32,
}

const _: () = assert!(size_of::<AllocationProperties>() == 32 && size_of::<Tokens>() == 16);

impl AllocationProperties {
    /// Memory of a GPU that can be exported and pinned.
    fn exportable_on(gpu: c_int) -> Self {
        AllocationProperties {
            kind: ALLOCATION_PINNED,
            handle_types: HANDLE_POSIX_FD,
            location: LOCATION_DEVICE,
            gpu,
            win32: 0,
            compression: 0,
            rdma: 1,
            usage: 0,
            reserved: [0; 4],
        }
    }

    /// The GPU whose memory it is, if it is a GPU's.
    pub fn gpu(&self) -> Option<c_int> {
        (self.kind == ALLOCATION_PINNED && self.location == LOCATION_DEVICE).then_some(self.gpu)
    }

    /// The same memory, but such that it can be exported and pinned.
    #[must_use]
    pub fn exportable(self) -> Self {
        AllocationProperties {
            handle_types: self.handle_types | HANDLE_POSIX_FD,
            rdma: 1,
            ..self
        }
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal: fn($($argument:ty),*);)+) => {
        /// Functions of libcuda. Their safety is that of the driver API.
        #[derive(Debug)]
        pub struct Cuda {
            $($(#[$doc])* #[doc = concat!("`", $symbol, "`")]
            pub $name: unsafe extern "C" fn($($argument),*) -> Status,)+
        }

        impl Cuda {
            fn find(library: *mut c_void) -> Result<Cuda, &'static str> {
                Ok(Cuda {
                    $($name: {
                        const NAME: &CStr =
                            match CStr::from_bytes_with_nul(concat!($symbol, "\0").as_bytes()) {
                                Ok(name) => name,
                                Err(_) => panic!("a name has no NUL byte"),
                            };
                        // SAFETY: the library is open for good, and the name a C string.
                        let function = unsafe { libc::dlsym(library, NAME.as_ptr()) };
                        if function.is_null() {
                            return Err($symbol);
                        }
                        // SAFETY: the driver API gives the symbol this type.
                        unsafe {
                            mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) -> Status,
                            >(function)
                        }
                    },)+
                })
            }
        }
    };
}

functions! {
    context = "cuCtxGetCurrent": fn(*mut *mut c_void);
    set_context = "cuCtxSetCurrent": fn(*mut c_void);
    context_device = "cuCtxGetDevice": fn(*mut c_int);
    synchronize = "cuCtxSynchronize": fn();
    retain_context = "cuDevicePrimaryCtxRetain": fn(*mut *mut c_void, c_int);
    release_context = "cuDevicePrimaryCtxRelease_v2": fn(c_int);
    device = "cuDeviceGet": fn(*mut c_int, c_int);
    device_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int);
    pci_bus_id = "cuDeviceGetPCIBusId": fn(*mut u8, c_int, c_int);
    pointer_attribute = "cuPointerGetAttribute": fn(*mut c_void, c_int, u64);
    set_pointer_attribute = "cuPointerSetAttribute": fn(*const c_void, c_int, u64);
    alloc = "cuMemAlloc_v2": fn(*mut u64, usize);
    alloc_pitch = "cuMemAllocPitch_v2": fn(*mut u64, *mut usize, usize, usize, c_uint);
    free = "cuMemFree_v2": fn(u64);
    address_range = "cuMemGetAddressRange_v2": fn(*mut u64, *mut usize, u64);
    granularity = "cuMemGetAllocationGranularity":
        fn(*mut usize, *const AllocationProperties, c_int);
    create = "cuMemCreate": fn(*mut u64, usize, *const AllocationProperties, u64);
    release = "cuMemRelease": fn(u64);
    reserve_addresses = "cuMemAddressReserve": fn(*mut u64, usize, usize, u64, u64);
    free_addresses = "cuMemAddressFree": fn(u64, usize);
    map = "cuMemMap": fn(u64, usize, usize, u64, u64);
    unmap = "cuMemUnmap": fn(u64, usize);
    set_access = "cuMemSetAccess": fn(u64, usize, *const AccessDescription, usize);
    retain_handle = "cuMemRetainAllocationHandle": fn(*mut u64, *mut c_void);
    export_handle = "cuMemExportToShareableHandle": fn(*mut c_void, u64, c_int, u64);
    proc_address = "cuGetProcAddress": fn(*const c_char, *mut *mut c_void, c_int, u64);
    proc_address_2 = "cuGetProcAddress_v2": fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_uint);
}

/// An allocation, or one mapping of VMM memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allocation {
    pub(super) base: u64,
    pub(super) len: u64,
    /// CUDA's number of its GPU.
    pub(super) gpu: i32,
}

impl Cuda {
    /// libcuda, loaded for good on first use; `None`, and a line on stderr, if that fails.
    ///
    /// Looks the functions up by `dlsym`: where that is hooked, the caller sees to it that the
    /// real ones are found.
    pub fn get() -> Option<&'static Cuda> {
        static CUDA: OnceLock<Option<Cuda>> = OnceLock::new();
        let load = || {
            // SAFETY: libc has a function of this name and type; loading the CUDA driver has no
            // preconditions.
            let library = unsafe {
                // By dlsym: tools such as UCX write their own dlopen into the relocated entries of
                // every object, and it would run under the caller's lock.
                let dlopen = libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr());
                let dlopen = mem::transmute::<*mut c_void, DlOpen>(dlopen);
                dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW)
            };
            if library.is_null() {
                return Err("no libcuda.so.1 can be loaded".into());
            }
            Cuda::find(library).map_err(|name| format!("this libcuda.so.1 has no {name}"))
        };
        CUDA.get_or_init(|| {
            load()
                .inspect_err(|why| eprintln!("gdremu: nvidia provider: {why}"))
                .ok()
        })
        .as_ref()
    }

    pub(super) fn loaded() -> Result<&'static Cuda, Failure> {
        Cuda::get().ok_or(Failure {
            step: "the search for libcuda",
            status: 0,
            errno: Errno::ENODEV,
        })
    }

    /// The GPU of the calling thread's context, by CUDA's number.
    ///
    /// # Errors
    /// That of cuCtxGetDevice, if there is none.
    pub fn current_gpu(&self) -> Result<c_int, Status> {
        let mut gpu = 0;
        // SAFETY: the place is a live local.
        check_status(unsafe { (self.context_device)(&mut gpu) }).map(|()| gpu)
    }

    /// Whether memory of a GPU can be made that can be exported and pinned.
    pub fn makes_exportable(&self, gpu: c_int) -> bool {
        [
            DEVICE_ATTRIBUTE_POSIX_FD_SUPPORTED,
            DEVICE_ATTRIBUTE_RDMA_WITH_VMM_SUPPORTED,
        ]
        .into_iter()
        .all(|attribute| {
            let mut value = 0;
            // SAFETY: the place is a live local.
            unsafe { (self.device_attribute)(&mut value, attribute, gpu) == 0 && value != 0 }
        })
    }

    /// Makes a block of exportable memory, mapped for its own GPU, of at least `len` bytes. Returns
    /// its address and length.
    ///
    /// # Errors
    /// CUDA's error.
    pub(super) fn make_block(&self, gpu: c_int, len: u64) -> Result<(u64, u64), Status> {
        let properties = AllocationProperties::exportable_on(gpu);
        let (mut unit, mut object) = (0, 0);
        // SAFETY: the places are live locals.
        unsafe {
            check_status((self.granularity)(
                &mut unit,
                &properties,
                GRANULARITY_MINIMUM,
            ))?;
            let len = (len as usize)
                .checked_next_multiple_of(unit)
                .ok_or(OUT_OF_MEMORY)?;
            check_status((self.create)(&mut object, len, &properties, 0))?;
            let mapped = self.map_object(object, len, gpu);
            (self.release)(object); // From now on only the mapping keeps the memory.
            mapped.map(|base| (base, len as u64))
        }
    }

    /// Maps a physical object for its own GPU, wherever there is room.
    fn map_object(&self, object: u64, len: usize, gpu: c_int) -> Result<u64, Status> {
        let access = AccessDescription {
            location: LOCATION_DEVICE,
            gpu,
            flags: ACCESS_READ_WRITE,
        };
        let mut base = 0;
        // SAFETY: the places are locals, and no other code knows the addresses.
        unsafe {
            check_status((self.reserve_addresses)(&mut base, len, 0, 0, 0))?;
            if let Err(status) = check_status((self.map)(base, len, 0, object, 0)) {
                (self.free_addresses)(base, len);
                return Err(status);
            }
            if let Err(status) = check_status((self.set_access)(base, len, &access, 1)) {
                (self.unmap)(base, len);
                (self.free_addresses)(base, len);
                return Err(status);
            }
        }
        Ok(base)
    }

    /// Frees a block, all of whose buffers the program has freed.
    ///
    /// # Errors
    /// CUDA's error.
    pub(super) fn free_block(&self, base: u64, len: u64) -> Result<(), Status> {
        // SAFETY: nothing uses the block any more.
        unsafe {
            check_status((self.unmap)(base, len as usize))?;
            check_status((self.free_addresses)(base, len as usize))
        }
    }

    /// The allocation that a device address lies in.
    pub(super) fn allocation(&self, va: u64) -> Result<Allocation, Failure> {
        let mut gpu: c_int = 0;
        let place = ptr::from_mut(&mut gpu).cast();
        // SAFETY: the attribute is an int.
        check(NOT_GPU_MEMORY, unsafe {
            (self.pointer_attribute)(place, POINTER_ATTRIBUTE_DEVICE_ORDINAL, va)
        })?;
        let (mut base, mut len) = (0, 0);
        self.in_context(gpu, || {
            // SAFETY: both places are ours.
            check(NOT_GPU_MEMORY, unsafe {
                (self.address_range)(&mut base, &mut len, va)
            })
        })?;
        Ok(Allocation {
            base,
            len: len as u64,
            gpu,
        })
    }

    /// The tokens that pins of memory at this address may name, if CUDA still gives any.
    pub(super) fn tokens(&self, va: u64) -> Option<(u64, u32)> {
        let mut tokens = Tokens::default();
        let place = ptr::from_mut(&mut tokens).cast();
        // SAFETY: the attribute is such a structure.
        let status = unsafe { (self.pointer_attribute)(place, POINTER_ATTRIBUTE_P2P_TOKENS, va) };
        (status == 0).then_some((tokens.token, tokens.va_space))
    }

    /// A descriptor of the physical memory behind a device address.
    pub(super) fn export(&self, va: u64) -> Result<File, Failure> {
        let mut object = 0;
        let address = ptr::without_provenance_mut(va as usize);
        // SAFETY: the place is ours; the address is only looked up.
        let status = unsafe { (self.retain_handle)(&mut object, address) };
        check(
            "the retaining of an allocation (is it a VMM allocation?)",
            status,
        )?;
        let exported = self.export_object(object);
        // SAFETY: retained above.
        unsafe { (self.release)(object) };
        exported
    }

    /// A descriptor of a physical object.
    pub(super) fn export_object(&self, object: u64) -> Result<File, Failure> {
        let mut fd: c_int = -1;
        let place = ptr::from_mut(&mut fd).cast();
        // SAFETY: the place is ours, and so is the descriptor that it gets.
        unsafe {
            let status = (self.export_handle)(place, object, HANDLE_POSIX_FD, 0);
            check("the export of an allocation", status)?;
            Ok(File::from_raw_fd(fd))
        }
    }

    /// The N of a GPU's `/dev/nvidiaN`.
    pub(super) fn device_minor(&self, gpu: i32) -> Result<u32, Failure> {
        const STEP: &str = "the search for a GPU";
        let (mut device, mut name) = (0, [0_u8; 32]);
        // SAFETY: the places are ours, and as long as said.
        unsafe {
            check(STEP, (self.device)(&mut device, gpu))?;
            let len = name.len() as c_int;
            check(STEP, (self.pci_bus_id)(name.as_mut_ptr(), len, device))?;
        }
        let bus_id = CStr::from_bytes_until_nul(&name)
            .unwrap_or_default()
            .to_string_lossy();
        let path = format!(
            "/proc/driver/nvidia/gpus/{}/information",
            bus_id.to_lowercase()
        );
        let text = fs::read_to_string(path).unwrap_or_default();
        let minor = text
            .lines()
            .find_map(|line| line.strip_prefix("Device Minor:"));
        // A driver that does not say has one GPU, or numbers them alike.
        Ok(minor
            .and_then(|number| number.trim().parse().ok())
            .unwrap_or(gpu as u32))
    }

    /// Waits for what a GPU does in the calling thread's context; without one, in the primary one.
    ///
    /// # Errors
    /// CUDA's error.
    pub fn wait_for(&self, gpu: c_int) -> Result<(), Status> {
        self.in_context(gpu, || {
            // SAFETY: waits, and touches nothing.
            check("the wait for a GPU", unsafe { (self.synchronize)() })
        })
        .map_err(|failure| failure.status)
    }

    /// Works in the GPU's primary context where the thread has none, and leaves the thread as it
    /// was.
    fn in_context(
        &self,
        gpu: i32,
        work: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut current = ptr::null_mut();
        // SAFETY: the places are ours; what is retained is released below.
        unsafe {
            check("the search for a context", (self.context)(&mut current))?;
            if !current.is_null() {
                return work();
            }
            let (mut device, mut context) = (0, ptr::null_mut());
            check("the search for a GPU", (self.device)(&mut device, gpu))?;
            let retained = (self.retain_context)(&mut context, device);
            check("the retaining of a context", retained)?;
            (self.set_context)(context);
            let result = work();
            (self.set_context)(ptr::null_mut());
            (self.release_context)(device);
            result
        }
    }
}

fn check(step: &'static str, status: Status) -> Result<(), Failure> {
    check_status(status).map_err(|status| Failure::refused(step, status))
}

/// Converts from a CUresult.
///
/// # Errors
/// Every status but success.
pub fn check_status(status: Status) -> Result<(), Status> {
    if status == 0 { Ok(()) } else { Err(status) }
}
