//! Modules of kernels: PTX text alone, as gdremu::ptx understands it.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::fs;
use std::sync::Arc;

use gdremu::ptx::{self, Kernel};

use super::args::{In, Out};
use super::entry::{Current, current, in_context, initialised};
use super::error::{Error, Result};
use super::state::{self, ContextHandle, State};

/// CUmodule.
pub(super) type ModuleHandle = usize;

/// CUfunction.
pub(super) type FunctionHandle = usize;

/// CUjit_option: where errors are told, and how many bytes there are for it.
const ERROR_LOG: u32 = 5;
const ERROR_LOG_BYTES: u32 = 6;

/// CUfunction_attribute.
const MAX_THREADS_PER_BLOCK: u32 = 0;
const SHARED_SIZE_BYTES: u32 = 1;
const CONST_SIZE_BYTES: u32 = 2;
const LOCAL_SIZE_BYTES: u32 = 3;
const NUM_REGS: u32 = 4;
const PTX_VERSION: u32 = 5;
const BINARY_VERSION: u32 = 6;
const MAX_DYNAMIC_SHARED_SIZE_BYTES: u32 = 8;

/// Shared memory of a block as long as nobody asks for more, and what can be asked for.
pub(super) const SHARED_BYTES: u32 = 48 << 10;
const SHARED_BYTES_OPTIN: u32 = 227 << 10;

/// Threads of a block at most.
pub(super) const BLOCK_THREADS: u32 = 1024;

/// The compute capability of these GPUs, in tenths.
const COMPUTE_CAPABILITY: i32 = 90;

/// A module.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) context: ContextHandle,
    code: ptx::Module,
    /// Those that have been asked for.
    functions: BTreeMap<String, FunctionHandle>,
}

/// A kernel of a module.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) context: ContextHandle,
    pub(super) kernel: Arc<Kernel>,
    module: ModuleHandle,
    /// What a launch may add to the kernel's shared memory.
    pub(super) max_dynamic_shared: u32,
}

/// Reads a text and keeps what it holds. `tell` gets to know why it cannot be read.
fn load(
    call: &str,
    module: Out<ModuleHandle>,
    text: impl FnOnce() -> Result<String>,
    tell: impl FnOnce(&str),
) -> i32 {
    initialised(call, || {
        module.check()?;
        let Current { context, .. } = current(&state::lock())?;
        let text = text()?;
        let code = ptx::parse(&text).map_err(|refused| {
            let refused = refused.to_string();
            eprintln!("gdremu: {call}: {refused}");
            tell(&refused);
            Error::INVALID_PTX
        })?;
        module.set(state::lock().modules.add(Module {
            context,
            code,
            functions: BTreeMap::new(),
        }))
    })
}

/// The text of an image. Code for a real GPU is none.
fn text(image: In<u8>) -> Result<String> {
    match image.of::<c_char>().text() {
        Ok(text) if text.contains(".version") => Ok(text.to_owned()),
        _ if image.is_null() => Err(Error::INVALID_VALUE),
        _ => {
            eprintln!("gdremu: the emulated GPU runs PTX text alone, no compiled kernels");
            Err(Error::NO_BINARY_FOR_GPU)
        }
    }
}

pub(super) extern "C" fn cuModuleLoad(module: Out<ModuleHandle>, file: In<c_char>) -> i32 {
    let text = || fs::read_to_string(file.text()?).map_err(|_| Error::FILE_NOT_FOUND);
    load("cuModuleLoad", module, text, |_| ())
}

pub(super) extern "C" fn cuModuleLoadData(module: Out<ModuleHandle>, image: In<u8>) -> i32 {
    load("cuModuleLoadData", module, || text(image), |_| ())
}

pub(super) extern "C" fn cuModuleLoadDataEx(
    module: Out<ModuleHandle>,
    image: In<u8>,
    count: u32,
    options: In<u32>,
    values: In<Out<c_char>>,
) -> i32 {
    let option = |wanted| {
        let index = (0..count as usize).find(|&index| options.at(index) == Ok(wanted))?;
        values.at(index).ok()
    };
    let tell = |refused: &str| {
        if let (Some(log), Some(room)) = (option(ERROR_LOG), option(ERROR_LOG_BYTES)) {
            // A log without room stays empty.
            let room = i32::try_from(room.number()).unwrap_or(i32::MAX);
            let _ = log.set_text(refused, room);
        }
    };
    load("cuModuleLoadDataEx", module, || text(image), tell)
}

/// A kernel that is running goes on.
pub(super) extern "C" fn cuModuleUnload(module: ModuleHandle) -> i32 {
    in_context("cuModuleUnload", |state, _| {
        state.modules.remove(module).ok_or(Error::INVALID_HANDLE)?;
        state.functions.retain(|function| function.module != module);
        Ok(())
    })
}

pub(super) extern "C" fn cuModuleGetFunction(
    function: Out<FunctionHandle>,
    module: ModuleHandle,
    name: In<c_char>,
) -> i32 {
    in_context("cuModuleGetFunction", |state, _| {
        function.check()?;
        let name = name.text()?;
        let State {
            modules, functions, ..
        } = state;
        let owner = modules.get_mut(module).ok_or(Error::INVALID_HANDLE)?;
        if let Some(known) = owner.functions.get(name) {
            return function.set(*known);
        }
        let kernel = owner.code.kernel(name).ok_or(Error::NOT_FOUND)?;
        let handle = functions.add(Function {
            context: owner.context,
            kernel: Arc::clone(kernel),
            module,
            max_dynamic_shared: SHARED_BYTES.saturating_sub(kernel.shared_bytes()),
        });
        owner.functions.insert(name.to_owned(), handle);
        function.set(handle)
    })
}

/// There are no variables in global memory.
pub(super) extern "C" fn cuModuleGetGlobal_v2(
    _address: Out<u64>,
    _size: Out<usize>,
    module: ModuleHandle,
    _name: In<c_char>,
) -> i32 {
    in_context("cuModuleGetGlobal", |state, _| {
        state.modules.get(module).ok_or(Error::INVALID_HANDLE)?;
        Err(Error::NOT_FOUND)
    })
}

pub(super) extern "C" fn cuFuncGetAttribute(
    value: Out<i32>,
    attribute: u32,
    function: FunctionHandle,
) -> i32 {
    in_context("cuFuncGetAttribute", |state, _| {
        let function = state.functions.get(function).ok_or(Error::INVALID_HANDLE)?;
        let kernel = &function.kernel;
        value.set(match attribute {
            MAX_THREADS_PER_BLOCK => kernel
                .max_threads()
                .map_or(BLOCK_THREADS, |max| max.min(BLOCK_THREADS))
                as i32,
            SHARED_SIZE_BYTES => kernel.shared_bytes() as i32,
            CONST_SIZE_BYTES | LOCAL_SIZE_BYTES => 0,
            NUM_REGS => kernel.registers() as i32,
            PTX_VERSION | BINARY_VERSION => COMPUTE_CAPABILITY,
            MAX_DYNAMIC_SHARED_SIZE_BYTES => function.max_dynamic_shared as i32,
            _ => return Err(Error::INVALID_VALUE),
        })
    })
}

pub(super) extern "C" fn cuFuncSetAttribute(
    function: FunctionHandle,
    attribute: u32,
    value: i32,
) -> i32 {
    in_context("cuFuncSetAttribute", |state, _| {
        let function = state
            .functions
            .get_mut(function)
            .ok_or(Error::INVALID_HANDLE)?;
        if attribute != MAX_DYNAMIC_SHARED_SIZE_BYTES {
            return Err(Error::INVALID_VALUE);
        }
        let room = SHARED_BYTES_OPTIN - function.kernel.shared_bytes();
        let wanted = u32::try_from(value).ok().filter(|&wanted| wanted <= room);
        function.max_dynamic_shared = wanted.ok_or(Error::INVALID_VALUE)?;
        Ok(())
    })
}

/// CUlibrary: none can be loaded, so every handle is wrong.
pub(super) extern "C" fn cuLibraryGetGlobal(
    _address: Out<u64>,
    _size: Out<usize>,
    _library: usize,
    _name: In<c_char>,
) -> i32 {
    initialised("cuLibraryGetGlobal", || Err(Error::INVALID_HANDLE))
}
