//! Modules of GPU kernels, from PTX text that crate::ptx interprets.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::Arc;

use crate::ptx::{self, Kernel};

use super::state::{self, Current, Function, FunctionHandle, Module, ModuleHandle, State};
use crate::args::{In, Out};
use crate::error::{Error, Result};

/// The GPU kernels of an image, which must be PTX text.
fn parse(call: &str, image: In<u8>) -> Result<Vec<Kernel>> {
    if image.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    let image = image.of::<c_char>();
    match image.text() {
        Ok(text) if text.contains(".version") => ptx::parse(text).map_err(|error| {
            eprintln!("gdremu: {call}: {error}");
            Error::INVALID_PTX
        }),
        _ => {
            eprintln!("gdremu: {call}: supports PTX only; cubin and fatbin cannot be loaded");
            Err(Error::NO_BINARY_FOR_GPU)
        }
    }
}

pub(super) fn cuModuleLoadData(module: Out<ModuleHandle>, image: In<u8>) -> Result {
    module.check()?;
    let context = state::lock().current()?.context;
    let kernels = parse("cuModuleLoadData", image)?;
    let mut state = state::lock();
    let mut functions = BTreeMap::new();
    for kernel in kernels {
        let name = kernel.name().to_owned();
        let kernel = Arc::new(kernel);
        functions.insert(name, state.functions.add(Function { context, kernel }));
    }
    module.set(state.modules.add(Module { context, functions }))
}

pub(super) fn cuModuleGetFunction(
    state: &mut State,
    _: Current,
    function: Out<FunctionHandle>,
    module: ModuleHandle,
    name: In<c_char>,
) -> Result {
    let module = state.modules.get(module).ok_or(Error::INVALID_HANDLE)?;
    let found = module.functions.get(name.text()?);
    function.set(*found.ok_or(Error::NOT_FOUND)?)
}

/// Modules have no global variables. UCX looks this function up to replace it.
pub(super) fn cuModuleGetGlobal_v2(
    state: &mut State,
    _: Current,
    _address: Out<u64>,
    _size: Out<usize>,
    module: ModuleHandle,
    _name: In<c_char>,
) -> Result {
    state.modules.get(module).ok_or(Error::INVALID_HANDLE)?;
    Err(Error::NOT_FOUND)
}

/// No CUlibrary can be loaded, so every handle is invalid. UCX looks this function up to replace it.
pub(super) fn cuLibraryGetGlobal(
    _address: Out<u64>,
    _size: Out<usize>,
    _library: usize,
    _name: In<c_char>,
) -> Result {
    Err(Error::INVALID_HANDLE)
}
