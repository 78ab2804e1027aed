//! The kernel module's interface: the ioctls on `/dev/gdrdrv`, and their structs. Every call goes through libc's
//! symbols, so that a preloaded library can replace it.

use std::ffi::CStr;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::request_code_readwrite;
use nix::sys::ioctl::ioctl_num_type as Number;
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, access};

use crate::error::{Error, Result, call};
use crate::sys::fork::{Descriptor, OpenFile};

/// The module's device file, unless another one is asked for.
const DEVICE: &str = "/dev/gdrdrv";

/// The file that exists while gdrdrv uses symbols of the module `nv-p2p-dummy` instead of the GPU driver's.
const DUMMY_HOLDER: &CStr = c"/sys/module/nv_p2p_dummy/holders/gdrdrv";

/// The ioctl type byte of all commands.
const MAGIC: u8 = 0xDA;

/// A call that fails with `EINTR` is repeated this many times before the error is returned.
const MAX_INTERRUPTIONS: u32 = 100;

macro_rules! commands {
    ($(
        $(#[$doc:meta])*
        $command:ident $name:ident($argument:ident, $size:literal) = $number:literal { $($field:ident: $type:ty = $offset:literal),+ }
    )+) => {
        $(
            #[derive(Clone, Copy, Debug, Default)]
            #[repr(C)]
            pub struct $argument {
                $(pub $field: $type,)+
            }

            const _: () = {
                assert!(size_of::<$argument>() == $size);
                $(assert!(offset_of!($argument, $field) == $offset);)+
            };

            impl $argument {
                /// The command's number.
                const NUMBER: Number = {
                    let of_kernel: u32 = $number;
                    request_code_readwrite!(MAGIC, of_kernel & 0xff, of_kernel >> 16 & 0x3fff)
                };
            }

            // In gdrdrv, the command has this number, but not on these two architectures: they encode it differently.
            #[cfg(all(target_pointer_width = "64", not(any(target_arch = "powerpc64", target_arch = "mips64"))))]
            const _: () = assert!($argument::NUMBER as u32 == $number);
        )+

        /// The raw calls of ioctl, one for each command.
        mod ioctl {
            $(nix::ioctl_readwrite_bad!($name, super::$argument::NUMBER, super::$argument);)+
        }

        impl DeviceFile {
            $(
                $(#[$doc])*
                pub fn $name(&self, argument: &mut $argument) -> Result<()> {
                    let fd = self.as_fd().as_raw_fd();
                    // SAFETY: the command reads and writes one struct of this type, which we borrow.
                    retry(concat!("ioctl ", stringify!($command)), || unsafe { ioctl::$name(fd, argument) }).map(drop)
                }
            )+
        }
    };
}

// Each command has its argument's type and size, the command's number, and the argument's fields with their offsets.
// gdrdrv declares seven commands with a pointer to their struct, so that their numbers contain the size of a pointer,
// although it copies the whole struct. Versions are packed as major << 16 | minor.
commands! {
    /// Pins a range of GPU memory (all versions of gdrdrv).
    PIN_BUFFER pin_buffer(PinBuffer, 40) = 0xC028_DA01 {
        addr: u64 = 0,
        size: u64 = 8,
        p2p_token: u64 = 16,
        va_space: u32 = 24,
        handle: u64 = 32
    }

    /// Releases a pin.
    UNPIN_BUFFER unpin_buffer(UnpinBuffer, 8) = 0xC008_DA02 { handle: u64 = 0 }

    /// Asks whether the pinned memory has been freed.
    GET_CB_FLAG get_cb_flag(GetCbFlag, 16) = 0xC008_DA03 { handle: u64 = 0, flag: u32 = 8 }

    /// Asks for the description of a pin (all versions of gdrdrv).
    GET_INFO get_info(GetInfo, 48) = 0xC008_DA04 {
        handle: u64 = 0,
        va: u64 = 8,
        mapped_size: u64 = 16,
        page_size: u32 = 24,
        tsc_khz: u32 = 28,
        tm_cycles: u64 = 32,
        mapped: u32 = 40,
        wc_mapping: u32 = 44
    }

    /// Asks for the description of a pin, mapping type included (2.4 and later).
    GET_INFO_V2 get_info_v2(GetInfoV2, 48) = 0xC008_DA05 {
        handle: u64 = 0,
        va: u64 = 8,
        mapped_size: u64 = 16,
        page_size: u32 = 24,
        tsc_khz: u32 = 28,
        tm_cycles: u64 = 32,
        mapping_type: u32 = 40
    }

    /// Asks for an attribute of the driver (2.5 and later).
    GET_ATTR get_attr(GetAttr, 8) = 0xC008_DA06 { attr: u32 = 0, val: u32 = 4 }

    /// Pins a range of GPU memory with flags (2.5 and later).
    PIN_BUFFER_V2 pin_buffer_v2(PinBufferV2, 32) = 0xC020_DA07 {
        addr: u64 = 0,
        size: u64 = 8,
        flags: u32 = 16,
        pad: u32 = 20,
        handle: u64 = 24
    }

    /// Requests the type of the next mapping of a pin (2.5 and later).
    REQ_MAPPING_TYPE req_mapping_type(ReqMappingType, 16) = 0xC008_DA08 { handle: u64 = 0, mapping_type: u32 = 8 }

    /// Asks for the driver's version, and for the oldest API it serves.
    GET_VERSION get_version(GetVersion, 8) = 0xC008_DAFF { gdrdrv_version: u32 = 0, minimum_gdr_api_version: u32 = 4 }
}

/// An open `/dev/gdrdrv`. Dropping it closes it.
#[derive(Debug)]
pub struct DeviceFile(Descriptor);

impl DeviceFile {
    /// Opens the device file.
    pub fn open(path: Option<&Path>) -> Result<DeviceFile> {
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let name = if path.is_none() { call::OPEN } else { call::OPEN_DEVICE_PATH };
        let path = path.unwrap_or(Path::new(DEVICE));
        let descriptor = Descriptor::open(|| retry(name, || open(path, flags, Mode::empty())))?;
        Ok(DeviceFile(descriptor))
    }

    /// Returns whether gdrdrv uses the symbols of `nv-p2p-dummy`, a module for builds of gdrdrv without the GPU driver.
    /// Such a gdrdrv can be opened, but refuses every pin.
    pub fn is_bound_to_dummy() -> bool {
        access(DUMMY_HOLDER, AccessFlags::F_OK).is_ok()
    }

    /// The open descriptor of the device file.
    pub fn file(&self) -> OpenFile {
        self.0.file()
    }

    /// Closes the file and returns the kernel's answer. The descriptor is gone in any case.
    pub fn close(self) -> Result<()> {
        let closed = self.0.close();
        closed.map_err(|errno| Error::of_call(call::CLOSE, errno))
    }
}

impl AsFd for DeviceFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Retries on `EINTR`, at most `MAX_INTERRUPTIONS` times.
fn retry<T>(call: &'static str, mut attempt: impl FnMut() -> nix::Result<T>) -> Result<T> {
    let mut interruptions = 0;
    loop {
        match attempt() {
            Err(Errno::EINTR) if interruptions < MAX_INTERRUPTIONS => interruptions += 1,
            Err(errno) => return Err(Error::of_call(call, errno)),
            Ok(value) => return Ok(value),
        }
    }
}
