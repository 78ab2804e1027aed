//! Instructions, decoded: names are numbers, labels are places.

use std::sync::atomic::Ordering;

use super::types::{Type, Width};

/// A register's number in its kernel.
pub(super) type Register = u32;

/// An instruction.
#[derive(Clone, Debug)]
pub(super) struct Instruction {
    /// The predicate that decides whether it runs, and the value it must have.
    pub(super) guard: Option<(Register, bool)>,
    pub(super) operation: Operation,
    pub(super) line: u32,
}

/// A value that an instruction reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Operand {
    Register(Register),
    Constant(u64),
    Special(Special),
    /// Where the launch's own shared memory starts.
    DynamicShared,
}

/// A register that tells about the thread or the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Special {
    /// %tid, by dimension.
    Thread(usize),
    /// %ntid.
    BlockSize(usize),
    /// %ctaid.
    Block(usize),
    /// %nctaid.
    GridSize(usize),
    Lane,
    Warp,
    /// Nanoseconds: clocks of this GPU tick once in each.
    Nanoseconds,
}

/// Where memory is accessed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub(super) space: Space,
    pub(super) base: Operand,
    pub(super) offset: u64,
}

/// Which memory an address is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// Shared memory has a window in it; the rest is global memory.
    Generic,
    Global,
    Shared,
    Parameters,
}

/// Operations on two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    MultiplyLow,
    MultiplyHigh,
    /// The product of two values in twice their width.
    MultiplyWide,
    Divide,
    Remainder,
    Minimum,
    Maximum,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

/// How setp compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What an atomic operation does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Atomic {
    Combine(Binary),
    Exchange,
    CompareAndSwap,
}

/// What an instruction does.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Move {
        kind: Type,
        to: Register,
        from: Operand,
    },
    Not {
        kind: Type,
        to: Register,
        from: Operand,
    },
    Negate {
        kind: Type,
        to: Register,
        from: Operand,
    },
    Binary {
        what: Binary,
        kind: Type,
        to: Register,
        a: Operand,
        b: Operand,
    },
    MultiplyAdd {
        what: Binary,
        kind: Type,
        to: Register,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    Convert {
        to_kind: Type,
        from_kind: Type,
        to: Register,
        from: Operand,
    },
    SharedToGeneric {
        to: Register,
        from: Operand,
    },
    GenericToShared {
        to: Register,
        from: Operand,
    },
    Compare {
        what: Comparison,
        kind: Type,
        to: Register,
        /// Gets the opposite.
        opposite: Option<Register>,
        a: Operand,
        b: Operand,
    },
    Select {
        kind: Type,
        to: Register,
        a: Operand,
        b: Operand,
        predicate: Register,
    },
    Branch {
        target: usize,
    },
    Load {
        kind: Type,
        order: Ordering,
        to: Vec<Register>,
        from: Address,
    },
    Store {
        width: Width,
        order: Ordering,
        to: Address,
        from: Vec<Operand>,
    },
    Atomic {
        what: Atomic,
        kind: Type,
        order: Ordering,
        to: Option<Register>,
        at: Address,
        /// What memory is combined with, replaced by, or compared to.
        a: Operand,
        /// The new value of a compare-and-swap.
        b: Operand,
    },
    Fence(Ordering),
    Barrier {
        number: Operand,
        /// How many threads take part; all of the block if not given.
        threads: Option<Operand>,
        /// Whether the thread waits, or has arrived and goes on.
        wait: bool,
    },
    /// Lets other threads run.
    Pause,
    Trap,
    Exit,
}
