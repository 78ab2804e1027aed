//! The kernel module's interface, with nine ioctls on `/dev/gdrdrv`, their structs, and nothing
//! else.
//!
//! Every call goes through libc's symbols, so that it can be interposed.

use std::ffi::CStr;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, access};

use crate::error::{Call, Error, Result};
use crate::sys::fork::{Descriptor, OpenFile, Owner};

/// The module's device file, unless another one is asked for.
const DEVICE: &str = "/dev/gdrdrv";

/// The kernel's file while gdrdrv uses symbols of the module `nv-p2p-dummy`.
const DUMMY_HOLDER: &CStr = c"/sys/module/nv_p2p_dummy/holders/gdrdrv";

/// The ioctl type byte of all nine commands.
const MAGIC: u8 = 0xDA;

/// How often a call that signals interrupt is repeated before `EINTR` is passed on.
const MAX_INTERRUPTIONS: u32 = 100;

/// Argument of PIN_BUFFER.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PinBuffer {
    pub addr: u64,
    pub size: u64,
    pub p2p_token: u64,
    pub va_space: u32,
    pub handle: u64,
}

/// Argument of UNPIN_BUFFER.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct UnpinBuffer {
    pub handle: u64,
}

/// Argument of GET_CB_FLAG.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct GetCbFlag {
    pub handle: u64,
    pub flag: u32,
}

/// Argument of GET_INFO.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct GetInfo {
    pub handle: u64,
    pub va: u64,
    pub mapped_size: u64,
    pub page_size: u32,
    pub tsc_khz: u32,
    pub tm_cycles: u64,
    pub mapped: u32,
    pub wc_mapping: u32,
}

/// Argument of GET_INFO_V2.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct GetInfoV2 {
    pub handle: u64,
    pub va: u64,
    pub mapped_size: u64,
    pub page_size: u32,
    pub tsc_khz: u32,
    pub tm_cycles: u64,
    pub mapping_type: u32,
}

/// Argument of GET_ATTR.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct GetAttr {
    pub attr: u32,
    pub val: u32,
}

/// Argument of PIN_BUFFER_V2.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PinBufferV2 {
    pub addr: u64,
    pub size: u64,
    pub flags: u32,
    pub pad: u32,
    pub handle: u64,
}

/// Argument of REQ_MAPPING_TYPE.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ReqMappingType {
    pub handle: u64,
    pub mapping_type: u32,
}

/// Argument of GET_VERSION. Versions are packed as major << 16 | minor.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct GetVersion {
    pub gdrdrv_version: u32,
    pub minimum_gdr_api_version: u32,
}

/// Seven commands were declared with a pointer to their struct. So their numbers carry the size of a
/// pointer although the kernel copies the whole struct.
const POINTER: usize = size_of::<*mut u8>();

/// The command numbers.
mod number {
    use super::{MAGIC, POINTER, PinBuffer as V1, PinBufferV2 as V2, size_of};
    use nix::{request_code_readwrite as iowr, sys::ioctl::ioctl_num_type as Number};

    pub(super) const PIN_BUFFER: Number = iowr!(MAGIC, 1, size_of::<V1>());
    pub(super) const UNPIN_BUFFER: Number = iowr!(MAGIC, 2, POINTER);
    pub(super) const GET_CB_FLAG: Number = iowr!(MAGIC, 3, POINTER);
    pub(super) const GET_INFO: Number = iowr!(MAGIC, 4, POINTER);
    pub(super) const GET_INFO_V2: Number = iowr!(MAGIC, 5, POINTER);
    pub(super) const GET_ATTR: Number = iowr!(MAGIC, 6, POINTER);
    pub(super) const PIN_BUFFER_V2: Number = iowr!(MAGIC, 7, size_of::<V2>());
    pub(super) const REQ_MAPPING_TYPE: Number = iowr!(MAGIC, 8, POINTER);
    pub(super) const GET_VERSION: Number = iowr!(MAGIC, 255, POINTER);
}

/// The raw calls, one per command.
mod ioctl {
    use super::number;
    use nix::ioctl_readwrite_bad as command;

    command!(pin_buffer, number::PIN_BUFFER, super::PinBuffer);
    command!(unpin_buffer, number::UNPIN_BUFFER, super::UnpinBuffer);
    command!(get_cb_flag, number::GET_CB_FLAG, super::GetCbFlag);
    command!(get_info, number::GET_INFO, super::GetInfo);
    command!(get_info_v2, number::GET_INFO_V2, super::GetInfoV2);
    command!(get_attr, number::GET_ATTR, super::GetAttr);
    command!(pin_buffer_v2, number::PIN_BUFFER_V2, super::PinBufferV2);
    command!(req_mapping_type, number::REQ_MAPPING_TYPE, super::ReqMappingType);
    command!(get_version, number::GET_VERSION, super::GetVersion);
}

/// An open `/dev/gdrdrv`. Dropping it closes it.
#[derive(Debug)]
pub struct DeviceFile(Descriptor);

impl DeviceFile {
    /// Opens the device file.
    pub fn open(path: Option<&Path>) -> Result<DeviceFile> {
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let (call, path) = match path {
            None => (Call::Open, Path::new(DEVICE)),
            Some(path) => (Call::OpenDevicePath, path),
        };
        let open = || retry(call, || open(path, flags, Mode::empty()));
        Descriptor::open(open).map(DeviceFile)
    }

    /// Returns whether gdrdrv got its GPU driver's symbols from `nv-p2p-dummy`, a module that only
    /// serves to build it. Then it opens, and refuses every pin.
    pub fn is_bound_to_dummy() -> bool {
        access(DUMMY_HOLDER, AccessFlags::F_OK).is_ok()
    }

    /// The process that opened it.
    pub fn owner(&self) -> Owner {
        self.0.owner()
    }

    /// The open file.
    pub fn file(&self) -> OpenFile {
        self.0.file()
    }

    /// Closes it and returns the kernel's answer. The descriptor is gone in any case.
    pub fn close(self) -> Result<()> {
        let closed = self.0.close();
        closed.map_err(|errno| Error::driver(Call::Close, errno as i32))
    }
}

impl AsRawFd for DeviceFile {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident($argument:ty) = $call:ident;)+) => {
        impl DeviceFile {
            $(
                $(#[$doc])*
                pub fn $name(&self, argument: &mut $argument) -> Result<()> {
                    let fd = self.as_raw_fd();
                    // SAFETY: the command reads and writes one struct of this type, which we borrow.
                    retry(Call::$call, || unsafe { ioctl::$name(fd, argument) }).map(drop)
                }
            )+
        }
    };
}

commands! {
    /// Pins a range of GPU memory (every driver).
    pin_buffer(PinBuffer) = PinBuffer;
    /// Releases a pin.
    unpin_buffer(UnpinBuffer) = UnpinBuffer;
    /// Asks whether the pinned memory has been freed.
    get_cb_flag(GetCbFlag) = GetCbFlag;
    /// Asks for the description of a pin (every driver).
    get_info(GetInfo) = GetInfo;
    /// Asks for the description of a pin, mapping type included (2.4 and later).
    get_info_v2(GetInfoV2) = GetInfoV2;
    /// Asks for an attribute of the driver (2.5 and later).
    get_attr(GetAttr) = GetAttr;
    /// Pins a range of GPU memory with flags (2.5 and later).
    pin_buffer_v2(PinBufferV2) = PinBufferV2;
    /// Requests the type of the next mapping of a pin (2.5 and later).
    req_mapping_type(ReqMappingType) = ReqMappingType;
    /// Asks for the driver's version, and for the oldest API it serves.
    get_version(GetVersion) = GetVersion;
}

/// Retries on `EINTR`, at most `MAX_INTERRUPTIONS` times.
fn retry<T>(call: Call, mut attempt: impl FnMut() -> nix::Result<T>) -> Result<T> {
    let mut interruptions = 0;
    loop {
        match attempt() {
            Err(Errno::EINTR) if interruptions < MAX_INTERRUPTIONS => interruptions += 1,
            // nix has no name for numbers internal to the kernel, but libc's errno still holds them.
            Err(Errno::UnknownErrno) => return Err(Error::driver(call, Errno::last_raw())),
            Err(errno) => return Err(Error::driver(call, errno as i32)),
            Ok(value) => return Ok(value),
        }
    }
}

// The values that the kernel module was built with, on 64-bit Linux.
#[cfg(all(target_pointer_width = "64", not(any(target_arch = "powerpc64", target_arch = "mips64"))))]
const _: () = {
    assert!(number::PIN_BUFFER == 0xC028_DA01);
    assert!(number::UNPIN_BUFFER == 0xC008_DA02);
    assert!(number::GET_CB_FLAG == 0xC008_DA03);
    assert!(number::GET_INFO == 0xC008_DA04);
    assert!(number::GET_INFO_V2 == 0xC008_DA05);
    assert!(number::GET_ATTR == 0xC008_DA06);
    assert!(number::PIN_BUFFER_V2 == 0xC020_DA07);
    assert!(number::REQ_MAPPING_TYPE == 0xC008_DA08);
    assert!(number::GET_VERSION == 0xC008_DAFF);
};

macro_rules! layout {
    ($type:ty, $size:literal, $($field:ident @ $offset:literal),+) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(offset_of!($type, $field) == $offset);)+
        };

        #[cfg(test)]
        impl module_header::Layout for $type {
            const FIELDS: &[(&str, usize, usize)] = &[$((
                stringify!($field),
                offset_of!($type, $field),
                module_header::size_of_field(|argument: &$type| &argument.$field),
            )),+];
        }
    };
}

layout!(PinBuffer, 40, addr @ 0, size @ 8, p2p_token @ 16, va_space @ 24, handle @ 32);
layout!(UnpinBuffer, 8, handle @ 0);
layout!(GetCbFlag, 16, handle @ 0, flag @ 8);
layout!(GetInfo, 48, handle @ 0, va @ 8, mapped_size @ 16, page_size @ 24, tsc_khz @ 28,
        tm_cycles @ 32, mapped @ 40, wc_mapping @ 44);
layout!(GetInfoV2, 48, handle @ 0, va @ 8, mapped_size @ 16, page_size @ 24, tsc_khz @ 28,
        tm_cycles @ 32, mapping_type @ 40);
layout!(GetAttr, 8, attr @ 0, val @ 4);
layout!(PinBufferV2, 32, addr @ 0, size @ 8, flags @ 16, pad @ 20, handle @ 24);
layout!(ReqMappingType, 16, handle @ 0, mapping_type @ 8);
layout!(GetVersion, 8, gdrdrv_version @ 0, minimum_gdr_api_version @ 4);

#[cfg(test)]
mod module_header;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_bounded() {
        let mut attempts = 0;
        let result: Result<()> = retry(Call::GetInfo, || {
            attempts += 1;
            Err(Errno::EINTR)
        });
        assert_eq!(result.map_err(|e| e.errno()), Err(libc::EINTR));
        assert_eq!(attempts, MAX_INTERRUPTIONS + 1);
    }

    #[test]
    fn interrupted_call_is_retried() {
        let mut answers = [Err(Errno::EINTR), Err(Errno::EINTR), Ok(7)].into_iter();
        let value = retry(Call::GetInfo, || answers.next().expect("no more than three attempts"));
        assert_eq!(value, Ok(7));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no such ioctl")]
    fn command_on_another_file_is_enotty() {
        let null = std::fs::File::open("/dev/null").expect("every system has it");
        let file = DeviceFile(Descriptor::new(null.into()));
        let errno = |result: Result<()>| result.map_err(|e| e.errno());
        assert_eq!(errno(file.get_version(&mut GetVersion::default())), Err(libc::ENOTTY));
        assert_eq!(errno(file.pin_buffer_v2(&mut PinBufferV2::default())), Err(libc::ENOTTY));
        assert_eq!(errno(file.unpin_buffer(&mut UnpinBuffer::default())), Err(libc::ENOTTY));
    }
}
