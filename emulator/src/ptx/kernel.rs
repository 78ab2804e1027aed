//! What PTX text becomes: modules of kernels.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::instruction::Instruction;

/// The kernels of a text.
#[derive(Debug, Default)]
pub struct Module {
    pub(super) kernels: BTreeMap<String, Arc<Kernel>>,
}

impl Module {
    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<&Arc<Kernel>> {
        self.kernels.get(name)
    }
}

/// A parameter's place in the parameters' memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Where it starts.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
}

/// Code that a launch can run.
#[derive(Debug)]
pub struct Kernel {
    pub(super) name: String,
    pub(super) parameters: Vec<Parameter>,
    pub(super) registers: u32,
    pub(super) shared_bytes: u32,
    pub(super) max_threads: Option<u32>,
    /// Ends with an exit.
    pub(super) code: Vec<Instruction>,
}

impl Kernel {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters in order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Bytes of all its parameters.
    pub fn parameter_bytes(&self) -> usize {
        self.parameters
            .last()
            .map_or(0, |last| last.offset + last.len)
    }

    /// How many registers a thread has.
    pub fn registers(&self) -> u32 {
        self.registers
    }

    /// Bytes of shared memory that a block has, beside those that a launch adds.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// The most threads in a block, if the kernel says.
    pub fn max_threads(&self) -> Option<u32> {
        self.max_threads
    }
}
