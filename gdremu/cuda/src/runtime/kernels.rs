//! GPU kernels and variables that nvcc compiles into programs. They are registered when the program starts. The first
//! use of a GPU kernel or variable in a context loads its binary there.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::sync::{LazyLock, Mutex, MutexGuard};

use super::entry::{check, result_of};
use crate::args::{In, Out};
use crate::driver::entry_points::exported::{
    cuCtxGetCurrent, cuFuncGetAttribute, cuLaunchCooperativeKernel, cuLaunchKernel, cuModuleGetFunction,
    cuModuleGetGlobal_v2, cuModuleLoadFatBinary,
};
use crate::driver::kernel;
use crate::error::{Error, Result, ensure, lock};

/// The GPU kernels (functions) and variables that a program has registered, and the fat binaries with their code. Each
/// is known by its address in the program.
#[derive(Default)]
pub(super) struct Registry {
    /// The binary that each function is in, and the function's name there.
    pub(super) functions: BTreeMap<usize, (usize, CString)>,
    /// The binary that each variable is in, and the variable's name there.
    pub(super) variables: BTreeMap<usize, (usize, CString)>,
    /// The module of each binary in each context, or the error with which it cannot be loaded.
    modules: BTreeMap<(usize, usize), Result<usize>>,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

pub(super) fn registry() -> MutexGuard<'static, Registry> {
    lock(&REGISTRY)
}

pub(crate) extern "C" fn __cudaRegisterFatBinary(binary: usize) -> usize {
    binary
}

/// Forgets a binary with its functions and variables. The modules made from it end only with their contexts.
pub(crate) extern "C" fn __cudaUnregisterFatBinary(binary: usize) {
    let mut registry = registry();
    registry.functions.retain(|_, (owner, _)| *owner != binary);
    registry.variables.retain(|_, (owner, _)| *owner != binary);
    registry.modules.retain(|(owner, _), _| *owner != binary);
}

pub(super) fn c_string(name: In<c_char>) -> CString {
    CString::new(name.text().unwrap_or_default()).unwrap_or_default()
}

pub(crate) extern "C" fn __cudaInitModule() -> c_char {
    1
}

/// Calls `find` for the module of a binary in the current context. Loads the module first if that has not been done.
fn in_module<T>(binary: usize, find: impl Fn(usize) -> Result<T>) -> Result<T> {
    let context = result_of(|context| cuCtxGetCurrent(context))?;
    let loaded = registry().modules.get(&(binary, context)).copied();
    if let Some(module) = loaded {
        let result = find(module?);
        // A module ends when its context is reset. Then the binary is loaded again.
        if !matches!(result, Err(Error::INVALID_HANDLE)) {
            return result;
        }
    }
    let loaded = result_of(|module| cuModuleLoadFatBinary(module, In::from_address(binary)));
    if let Ok(_) | Err(Error::NO_BINARY_FOR_GPU | Error::INVALID_PTX | Error::INVALID_IMAGE) = loaded {
        registry().modules.insert((binary, context), loaded);
    }
    find(loaded?)
}

/// Returns the CUfunction of a function that the program has registered.
pub(super) fn function(of: usize) -> Result<usize> {
    let function = registry().functions.get(&of).cloned().ok_or(Error::INVALID_DEVICE_FUNCTION)?;
    let name = In::from_text(&function.1);
    in_module(function.0, |module| result_of(|handle| cuModuleGetFunction(handle, module, name)))
}

fn refuse(function: usize, why: &str) {
    let function = registry().functions.get(&function).cloned().unwrap_or_default();
    kernel::refuse(&function.1.to_string_lossy(), why);
}

/// Returns the address and size of a variable that the program has registered.
pub(super) fn variable(of: usize) -> Result<(u64, usize)> {
    let variable = registry().variables.get(&of).cloned().ok_or(Error::INVALID_SYMBOL)?;
    let name = In::from_text(&variable.1);
    in_module(variable.0, |module| {
        let mut size = 0;
        let address = result_of(|address| cuModuleGetGlobal_v2(address, Out::to(&mut size), module, name))?;
        Ok((address, size))
    })
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Dim3([u32; 3]);

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Configuration {
    pub(super) grid: Dim3,
    pub(super) block: Dim3,
    pub(super) shared_bytes: usize,
    pub(super) stream: usize,
}

thread_local! {
    pub(super) static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// Launches a GPU kernel. If the program's PTX lacks the kernel, or the module cannot be loaded, prints the reason.
pub(super) fn launch(of: usize, with: Configuration, arguments: In<In<u8>>, cooperative: bool) -> Result {
    let shared = u32::try_from(with.shared_bytes).map_err(|_| Error::INVALID_VALUE)?;
    let Dim3([grid_x, grid_y, grid_z]) = with.grid;
    let Dim3([x, y, z]) = with.block;
    let stream = with.stream;
    let handle = function(of);
    match handle {
        Err(Error::NOT_FOUND) => refuse(of, "the PTX in the program does not have it"),
        Err(Error::NO_BINARY_FOR_GPU | Error::INVALID_PTX | Error::INVALID_IMAGE) => {
            refuse(of, "its module cannot be loaded");
        }
        _ => {}
    }
    let handle = handle?;
    check(match cooperative {
        true => cuLaunchCooperativeKernel(handle, grid_x, grid_y, grid_z, x, y, z, shared, stream, arguments),
        false => cuLaunchKernel(handle, grid_x, grid_y, grid_z, x, y, z, shared, stream, arguments, In::null()),
    })
}

/// The cudaLaunchConfig_t of cudaLaunchKernelExC.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    common: Configuration,
    attributes: In<LaunchAttribute>,
    attribute_count: u32,
}

/// A cudaLaunchAttribute: its number, and its value in words of 4 bytes.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct LaunchAttribute {
    number: u32,
    _unused: u32,
    value: [u32; 16],
}

/// Values of cudaLaunchAttributeID without effect here, because a stream's GPU kernels run in turn and all accesses are
/// ordered for the whole system: ignore, accessPolicyWindow, synchronizationPolicy, clusterSchedulingPolicyPreference,
/// programmaticStreamSerialization, priority, memSyncDomainMap, memSyncDomain, preferredSharedMemoryCarveout.
const NO_EFFECT: [u32; 9] = [0, 1, 3, 5, 6, 8, 9, 10, 14];
const COOPERATIVE: u32 = 2;
const CLUSTER_SIZE: u32 = 4;

/// Launches a GPU kernel with attributes. Obeys `COOPERATIVE`, and refuses other attributes that would have an effect.
pub(super) fn launch_configured(config: LaunchConfig, function: usize, arguments: In<In<u8>>) -> Result {
    let mut cooperative = false;
    for index in 0..config.attribute_count as usize {
        let LaunchAttribute { number, value, .. } = config.attributes.at(index)?;
        match number {
            COOPERATIVE => cooperative = value[0] != 0,
            CLUSTER_SIZE if value[..3] == [1, 1, 1] => {}
            _ if NO_EFFECT.contains(&number) => {}
            _ => {
                refuse(function, &format!("launch attribute {number} is not supported"));
                return Err(Error::NOT_SUPPORTED);
            }
        }
    }
    launch(function, config.common, arguments, cooperative)
}

/// cudaFuncAttributes. `bytes` has the sizes of shared, constant and local memory; `more` is CUfunction_attributes 4-8.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FuncAttributes {
    bytes: [usize; 3],
    max_threads: i32,
    more: [i32; 5],
    others: [i32; 23],
}

impl FuncAttributes {
    pub(super) fn of(registered: usize) -> Result<FuncAttributes> {
        let function = function(registered)?;
        let mut values = [0; 9];
        for (attribute, value) in values.iter_mut().enumerate() {
            *value = result_of(|value| cuFuncGetAttribute(value, attribute as i32, function))?;
        }
        let [max_threads, shared, constant, local, more @ ..] = values;
        let bytes = [shared as usize, constant as usize, local as usize];
        Ok(FuncAttributes { bytes, max_threads, more, others: [0; 23] })
    }
}

/// Returns the address of part of a variable. `kind` is the direction (cudaMemcpyKind) that the program requests, and
/// `other` a direction in which the calling function cannot copy.
pub(super) fn part(symbol: usize, size: usize, offset: usize, kind: u32, other: u32) -> Result<u64> {
    ensure(kind != 0 && kind != other, Error::INVALID_COPY_DIRECTION)?;
    let variable = variable(symbol)?;
    ensure(offset.saturating_add(size) <= variable.1, Error::INVALID_VALUE)?;
    Ok(variable.0 + offset as u64)
}
