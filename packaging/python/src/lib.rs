//! The extension module `gdrcopy._native`. It has Python objects for mapped GPU memory and for words of it, and uses
//! gdrcopy-core.
//!
//! Calls hold the interpreter's lock (GIL); long copies, pinning and unpinning release it. A copy holds the lock of its
//! memory for reading, and unpinning holds it for writing. A Python object that views the memory, such as an array,
//! keeps a lease, and leased memory stays pinned.

mod buffers;
mod mapped;
mod refusal;

use gdrcopy_core::types::Attribute;
use pyo3::exceptions::{PyImportError, PyOverflowError};
use pyo3::ffi;
use pyo3::prelude::*;

use mapped::{Memory, connect, reserve_inherited};
use refusal::{Result, invalid};

/// An unsigned integer of 1, 2, 4 or 8 bytes in a Mapping, at an aligned address, such as a flag. The GPU and the CPU see
/// old or new values, never a mix. Accesses fail once the mapping is closed.
#[pyclass(frozen, module = "gdrcopy")]
struct Word {
    memory: Py<Memory>,
    /// The offset and the size of the word, which is inside the memory and aligned.
    range: (usize, usize),
}

#[pymethods]
impl Word {
    #[new]
    fn new(mapping: Py<Memory>, offset: i64, size: i64) -> Result<Word> {
        let memory = mapping.get();
        memory.check_open()?;
        if ![1, 2, 4, 8].contains(&size) {
            return invalid(format!("choose a word of 1, 2, 4 or 8 bytes, not {size}"));
        }
        let range = memory.range(offset, Some(size))?;
        if !memory.start()?.wrapping_add(range.0).addr().is_multiple_of(range.1) {
            return invalid(format!("choose an offset whose address is a multiple of {size}, not {offset}"));
        }
        Ok(Word { memory: mapping, range })
    }

    /// Reads the word by one load, which takes a PCIe round trip. The value is no older than the call. Bytes that the thread
    /// reads by later calls are no older than the value.
    fn load(&self, py: Python<'_>) -> Result<u64> {
        let mut value = [0; 8];
        // SAFETY: the word is inside the memory (checked by `new`), and the value has 8 bytes.
        unsafe { self.memory.get().copy_from(py, self.range, value.as_mut_ptr()) }?;
        Ok(u64::from_le_bytes(value))
    }

    /// Writes the word by one store. It reaches the GPU after all earlier writes of this thread, including those through
    /// views.
    fn store(&self, py: Python<'_>, value: u64) -> Result<()> {
        let size = self.range.1;
        if size < 8 && value >> (8 * size) != 0 {
            return Err(PyOverflowError::new_err(format!("choose a value of at most {size} bytes")).into());
        }
        // SAFETY: the word is inside the memory (checked by `new`), and the value has 8 bytes.
        unsafe { self.memory.get().copy_to(py, self.range, value.to_le_bytes().as_ptr()) }
    }

    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        visit.call(&self.memory)
    }
}

/// Returns the driver's version, whether dma-bufs of CUDA are used, and whether freed memory stays usable while pinned.
#[pyfunction]
fn driver() -> Result<(String, bool, bool)> {
    let gdr = connect()?;
    let uses_dma_bufs = gdr.attribute(Attribute::UsingDmaBufMmap)? != 0;
    let is_persistent = gdr.attribute(Attribute::UsePersistentMapping)? != 0;
    Ok((gdr.driver_version()?.to_string(), uses_dma_bufs, is_persistent))
}

/// Must be the first call in a forked child. Returns whether its parent had used the driver.
#[pyfunction]
fn forked() -> bool {
    reserve_inherited()
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // All interpreters of a process share the types, but the types would end with the interpreter that made them.
    // SAFETY: a thread that imports is attached to an interpreter.
    if unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) } != 0 {
        let text = "gdrcopy works in the main interpreter only, not in subinterpreters: use it there, or in a process";
        return Err(PyImportError::new_err(text));
    }
    module.add_class::<Memory>()?;
    module.add_class::<Word>()?;
    module.add_function(wrap_pyfunction!(driver, module)?)?;
    module.add_function(wrap_pyfunction!(forked, module)?)
}
