//! libcuda.so.1, loaded on demand, so that the program builds and starts anywhere.
//!
//! Results are plain numbers, because a newer driver returns errors that our list does not contain.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// Declares a table of the driver's functions; `Table::get(driver)` looks them up once. Each module
/// declares those that it calls:
///
/// ```text
/// functions! {
///     struct Functions {
///         alloc: c"cuMemAlloc_v2" (*mut CUdeviceptr, usize);
///     }
/// }
/// ```
macro_rules! functions {
    ($visibility:vis struct $table:ident {
        $($field:ident: $symbol:literal ($($argument:ty),* $(,)?);)*
    }) => {
        #[derive(Debug)]
        $visibility struct $table {
            $($field: unsafe extern "C" fn($($argument),*) -> std::ffi::c_int,)*
        }

        impl $table {
            /// Fails if the driver lacks one of them.
            $visibility fn get(driver: &$crate::cuda::driver::Driver) -> anyhow::Result<&'static $table> {
                static TABLE: std::sync::OnceLock<$table> = std::sync::OnceLock::new();
                if let Some(table) = TABLE.get() {
                    return Ok(table);
                }
                // SAFETY: the types are those of the CUDA driver API.
                let table = unsafe { $table { $($field: driver.symbol($symbol)?,)* } };
                Ok(TABLE.get_or_init(|| table))
            }
        }
    };
}
pub(crate) use functions;

functions! {
    struct Functions {
        error_name: c"cuGetErrorName" (c_int, *mut *const c_char);
    }
}

/// The CUDA driver of this process. It is never unloaded.
#[derive(Debug)]
pub(crate) struct Driver {
    library: Library,
}

impl Driver {
    /// Loads the driver; it is not initialized yet.
    pub(crate) fn load() -> Result<&'static Driver> {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        if let Some(driver) = DRIVER.get() {
            return Ok(driver);
        }
        // SAFETY: loading a CUDA driver is the first step of every CUDA program.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL) }
            .context("no CUDA driver: install NVIDIA's; without a GPU, run this under gdremu")?;
        Ok(DRIVER.get_or_init(|| Driver { library }))
    }

    /// A function of the driver.
    ///
    /// # Safety
    /// `F` must be a function pointer of the function's type.
    pub(crate) unsafe fn symbol<F: Copy>(&self, name: &CStr) -> Result<F> {
        // SAFETY: the type is right: contract of this function; the library is never unloaded.
        let symbol = unsafe { self.library.get::<F>(name.to_bytes_with_nul()) };
        Ok(*symbol.with_context(|| {
            let name = name.to_string_lossy();
            format!("this CUDA driver has no {name}; install a newer NVIDIA driver")
        })?)
    }

    /// Turns the result of a call into an error that names both.
    pub(crate) fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let mut name = ptr::null();
        let functions = Functions::get(self).ok();
        // SAFETY: the driver sets the pointer to a constant string, or to NULL.
        let name = functions.and_then(|functions| unsafe {
            (functions.error_name)(code, &mut name);
            let name = NonNull::new(name.cast_mut())?;
            Some(CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
        });
        Err(CudaError { call, code, name: name.unwrap_or_else(|| "an error without a name".into()) })
    }
}

/// A failed call of the driver.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CudaError {
    pub(crate) call: &'static str,
    /// Its result, a `CUresult`.
    pub(crate) code: c_int,
    /// The driver's name of the result.
    pub(crate) name: String,
}

impl fmt::Display for CudaError {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let CudaError { call, code, name } = self;
        write!(out, "{call}: {name} ({code})")
    }
}

impl std::error::Error for CudaError {}
