//! Mapped GPU memory as a Python object, and leases, which keep the memory mapped while views of it exist.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, RwLock};

use gdrcopy_core::copy;
use gdrcopy_core::error::Error;
use gdrcopy_core::sys::fork::Owner;
use gdrcopy_core::types::{Attribute, MapFlag, MappingType, P2pTokens, PinFlags};
use gdrcopy_core::{RawGdr, RawMapping, RawPin, stderr, variables};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffers::Host;
use crate::refusal::{Refusal, Result, invalid};

/// Copies of at least this many bytes release the GIL.
const LONG_COPY: usize = 4096;

/// This process's connection to the driver. The lock is taken only under the GIL, which Python also holds when it
/// forks. So a forked child finds the lock free.
static GDR: Mutex<Option<RawGdr>> = Mutex::new(None);
/// All mapped pages. A forked child reserves their addresses. It finds this lock free, for the reason given at `GDR`.
static REGIONS: Mutex<Vec<Region>> = Mutex::new(Vec::new());

/// The pages of one mapping.
struct Region {
    /// The number of the `Memory` that has these pages. Their address does not identify them: a later mapping
    /// may get the same address before this region is removed from `REGIONS`.
    id: u64,
    start: usize,
    size: usize,
}

/// Returns the connection, which the first call in a process opens.
pub(crate) fn connect() -> Result<RawGdr> {
    let mut opened = GDR.lock().expect("no panic under this lock");
    if let Some(gdr) = &*opened
        && gdr.driver_version().is_ok()
    {
        return Ok(gdr.clone());
    }
    stderr::install();
    variables::warn_of_gone();
    let gdr = RawGdr::open(&variables::options())?;
    variables::select_routine();
    *opened = Some(gdr.clone());
    Ok(gdr)
}

/// Reserves the addresses of the mappings in a forked child, in which the mappings are absent. So accesses by views raise
/// SIGSEGV there, and never reach memory that is mapped later. Returns whether the parent had a connection.
pub(crate) fn reserve_inherited() -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    for &Region { start, size, .. } in &*REGIONS.lock().expect("no panic under this lock") {
        // SAFETY: the call replaces no other mapping (MAP_FIXED_NOREPLACE).
        unsafe { libc::mmap(ptr::without_provenance_mut(start), size, libc::PROT_NONE, flags, -1, 0) };
    }
    GDR.lock().expect("no panic under this lock").is_some()
}

/// Pinned and mapped memory. The mapping ends before the pin.
struct Pinned {
    mapping: Option<RawMapping>,
    pin: RawPin,
}

impl Pinned {
    fn new(gdr: &RawGdr, address: u64, size: usize, flags: PinFlags) -> Result<Pinned> {
        // SAFETY: the program has passed memory that it owns, and keeps it allocated (documented for `Mapping`).
        let pin = unsafe { gdr.pin(address, size, flags, P2pTokens::default()) }?;
        // SAFETY: all `size` bytes are pinned.
        let mapping = unsafe { pin.map(size, MapFlag::Default) }?;
        Ok(Pinned { mapping: Some(mapping), pin })
    }

    /// Unmaps and unpins the memory. After an error, this can be called again.
    fn end(&mut self) -> Result<()> {
        if let Some(mapping) = self.mapping.take()
            && let Err((mapping, error)) = mapping.unmap()
        {
            self.mapping = Some(mapping);
            return Err(error.into());
        }
        Ok(self.pin.release()?)
    }
}

/// Mapped GPU memory. The Python class Mapping inherits from this class.
#[pyclass(subclass, frozen, module = "gdrcopy._native")]
pub(crate) struct Memory {
    pinned: RwLock<Pinned>,
    /// The number of the memory's `Region`.
    id: u64,
    size: usize,
    is_writable: bool,
    ends_with_memory: bool,
    owner: Owner,
    is_closed: AtomicBool,
    leases: AtomicUsize,
}

impl Memory {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed.load(SeqCst) {
            return Err(Refusal::Closed);
        }
        Ok(self.owner.check()?)
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_writable {
            return Ok(());
        }
        Err(PyTypeError::new_err("pass an object that is not read-only to write to it").into())
    }

    /// Returns the offset and the size of a range, which by default has all bytes from the offset on. Fails if the
    /// mapping is closed, or if the range is not inside the memory.
    pub(crate) fn range(&self, offset: i64, size: Option<i64>) -> Result<(usize, usize)> {
        self.check_open()?;
        let all = self.size as i64;
        if offset < 0 || offset > all {
            return invalid(format!("choose an offset from 0 to {all}, not {offset}"));
        }
        let room = all - offset;
        let size = size.unwrap_or(room);
        if size < 0 || size > room {
            return invalid(format!("choose a size from 0 to {room} at offset {offset}, not {size}"));
        }
        Ok((offset as usize, size as usize))
    }

    /// Returns the CPU address of byte 0, or an error if the mapping is closed or revoked.
    pub(crate) fn start(&self) -> Result<*mut u8> {
        self.with_mapping(|mapping| mapping.as_mut_ptr())
    }

    /// Calls the function with the mapping, which stays mapped until the function returns. Fails if the mapping is
    /// closed or revoked.
    fn with_mapping<T>(&self, function: impl FnOnce(&RawMapping) -> T) -> Result<T> {
        self.check_open()?;
        let pinned = self.pinned.read().expect("no panic under this lock");
        let Some(mapping) = &pinned.mapping else {
            return Err(Refusal::Closed);
        };
        // The memory may still be freed after this check.
        if self.ends_with_memory && pinned.pin.callback_flag()? {
            return Err(Error::MappingRevoked.into());
        }
        Ok(function(mapping))
    }

    /// Passes `function`, which copies `size` bytes, to `with_mapping`. Releases the GIL while a long copy is made.
    fn copy(&self, py: Python<'_>, size: usize, function: impl FnOnce(&RawMapping) + Send) -> Result<()> {
        if size < LONG_COPY { self.with_mapping(function) } else { py.detach(|| self.with_mapping(function)) }
    }

    /// Copies bytes from `host` to this range (offset and size).
    ///
    /// # Safety
    /// The range is inside the memory, and `host` is readable for the size of the range.
    pub(crate) unsafe fn copy_to(&self, py: Python<'_>, range: (usize, usize), host: *const u8) -> Result<()> {
        self.check_writable()?;
        let (offset, size) = range;
        let host = host.expose_provenance();
        self.copy(py, size, |mapping| {
            // Stores through views may still be in the CPU's write-combining buffers.
            copy::end_batch();
            let (target, source) = (mapping.as_mut_ptr().wrapping_add(offset), ptr::with_exposed_provenance(host));
            // SAFETY: contract of this function; the mapping is live.
            unsafe { copy::to_mapping_and_return(mapping.mapping_type(), target, source, size) }
        })
    }

    /// Copies the bytes of this range (offset and size) to `host`.
    ///
    /// # Safety
    /// The range is inside the memory, and `host` is writable for the size of the range.
    pub(crate) unsafe fn copy_from(&self, py: Python<'_>, range: (usize, usize), host: *mut u8) -> Result<()> {
        let (offset, size) = range;
        let host = host.expose_provenance();
        self.copy(py, size, |mapping| {
            let (target, source) = (ptr::with_exposed_provenance_mut(host), mapping.as_mut_ptr().wrapping_add(offset));
            // SAFETY: contract of this function; the mapping is live.
            unsafe { copy::from_mapping(mapping.mapping_type(), target, source, size) }
        })
    }

    fn forget_region(&self) {
        REGIONS.lock().expect("no panic under this lock").retain(|region| region.id != self.id);
    }
}

#[pymethods]
impl Memory {
    #[new]
    fn new(py: Python<'_>, address: u64, size: usize, is_writable: bool, force_pcie: bool) -> Result<Memory> {
        let flags = if force_pcie { PinFlags::FORCE_PCIE } else { PinFlags::DEFAULT };
        let gdr = connect()?;
        let pin = || -> Result<_> {
            let ends_with_memory = gdr.attribute(Attribute::UsePersistentMapping)? == 0;
            Ok((ends_with_memory, Pinned::new(&gdr, address, size, flags)?))
        };
        let (ends_with_memory, pinned) = py.detach(pin)?;
        static LAST_ID: AtomicU64 = AtomicU64::new(0);
        let id = LAST_ID.fetch_add(1, SeqCst) + 1;
        if let Some(mapping) = &pinned.mapping {
            let (start, size) = (mapping.first_page().addr(), mapping.region().len());
            REGIONS.lock().expect("no panic under this lock").push(Region { id, start, size });
        }
        Ok(Memory {
            pinned: RwLock::new(pinned),
            id,
            size,
            is_writable,
            ends_with_memory,
            owner: Owner::current(),
            is_closed: AtomicBool::new(false),
            leases: AtomicUsize::new(0),
        })
    }

    /// Writes the bytes of data, any contiguous object with the buffer protocol, such as a NumPy array.
    ///
    /// The data reaches the GPU after all earlier writes of this thread, including those through views. A write of 1, 2, 4 or
    /// 8 bytes to an aligned address is one store.
    #[pyo3(signature = (data, offset=0))]
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: i64) -> Result<()> {
        let host = Host::get(data, ffi::PyBUF_SIMPLE)?;
        let range = self.range(offset, Some(host.len() as i64))?;
        // SAFETY: the range is inside the memory, and has the size of `host`.
        unsafe { self.copy_to(py, range, host.start()) }
    }

    /// Reads GPU memory into a contiguous, writable object that has the buffer protocol, such as a NumPy array.
    #[pyo3(signature = (buffer, offset=0))]
    fn read_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: i64) -> Result<()> {
        let host = Host::get(buffer, ffi::PyBUF_WRITABLE)?;
        let range = self.range(offset, Some(host.len() as i64))?;
        // SAFETY: the range is inside the memory, and has the size of `host`.
        unsafe { self.copy_from(py, range, host.start()) }
    }

    /// Waits until all earlier stores of this thread through views have arrived at the GPU. Later loads through views
    /// return no value that is older than the call.
    fn flush(&self) -> Result<()> {
        // SAFETY: a mapping has at least one byte, and it is live.
        self.with_mapping(|mapping| unsafe { copy::flush(mapping.as_mut_ptr()) })
    }

    /// True if close() was called.
    #[getter]
    fn closed(&self) -> bool {
        self.is_closed.load(SeqCst)
    }

    /// Returns size bytes that begin at offset, by default all up to the end. No byte is older than the call.
    #[pyo3(signature = (offset=0, size=None))]
    fn read<'py>(&self, py: Python<'py>, offset: i64, size: Option<i64>) -> Result<Bound<'py, PyBytes>> {
        let range = self.range(offset, size)?;
        let bytes = PyBytes::new_with(py, range.1, |bytes| {
            // SAFETY: the range is inside the memory, and has the size of `bytes`.
            Ok(unsafe { self.copy_from(py, range, bytes.as_mut_ptr()) }?)
        });
        Ok(bytes?)
    }

    /// Unmaps and unpins the memory. Returns false if the mapping is closed already, or in a forked child.
    #[pyo3(name = "_unpin")]
    fn unpin(&self, py: Python<'_>) -> Result<bool> {
        if self.check_open().is_err() {
            return Ok(false);
        }
        if self.leases.load(SeqCst) != 0 {
            return Err(PyBufferError::new_err("delete all views of the mapping before it is closed").into());
        }
        // From here on, new copies are refused. The lock below waits for those that are running.
        self.is_closed.store(true, SeqCst);
        let ended = py.detach(|| self.pinned.write().expect("no panic under this lock").end());
        if let Err(error) = ended {
            self.is_closed.store(false, SeqCst);
            return Err(error);
        }
        self.forget_region();
        Ok(true)
    }

    /// The exporter of the buffer is a [`Lease`]. So an object that keeps only the exporter, as torch.frombuffer does,
    /// keeps the mapping open.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> Result<()> {
        let (py, memory) = (slf.py(), slf.get());
        // Allocating the lease can run Python code that unmaps the memory. So the address is read afterwards.
        let lease = Bound::new(py, Lease::of(slf.clone().unbind()))?;
        let place = |mapping: &RawMapping| (mapping.as_mut_ptr(), mapping.mapping_type());
        let (start, mapping_type) = memory.with_mapping(place)?;
        if mapping_type == MappingType::Device {
            let text = "use read and write: this memory is mapped for aligned accesses only";
            return Err(PyBufferError::new_err(text).into());
        }
        let (size, is_read_only) = (memory.size as isize, c_int::from(!memory.is_writable));
        // SAFETY: the bytes stay mapped while `lease` exists, and the view holds a reference to it.
        if unsafe { ffi::PyBuffer_FillInfo(view, lease.as_ptr(), start.cast(), size, is_read_only, flags) } != 0 {
            return Err(PyErr::fetch(py).into());
        }
        Ok(())
    }

    /// Does nothing, but must exist: if it is missing, NumPy releases the buffer at once, and still uses the memory.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.forget_region();
    }
}

/// An object that keeps a Mapping open as long as the object exists. Each view refers to one.
#[pyclass(frozen, module = "gdrcopy")]
struct Lease {
    memory: Py<Memory>,
}

impl Lease {
    fn of(memory: Py<Memory>) -> Lease {
        memory.get().leases.fetch_add(1, SeqCst);
        Lease { memory }
    }
}

#[pymethods]
impl Lease {
    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> Result<(), pyo3::PyTraverseError> {
        visit.call(&self.memory)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.memory.get().leases.fetch_sub(1, SeqCst);
    }
}
