//! What PTX text becomes: GPU kernels whose names are resolved to indices and addresses.

use std::sync::atomic::Ordering;

/// A GPU kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(super) name: String,
    /// Where each parameter is in the parameters' memory: offset and size.
    pub(super) parameters: Vec<(usize, usize)>,
    /// How many registers each thread has.
    pub(super) registers: usize,
    /// Bytes of memory that each block shares, and that each thread has for itself.
    pub(super) shared: usize,
    pub(super) local: usize,
    /// The most threads of a block, if the program limits them.
    pub(super) max_threads: Option<u64>,
    /// Ends with [`Operation::Exit`].
    pub(super) code: Vec<Instruction>,
}

impl Kernel {
    /// Without code.
    pub(crate) const EMPTY: Kernel = Kernel {
        name: String::new(),
        parameters: Vec::new(),
        registers: 0,
        shared: 0,
        local: 0,
        max_threads: None,
        code: Vec::new(),
    };

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The offset and the size of each parameter in the memory that a launch fills.
    pub(crate) fn parameters(&self) -> &[(usize, usize)] {
        &self.parameters
    }

    /// Bytes of shared memory of each block, without what a launch adds.
    pub(crate) fn shared(&self) -> usize {
        self.shared
    }

    /// Bytes of local memory of each thread.
    pub(crate) fn local(&self) -> usize {
        self.local
    }

    /// The most threads of a block, if the program limits them.
    pub(crate) fn max_threads(&self) -> Option<u64> {
        self.max_threads
    }
}

/// A type of PTX. Floating-point numbers are copied as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) class: Class,
    pub(super) bits: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Also predicates (one bit) and untyped bits.
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

    /// The type of a name without its dot.
    pub(super) fn named(name: &str) -> Option<Type> {
        let (class, bits) = match name {
            "pred" => (Class::Unsigned, "1"),
            "bf16" => (Class::Float, "16"),
            _ => match name.split_at_checked(1)? {
                ("b" | "u", bits) => (Class::Unsigned, bits),
                ("s", bits) => (Class::Signed, bits),
                ("f", bits) => (Class::Float, bits),
                _ => return None,
            },
        };
        let bits = bits.parse().ok()?;
        let known = matches!(bits, 8 | 16 | 32 | 64) || name == "pred";
        known.then_some(Type { class, bits })
    }

    pub(super) fn bytes(self) -> usize {
        self.bits as usize / 8
    }

    pub(super) fn is_integer(self) -> bool {
        self.class != Class::Float
    }

    /// The number that the lower bits of a register are.
    pub(super) fn number(self, register: u64) -> i128 {
        let unused = 64 - self.bits;
        if self.class == Class::Signed {
            i128::from((register << unused).cast_signed() >> unused)
        } else {
            i128::from(register << unused >> unused)
        }
    }

    /// What a register holds after a result: registers are as wide as the widest, so a result is extended.
    pub(super) fn extend(self, result: u64) -> u64 {
        self.number(result) as u64
    }
}

/// Index of one of a thread's registers.
pub(super) type Register = usize;

#[derive(Debug)]
pub(super) struct Instruction {
    pub(super) line: u32,
    /// The predicate that decides whether it runs, and the value that the predicate must have.
    pub(super) guard: Option<(Register, bool)>,
    pub(super) operation: Operation,
}

/// Computes a result from operands, whose type the opcode ends with. Only its lower bits count.
pub(super) type Function = fn(Type, &[i128; 4]) -> i128;

/// What an atomic access makes of the old value, with up to two operands.
pub(super) type Update = fn(i128, [i128; 2]) -> i128;

#[derive(Debug)]
pub(super) enum Operation {
    Compute {
        to: Register,
        result: Type,
        function: Function,
        /// The type that the opcode ends with.
        of: Type,
        /// At most four.
        operands: Vec<Value>,
    },
    Load {
        to: Vec<Register>,
        from: Access,
    },
    Store {
        to: Access,
        values: Vec<Value>,
    },
    Update {
        /// Gets the old value.
        old: Option<Register>,
        at: Access,
        update: Update,
        operands: [Value; 2],
    },
    Fence,
    /// Continues at this index of the code.
    Branch(usize),
    Barrier,
    /// A barrier of the threads of a warp in this mask.
    WarpBarrier(Value),
    /// Ends the turn of the thread.
    Sleep,
    Trap,
    Exit,
}

/// A value that an instruction reads, and as what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) operand: Operand,
    pub(super) as_type: Type,
}

impl Value {
    pub(super) const ZERO: Value = Value { operand: Operand::Constant(0), as_type: Type::U64 };
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    Register(Register),
    Constant(u64),
    /// The address of a variable of the module, as an offset in their memory.
    Variable(u64),
    Special(Special),
}

/// Registers that the hardware sets. Indices are those of x, y and z.
#[derive(Clone, Copy, Debug)]
pub(super) enum Special {
    Thread(usize),
    BlockSize(usize),
    Block(usize),
    GridSize(usize),
    Lane,
    Warp,
    /// Nanoseconds.
    Time,
}

/// Memory that an instruction reads or writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) space: Space,
    /// Of each element.
    pub(super) element: Type,
    pub(super) order: Ordering,
    pub(super) base: Value,
    pub(super) offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// Global memory; shared and local memory by their windows.
    Generic,
    Shared,
    Local,
    Parameters,
}

/// Where shared and local memory is in the generic address space: no GPU or CPU address has these bits.
pub(super) const SHARED_WINDOW: u64 = 1 << 60;
pub(super) const LOCAL_WINDOW: u64 = 1 << 61;

/// Where the shared memory begins whose size the launch sets.
pub(super) const DYNAMIC_SHARED: usize = 1 << 20;
