//! The commands of gdrdrv: their numbers and the layout of their arguments.
//!
//! Declared here a second time, apart from the library's own declaration, so that each checks the
//! other.
#![forbid(unsafe_code)]

/// The type byte of every gdrdrv command.
pub const MAGIC: u32 = 0xDA;

/// Room for the largest argument.
pub const MAX_ARGUMENT: usize = 48;

/// `_IOWR(0xDA, nr, …)` with `size` bytes in the size field.
const fn read_write(nr: u32, size: u32) -> u32 {
    3 << 30 | size << 16 | MAGIC << 8 | nr
}

/// Most commands were declared with a pointer to their argument: the size field holds a pointer's.
const POINTER: u32 = 8;

/// Whether an ioctl number carries gdrdrv's type byte.
pub fn is_gdrdrv(number: u32) -> bool {
    (number >> 8) & 0xff == MAGIC
}

/// A command that some release of gdrdrv knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Pins with P2P tokens.
    PinBuffer,
    /// Unpins.
    UnpinBuffer,
    /// Whether the memory was freed under the pin.
    GetCbFlag,
    /// Information, with a flag for write-combining instead of a type.
    GetInfo,
    /// Information, with the mapping type.
    GetInfoV2,
    /// A property of the driver.
    GetAttr,
    /// Pins with flags.
    PinBufferV2,
    /// Sets the type of the next mapping.
    ReqMappingType,
    /// The driver's version and the oldest library that it serves.
    GetVersion,
}

impl Command {
    /// Every command.
    pub const ALL: [Command; 9] = [
        Command::PinBuffer,
        Command::UnpinBuffer,
        Command::GetCbFlag,
        Command::GetInfo,
        Command::GetInfoV2,
        Command::GetAttr,
        Command::PinBufferV2,
        Command::ReqMappingType,
        Command::GetVersion,
    ];

    /// The ioctl number.
    pub const fn number(self) -> u32 {
        match self {
            Command::PinBuffer => read_write(1, 40),
            Command::UnpinBuffer => read_write(2, POINTER),
            Command::GetCbFlag => read_write(3, POINTER),
            Command::GetInfo => read_write(4, POINTER),
            Command::GetInfoV2 => read_write(5, POINTER),
            Command::GetAttr => read_write(6, POINTER),
            Command::PinBufferV2 => read_write(7, 32),
            Command::ReqMappingType => read_write(8, POINTER),
            Command::GetVersion => read_write(255, POINTER),
        }
    }

    /// The command of an ioctl number.
    pub fn from_number(number: u32) -> Option<Command> {
        Command::ALL.into_iter().find(|command| command.number() == number)
    }

    /// The name in the kernel's header, less its prefix.
    pub const fn name(self) -> &'static str {
        match self {
            Command::PinBuffer => "PIN_BUFFER",
            Command::UnpinBuffer => "UNPIN_BUFFER",
            Command::GetCbFlag => "GET_CB_FLAG",
            Command::GetInfo => "GET_INFO",
            Command::GetInfoV2 => "GET_INFO_V2",
            Command::GetAttr => "GET_ATTR",
            Command::PinBufferV2 => "PIN_BUFFER_V2",
            Command::ReqMappingType => "REQ_MAPPING_TYPE",
            Command::GetVersion => "GET_VERSION",
        }
    }

    /// The fields of the argument, in the order of their offsets.
    pub const fn fields(self) -> &'static [Field] {
        match self {
            Command::PinBuffer => pin_buffer::FIELDS,
            Command::UnpinBuffer => unpin_buffer::FIELDS,
            Command::GetCbFlag => get_cb_flag::FIELDS,
            Command::GetInfo => get_info::FIELDS,
            Command::GetInfoV2 => get_info_v2::FIELDS,
            Command::GetAttr => get_attr::FIELDS,
            Command::PinBufferV2 => pin_buffer_v2::FIELDS,
            Command::ReqMappingType => req_mapping_type::FIELDS,
            Command::GetVersion => get_version::FIELDS,
        }
    }

    /// Whether the argument has input.
    pub const fn reads(self) -> bool {
        !matches!(self, Command::GetVersion)
    }

    /// Whether the argument has output. The other commands do not write it.
    pub const fn answers(self) -> bool {
        !matches!(self, Command::UnpinBuffer | Command::ReqMappingType)
    }

    /// The field that receives a new handle.
    pub const fn new_handle(self) -> Option<&'static Field> {
        match self {
            Command::PinBuffer => Some(&pin_buffer::HANDLE),
            Command::PinBufferV2 => Some(&pin_buffer_v2::HANDLE),
            _ => None,
        }
    }

    /// The size of the argument in bytes, as C lays it out.
    pub const fn argument_size(self) -> usize {
        let fields = self.fields();
        let last = &fields[fields.len() - 1];
        let mut align = 1;
        let mut i = 0;
        while i < fields.len() {
            if fields[i].size > align {
                align = fields[i].size;
            }
            i += 1;
        }
        (last.offset + last.size).next_multiple_of(align)
    }
}

/// One member of an argument.
#[derive(Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Where it starts, in bytes.
    pub offset: usize,
    /// 4 or 8 bytes.
    pub size: usize,
}

/// Declares the members of an argument: a constant each, and the list of all.
macro_rules! argument {
    ($(#[$doc:meta])* $module:ident { $($name:ident: $size:literal @ $offset:literal),* $(,)? }) => {
        $(#[$doc])*
        #[allow(missing_docs, reason = "a field's name and offset say it all")]
        pub mod $module {
            use super::Field;
            $(pub const $name: Field =
                Field { name: stringify!($name), offset: $offset, size: $size };)*
            pub(super) const FIELDS: &[Field] = &[$($name),*];
        }
    };
}

argument! { /// Argument of [`Command::PinBuffer`].
pin_buffer { ADDR: 8 @ 0, SIZE: 8 @ 8, P2P_TOKEN: 8 @ 16, VA_SPACE: 4 @ 24, HANDLE: 8 @ 32 } }
argument! { /// Argument of [`Command::UnpinBuffer`].
unpin_buffer { HANDLE: 8 @ 0 } }
argument! { /// Argument of [`Command::GetCbFlag`].
get_cb_flag { HANDLE: 8 @ 0, FLAG: 4 @ 8 } }
argument! { /// Argument of [`Command::GetInfo`].
get_info { HANDLE: 8 @ 0, VA: 8 @ 8, MAPPED_SIZE: 8 @ 16, PAGE_SIZE: 4 @ 24, TSC_KHZ: 4 @ 28,
    TM_CYCLES: 8 @ 32, MAPPED: 4 @ 40, WC_MAPPING: 4 @ 44 } }
argument! { /// Argument of [`Command::GetInfoV2`].
get_info_v2 { HANDLE: 8 @ 0, VA: 8 @ 8, MAPPED_SIZE: 8 @ 16, PAGE_SIZE: 4 @ 24, TSC_KHZ: 4 @ 28,
    TM_CYCLES: 8 @ 32, MAPPING_TYPE: 4 @ 40 } }
argument! { /// Argument of [`Command::GetAttr`].
get_attr { ATTR: 4 @ 0, VAL: 4 @ 4 } }
argument! { /// Argument of [`Command::PinBufferV2`].
pin_buffer_v2 { ADDR: 8 @ 0, SIZE: 8 @ 8, FLAGS: 4 @ 16, PAD: 4 @ 20, HANDLE: 8 @ 24 } }
argument! { /// Argument of [`Command::ReqMappingType`].
req_mapping_type { HANDLE: 8 @ 0, MAPPING_TYPE: 4 @ 8 } }
argument! { /// Argument of [`Command::GetVersion`].
get_version { GDRDRV_VERSION: 4 @ 0, MINIMUM_GDR_API_VERSION: 4 @ 4 } }

/// Bit of [`pin_buffer_v2::FLAGS`]: the pages must be reached over PCIe.
pub const PIN_FLAG_FORCE_PCIE: u64 = 1;

/// [`get_attr::ATTR`]: 1 when pins outlive a free of their memory.
pub const ATTR_USE_PERSISTENT_MAPPING: u64 = 1;
/// [`get_attr::ATTR`]: 1 when [`PIN_FLAG_FORCE_PCIE`] is understood.
pub const ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE: u64 = 2;

/// The bytes of an argument, input and output.
#[derive(Clone, Copy)]
pub struct Argument(pub [u8; MAX_ARGUMENT]);

impl Default for Argument {
    fn default() -> Self {
        Argument([0; MAX_ARGUMENT])
    }
}

impl Argument {
    /// The value of a field.
    pub fn get(&self, field: &Field) -> u64 {
        let mut bytes = [0; 8];
        bytes[..field.size].copy_from_slice(&self.0[field.offset..][..field.size]);
        u64::from_le_bytes(bytes)
    }

    /// Sets a field; what does not fit into it is cut off, as in C.
    pub fn set(&mut self, field: &Field, value: u64) {
        self.0[field.offset..][..field.size].copy_from_slice(&value.to_le_bytes()[..field.size]);
    }
}

/// How the CPU reaches mapped GPU memory, with gdrdrv's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingType {
    /// Not mapped.
    None = 0,
    /// Write-combining.
    Wc = 1,
    /// Cached and coherent.
    Caching = 2,
    /// Device memory in the sense of arm64.
    Device = 3,
}

impl MappingType {
    /// The type of a number.
    pub fn from_number(number: u64) -> Option<MappingType> {
        [MappingType::None, MappingType::Wc, MappingType::Caching, MappingType::Device]
            .into_iter()
            .find(|mapping_type| *mapping_type as u64 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kernel_header() {
        let numbers = Command::ALL.map(Command::number);
        assert_eq!(
            numbers,
            [
                0xC028DA01, 0xC008DA02, 0xC008DA03, 0xC008DA04, 0xC008DA05, 0xC008DA06, 0xC020DA07,
                0xC008DA08, 0xC008DAFF
            ]
        );
    }

    #[test]
    fn argument_sizes_are_those_of_the_kernel_header() {
        let sizes = Command::ALL.map(Command::argument_size);
        assert_eq!(sizes, [40, 8, 16, 48, 48, 8, 32, 16, 8]);
    }

    #[test]
    fn unknown_numbers_have_no_command() {
        // GET_INFO as it would be had the whole argument been declared.
        assert_eq!(Command::from_number(read_write(4, 48)), None);
        assert_eq!(Command::from_number(read_write(9, 8)), None);
        assert!(is_gdrdrv(read_write(9, 8)));
        assert!(!is_gdrdrv(0x5401));
    }

    #[test]
    fn fields_are_read_where_they_were_written() {
        let mut argument = Argument::default();
        argument.set(&get_info::TM_CYCLES, 0x1122_3344_5566_7788);
        argument.set(&get_info::MAPPED, 0x1_0000_0001);
        assert_eq!(argument.get(&get_info::TM_CYCLES), 0x1122_3344_5566_7788);
        assert_eq!(argument.get(&get_info::MAPPED), 1);
        assert_eq!(argument.get(&get_info::WC_MAPPING), 0);
    }
}
