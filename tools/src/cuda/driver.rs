//! Loads libcuda.so.1 on demand, so that the program also builds and starts where there is no CUDA driver.
//!
//! Results of the driver's functions are plain numbers and not cudarc's enum, because a newer driver can return errors
//! that the enum does not contain.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// Declares a table of the driver's functions; `Table::get()` loads the driver and looks them up once. Each module
/// declares the functions that it calls, and calls them as methods. These return an error that names the function:
///
/// ```text
/// functions! {
///     struct Functions {
///         alloc: c"cuMemAlloc_v2" (start: *mut CUdeviceptr, len: usize);
///     }
/// }
/// ```
macro_rules! functions {
    ($visibility:vis struct $table:ident {
        $($function:ident: $symbol:literal ($($argument:ident: $kind:ty),* $(,)?);)*
    }) => {
        #[derive(Debug)]
        $visibility struct $table {
            $($function: unsafe extern "C" fn($($kind),*) -> std::ffi::c_int,)*
        }

        impl $table {
            /// Fails if there is no driver, or if the driver lacks one of the functions of this table.
            $visibility fn get() -> anyhow::Result<&'static $table> {
                static TABLE: std::sync::OnceLock<$table> = std::sync::OnceLock::new();
                if let Some(table) = TABLE.get() {
                    return Ok(table);
                }
                // SAFETY: the types are those of the CUDA driver API.
                let table = unsafe { $table { $($function: $crate::cuda::driver::symbol($symbol)?,)* } };
                Ok(TABLE.get_or_init(|| table))
            }

            $(
                /// # Safety
                /// The contract of the driver's function holds.
                #[allow(clippy::too_many_arguments, reason = "the driver's functions have them")]
                $visibility unsafe fn $function(&self, $($argument: $kind),*) -> Result<(), $crate::cuda::CudaError> {
                    // SAFETY: contract of this function.
                    $crate::cuda::driver::check($symbol, unsafe { (self.$function)($($argument),*) })
                }
            )*
        }
    };
}
pub(crate) use functions;

/// Loads the CUDA driver, but does not initialize it. The driver is never unloaded.
fn load() -> Result<&'static Library> {
    static DRIVER: OnceLock<Library> = OnceLock::new();
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    // SAFETY: loading a CUDA driver is the first step of every CUDA program.
    let driver = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL) }
        .context("no CUDA driver: install NVIDIA's; without a GPU, run this under gdremu")?;
    Ok(DRIVER.get_or_init(|| driver))
}

/// Returns a function of the CUDA driver.
///
/// # Safety
/// `F` must be a function pointer of the function's type.
pub(crate) unsafe fn symbol<F: Copy>(name: &CStr) -> Result<F> {
    // SAFETY: the type is right: contract of this function; the library is never unloaded.
    let symbol = unsafe { load()?.get::<F>(name.to_bytes_with_nul()) };
    Ok(*symbol.with_context(|| {
        let name = name.to_string_lossy();
        format!("this CUDA driver has no {name}; install a newer NVIDIA driver")
    })?)
}

/// Returns an error with the names of the call and of its result, unless the result is success.
pub(crate) fn check(symbol: &'static CStr, code: c_int) -> Result<(), CudaError> {
    if code == 0 {
        return Ok(());
    }
    let name = error_name(code).unwrap_or_else(|| "an error without a name".into());
    let call = symbol.to_str().unwrap_or_default().trim_end_matches("_v2");
    Err(CudaError { call, code, name })
}

fn error_name(code: c_int) -> Option<String> {
    type Function = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;
    let mut name = ptr::null();
    // SAFETY: the function has this type. It sets the pointer to a constant string, or to NULL.
    unsafe {
        symbol::<Function>(c"cuGetErrorName").ok()?(code, &mut name);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    }
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{call}: {name} ({code})")]
pub(crate) struct CudaError {
    pub(crate) call: &'static str,
    /// The result of the call, a `CUresult`.
    pub(crate) code: c_int,
    /// The driver's name of the result.
    pub(crate) name: String,
}
