//! Memory and a GPU for tests that call no kernel: those under Miri and under loom.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::MappedSlice;
use crate::gdr::Gdr;
use crate::memory::{DeviceAllocator, DeviceMemory};
use crate::pool::sync::Mutex;
use gdrcopy_core::RawGdr;
use gdrcopy_core::backend::{Backend, BackendPin, PinRequest};
use gdrcopy_core::error::Result;
use gdrcopy_core::sys::fork::{self, OpenFile};
use gdrcopy_core::sys::mmap::Region;
use gdrcopy_core::types::{Attribute, GPU_PAGE_SIZE as PAGE, Info, MapFlag, MappingType, Version};

/// Zeros in place of mapped GPU memory.
pub(crate) struct Memory {
    region: Region,
    /// Used by its address only.
    _zeros: Vec<u8>,
}

impl Memory {
    #[cfg(not(gdrapi_loom))]
    pub(crate) fn new(bytes: usize) -> Memory {
        // Copy routines read whole lines.
        let mut zeros = vec![0; 64 + bytes.next_multiple_of(64)];
        let start = zeros.as_mut_ptr();
        let start = start.wrapping_add(start.align_offset(64));
        Memory::at(NonNull::new(start).expect("not at 0"), bytes, zeros)
    }

    /// In an execution of a model, which has one.
    #[cfg(gdrapi_loom)]
    pub(crate) fn new(bytes: usize) -> Memory {
        Memory::at(gdrcopy_core::routines::loom::map(bytes), bytes, Vec::new())
    }

    fn at(address: NonNull<u8>, bytes: usize, zeros: Vec<u8>) -> Memory {
        // Otherwise another test may do it later, as if the process were another one then.
        fork::enter().expect("memory for a page");
        Memory {
            region: Region::borrow(address, bytes),
            _zeros: zeros,
        }
    }

    pub(crate) fn slice(&self) -> MappedSlice<'_> {
        let (len, kind) = (self.region.len(), MappingType::WriteCombining);
        MappedSlice::of_region(&self.region, 0, len, 0, kind)
    }
}

/// A GPU and its driver. It panics where memory is pinned that is not allocated, or freed while it is pinned.
/// Clones are the same GPU.
#[derive(Clone, Debug)]
pub(crate) struct FakeGpu(Arc<Shared>);

struct Shared {
    memory: Memory,
    state: Mutex<State>,
}

/// Lengths by device address.
#[derive(Debug, Default)]
struct State {
    allocated: BTreeMap<u64, u64>,
    pinned: BTreeMap<u64, u64>,
    /// Bytes that were allocated until now.
    used: usize,
}

/// Bytes, each of which is allocated once. Models do not access them.
const LEN: usize = if cfg!(gdrapi_loom) { 0 } else { 64 << 20 };
/// Device address of the first.
const START: u64 = 0x7f00_0000_0000;

impl FakeGpu {
    pub(crate) fn new() -> FakeGpu {
        FakeGpu(Arc::new(Shared {
            memory: Memory::new(LEN),
            state: Mutex::default(),
        }))
    }

    pub(crate) fn open(&self) -> Gdr {
        Gdr::of_raw(RawGdr::of_backend(Box::new(self.clone())))
    }

    pub(crate) fn assert_unused(&self) {
        let state = self.0.state.lock();
        let unused = state.pinned.is_empty() && state.allocated.is_empty();
        assert!(unused, "left: {:?}", *state);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeGpu")
    }
}

impl DeviceAllocator for FakeGpu {
    fn allocate(&self, len: usize) -> Result<Box<dyn DeviceMemory>> {
        let mut state = self.0.state.lock();
        let address = START + state.used as u64;
        state.allocated.insert(address, len as u64);
        state.used += len;
        assert!(cfg!(gdrapi_loom) || state.used <= LEN, "used up");
        let gpu = self.clone();
        Ok(Box::new(Allocation { gpu, address, len }))
    }
}

#[derive(Debug)]
struct Allocation {
    gpu: FakeGpu,
    address: u64,
    len: usize,
}

// SAFETY: mappings show memory that lives as long as this GPU, and that only they use.
unsafe impl DeviceMemory for Allocation {
    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut state = self.gpu.0.state.lock();
        state.allocated.remove(&self.address);
        let end = self.address + self.len as u64;
        let pinned = state.pinned.range(self.address..end).next();
        assert_eq!(pinned, None, "freed while pinned");
    }
}

impl Backend for FakeGpu {
    fn file(&self) -> Option<OpenFile> {
        None
    }

    fn version(&self) -> Version {
        Version::API
    }

    fn page_size(&self) -> u64 {
        PAGE
    }

    fn attribute(&self, _: Attribute) -> Result<i32> {
        Ok(0)
    }

    fn pin(&self, request: &PinRequest) -> Result<Box<dyn BackendPin>> {
        let mut state = self.0.state.lock();
        let address = request.address;
        let memory = state.allocated.range(..=address).next_back();
        let inside = |(start, len)| address + request.size <= start + len;
        assert!(memory.is_some_and(inside), "pinned without being allocated");
        state.pinned.insert(address, request.size);
        let gpu = self.clone();
        Ok(Box::new(FakePin { gpu, address }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct FakePin {
    gpu: FakeGpu,
    address: u64,
}

impl BackendPin for FakePin {
    fn handle(&self) -> u64 {
        self.address
    }

    fn file(&self) -> Option<OpenFile> {
        None
    }

    fn info(&self, mapped: Option<MappingType>) -> Result<Info> {
        Ok(Info {
            va: self.address,
            mapped_size: self.gpu.0.state.lock().pinned[&self.address],
            page_size: PAGE as u32,
            tm_cycles: 0,
            cycles_per_ms: 0,
            mapping_type: mapped,
        })
    }

    fn callback_flag(&self) -> Result<bool> {
        Ok(false)
    }

    fn map(&self, len: usize, _: MapFlag) -> Result<(Region, MappingType)> {
        let offset = (self.address - START) as usize;
        let address = self.gpu.0.memory.region.address().wrapping_add(offset);
        let address = NonNull::new(address).expect("mapped");
        Ok((Region::borrow(address, len), MappingType::WriteCombining))
    }

    fn unpin(&self) -> Result<()> {
        self.gpu.0.state.lock().pinned.remove(&self.address);
        Ok(())
    }
}

impl Drop for FakePin {
    fn drop(&mut self) {
        let _ = self.unpin();
    }
}
