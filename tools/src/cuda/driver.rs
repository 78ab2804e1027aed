//! libcuda.so.1, loaded when it is needed, so that the program builds and starts anywhere.
//!
//! Results are plain numbers: a newer driver knows errors that no list of ours has.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// Declares a table of the driver's functions, to be filled by `Table::of(driver)`. Each module
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
            /// # Errors
            /// The driver lacks one of them.
            $visibility fn of(driver: &$crate::cuda::Driver) -> anyhow::Result<$table> {
                // SAFETY: the types are those of the CUDA driver API.
                unsafe { Ok($table { $($field: driver.symbol($symbol)?,)* }) }
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
pub struct Driver {
    library: Library,
    functions: OnceLock<Functions>,
}

impl Driver {
    /// Loads the driver; it is not initialized yet.
    ///
    /// # Errors
    /// There is none, or it cannot be loaded.
    pub fn load() -> Result<&'static Driver> {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        if let Some(driver) = DRIVER.get() {
            return Ok(driver);
        }
        // SAFETY: loading a CUDA driver is what CUDA programs do first.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL) }
            .context("no CUDA driver: install NVIDIA's; without a GPU, run this under gdremu")?;
        let driver = Driver {
            library,
            functions: OnceLock::new(),
        };
        let functions = Functions::of(&driver)?;
        Ok(DRIVER.get_or_init(|| Driver {
            functions: functions.into(),
            ..driver
        }))
    }

    /// A function of the driver.
    ///
    /// # Safety
    /// `F` must be a function pointer of the function's type.
    ///
    /// # Errors
    /// The driver lacks it.
    pub unsafe fn symbol<F: Copy>(&self, name: &CStr) -> Result<F> {
        // SAFETY: the caller vouches for the type; the library is never unloaded.
        let symbol = unsafe { self.library.get::<F>(name.to_bytes_with_nul()) };
        Ok(*symbol.with_context(|| {
            let name = name.to_string_lossy();
            format!("this CUDA driver has no {name}; install a newer NVIDIA driver")
        })?)
    }

    /// Turns the result of a call into an error that names both.
    pub fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let mut name = ptr::null();
        let functions = self.functions.get();
        // SAFETY: the driver sets the pointer to a constant string, or to NULL.
        let name = functions.and_then(|functions| unsafe {
            (functions.error_name)(code, &mut name);
            let name = NonNull::new(name.cast_mut())?;
            Some(CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
        });
        Err(CudaError {
            call,
            code,
            name: name.unwrap_or_else(|| "an error without a name".into()),
        })
    }
}

/// A call of the driver that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct CudaError {
    /// The function.
    pub call: &'static str,
    /// Its result, a `CUresult`.
    pub code: c_int,
    /// What the driver calls the result.
    pub name: String,
}

impl fmt::Display for CudaError {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let CudaError { call, code, name } = self;
        write!(out, "{call}: {name} ({code})")
    }
}

impl std::error::Error for CudaError {}
