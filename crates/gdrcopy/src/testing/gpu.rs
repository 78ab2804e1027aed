//! A simulated GPU, whose memory is memory of this process.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, thread};

use gdrcopy_core::RawGdr;
use gdrcopy_core::backend::{PinRequest, PinState, Source, SourcePin};
use gdrcopy_core::error::{self, Errno, Error, Result, call};
use gdrcopy_core::sync::Mutex;
use gdrcopy_core::sys::mmap::Region;
use gdrcopy_core::types::{Attribute, GPU_PAGE_SIZE as PAGE, Info, MapFlag, MappingType, Version};

use crate::access::MappedSlice;
use crate::gdr::Gdr;
use crate::memory::{DeviceAllocator, DeviceMemory};
use crate::pool::blocks::{Block, Blocks};
use crate::testing::host_memory::Memory;

/// A GPU and its driver, for unit tests. Clones are the same GPU.
///
/// It allocates ([`DeviceAllocator`]), pins and maps as a GPU with gdrdrv in persistent mode does. Mappings are
/// write-combining, small allocations share pages of 64 KiB, and freed memory is allocated again. Errors are those of
/// the driver and of CUDA, such as `ENOMEM` when the memory is used up, and `EINVAL` for a pin of memory that is not
/// allocated. The simulation is stricter than a GPU in one case: freeing memory while it is pinned is a panic, because
/// not every driver keeps such memory from being allocated again.
///
/// Tests act as the GPU kernel by [`Gpu::read`] and [`Gpu::write`], or by words in [`Gpu::memory`]:
///
/// ```
/// # let gpu = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doc_examples/gpu.rs"));
/// use gdrcopy::testing::Gpu;
/// use gdrcopy::{Pool, Result};
///
/// let gpu = Gpu::new();
/// let pool = Pool::new(&gpu.open(), gpu.clone());
/// let numbers = pool.array::<u32>(4)?;
/// let flag = pool.word(0_u32)?;
/// let numbers_on_gpu = numbers.view().as_bytes().device_address();
/// let flag_on_gpu = flag.view().device_address();
/// std::thread::scope(|s| {
///     let kernel = s.spawn(|| {
///         let flag = gpu.memory(flag_on_gpu, 4).word::<u32>(0)?;
///         flag.spin_until(|value| value == 1, None)?;
///         let mut values = [0; 4];
///         gpu.memory(numbers_on_gpu, 16).array::<u32>(0, 4)?.read(0, &mut values)?;
///         flag.store(values.iter().sum());
///         Result::Ok(())
///     });
///     numbers.view().write(0, &[1, 2, 3, 4])?;
///     flag.view().store(1);
///     assert_eq!(flag.view().spin_until(|value| value != 1, None)?, 10);
///     kernel.join().expect("no panic")
/// })?;
/// drop((numbers, flag, pool));
/// gpu.assert_unused();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gpu(Arc<Shared>);

struct Shared {
    memory: Memory,
    /// The device address of the memory's first byte.
    start: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    blocks: Blocks,
    /// The live allocations by their device addresses.
    allocations: BTreeMap<u64, Allocated>,
    /// The live pins by their numbers.
    pins: BTreeMap<u64, Pinned>,
    /// The number of the next pin.
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Allocated {
    block: Block,
    len: u64,
}

/// A pin. It starts at a page boundary, so its first bytes can be before the allocation. All other bytes are inside.
#[derive(Clone, Copy, Debug)]
struct Pinned {
    address: u64,
    size: u64,
    allocation: u64,
}

/// The default size of a GPU's memory in bytes.
const LEN: usize = 64 << 20;
/// The largest size of a GPU's memory in bytes.
const MOST: usize = 1 << 40;
/// The device address of the first GPU's memory. CUDA never uses such addresses, so a real driver refuses them.
const START: u64 = 1 << 62;
/// The number of GPUs that were made. Each gets its own range of addresses, so that it refuses another GPU's memory.
static GPUS: AtomicU64 = AtomicU64::new(0);
/// The smallest alignment of cuMemAlloc.
const ALIGN: u64 = 256;
/// The type of all mappings of simulated GPUs.
const KIND: MappingType = MappingType::WriteCombining;

impl Gpu {
    /// Makes a GPU with 64 MiB of memory.
    pub fn new() -> Gpu {
        Gpu::with_memory(LEN)
    }

    /// Makes a GPU with this many bytes of memory, rounded up to pages of 64 KiB.
    ///
    /// # Panics
    /// If `bytes` is more than 1 TiB, or more than the free address space.
    pub fn with_memory(bytes: usize) -> Gpu {
        assert!(bytes <= MOST, "{bytes} bytes are more than 1 TiB");
        let bytes = bytes.next_multiple_of(PAGE as usize);
        let start = START + GPUS.fetch_add(1, Ordering::Relaxed) % (START / MOST as u64) * MOST as u64;
        Gpu(Arc::new(Shared {
            memory: Memory::aligned(bytes, PAGE as usize),
            start,
            state: Mutex::new(State {
                blocks: Blocks::new(start..start + bytes as u64),
                allocations: BTreeMap::new(),
                pins: BTreeMap::new(),
                next: 1,
            }),
        }))
    }

    /// Opens the driver of this GPU.
    pub fn open(&self) -> Gdr {
        Gdr::of_raw(RawGdr::of_backend(Arc::new(Driver(self.clone()))))
    }

    /// Returns memory of this GPU, for a test that acts as the GPU kernel. The memory need not be pinned.
    ///
    /// # Panics
    /// If the `len` bytes from `device_address` on are not all in one allocation. A GPU kernel that accessed them would
    /// fault.
    pub fn memory(&self, device_address: u64, len: usize) -> MappedSlice<'_> {
        let state = self.0.state.lock();
        let allocation = state.allocation(device_address, len as u64);
        assert!(allocation.is_some(), "{len} bytes at {device_address:#x} are not all in one allocation");
        let offset = (device_address - self.0.start) as usize;
        MappedSlice::of_region(self.0.memory.region(), offset, len, device_address, KIND)
    }

    /// Reads bytes as a GPU kernel does.
    ///
    /// # Panics
    /// As [`Gpu::memory`] does; also in a forked child of the process that made the GPU.
    pub fn read(&self, device_address: u64, bytes: &mut [u8]) {
        let memory = self.memory(device_address, bytes.len());
        memory.read(0, bytes).expect("memory of this process");
    }

    /// Writes bytes as a GPU kernel does.
    ///
    /// # Panics
    /// As [`Gpu::read`] does.
    pub fn write(&self, device_address: u64, bytes: &[u8]) {
        let memory = self.memory(device_address, bytes.len());
        memory.write(0, bytes).expect("memory of this process");
    }

    /// Checks that all memory is freed and unpinned.
    ///
    /// # Panics
    /// If memory of this GPU is still allocated or pinned. The panic's message contains the addresses.
    pub fn assert_unused(&self) {
        let state = self.0.state.lock();
        let allocations = state.allocations.iter();
        let allocated: Vec<_> = allocations.map(|(&address, memory)| bytes_at(address, memory.len)).collect();
        let pins = state.pins.values();
        let pinned: Vec<_> = pins.map(|pin| bytes_at(pin.address, pin.size)).collect();
        drop(state);
        assert!(allocated.is_empty() && pinned.is_empty(), "still allocated: {allocated:?}; still pinned: {pinned:?}");
    }
}

fn bytes_at(address: u64, len: u64) -> String {
    format!("{len} bytes at {address:#x}")
}

impl Default for Gpu {
    fn default() -> Gpu {
        Gpu::new()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} bytes", self.memory.region().len())
    }
}

impl State {
    /// Returns the start of the allocation that contains these bytes, or `None` if no allocation contains all of them.
    fn allocation(&self, address: u64, len: u64) -> Option<u64> {
        let (&start, allocated) = self.allocations.range(..=address).next_back()?;
        let end = address.checked_add(len)?;
        (end <= start + allocated.len).then_some(start)
    }
}

impl DeviceAllocator for Gpu {
    fn allocate(&self, len: usize) -> crate::Result<Box<dyn DeviceMemory>> {
        const INVALID_VALUE: u32 = 1;
        const OUT_OF_MEMORY: u32 = 2;
        if len == 0 {
            return Err(error::of_cuda("cuMemAlloc", INVALID_VALUE).into());
        }
        let mut state = self.0.state.lock();
        let block = state.blocks.take(len as u64, ALIGN);
        let block = block.ok_or_else(|| error::of_cuda("cuMemAlloc", OUT_OF_MEMORY))?;
        let address = block.start;
        state.allocations.insert(address, Allocated { block, len: len as u64 });
        Ok(Box::new(Allocation { gpu: self.clone(), address, len }))
    }
}

#[derive(Debug)]
struct Allocation {
    gpu: Gpu,
    address: u64,
    len: usize,
}

// SAFETY: the memory lives as long as this GPU, and safe code accesses it only through mapped slices.
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
        let pinned = state.pins.values().find(|pin| pin.allocation == self.address);
        let is_pinned = pinned.is_some();
        if !is_pinned && let Some(allocated) = state.allocations.remove(&self.address) {
            state.blocks.give_back(allocated.block);
        }
        drop(state);
        assert!(
            !is_pinned || thread::panicking(),
            "GPU memory at {:#x} is freed while it is pinned: drop its mappings and pins before it",
            self.address
        );
    }
}

/// The driver of a simulated GPU.
#[derive(Debug)]
struct Driver(Gpu);

impl Source for Driver {
    fn version(&self) -> Version {
        Version::API
    }

    fn page_size(&self) -> u64 {
        PAGE
    }

    fn attribute(&self, attribute: Attribute) -> Result<i32> {
        Ok(i32::from(attribute == Attribute::UsePersistentMapping))
    }

    fn pin(self: Arc<Self>, request: &PinRequest) -> Result<Arc<PinState>> {
        if request.flags.force_pcie() {
            return Err(Error::of_call(call::PIN_BUFFER_V2, Errno::EOPNOTSUPP));
        }
        let PinRequest { address, size, .. } = *request;
        let mut state = self.0.0.state.lock();
        // The request starts at a page boundary, which may be before the allocation. So the allocation is looked up by
        // the last byte.
        let last = size.checked_sub(1).map(|ahead| address + ahead);
        let allocation = last.and_then(|last| state.allocation(last, 1));
        let allocation = allocation.filter(|&start| start < address + PAGE);
        let allocation = allocation.ok_or_else(|| Error::of_call(call::PIN_BUFFER_V2, Errno::EINVAL))?;
        let number = state.next;
        state.next += 1;
        let pinned = Pinned { address, size, allocation };
        state.pins.insert(number, pinned);
        let gpu = self.0.clone();
        drop(state);
        PinState::of_range(GpuPin { gpu, number, pinned })
    }
}

#[derive(Debug)]
struct GpuPin {
    gpu: Gpu,
    number: u64,
    pinned: Pinned,
}

impl SourcePin for GpuPin {
    fn handle(&self) -> u64 {
        self.number
    }

    fn info(&self, mapped: Option<MappingType>) -> Result<Info> {
        Ok(Info {
            va: self.pinned.address,
            mapped_size: self.pinned.size.next_multiple_of(PAGE),
            page_size: PAGE as u32,
            mapping_type: mapped,
            ..Info::default()
        })
    }

    fn callback_flag(&self) -> Result<bool> {
        Ok(false)
    }

    fn map(&self, len: usize, flag: MapFlag) -> Result<(Region, MappingType)> {
        if !matches!(flag, MapFlag::Default | MapFlag::WriteCombining) {
            return Err(Error::of_call(call::REQ_MAPPING_TYPE, Errno::EOPNOTSUPP));
        }
        if len as u64 > self.pinned.size {
            return Err(Error::of_call(call::MMAP, Errno::EINVAL));
        }
        let offset = (self.pinned.address - self.gpu.0.start) as usize;
        let address = self.gpu.0.memory.region().address().wrapping_add(offset);
        let address = NonNull::new(address).expect("mapped");
        // SAFETY: the range is in the memory of `self.gpu`, which the pin keeps alive. The mapping keeps the pin alive.
        Ok((unsafe { Region::borrow(address, len) }, KIND))
    }

    fn unpin(&self) -> Result<()> {
        self.gpu.0.state.lock().pins.remove(&self.number);
        Ok(())
    }
}

impl Drop for GpuPin {
    fn drop(&mut self) {
        let _ = self.unpin();
    }
}
