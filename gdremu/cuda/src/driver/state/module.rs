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
}

/// A GPU kernel of a module.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) context: ContextHandle,
    pub(crate) kernel: Arc<Kernel>,
}
