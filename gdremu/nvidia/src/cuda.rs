//! Calls NVIDIA's libcuda to find the allocation at an address, and to make and export GPU memory. gdremu's
//! replacements of libcuda's functions call the real functions through [`Cuda`].

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::FromRawFd;
use std::sync::OnceLock;
use std::{fmt, fs, mem, ptr};

use gdremu_core::c_text;
use gdremu_core::cuda::types::{
    ALLOCATION_PINNED, AccessDesc, AllocationProp, HANDLE_POSIX_FD, LOCATION_DEVICE, Location, P2pTokens,
};
use gdremu_core::errno::Errno;

type DlOpen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// A CUresult. 0 is success.
pub(crate) type Status = i32;

pub(crate) const INVALID_VALUE: Status = 1;
const OUT_OF_MEMORY: Status = 2;

const POINTER_ATTRIBUTE_P2P_TOKENS: u32 = 5;
const POINTER_ATTRIBUTE_DEVICE_ORDINAL: u32 = 9;
const GRANULARITY_MINIMUM: u32 = 0;
const ACCESS_READ_WRITE: u32 = 3;

/// Returns the GPU on which the program requests memory, or `None` if it does not request a GPU's memory.
pub(crate) fn gpu_of(wanted: &AllocationProp) -> Option<c_int> {
    let is_of_gpu = wanted.kind == ALLOCATION_PINNED && wanted.location.kind == LOCATION_DEVICE;
    if is_of_gpu { Some(wanted.location.id) } else { None }
}

/// Changes the properties that the program requests for memory, so that this memory can also be exported and pinned.
pub(crate) fn exportable(wanted: AllocationProp) -> AllocationProp {
    AllocationProp { handle_types: wanted.handle_types | HANDLE_POSIX_FD, gpu_direct_rdma_capable: 1, ..wanted }
}

macro_rules! functions {
    ($(fn $symbol:ident($($argument:ident: $type:ty),*);)*) => {
        /// Pointers to the functions of libcuda. Their contracts are those of CUDA's driver API.
        #[allow(non_snake_case, missing_docs, reason = "the driver API's names")]
        pub(crate) struct Cuda {
            $(pub(crate) $symbol: unsafe extern "C" fn($($type),*) -> Status,)*
        }

        impl Cuda {
            /// Returns `None` if a function is missing, because the libcuda is older than CUDA 12.
            fn find(library: *mut c_void) -> Option<Cuda> {
                Some(Cuda { $($symbol: {
                    const NAME: &CStr = c_text(concat!(stringify!($symbol), "\0"));
                    // SAFETY: the library is never closed, and the name is a C string.
                    let function = unsafe { libc::dlsym(library, NAME.as_ptr()) };
                    if function.is_null() {
                        return None;
                    }
                    // SAFETY: the driver API gives the symbol this type.
                    unsafe { mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> Status>(function) }
                },)* })
            }
        }
    };
}

functions! {
    fn cuGetProcAddress_v2(name: *const c_char, function: *mut *const c_void, version: c_int, flags: u64, found: *mut u32);
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int);
    fn cuDeviceGetPCIBusId(text: *mut c_char, len: c_int, device: c_int);
    fn cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int);
    fn cuDevicePrimaryCtxRelease_v2(device: c_int);
    fn cuCtxGetCurrent(context: *mut usize);
    fn cuCtxSetCurrent(context: usize);
    fn cuCtxGetDevice(device: *mut c_int);
    fn cuCtxSynchronize();
    fn cuMemAlloc_v2(address: *mut u64, size: usize);
    fn cuMemFree_v2(address: u64);
    fn cuMemGetAddressRange_v2(base: *mut u64, size: *mut usize, address: u64);
    fn cuPointerGetAttribute(data: *mut c_void, attribute: u32, address: u64);
    fn cuPointerSetAttribute(value: *const u32, attribute: u32, address: u64);
    fn cuMemGetAllocationGranularity(granularity: *mut usize, prop: *const AllocationProp, option: u32);
    fn cuMemCreate(handle: *mut u64, size: usize, prop: *const AllocationProp, flags: u64);
    fn cuMemRelease(handle: u64);
    fn cuMemRetainAllocationHandle(handle: *mut u64, address: *mut c_void);
    fn cuMemExportToShareableHandle(shareable: *mut c_void, handle: u64, kind: u32, flags: u64);
    fn cuMemAddressReserve(address: *mut u64, size: usize, alignment: usize, hint: u64, flags: u64);
    fn cuMemAddressFree(address: u64, size: usize);
    fn cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64);
    fn cuMemUnmap(address: u64, size: usize);
    fn cuMemSetAccess(address: u64, size: usize, wanted: *const AccessDesc, count: usize);
}

/// The name of the step that fails if an address is not GPU memory of the process.
pub(crate) const NOT_GPU_MEMORY: &str = "the search for the allocation of a device address";

pub(crate) struct Failure {
    pub(crate) step: &'static str,
    /// The status that CUDA or the resource manager returned; 0 if neither returned one.
    pub(crate) status: u32,
    pub(crate) errno: Errno,
}

impl Failure {
    pub(crate) fn refused(step: &'static str, status: u32) -> Failure {
        Failure { step, status, errno: Errno::EINVAL }
    }

    pub(crate) fn system(step: &'static str, error: std::io::Error) -> Failure {
        Failure { step, status: 0, errno: error.into() }
    }
}

impl From<Failure> for Errno {
    fn from(failure: Failure) -> Errno {
        // If an address is not GPU memory, the program has made a mistake, and gets the errno. All other errors are
        // gdremu's or the driver's, and are also printed.
        if failure.step != NOT_GPU_MEMORY {
            eprintln!("{failure}");
        }
        failure.errno
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gdremu: nvidia provider: {} failed (status {:#x}, {}); the GPU driver is {}",
            self.step,
            self.status,
            self.errno,
            driver_version()
        )
    }
}

fn driver_version() -> String {
    match fs::read_to_string("/sys/module/nvidia/version") {
        Ok(version) => version.trim().to_owned(),
        Err(_) => "of unknown version".into(),
    }
}

/// A range of GPU memory: an allocation, or one mapping of memory of the VMM (virtual memory management) functions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub(crate) base: u64,
    pub(crate) len: u64,
    pub(crate) gpu: i32,
}

impl Cuda {
    /// Returns libcuda, which stays loaded after the first call. If loading fails, prints a message and returns `None`.
    ///
    /// Looks up functions by `dlsym`, which this library replaces on x86-64. Callers must hold the lock of `state`,
    /// because only then does the replaced `dlsym` return libcuda's own functions.
    pub(crate) fn get() -> Option<&'static Cuda> {
        static CUDA: OnceLock<Option<Cuda>> = OnceLock::new();
        CUDA.get_or_init(Cuda::load).as_ref()
    }

    fn load() -> Option<Cuda> {
        // SAFETY: libc has a function of this name and type, and loading libcuda has no preconditions.
        let library = unsafe {
            // libc's dlopen is looked up, because tools such as UCX replace dlopen, and theirs must not run while the
            // caller holds gdremu's lock.
            let dlopen = libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr());
            let dlopen = mem::transmute::<*mut c_void, DlOpen>(dlopen);
            dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW)
        };
        let cuda = if library.is_null() { None } else { Cuda::find(library) };
        if cuda.is_none() {
            eprintln!("gdremu: nvidia provider: no libcuda.so.1 of CUDA 12 or later can be loaded");
        }
        cuda
    }

    pub(crate) fn current_gpu(&self) -> Result<c_int, Status> {
        let mut gpu = 0;
        // SAFETY: the pointer is to a live local variable.
        check_status(unsafe { (self.cuCtxGetDevice)(&mut gpu) })?;
        Ok(gpu)
    }

    /// Allocates at least `len` bytes of exportable memory on a GPU, and maps them for this GPU.
    pub(crate) fn make_block(&self, gpu: c_int, len: u64) -> Result<Allocation, Status> {
        let location = Location { kind: LOCATION_DEVICE, id: gpu };
        let properties = exportable(AllocationProp { kind: ALLOCATION_PINNED, location, ..Default::default() });
        let mut unit = 0;
        let mut object = 0;
        // SAFETY: the pointers are to live local variables.
        unsafe {
            check_status((self.cuMemGetAllocationGranularity)(&mut unit, &properties, GRANULARITY_MINIMUM))?;
            let Some(len) = (len as usize).checked_next_multiple_of(unit) else {
                return Err(OUT_OF_MEMORY);
            };
            check_status((self.cuMemCreate)(&mut object, len, &properties, 0))?;
            let mapped = self.map_object(object, len, gpu);
            (self.cuMemRelease)(object); // The memory now lives as long as its mapping.
            Ok(Allocation { base: mapped?, len: len as u64, gpu })
        }
    }

    fn map_object(&self, object: u64, len: usize, gpu: c_int) -> Result<u64, Status> {
        let location = Location { kind: LOCATION_DEVICE, id: gpu };
        let access = AccessDesc { location, flags: ACCESS_READ_WRITE };
        let mut base = 0;
        // SAFETY: the pointers are to live local variables, and no other code knows the addresses.
        unsafe {
            check_status((self.cuMemAddressReserve)(&mut base, len, 0, 0, 0))?;
            if let Err(status) = check_status((self.cuMemMap)(base, len, 0, object, 0)) {
                (self.cuMemAddressFree)(base, len);
                return Err(status);
            }
            if let Err(status) = check_status((self.cuMemSetAccess)(base, len, &access, 1)) {
                (self.cuMemUnmap)(base, len);
                (self.cuMemAddressFree)(base, len);
                return Err(status);
            }
        }
        Ok(base)
    }

    pub(crate) fn free_block(&self, base: u64, len: u64) -> Result<(), Status> {
        // SAFETY: no code uses the block any more.
        unsafe {
            check_status((self.cuMemUnmap)(base, len as usize))?;
            check_status((self.cuMemAddressFree)(base, len as usize))
        }
    }

    pub(crate) fn allocation(&self, va: u64) -> Result<Allocation, Failure> {
        let mut gpu: c_int = 0;
        // SAFETY: the attribute is an int, and the pointer is to a live local variable.
        let status = unsafe {
            let pointer = ptr::from_mut(&mut gpu).cast();
            (self.cuPointerGetAttribute)(pointer, POINTER_ATTRIBUTE_DEVICE_ORDINAL, va)
        };
        check(NOT_GPU_MEMORY, status)?;
        let mut base = 0;
        let mut len = 0;
        self.in_context(gpu, || {
            // SAFETY: both pointers are to live local variables.
            check(NOT_GPU_MEMORY, unsafe { (self.cuMemGetAddressRange_v2)(&mut base, &mut len, va) })
        })?;
        Ok(Allocation { base, len: len as u64, gpu })
    }

    /// Returns the peer-to-peer tokens with which memory at this address can be pinned, if CUDA returns any.
    pub(crate) fn tokens(&self, va: u64) -> Option<(u64, u32)> {
        let mut tokens = P2pTokens::default();
        let pointer = ptr::from_mut(&mut tokens).cast();
        // SAFETY: the attribute is a structure of this type, and the pointer is to a live local variable.
        let status = unsafe { (self.cuPointerGetAttribute)(pointer, POINTER_ATTRIBUTE_P2P_TOKENS, va) };
        if status == 0 { Some((tokens.token, tokens.va_space)) } else { None }
    }

    pub(crate) fn export(&self, va: u64) -> Result<File, Failure> {
        let mut object = 0;
        let address = ptr::without_provenance_mut(va as usize);
        // SAFETY: `object` is a live local variable, and CUDA only looks the address up.
        let status = unsafe { (self.cuMemRetainAllocationHandle)(&mut object, address) };
        check("the retaining of an allocation (is it a VMM allocation?)", status)?;
        let exported = self.export_object(object);
        // SAFETY: the object was retained above.
        unsafe { (self.cuMemRelease)(object) };
        exported
    }

    pub(crate) fn export_object(&self, object: u64) -> Result<File, Failure> {
        let mut fd: c_int = -1;
        // SAFETY: `fd` is a live local variable, and no other code owns the descriptor that CUDA stores in it.
        unsafe {
            let pointer = ptr::from_mut(&mut fd).cast();
            let status = (self.cuMemExportToShareableHandle)(pointer, object, HANDLE_POSIX_FD, 0);
            check("the export of an allocation", status)?;
            Ok(File::from_raw_fd(fd))
        }
    }

    /// Returns the number N in the name of a GPU's device file, `/dev/nvidiaN`.
    pub(crate) fn device_minor(&self, gpu: i32) -> Result<u32, Failure> {
        const STEP: &str = "the search for a GPU";
        let mut device = 0;
        let mut name = [0_u8; 32];
        // SAFETY: `device` and `name` are live local variables, and `len` is the length of `name`.
        unsafe {
            check(STEP, (self.cuDeviceGet)(&mut device, gpu))?;
            let len = name.len() as c_int;
            check(STEP, (self.cuDeviceGetPCIBusId)(name.as_mut_ptr().cast(), len, device))?;
        }
        let bus_id = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy();
        let path = format!("/proc/driver/nvidia/gpus/{}/information", bus_id.to_lowercase());
        let text = fs::read_to_string(path).unwrap_or_default();
        let minor = text.lines().find_map(|line| line.strip_prefix("Device Minor:")).unwrap_or_default();
        // If the driver reports no minor number, CUDA's number of the GPU is used.
        Ok(minor.trim().parse().unwrap_or(gpu as u32))
    }

    /// Waits until a GPU has done the work of the thread's current context (the GPU's primary one if there is none).
    pub(crate) fn wait_for(&self, gpu: c_int) -> Result<(), Status> {
        // SAFETY: the call only waits.
        let waited = self.in_context(gpu, || check("the wait for a GPU", unsafe { (self.cuCtxSynchronize)() }));
        waited.map_err(|failure| failure.status as Status)
    }

    /// Runs `work` in the thread's current CUDA context. If there is none, makes the GPU's primary one current while
    /// `work` runs.
    fn in_context(&self, gpu: i32, work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        let mut current = 0;
        // SAFETY: the pointers are to live local variables, and the retained context is released below.
        unsafe {
            check("the search for a context", (self.cuCtxGetCurrent)(&mut current))?;
            if current != 0 {
                return work();
            }
            let mut device = 0;
            let mut context = 0;
            check("the search for a GPU", (self.cuDeviceGet)(&mut device, gpu))?;
            let retained = (self.cuDevicePrimaryCtxRetain)(&mut context, device);
            check("the retaining of a context", retained)?;
            (self.cuCtxSetCurrent)(context);
            let result = work();
            (self.cuCtxSetCurrent)(0);
            (self.cuDevicePrimaryCtxRelease_v2)(device);
            result
        }
    }
}

fn check(step: &'static str, status: Status) -> Result<(), Failure> {
    check_status(status).map_err(|status| Failure::refused(step, status as u32))
}

pub(crate) fn check_status(status: Status) -> Result<(), Status> {
    if status == 0 { Ok(()) } else { Err(status) }
}
