//! Modules and their GPU kernels.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ptx::Kernel;

use super::ContextHandle;

/// CUmodule.
pub(crate) type ModuleHandle = usize;

/// CUfunction.
pub(crate) type FunctionHandle = usize;

/// A loaded module.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: ContextHandle,
    /// By name.
    pub(crate) functions: BTreeMap<String, FunctionHandle>,
    /// By name: address and size.
    pub(crate) variables: BTreeMap<String, (u64, usize)>,
    /// The buffer that they are in, if there are any.
    pub(crate) memory: Option<u64>,
}

/// A GPU kernel of a module.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) context: ContextHandle,
    pub(crate) name: String,
    /// Or why it cannot run.
    pub(crate) kernel: Result<Arc<Kernel>, String>,
    /// The address of its module's variables.
    pub(crate) variables: u64,
}
