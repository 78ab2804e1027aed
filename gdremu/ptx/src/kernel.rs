//! GPU kernels made from PTX text, with names resolved to indices and addresses.

use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Kernel {
    pub name: String,
    /// The place of each parameter in the memory that a launch fills, as offset and size.
    pub parameters: Vec<(usize, usize)>,
    /// The number of registers of each thread, and the first values of some, besides those that have names below.
    pub(super) registers: usize,
    pub(super) specials: Vec<(Register, Special)>,
    /// The bytes of shared memory of each block, without those that a launch adds, and of local memory of each thread.
    pub shared: usize,
    pub local: usize,
    /// The most threads of a block, if the program limits them.
    pub max_threads: Option<u64>,
    /// Ends with [`Operation::Exit`].
    pub(super) code: Vec<Instruction>,
}

#[derive(Clone, Debug)]
pub struct Launch {
    pub kernel: Arc<Kernel>,
    /// Blocks of the grid, and threads of each block, by dimension.
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// The most blocks that run at the same time.
    pub resident: u64,
    /// All blocks run at the same time, and have a barrier for all.
    pub cooperative: bool,
    /// The bytes of the kernel's parameters, at the offsets where it expects them.
    pub parameters: Vec<u8>,
    /// Bytes of shared memory that the launch adds to the kernel's own.
    pub shared: usize,
    /// The address of the module's variables.
    pub variables: u64,
}

/// A type of PTX. Floating-point numbers are copied as bits.
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

    /// The index of this type in a computation's list of functions.
    pub(super) fn index(self) -> usize {
        let signed = usize::from(self.class == Class::Signed);
        match self.bits {
            1 => 0,
            bits => bits.ilog2() as usize * 2 - 5 + signed,
        }
    }

    /// The type of a name without its dot.
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

    /// The number that the lower bits of a register are.
    pub(super) const fn number(self, register: u64) -> i128 {
        let unused = 64 - self.bits;
        match self.class {
            Class::Signed => ((register << unused).cast_signed() >> unused) as i128,
            _ => (register << unused >> unused) as i128,
        }
    }

    /// Extends a result to the contents of a register, because all registers are as wide as the widest.
    pub(super) fn extend(self, result: u64) -> u64 {
        self.number(result) as u64
    }
}

pub(super) type Register = usize;

/// Registers that every GPU kernel has. They hold 0, nothing that is read later, and the address of the module's
/// variables. Those of the program come behind them.
pub(super) const ZERO: Register = 0;
pub(super) const SCRATCH: Register = 1;
pub(super) const VARIABLES: Register = 2;
pub(super) const FIRST_OWN: Register = 3;

#[derive(Debug)]
pub(super) struct Instruction {
    pub(super) line: u32,
    /// The instruction runs if this register holds this value.
    pub(super) guard: (Register, u64),
    pub(super) operation: Operation,
}

/// Computes the value of a register from the values of three others.
pub(super) type Function = fn(u64, u64, u64) -> u64;

#[derive(Debug)]
#[repr(u8)] // A tag that needs no decoding, because it is read for every instruction that runs.
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
        /// Computes from the old value and two operands.
        update: Function,
        operands: [Operand; 2],
    },
    Fence,
    /// The thread continues at this index of the code.
    Branch(usize),
    Barrier,
    /// A barrier of the threads of a warp in this mask.
    WarpBarrier(Operand),
    /// Ends the turn of the thread.
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
    /// The place of the block on each axis.
    pub(super) block: [u64; 3],
    pub(super) thread: [u64; 3],
    pub(super) warp: u64,
    pub(super) lane: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) space: Space,
    /// The type of each element.
    pub(super) element: Type,
    pub(super) address: Operand,
    /// The bits of an address.
    pub(super) mask: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// Global memory; the other memories by their windows.
    Generic,
    Shared,
    Local,
    Parameters,
}

/// The places of shared and local memory, and of the memory for barriers of a grid, in the generic address space.
/// No GPU or CPU address has these bits.
pub(super) const SHARED_WINDOW: u64 = 1 << 60;
pub(super) const LOCAL_WINDOW: u64 = 1 << 61;
pub(super) const GRID_WINDOW: u64 = 1 << 62;

pub(super) const WARP: u64 = 32;

/// The offset of the shared memory whose size the launch sets.
pub(super) const DYNAMIC_SHARED: usize = 1 << 20;
