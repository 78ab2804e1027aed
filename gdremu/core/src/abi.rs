//! The commands of gdrdrv, with their numbers and the layout of their arguments. The library that is tested with gdremu
//! (libgdrapi) declares the same commands once more, so a mistake in one of the two declarations makes tests fail.
#![forbid(unsafe_code)]

use crate::errno::Errno;

pub const MAGIC: u32 = 0xDA;

pub const MAX_ARGUMENT: usize = 48;

/// Returns the number of a command, `_IOWR(0xDA, nr, …)`, with `size` bytes in its size field.
const fn read_write(nr: u32, size: u32) -> u32 {
    3 << 30 | size << 16 | MAGIC << 8 | nr
}

/// The size that is part of most commands' numbers. It is the size of a pointer, because gdrdrv's header passes a
/// pointer type to `_IOWR`, not the type of the argument itself.
const POINTER: u32 = 8;

pub fn is_gdrdrv(number: u32) -> bool {
    (number >> 8) & 0xff == MAGIC
}

#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    pub offset: usize,
    pub size: usize,
}

macro_rules! commands {
    ($($(#[$doc:meta])* $command:ident $name:literal = $number:expr, since $minor:literal,
       $module:ident { $($field:ident: $type:ty),* };)*) => {
        /// A command that some release of gdrdrv knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Command { $($(#[$doc])* $command,)* }

        impl Command {
            pub const ALL: &[Command] = &[$(Command::$command),*];

            pub const fn number(self) -> u32 {
                match self { $(Command::$command => $number,)* }
            }

            /// Returns the command's name in gdrdrv's header, without the prefix GDRDRV_IOC_.
            pub const fn name(self) -> &'static str {
                match self { $(Command::$command => $name,)* }
            }

            /// Returns the minor version of the first release, 2.`since`, that knows the command.
            pub const fn since(self) -> u16 {
                match self { $(Command::$command => $minor,)* }
            }

            pub const fn fields(self) -> &'static [Field] {
                match self { $(Command::$command => $module::FIELDS,)* }
            }

            pub const fn argument_size(self) -> usize {
                match self { $(Command::$command => $module::LEN as usize,)* }
            }
        }

        $(#[doc = concat!("Argument of [`Command::", stringify!($command), "`].")]
        #[allow(non_snake_case, reason = "the fields' names say it all")]
        pub mod $module {
            use super::Field;
            #[repr(C)]
            struct Layout { $($field: $type),* }
            pub(super) const LEN: u32 = size_of::<Layout>() as u32;
            const _: () = assert!(LEN as usize <= super::MAX_ARGUMENT);
            $(pub const $field: Field = Field {
                name: stringify!($field),
                offset: std::mem::offset_of!(Layout, $field),
                size: size_of::<$type>(),
            };)*
            pub(super) const FIELDS: &[Field] = &[$($field),*];
        })*
    };
}

commands! {
    PinBuffer "PIN_BUFFER" = read_write(1, pin_buffer::LEN), since 0,
        pin_buffer { ADDR: u64, SIZE: u64, P2P_TOKEN: u64, VA_SPACE: u32, HANDLE: u64 };
    UnpinBuffer "UNPIN_BUFFER" = read_write(2, POINTER), since 0, unpin_buffer { HANDLE: u64 };
    /// Reports whether the memory was freed while it was pinned.
    GetCbFlag "GET_CB_FLAG" = read_write(3, POINTER), since 0, get_cb_flag { HANDLE: u64, FLAG: u32 };
    /// Describes a pin. The result says whether the mapping is write-combining, and does not distinguish other types.
    GetInfo "GET_INFO" = read_write(4, POINTER), since 0,
        get_info { HANDLE: u64, VA: u64, MAPPED_SIZE: u64, PAGE_SIZE: u32, TSC_KHZ: u32, TM_CYCLES: u64, MAPPED: u32,
                   WC_MAPPING: u32 };
    GetInfoV2 "GET_INFO_V2" = read_write(5, POINTER), since 4,
        get_info_v2 { HANDLE: u64, VA: u64, MAPPED_SIZE: u64, PAGE_SIZE: u32, TSC_KHZ: u32, TM_CYCLES: u64,
                      MAPPING_TYPE: u32 };
    GetAttr "GET_ATTR" = read_write(6, POINTER), since 5, get_attr { ATTR: u32, VAL: u32 };
    PinBufferV2 "PIN_BUFFER_V2" = read_write(7, pin_buffer_v2::LEN), since 5,
        pin_buffer_v2 { ADDR: u64, SIZE: u64, FLAGS: u32, PAD: u32, HANDLE: u64 };
    ReqMappingType "REQ_MAPPING_TYPE" = read_write(8, POINTER), since 5,
        req_mapping_type { HANDLE: u64, MAPPING_TYPE: u32 };
    /// Reports the driver's version, and the oldest library version that it serves.
    GetVersion "GET_VERSION" = read_write(255, POINTER), since 0,
        get_version { GDRDRV_VERSION: u32, MINIMUM_GDR_API_VERSION: u32 };
}

impl Command {
    pub fn from_number(number: u32) -> Option<Command> {
        Command::ALL.iter().copied().find(|command| command.number() == number)
    }

    pub const fn reads(self) -> bool {
        !matches!(self, Command::GetVersion)
    }

    /// Returns whether the driver writes a result into the argument.
    pub const fn answers(self) -> bool {
        !matches!(self, Command::UnpinBuffer | Command::ReqMappingType)
    }

    pub const fn new_handle(self) -> Option<&'static Field> {
        match self {
            Command::PinBuffer => Some(&pin_buffer::HANDLE),
            Command::PinBufferV2 => Some(&pin_buffer_v2::HANDLE),
            _ => None,
        }
    }
}

/// The bit of [`pin_buffer_v2::FLAGS`] that requests access to the pages over PCIe.
pub const PIN_FLAG_FORCE_PCIE: u64 = 1;

/// A value of [`get_attr::ATTR`]: asks for the attribute that is 1 if pins last even when their memory is freed.
pub const ATTR_USE_PERSISTENT_MAPPING: u64 = 1;
/// A value of [`get_attr::ATTR`]: asks for the attribute that is 1 if the driver knows [`PIN_FLAG_FORCE_PCIE`].
pub const ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE: u64 = 2;

#[derive(Clone, Copy)]
pub struct Argument(pub [u8; MAX_ARGUMENT]);

impl Argument {
    pub const ZERO: Argument = Argument([0; MAX_ARGUMENT]);

    pub fn get(&self, field: &Field) -> u64 {
        let mut bytes = [0; 8];
        bytes[..field.size].copy_from_slice(&self.0[field.offset..][..field.size]);
        u64::from_le_bytes(bytes)
    }

    /// Sets a field. A value that does not fit loses its high bytes, as in C.
    pub fn set(&mut self, field: &Field, value: u64) {
        self.0[field.offset..][..field.size].copy_from_slice(&value.to_le_bytes()[..field.size]);
    }
}

/// The type of the CPU's mapping of GPU memory, with gdrdrv's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingType {
    None = 0,
    Wc = 1,
    /// The CPU caches the memory, and the caches are coherent.
    Caching = 2,
    /// The CPU does not cache the memory, which has the memory type that arm64 calls Device.
    Device = 3,
}

impl MappingType {
    pub fn from_number(number: u64) -> Result<MappingType, Errno> {
        match number {
            0 => Ok(MappingType::None),
            1 => Ok(MappingType::Wc),
            2 => Ok(MappingType::Caching),
            3 => Ok(MappingType::Device),
            _ => Err(Errno::EINVAL),
        }
    }
}
