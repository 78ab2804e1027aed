//! The errors of this crate, with the errno value of each, and with advice for users.
#![forbid(unsafe_code)]

use std::ffi::{CStr, c_uint};
use std::fmt;

pub use nix::errno::Errno;

use crate::types::cuda_version::{EXPORTS_DMA_BUFS, OLDEST};
use crate::types::{MappingType, Version};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call failed. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The handle was made before this process was forked off.
    #[error(
        "the handle was made by the parent process: a forked child must open the driver and pin for itself (Gdr::open, \
         Gdr::pin, in C gdr_open, gdr_pin_buffer)"
    )]
    ForkedChild,
    /// The range has no bytes, begins at address 0, or has no whole GPU page where one is needed.
    #[error(
        "no address, no bytes, or no whole GPU page of 64 KiB where one is needed: pass the range of a live GPU \
         allocation"
    )]
    EmptyRange,
    /// Address and size reach past the end of the address space.
    #[error("the range reaches past the end of the address space: check its length")]
    RangeOverflow,
    /// The pin is mapped already.
    #[error("the buffer is mapped already: unmap it first, or use that mapping")]
    AlreadyMapped,
    /// The driver took the mapping away while the mapping was being made.
    #[error("the driver revoked the mapping, as it does when the GPU memory is freed: map live memory")]
    MappingRevoked,
    /// The driver gave another mapping type than the one asked for.
    #[non_exhaustive]
    #[error("asked for a {wanted} mapping, the driver gave {given}: {DEFAULT_MAPPING}")]
    MappingTypeRefused {
        /// The type asked for.
        wanted: MappingType,
        /// The type given.
        given: MappingType,
    },
    /// The pin has flags, which this version of gdrdrv does not take.
    #[non_exhaustive]
    #[error(
        "pin flags need gdrdrv 2.5, this is {driver}: update the driver, or pin with the default flags \
         (PinFlags::DEFAULT, in C flags = 0)"
    )]
    PinFlagsNeedNewerDriver {
        /// The driver in use.
        driver: Version,
    },
    /// gdrdrv was built against `nv-p2p-dummy` instead of the GPU driver.
    #[error(
        "gdrdrv is bound to nv-p2p-dummy, so every pin fails: unload both modules (rmmod gdrdrv nv_p2p_dummy), \
         rebuild gdrdrv against the GPU driver's sources, and load it after nvidia"
    )]
    DummyGpuDriver,
    /// The driver is older than 2.0.
    #[non_exhaustive]
    #[error("gdrdrv {driver} is too old: update it to {oldest} or later", oldest = Version::OLDEST_GDRDRV)]
    DriverTooOld {
        /// The driver in use.
        driver: Version,
    },
    /// The driver wants a newer library.
    #[non_exhaustive]
    #[error(
        "gdrdrv needs a library of API version {wanted}, this one has {api}: update the library", api = Version::API
    )]
    LibraryTooOld {
        /// The API version the driver asks for.
        wanted: Version,
    },
    /// There is no CUDA driver to load.
    #[error("no CUDA driver (libcuda.so.1): install the GPU driver, or pass it into the container")]
    NoCuda,
    /// The CUDA driver lacks the function named here.
    #[error("libcuda has no {0}: update the GPU driver, or its stand-in libcuda")]
    NoCudaFunction(&'static str),
    /// This version of the CUDA driver does not have a function that is needed. Versions are 1000 × major + 10 × minor.
    #[non_exhaustive]
    #[error("the GPU driver serves CUDA {}, {}", Version::of_cuda(*version), needs_cuda(*needed))]
    CudaTooOld {
        /// The driver's version.
        version: i32,
        /// The first version that has the function.
        needed: i32,
    },
    /// The GPU's memory cannot be mapped as a dma-buf.
    #[non_exhaustive]
    #[error(
        "the memory of GPU {gpu} cannot be mapped as a dma-buf: load the gdrdrv module (modprobe gdrdrv), or use a \
         GPU that supports it"
    )]
    NoDmaBufSupport {
        /// CUDA's number of the GPU.
        gpu: i32,
    },
    /// CUDA is initialized in this process, and shows no GPU whose memory can be mapped as a dma-buf.
    #[non_exhaustive]
    #[error(
        "none of the {gpus} GPUs that CUDA shows has memory that can be mapped as a dma-buf: load the gdrdrv module \
         (modprobe gdrdrv), or use a GPU that supports it"
    )]
    NoDmaBufGpu {
        /// The number of GPUs that CUDA shows.
        gpus: i32,
    },
    /// The GPU's memory cannot be exported as a dma-buf.
    #[non_exhaustive]
    #[error(
        "the memory of GPU {gpu} cannot be exported as a dma-buf: use NVIDIA's open kernel modules on Linux 5.12 or \
         later, or load nvidia-peermem (modprobe nvidia-peermem) and register the address itself"
    )]
    NoDmaBufExport {
        /// CUDA's number of the GPU.
        gpu: i32,
    },
    /// Not all of the range is host memory that CUDA has mapped for GPUs.
    #[error(
        "the range is not mapped host memory: pass the device address of a HostMemory, or of memory from \
         cuMemHostAlloc or cuMemHostRegister, and no more than its length"
    )]
    NotHostMemory,
    /// More bytes are to be mapped than are pinned.
    #[non_exhaustive]
    #[error("{len} bytes are more than the {pinned} that are pinned: map less, or pin more")]
    OutOfPin {
        /// Bytes to map.
        len: usize,
        /// Bytes that are pinned.
        pinned: usize,
    },
    /// The pin that is to be mapped is already unpinned.
    #[error("it is unpinned: pin the range again")]
    Unpinned,
    /// Too few file descriptors are left, in this process (`EMFILE`) or in the whole system (`ENFILE`).
    #[non_exhaustive]
    #[error("{error}: each pin of the dma-buf backend holds a file descriptor: raise the limit (ulimit -n)")]
    Descriptors {
        /// `EMFILE` or `ENFILE`.
        #[source]
        error: OsError,
    },
    /// A call to CUDA failed.
    #[non_exhaustive]
    #[error("{call} failed with {error}: {}", cuda_advice(*error))]
    Cuda {
        /// The name of the call.
        call: &'static str,
        /// CUDA's error.
        #[source]
        error: CudaError,
    },
    /// There is no memory for another handle.
    #[non_exhaustive]
    #[error(
        "no memory for another handle, {error}: unpin buffers, or raise the limits of address space (ulimit -v) and, \
         after mlockall, of locked memory (ulimit -l)"
    )]
    OutOfHandles {
        /// The kernel's error.
        #[source]
        error: OsError,
    },
    /// A call to the driver failed.
    #[non_exhaustive]
    #[error("{call} failed with {error}: {}", advice(call, error.0))]
    Driver {
        /// The name of the call.
        call: &'static str,
        /// The driver's error.
        #[source]
        error: OsError,
    },
}

/// The names that errors and logs give to calls to the driver. Ioctls that are missing here are named `ioctl NAME` too.
pub mod call {
    pub const OPEN: &str = "open of /dev/gdrdrv";
    pub const OPEN_DEVICE_PATH: &str = "open of the file given as device path";
    pub const CLOSE: &str = "close of /dev/gdrdrv";
    pub const MMAP: &str = "mmap";
    pub const MUNMAP: &str = "munmap";
    pub const PIN_BUFFER: &str = "ioctl PIN_BUFFER";
    pub const PIN_BUFFER_V2: &str = "ioctl PIN_BUFFER_V2";
    pub const REQ_MAPPING_TYPE: &str = "ioctl REQ_MAPPING_TYPE";
}

/// An errno value that is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} ({text})", text = .0.desc())]
pub struct OsError(Errno);

impl OsError {
    /// Wraps the errno of a call that has just failed.
    #[cold]
    #[inline(never)] // If this were inlined, functions that pin and unmap would push more registers to the stack.
    fn new(errno: Errno) -> OsError {
        OsError(match errno {
            // nix turns the kernel's internal ENOTSUPP into `UnknownErrno`, but the thread's errno still holds it.
            Errno::UnknownErrno if Errno::last_raw() == ENOTSUPP => Errno::EOPNOTSUPP,
            // All other numbers without a name become EIO, because `UnknownErrno` is 0, which would mean success.
            Errno::UnknownErrno => Errno::EIO,
            named => named,
        })
    }

    /// The errno value.
    pub fn errno(self) -> i32 {
        self.0 as i32
    }
}

/// A CUresult that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct CudaError {
    /// CUDA's number for the error.
    pub code: c_uint,
    /// CUDA's name for the error, if it has one.
    pub(crate) name: Option<&'static CStr>,
}

impl CudaError {
    /// Returns the errno value that stands for the error (table in `docs/compatibility.md`).
    pub fn errno(self) -> i32 {
        match self.code {
            1 => libc::EINVAL,           // INVALID_VALUE
            2 => libc::ENOMEM,           // OUT_OF_MEMORY
            3 | 4 | 201 => libc::EINVAL, // NOT_INITIALIZED, DEINITIALIZED, INVALID_CONTEXT
            800 => libc::EPERM,          // NOT_PERMITTED
            801 => libc::EOPNOTSUPP,     // NOT_SUPPORTED
            _ => libc::EIO,
        }
    }
}

/// Returns the error for a code of CUDA, without CUDA's name for it.
pub fn of_cuda(call: &'static str, code: c_uint) -> Error {
    Error::Cuda { call, error: CudaError { code, name: None } }
}

/// Returns [`Error::OutOfPin`], which other crates cannot construct.
pub fn out_of_pin(len: usize, pinned: usize) -> Error {
    Error::OutOfPin { len, pinned }
}

/// Returns [`Error::OutOfHandles`] with this errno value.
pub fn no_memory(errno: Errno) -> Error {
    Error::OutOfHandles { error: OsError::new(errno) }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => write!(f, "{} ({})", name.to_string_lossy(), self.code),
            None => write!(f, "CUDA error {}", self.code),
        }
    }
}

/// `ENOTSUPP`, which is internal to the kernel and has no name in user space.
const ENOTSUPP: i32 = 524;

impl Error {
    /// Returns the error of the driver call that has just returned this errno value.
    pub fn of_call(call: &'static str, errno: Errno) -> Error {
        Error::Driver { call, error: OsError::new(errno) }
    }

    /// Returns [`Error::Descriptors`] with this errno value.
    pub(crate) fn no_descriptor(errno: Errno) -> Error {
        Error::Descriptors { error: OsError::new(errno) }
    }

    /// Returns the positive errno value that the C functions return for the error.
    pub fn errno(&self) -> i32 {
        match *self {
            Error::EmptyRange
            | Error::RangeOverflow
            | Error::OutOfPin { .. }
            | Error::Unpinned
            | Error::NotHostMemory
            | Error::MappingTypeRefused { .. }
            | Error::PinFlagsNeedNewerDriver { .. } => libc::EINVAL,
            Error::ForkedChild => libc::EACCES,
            Error::AlreadyMapped | Error::MappingRevoked => libc::EAGAIN,
            Error::DriverTooOld { .. } | Error::LibraryTooOld { .. } => libc::EPROTONOSUPPORT,
            Error::NoCuda | Error::DummyGpuDriver => libc::ENODEV,
            Error::NoCudaFunction(_)
            | Error::CudaTooOld { .. }
            | Error::NoDmaBufSupport { .. }
            | Error::NoDmaBufExport { .. }
            | Error::NoDmaBufGpu { .. } => libc::EOPNOTSUPP,
            Error::Cuda { error, .. } => error.errno(),
            Error::Driver { error, .. } | Error::OutOfHandles { error } | Error::Descriptors { error } => error.errno(),
        }
    }
}

const DEFAULT_MAPPING: &str = "map with the default flag (MapFlag::Default, in C GDR_MAP_FLAG_DEFAULT)";

const NO_FORCE_PCIE: &str = "not supported by this GPU: FORCE_PCIE works on coherent platforms only: pin with the \
                             default flags (PinFlags::DEFAULT, in C flags = 0), or allow an ordinary pin in its place \
                             (Options::force_pcie_compat, in C GDRCOPY_FORCE_PCIE_COMPAT=1)";

/// Returns advice for users about the error `errno` of the driver call `call`.
fn advice(call: &'static str, errno: Errno) -> &'static str {
    match (call, errno) {
        (call::OPEN | call::OPEN_DEVICE_PATH, Errno::ENOENT) => {
            "is the gdrdrv module loaded (modprobe gdrdrv), and in a container, was the device passed in \
             (--device=/dev/gdrdrv)?"
        }
        (call::OPEN | call::OPEN_DEVICE_PATH, Errno::EACCES) => {
            "no permission: make it readable and writable for this user (chmod 666); if it is, SELinux or AppArmor \
             forbids it (ausearch -m avc): allow it there"
        }
        (call::OPEN | call::OPEN_DEVICE_PATH, Errno::EPERM) => {
            "the container's device cgroup forbids it: pass --device=/dev/gdrdrv"
        }
        (call::OPEN | call::OPEN_DEVICE_PATH, Errno::ENXIO | Errno::ENODEV) => {
            "the device node is stale: load the module (modprobe gdrdrv) and recreate the device node"
        }
        (_, Errno::EMFILE | Errno::ENFILE) => "too many open files: raise the limit (ulimit -n)",
        (_, Errno::EACCES) => {
            "the driver serves only the process that opened it: open it in this process (Gdr::open, in C gdr_open)"
        }
        (_, Errno::EBADF) => "the program has closed the descriptor, or has passed a wrong one",
        (call::PIN_BUFFER | call::PIN_BUFFER_V2, Errno::EINVAL) => {
            "the range is not GPU memory that can be pinned: not from cuMemAlloc (or from cuMemCreate or a \
             memory pool without GPUDirect RDMA support), managed, host or freed memory, longer than the \
             allocation, or FORCE_PCIE where it cannot work"
        }
        (call::PIN_BUFFER | call::PIN_BUFFER_V2, Errno::EOPNOTSUPP) => NO_FORCE_PCIE,
        (call::PIN_BUFFER | call::PIN_BUFFER_V2, Errno::ENOMEM) => {
            "BAR1 space or memory is used up (nvidia-smi -q -d MEMORY): unpin buffers, or pin less"
        }
        (call::REQ_MAPPING_TYPE, Errno::EOPNOTSUPP) => {
            "the platform has no mapping of this type: map with the default flag (MapFlag::Default, in C \
             GDR_MAP_FLAG_DEFAULT)"
        }
        (call::MMAP, Errno::EOPNOTSUPP) => {
            "this GPU's memory cannot be mapped as a dma-buf: load the gdrdrv module (modprobe gdrdrv), or use a \
             GPU that supports it"
        }
        (call::MMAP, Errno::EINVAL) => "the range exceeds the pin or dma-buf, or the GPU memory was freed",
        (call::MMAP, Errno::ENOMEM) => "out of address space or mappings (vm.max_map_count): map less",
        (_, Errno::EINTR) => "repeatedly interrupted by signals; retry the call",
        (_, Errno::ENOTTY) => "the driver does not know the call: update it",
        _ => "see the kernel's log (dmesg)",
    }
}

/// Returns the feature that a CUDA driver before `needed` lacks, and what to do.
fn needs_cuda(needed: i32) -> &'static str {
    match needed {
        OLDEST => "GPU memory of its own needs 11.0: update it",
        EXPORTS_DMA_BUFS => "exporting dma-bufs or sharing host memory needs 11.7: update it",
        _ => "mapping dma-bufs needs 13.3: update it, or load the gdrdrv module",
    }
}

/// Returns advice for users about an error of CUDA.
fn cuda_advice(error: CudaError) -> &'static str {
    match error.errno() {
        libc::EINVAL if error.code == 1 => {
            "the range is not GPU memory that can be pinned or copied: managed, host or freed memory, longer than \
             the allocation, or of a memory pool"
        }
        libc::EINVAL => "CUDA is not usable here: a forked child cannot use it, and must be started by exec",
        libc::ENOMEM => "BAR1 space or memory is used up: unpin buffers, or pin less",
        libc::EOPNOTSUPP => NO_FORCE_PCIE,
        libc::EPERM => "not permitted: the memory may belong to another process",
        _ => "see the GPU driver's messages (dmesg)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_cuda_is_to_be_updated_to_the_version_that_is_needed() {
        let text = |needed| Error::CudaTooOld { version: 10_020, needed }.to_string();
        assert!(text(OLDEST).starts_with("the GPU driver serves CUDA 10.2, GPU memory of its own needs 11.0"));
        assert!(text(EXPORTS_DMA_BUFS).contains("11.7"));
    }
}
