//! GPU kernels, compiled from PTX text. Indices and addresses have replaced the names of the text.

use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Kernel {
    pub name: String,
    /// The place of each parameter in the memory that a launch fills, as offset and size.
    pub parameters: Vec<(usize, usize)>,
    /// The number of registers of each thread, including [`ZERO`], [`SCRATCH`] and [`VARIABLES`].
    pub(super) registers: usize,
    /// The registers that stand for special registers of PTX, and the functions that compute their values.
    pub(super) specials: Vec<(Register, Special)>,
    /// The number of bytes of shared memory of each block, without those that a launch adds.
    pub shared: usize,
    /// The number of bytes of local memory of each thread.
    pub local: usize,
    /// The most threads of a block, if the program limits them.
    pub max_threads: Option<u64>,
    /// The instructions. The last one is [`Operation::Exit`].
    pub(super) code: Vec<Instruction>,
}

#[derive(Clone, Debug)]
pub struct Launch {
    pub kernel: Arc<Kernel>,
    /// The number of blocks of the grid, by dimension.
    pub grid: [u32; 3],
    /// The number of threads of each block, by dimension.
    pub block: [u32; 3],
    /// The largest number of blocks that run at the same time.
    pub resident: u64,
    /// True if the GPU kernel gets memory for a barrier of all blocks.
    pub cooperative: bool,
    /// The bytes of the GPU kernel's parameters, at the offsets where it expects them.
    pub parameters: Vec<u8>,
    /// The number of bytes of shared memory that the launch adds to the GPU kernel's own.
    pub shared: usize,
    /// The address of the module's variables.
    pub variables: u64,
}

/// A type of PTX. Floating-point numbers can only be copied, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) class: Class,
    pub(super) bits: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Unsigned integers, predicates (one bit) and untyped bits.
    Unsigned,
    Signed,
    Float,
}

impl Type {
    pub(super) const PREDICATE: Type = Type::unsigned(1);
    pub(super) const U32: Type = Type::unsigned(32);
    pub(super) const U64: Type = Type::unsigned(64);

    pub(super) const fn unsigned(bits: u32) -> Type {
        Type { class: Class::Unsigned, bits }
    }

    pub(super) const fn signed(bits: u32) -> Type {
        Type { class: Class::Signed, bits }
    }

    /// Returns the index of this type in a computation's list of functions.
    pub(super) fn index(self) -> usize {
        let signed = usize::from(self.class == Class::Signed);
        match self.bits {
            1 => 0,
            bits => bits.ilog2() as usize * 2 - 5 + signed,
        }
    }

    /// Returns the type that PTX calls by this name, such as `u32` (in PTX text, `.u32`).
    pub(super) fn named(name: &str) -> Option<Type> {
        if name == "pred" {
            return Some(Type::PREDICATE);
        }
        let bits = name.trim_start_matches(|c: char| c.is_ascii_lowercase());
        let class = match name.strip_suffix(bits)? {
            "b" | "u" => Class::Unsigned,
            "s" => Class::Signed,
            "f" | "bf" => Class::Float,
            _ => return None,
        };
        match bits.parse().ok()? {
            bits @ (8 | 16 | 32 | 64) => Some(Type { class, bits }),
            _ => None,
        }
    }

    pub(super) fn bytes(self) -> usize {
        self.bits as usize / 8
    }

    pub(super) fn is_integer(self) -> bool {
        self.class != Class::Float
    }

    /// Reads the lower bits of a register as a number of this type.
    pub(super) const fn number(self, register: u64) -> i128 {
        let unused = 64 - self.bits;
        match self.class {
            Class::Signed => ((register << unused).cast_signed() >> unused) as i128,
            _ => (register << unused >> unused) as i128,
        }
    }

    /// Extends a result of this type to the 64 bits of a register, by its sign if the type is signed.
    pub(super) fn extend(self, result: u64) -> u64 {
        self.number(result) as u64
    }
}

pub(super) type Register = usize;

/// The register that always holds 0. Every GPU kernel has this register and the next two.
pub(super) const ZERO: Register = 0;
/// The register for a value between two steps of one PTX instruction, or for a result that nothing reads.
pub(super) const SCRATCH: Register = 1;
/// The register that holds the address of the module's variables.
pub(super) const VARIABLES: Register = 2;
/// The first of the registers that the program declares.
pub(super) const FIRST_OWN: Register = 3;

#[derive(Debug)]
pub(super) struct Instruction {
    pub(super) line: u32,
    /// The instruction runs only if this register holds this value.
    pub(super) guard: (Register, u64),
    pub(super) operation: Operation,
}

/// A function that computes the value of a register from up to three operands.
pub(super) type Function = fn(u64, u64, u64) -> u64;

#[derive(Debug)]
#[repr(u8)] // Makes the discriminant cheap to read. It is read for every instruction that runs.
pub(super) enum Operation {
    Compute {
        to: Register,
        function: Function,
        operands: [Operand; 3],
    },
    Load {
        to: Vec<Register>,
        from: Access,
    },
    Store {
        to: Access,
        values: Vec<Operand>,
    },
    Update {
        old: Register,
        at: Access,
        /// Computes the new value from the old one and two operands.
        update: Function,
        operands: [Operand; 2],
    },
    Fence,
    /// The thread continues at this index of the code.
    Branch(usize),
    Barrier,
    /// A barrier for the threads of the warp that are in this mask.
    WarpBarrier(Operand),
    /// Ends the turn of the thread, so that other threads run.
    Sleep,
    Trap,
    Exit,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub(super) register: Register,
    pub(super) plus: u64,
}

impl Operand {
    pub(super) const fn constant(plus: u64) -> Operand {
        Operand { register: ZERO, plus }
    }

    pub(super) const fn register(register: Register) -> Operand {
        Operand { register, plus: 0 }
    }
}

pub(super) type Special = fn(&ThreadId<'_>) -> u64;

pub(super) struct ThreadId<'a> {
    pub(super) launch: &'a Launch,
    /// The index of the block in the grid, by dimension.
    pub(super) block: [u64; 3],
    pub(super) thread: [u64; 3],
    pub(super) warp: u64,
    pub(super) lane: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) space: Space,
    /// The type of each element that the instruction loads or stores.
    pub(super) element: Type,
    pub(super) address: Operand,
    /// The bits of the address that are used: the low 32 bits if a 32-bit register holds the address, otherwise all.
    pub(super) mask: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// Global memory, unless the address has a bit that selects other memory, such as [`SHARED_WINDOW`].
    Generic,
    Shared,
    Local,
    Parameters,
}

/// The generic address of a block's shared memory. No address of global memory has the bit of this window or of the
/// next two.
pub(super) const SHARED_WINDOW: u64 = 1 << 60;
/// The generic address of a thread's local memory.
pub(super) const LOCAL_WINDOW: u64 = 1 << 61;
/// The generic address of the memory for `grid.sync()`, a barrier for all blocks of a grid.
pub(super) const GRID_WINDOW: u64 = 1 << 62;

pub(super) const WARP: u64 = 32;

/// A launch can add shared memory behind the GPU kernel's own. In compiled code, the added memory has this offset. When
/// the code runs, the real offset replaces it, which is the size of the GPU kernel's own shared memory.
pub(super) const DYNAMIC_SHARED: usize = 1 << 20;
