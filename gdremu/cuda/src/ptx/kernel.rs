//! What PTX text becomes: a GPU kernel whose names are resolved to indices.

use std::sync::atomic::Ordering;

/// A GPU kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(super) name: String,
    pub(super) parameters: Vec<Width>,
    /// How many registers each thread has.
    pub(super) registers: usize,
    /// How many 32-bit variables each block shares.
    pub(super) shared: usize,
    /// Ends with [`Operation::Exit`].
    pub(super) code: Vec<Instruction>,
}

impl Kernel {
    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The widths of its parameters, in order.
    pub(crate) fn parameters(&self) -> &[Width] {
        &self.parameters
    }
}

/// The width of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// `.u32`
    U32,
    /// `.u64`
    U64,
}

/// Index of one of a thread's registers.
pub(super) type Register = usize;

/// Index of one of a block's shared variables.
pub(super) type SharedVariable = usize;

#[derive(Debug)]
pub(super) struct Instruction {
    pub(super) line: u32,
    /// The predicate that decides whether it runs, and the value that the predicate must have.
    pub(super) guard: Option<(Register, bool)>,
    pub(super) operation: Operation,
}

/// Computes a result from up to three operands.
pub(super) type Function = fn(u64, u64, u64) -> u64;

#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Compute {
        to: Register,
        function: Function,
        operands: [Operand; 3],
    },
    LoadParameter {
        to: Register,
        parameter: usize,
    },
    LoadShared {
        to: Register,
        from: SharedVariable,
    },
    StoreShared {
        to: SharedVariable,
        value: Operand,
    },
    Load {
        to: Register,
        from: Address,
        order: Ordering,
    },
    Store {
        to: Address,
        value: Operand,
        order: Ordering,
    },
    /// Adds to a word of global memory, atomically.
    Add {
        old_value: Option<Register>,
        to: Address,
        value: Operand,
        order: Ordering,
    },
    Fence,
    /// Continues at this index of the code.
    Branch(usize),
    Barrier,
    Exit,
}

/// A value that an instruction reads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    Register(Register),
    Constant(u64),
    /// `%tid.x`
    ThreadIndex,
    /// `%ntid.x`
    BlockSize,
    /// `%ctaid.x`
    BlockIndex,
    /// `%nctaid.x`
    GridSize,
}

/// An address in global memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub(super) base: Register,
    pub(super) offset: u64,
}
