//! Tests, under gdremu, pools of buffers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use gdrcopy::memory::{CudaAllocator, DeviceAllocator, DeviceMemory, RawMemory};
use gdrcopy::{Error, Gdr, GdrError, Mapped, Pool, PoolBuffer};

use crate::assert_outside;
use crate::cuda::Cuda;
use crate::ownership::{PAGE, are_refused, await_child, fork, leave_child, pin};
use crate::under_gdremu::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    buffers_of_all_sizes_are_aligned_gpu_memory,
    small_buffers_share_pages_and_one_pin,
    chunks_are_freed_by_trim_or_with_their_large_buffer,
    pool_of_fixed_memory_gives_out_its_whole_pages,
    failed_allocation_leaves_the_pool_usable,
    buffers_outlive_their_pool_and_are_reported,
    forked_child_gets_no_buffer_and_frees_nothing,
    memory_is_freed_after_it_is_unpinned,
    memory_of_a_reset_device_is_not_freed_again,
];

const MIB: usize = 1 << 20;

fn gdr() -> Gdr {
    Gdr::open().expect("an emulated driver")
}

fn pool() -> Pool {
    Pool::new(&gdr(), CudaAllocator::new(0).expect("an emulated GPU"))
}

/// Makes a pool of `len` bytes that start 512 bytes after a page boundary. Returns the pool and the device address of
/// its first whole page.
fn fixed_pool(cuda: &Cuda, len: usize) -> (Pool, u64) {
    let page = cuda.alloc(len + 2 * PAGE).next_multiple_of(PAGE as u64);
    // SAFETY: the memory is never freed, and is used only through the pool.
    let memory = unsafe { RawMemory::new(page + 512, len) };
    let pool = Pool::of_memory(&gdr(), memory).expect("GPU memory");
    (pool, page + PAGE as u64)
}

/// Makes a pool whose memory calls `on_drop` when the memory is dropped.
fn watched_pool(on_drop: fn()) -> Pool {
    #[derive(Debug)]
    struct Watched(RawMemory, fn());

    // SAFETY: the `RawMemory` meets the contract of `DeviceMemory`.
    unsafe impl DeviceMemory for Watched {
        fn address(&self) -> u64 {
            self.0.address()
        }

        fn len(&self) -> usize {
            self.0.len()
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            (self.1)();
        }
    }

    let address = Cuda::new().alloc(4 * MIB);
    // SAFETY: the memory is never freed, and is used only through the pool.
    let memory = Watched(unsafe { RawMemory::new(address, 4 * MIB) }, on_drop);
    Pool::of_memory(&gdr(), memory).expect("GPU memory")
}

/// Fills a buffer through its mapping and checks it through CUDA.
fn assert_is_gpu_memory(cuda: &Cuda, buffer: &PoolBuffer, byte: u8) {
    let bytes = vec![byte; buffer.len()];
    buffer.write(0, &bytes).expect("inside");
    assert_eq!(cuda.read(buffer.device_address(), buffer.len()), bytes);
}

fn buffers_of_all_sizes_are_aligned_gpu_memory() {
    let cuda = Cuda::new();
    let pool = pool();
    for len in [1, 4, 64, 65, 4096, PAGE - 1, PAGE, PAGE + 1, MIB, 2 * MIB, 2 * MIB + 1, 5 * MIB] {
        let buffer = pool.alloc(len).expect("memory");
        let align = match len {
            _ if len < PAGE => 64,
            _ if len <= 2 * MIB => PAGE,
            _ => 2 * MIB,
        };
        assert!(buffer.device_address().is_multiple_of(align as u64), "{len} bytes");
        assert_is_gpu_memory(&cuda, &buffer, 1);
        assert_outside(buffer.write(len, &[0]), [len, 1], len);
    }
    let mut kept = Vec::new();
    for align in [1, 128, 4096, PAGE, MIB, 2 * MIB, 8 * MIB] {
        kept.push(pool.alloc_aligned(1, align).expect("memory"));
        assert!(kept.last().expect("pushed").device_address().is_multiple_of(align as u64), "{align}");
    }
    assert_eq!(pool.alloc(0).err(), Some(GdrError::EmptyRange.into()));
    for align in [0, 3, usize::MAX] {
        let refused = pool.alloc_aligned(1, align).err();
        assert!(matches!(refused, Some(Error::InvalidAlignment { align: reported, .. }) if reported == align));
    }
}

fn small_buffers_share_pages_and_one_pin() {
    let pool = pool();
    let buffers: Vec<PoolBuffer> = (0..2048).map(|_| pool.alloc(4).expect("memory")).collect();
    let report = pool.report().expect("this process");
    assert_eq!((report.chunks, report.buffers), (1, 2048));
    assert_eq!(report.pinned_bytes, 4 * MIB as u64);
    // Each buffer takes 64 bytes, so 2,048 buffers fill two pages.
    assert_eq!(report.used_bytes, 2 * PAGE as u64);
    assert_eq!(report.largest_free, 4 * MIB as u64 - 2 * PAGE as u64);
    let kept: Vec<PoolBuffer> = buffers.into_iter().step_by(2).collect();
    let report = pool.report().expect("this process");
    assert_eq!((report.buffers, report.used_bytes), (kept.len(), PAGE as u64));
}

fn chunks_are_freed_by_trim_or_with_their_large_buffer() {
    let cuda = Cuda::new();
    let pool = pool();
    let unpooled = cuda.alloc(1);
    let large = pool.alloc(3 * MIB).expect("memory");
    let small = pool.alloc(100).expect("memory");
    let addresses = [large.device_address(), small.device_address()];
    assert_eq!(pool.report().expect("this process").chunks, 2);
    drop(large);
    let report = pool.report().expect("this process");
    assert_eq!((report.chunks, report.pinned_bytes), (1, 4 * MIB as u64));
    pool.trim().expect("this process");
    assert_eq!(pool.report().expect("this process").chunks, 1, "a buffer needs it");
    let start = small.device_address();
    drop(small);
    assert_eq!(pool.alloc(100).expect("memory").device_address(), start, "memory is reused");
    pool.trim().expect("this process");
    assert_eq!(pool.report(), Ok(Default::default()));
    // The pool may free memory asynchronously, in a stream. `clear` waits for all streams, and so for the free.
    cuda.clear(unpooled, 1);
    for address in addresses {
        let refused = pin(&gdr(), address, 64).expect_err("freed memory");
        assert_eq!(refused.errno(), libc::EINVAL, "{address:#x} is not freed");
    }
}

fn pool_of_fixed_memory_gives_out_its_whole_pages() {
    let cuda = Cuda::new();
    let (pool, first) = fixed_pool(&cuda, 3 * PAGE + 100);
    let report = pool.report().expect("this process");
    assert_eq!(report.pinned_bytes, 2 * PAGE as u64);
    let [a, b] = [(); 2].map(|()| pool.alloc(PAGE).expect("two pages"));
    assert_eq!((a.device_address(), b.device_address()), (first, first + PAGE as u64));
    assert_is_gpu_memory(&cuda, &b, 0x5a);
    assert_eq!(pool.alloc(1).err(), Some(Error::PoolExhausted));
    pool.trim().expect("this process");
    drop((a, b));
    pool.trim().expect("this process");
    assert_eq!(pool.alloc(2 * PAGE).expect("both").device_address(), first);
    assert_eq!(pool.alloc(3 * MIB).err(), Some(Error::PoolExhausted));

    let (large, _) = fixed_pool(&cuda, 8 * MIB);
    let buffer = large.alloc(3 * MIB).expect("fixed memory has no chunks of one buffer");
    assert!(buffer.device_address().is_multiple_of(2 * MIB as u64));
    // SAFETY: the memory is never used.
    let no_page = unsafe { RawMemory::new(first + 1, 2 * PAGE - 2) };
    assert_eq!(Pool::of_memory(&gdr(), no_page).err(), Some(GdrError::EmptyRange.into()));
}

fn failed_allocation_leaves_the_pool_usable() {
    /// An allocator that fails at the first call, returns memory that cannot be pinned at the second call, and then
    /// works.
    #[derive(Debug)]
    struct Moody(CudaAllocator, AtomicUsize);

    impl DeviceAllocator for Moody {
        fn allocate(&self, len: usize) -> gdrcopy::Result<Box<dyn DeviceMemory>> {
            match self.1.fetch_add(1, Ordering::Relaxed) {
                0 => Err(GdrError::NoCuda.into()),
                // SAFETY: no memory has this address, so nothing uses it.
                1 => Ok(Box::new(unsafe { RawMemory::new(PAGE as u64, len) })),
                _ => self.0.allocate(len),
            }
        }
    }

    let cuda = CudaAllocator::new(0).expect("an emulated GPU");
    let pool = Pool::new(&gdr(), Moody(cuda, AtomicUsize::new(0)));
    assert_eq!(pool.alloc(1).err(), Some(GdrError::NoCuda.into()));
    let refused = pool.alloc(1).expect_err("no GPU memory");
    assert_eq!(refused.errno(), libc::EINVAL);
    assert_eq!(pool.report(), Ok(Default::default()));
    assert_is_gpu_memory(&Cuda::new(), &pool.alloc(1).expect("memory"), 7);

    let too_large = pool.alloc(1 << 50).expect_err("more than the GPU has");
    assert_eq!(too_large.errno(), libc::ENOMEM);
    assert!(CudaAllocator::new(1000).is_err(), "there is no such GPU");
}

/// The warnings and errors that were logged.
struct Logged(Mutex<Vec<String>>);

static LOGGED: Logged = Logged(Mutex::new(Vec::new()));

impl log::Log for Logged {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().expect("no panic").push(format!("{}: {}", record.level(), record.args()));
    }
    fn flush(&self) {}
}

impl Logged {
    fn listen() {
        let _ = log::set_logger(&LOGGED); // An error means that this logger is set already.
        log::set_max_level(log::LevelFilter::Warn);
    }

    /// Returns the logged lines that contain `text`.
    fn with(text: &str) -> Vec<String> {
        let mut lines = LOGGED.0.lock().expect("no panic").clone();
        lines.retain(|line| line.contains(text));
        lines
    }
}

fn buffers_outlive_their_pool_and_are_reported() {
    Logged::listen();
    let cuda = Cuda::new();
    let pool = pool();
    drop(pool.alloc(100));
    let buffers = [100, PAGE, 3 * MIB].map(|len| pool.alloc(len).expect("memory"));
    drop(pool);
    for buffer in &buffers {
        assert_is_gpu_memory(&cuda, buffer, 0x77);
    }
    drop(buffers);
    drop(self::pool());
    let lines = Logged::with("of its buffers (");
    if cfg!(debug_assertions) {
        assert_eq!(lines.len(), 1, "{lines:?}");
        let bytes = 128 + PAGE + 3 * MIB;
        assert!(lines[0].starts_with("WARN"), "{lines:?}");
        assert!(lines[0].contains(&format!("3 of its buffers ({bytes} bytes)")), "{lines:?}");
    } else {
        assert!(lines.is_empty(), "{lines:?}");
    }
}

fn forked_child_gets_no_buffer_and_frees_nothing() {
    static PARENT: AtomicU32 = AtomicU32::new(0);
    PARENT.store(std::process::id(), Ordering::Relaxed);
    let watched = watched_pool(|| {
        if std::process::id() != PARENT.load(Ordering::Relaxed) {
            leave_child(false);
        }
    });
    let cuda = Cuda::new();
    let pool = pool();
    let [small, large] = [100, 3 * MIB].map(|len| pool.alloc(len).expect("memory"));
    let child = fork();
    if child == 0 {
        let refused = are_refused(&[
            pool.alloc(1).err(),
            pool.alloc(3 * MIB).err(),
            pool.trim().err(),
            pool.report().err(),
            small.write(0, &[1]).err(),
        ]);
        drop((small, large));
        drop((pool, watched));
        leave_child(refused)
    }
    await_child(child, "the child was served, dropped the parent's memory, or ended by a signal");
    assert_is_gpu_memory(&cuda, &small, 1);
    assert_is_gpu_memory(&cuda, &large, 2);
}

fn memory_is_freed_after_it_is_unpinned() {
    const COUNT: &str = "/proc/driver/gdrdrv/nv_get_pages_refcount";
    static PINS: AtomicUsize = AtomicUsize::new(usize::MAX);
    /// Returns how many pins gdrdrv holds. Without gdrdrv it returns 0, and only gdremu's leak report checks that no
    /// pin is left.
    fn pins() -> usize {
        let Ok(count) = std::fs::read_to_string(COUNT) else {
            return 0;
        };
        count.trim().parse().expect("a number")
    }
    let before = pins();
    let pool = watched_pool(|| PINS.store(pins(), Ordering::Relaxed));
    assert_eq!(pins() - before, usize::from(std::fs::exists(COUNT).expect("a path")));
    let buffer = pool.alloc(1).expect("memory");
    drop(pool);
    assert_eq!(PINS.load(Ordering::Relaxed), usize::MAX, "freed below a buffer");
    drop(buffer);
    assert_eq!(PINS.load(Ordering::Relaxed), before, "freed while pinned");
}

#[cfg(feature = "cudarc-0-19")]
pub(crate) mod with_cudarc {
    use std::sync::Arc;

    use cudarc::driver::{CudaContext, CudaStream, result};
    use gdrcopy::memory::{CudarcAllocator, MapOptions};

    use super::*;

    pub(crate) const TESTS: &[Test] = tests![
        pool_of_cudarc_memory_is_gpu_memory,
        slice_of_cudarc_is_memory_for_a_pool_if_it_can_be_pinned,
        slice_of_any_plain_type_is_mapped_and_given_back,
    ];

    fn new_stream() -> Arc<CudaStream> {
        let context = CudaContext::new(0).expect("an emulated GPU");
        context.new_stream().expect("a stream")
    }

    fn pool_of_cudarc_memory_is_gpu_memory() {
        let cuda = Cuda::new();
        let stream = new_stream();
        let pool = Pool::new(&gdr(), CudarcAllocator::new(Arc::clone(&stream)));
        let buffers = [10, PAGE, 3 * MIB].map(|len| pool.alloc(len).expect("memory"));
        for buffer in &buffers {
            assert_is_gpu_memory(&cuda, buffer, 0x3c);
        }
        let address = buffers[2].device_address();
        drop((buffers, pool));
        stream.synchronize().expect("no error");
        stream.context().check_err().expect("cudarc frees without errors");
        assert!(pin(&gdr(), address, 64).is_err(), "not freed");
    }

    fn slice_of_cudarc_is_memory_for_a_pool_if_it_can_be_pinned() {
        let cuda = Cuda::new();
        let stream = new_stream();
        let slice = stream.alloc_zeros::<u8>(4 * PAGE).expect("memory");
        match Pool::of_memory(&gdr(), slice) {
            Ok(pool) => assert_is_gpu_memory(&cuda, &pool.alloc(PAGE).expect("a page"), 3),
            Err(error) => {
                assert!(stream.context().has_async_alloc(), "only memory of pools cannot be pinned");
                assert_eq!(error.errno(), libc::EINVAL);
            }
        }
    }

    fn slice_of_any_plain_type_is_mapped_and_given_back() {
        let cuda = Cuda::new();
        let stream = new_stream();
        let len = 3000;
        let bytes = len * size_of::<f32>();
        // SAFETY: the slice below owns the memory.
        let address = unsafe { result::malloc_sync(bytes) }.expect("memory");
        // SAFETY: 12,000 bytes are allocated at the address, and any bytes are valid values of f32.
        let slice = unsafe { stream.upgrade_device_ptr::<f32>(address, len) };
        let mapping = gdr().map_owned(slice, MapOptions::default()).expect("memory of cuMemAlloc can be pinned");
        assert_eq!((mapping.device_address(), mapping.len()), (address, bytes));
        let array = mapping.array::<f32>(0, len).expect("inside");
        array.set(len - 1, 1.5).expect("inside");
        let last = address + (bytes - 4) as u64;
        assert_eq!(cuda.read(last, 4), 1.5_f32.to_ne_bytes());
        let slice = mapping.into_memory().expect("unmapped");
        let values = stream.clone_dtoh(&slice).expect("no error");
        assert_eq!((values[0], values[len - 1]), (0.0, 1.5));
    }
}

/// After a reset, CUDA may give a new context and new memory the addresses of the old ones. Dropping the old memory
/// must not free the new memory at the same address.
fn memory_of_a_reset_device_is_not_freed_again() {
    Logged::listen();
    let cuda = Cuda::new();
    let allocator = CudaAllocator::new(0).expect("a GPU");
    let before = allocator.allocate(PAGE).expect("memory");
    let address = before.address();
    // SAFETY: the signature is that of the CUDA driver API, and nothing of the context is used afterwards.
    unsafe { cuda.call("cuDevicePrimaryCtxReset_v2", |reset: extern "C" fn(i32) -> i32| reset(0)) };
    assert!(allocator.allocate(PAGE).is_err(), "its stream is gone");
    let mut after = Vec::new();
    for _ in 0..8 {
        let new_allocator = CudaAllocator::new(0).expect("a new context");
        after.push(new_allocator.allocate(PAGE).expect("memory of a new context"));
    }
    assert!(allocator.allocate(PAGE).is_err(), "its context is gone too");
    drop(before);
    drop(allocator);
    // The reset has destroyed the stream of `allocator` and its memory `before`. The drop of `before` must not call
    // cuMemFreeAsync with that stream, because CUDA does not check whether a stream exists.
    assert_eq!(Logged::with(&format!("{address:#x} is not freed")), [""; 0]);
    for memory in &after {
        cuda.write(memory.address(), &[7; PAGE]);
        assert_eq!(cuda.read(memory.address(), PAGE), [7; PAGE]);
    }
}
