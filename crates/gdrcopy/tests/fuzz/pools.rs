//! Pools and their buffers.

use std::sync::Arc;

use bytemuck::bytes_of;
use gdrcopy::memory::{CudaAllocator, DeviceAllocator, DeviceMemory, MapOptions};
use gdrcopy::{MapFlag, Mapped as _, Pool, PoolBuffer, Result};

use crate::isolated::{any_outcome, calling, list, outcome, outcome_if_known};
use crate::model::{Entry, Memory};
use crate::ops::Args;
use crate::owned::{OwnedView, View};
use crate::owners::{Mapped, Owner, any_of};
use crate::pins::map_flag;
use crate::types::value;
use crate::world::World;

/// The largest number of bytes that a pool gets from its allocator at a time.
const LIMIT: usize = 16 << 20;

/// [`Lender`] leaves at least this many bytes before and after memory that it lends. No call may change these bytes.
const MARGIN: usize = 4096;

pub(crate) struct PoolOf {
    pub(crate) pool: Pool,
    /// The number of the pool in the sequence, from 1 on.
    pub(crate) number: usize,
    /// True if the pool allocates its memory when needed, and its options work on the emulated computers of all
    /// profiles.
    pub(crate) is_ordinary: bool,
}

impl PoolOf {
    /// Checks the result of a call that asks for `bytes` bytes, and returns its value. An ordinary pool must be able to
    /// give 2 MiB, and no pool can give more than 32 MiB.
    #[track_caller]
    fn outcome<T>(&self, bytes: u128, result: Result<T>) -> Option<T> {
        let is_impossible = bytes == 0 || bytes > 32 << 20;
        let is_known = self.is_ordinary && bytes <= 2 << 20 || is_impossible;
        outcome_if_known(is_known, !is_impossible, result)
    }
}

/// Gives pools and mappings memory at different offsets in a page. No call may change the bytes around the memory.
#[derive(Debug)]
pub(crate) struct Lender {
    cuda: CudaAllocator,
    memory: Memory,
    /// The number of bytes between the lent memory and the margin of `MARGIN` bytes at the start of the allocation.
    skew: usize,
    pool: usize,
}

#[derive(Debug)]
pub(crate) struct Lent {
    _entry: Entry,
    _memory: Box<dyn DeviceMemory>,
    pub(crate) start: u64,
    len: usize,
}

impl Lender {
    pub(crate) fn lend(&self, len: usize) -> Result<Lent> {
        let whole = match len {
            ..=LIMIT => len + 2 * MARGIN + (1 << 16),
            // The test expects an error for more than `LIMIT` bytes, but the emulated GPU may have enough memory. So
            // CUDA is asked for `usize::MAX` bytes, which it always refuses.
            _ => usize::MAX,
        };
        let memory = self.cuda.allocate(whole)?;
        let start = memory.address() + (MARGIN + self.skew) as u64;
        let range = start..start + len as u64;
        let _entry = self.memory.add(memory.address(), whole, range, self.pool);
        list(format_args!("\n  lent: {start:#x}+{len:#x}"));
        Ok(Lent { _entry, _memory: memory, start, len })
    }
}

impl DeviceAllocator for Lender {
    fn allocate(&self, len: usize) -> Result<Box<dyn DeviceMemory>> {
        self.lend(len).map(|lent| Box::new(lent) as _)
    }
}

// SAFETY: the range is part of the allocation that this value owns, and the test accesses it only by CUDA.
unsafe impl DeviceMemory for Lent {
    fn address(&self) -> u64 {
        self.start
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl World {
    pub(crate) fn allocator(&mut self) -> CudaAllocator {
        if let Some(allocator) = &self.allocator {
            return allocator.clone();
        }
        calling!("CudaAllocator::new(0)");
        let allocator = outcome(true, CudaAllocator::new(0)).expect("predicted");
        self.allocator = Some(allocator.clone());
        allocator
    }

    /// Returns an allocator for the next pool. It can also allocate memory to pass to `Gdr::map_owned`.
    pub(crate) fn lender(&mut self, args: &Args) -> Lender {
        let skews = [0, 1 << 16, 1, 64, 4096 + 8, 65535];
        Lender {
            cuda: self.allocator(),
            memory: self.memory.clone(),
            skew: skews[args.which % 6],
            pool: self.pool_number(),
        }
    }

    /// Returns a number that no pool has had.
    fn pool_number(&mut self) -> usize {
        self.pools_made += 1;
        self.pools_made
    }

    pub(crate) fn new_pool(&mut self, args: &Args) {
        let gdr = self.gdr(args);
        let lender = self.lender(args);
        let chunk = args.sizes[0].of(4 << 20);
        let flag = map_flag(args.data);
        list(format_args!("pool {} = chunk_len({chunk:#x}), {flag:?}\n", lender.pool));
        let number = lender.pool;
        let pool = Pool::options().chunk_len(chunk).map(MapOptions::default().map_flag(flag)).build(&gdr, lender);
        let is_ordinary = flag == MapFlag::Default && chunk <= LIMIT / 4;
        self.pools.push(PoolOf { pool, number, is_ordinary });
    }

    pub(crate) fn pool_of_memory(&mut self, args: &Args) {
        let gdr = self.gdr(args);
        let lender = self.lender(args);
        let number = lender.pool;
        let len = args.sizes[0].of(4 << 20);
        calling!("pool {number} = of {len:#x} bytes");
        let Ok(lent) = lender.lend(len) else {
            list(format_args!(": no memory\n"));
            return;
        };
        let first = lent.start.next_multiple_of(1 << 16) - lent.start;
        let has_page = len as u64 >= first + (1 << 16);
        if let Some(pool) = outcome(has_page, Pool::of_memory(&gdr, lent)) {
            self.pools.push(PoolOf { pool, number, is_ordinary: false });
        }
    }

    /// Returns one of the pools. It makes one if there is none.
    pub(crate) fn pool(&mut self, args: &Args) -> &PoolOf {
        if self.pools.is_empty() {
            self.new_pool(&Args { data: 0, ..*args });
        }
        any_of(&self.pools, args).expect("made")
    }

    pub(crate) fn alloc(&mut self, args: &Args) -> Option<Mapped> {
        let len = args.sizes[0].of(70_000);
        let align = align(args);
        let PoolOf { pool, number, is_ordinary } = self.pool(args);
        calling!("pool {number}: alloc_aligned({len:#x}, {align:#x})");
        let is_valid = len > 0 && align.is_power_of_two();
        let is_small = len <= 2 << 20 && align <= 2 << 20;
        let is_known = !is_valid || (*is_ordinary && is_small);
        let buffer = outcome_if_known(is_known, is_valid, pool.alloc_aligned(len, align))?;
        assert!(buffer.device_address().is_multiple_of(align.max(64) as u64));
        let number = *number;
        Some(self.buffer(buffer, len, number))
    }

    pub(crate) fn alloc_zeroed(&mut self, args: &Args) -> Option<Mapped> {
        let len = args.sizes[0].of(70_000);
        let PoolOf { pool, number, .. } = self.pool(args);
        calling!("pool {number}: alloc_zeroed({len:#x})");
        let number = *number;
        let buffer = any_outcome(pool.alloc_zeroed(len))?;
        self.memory.with(buffer.device_address(), len, |model| model.fill(0));
        Some(self.buffer(buffer, len, number))
    }

    fn buffer(&mut self, buffer: PoolBuffer, len: usize, pool: usize) -> Mapped {
        let start = buffer.device_address();
        let alive = self.claim(start, len, pool);
        Mapped { alive, ..Mapped::new(Owner::Buffer(Arc::new(buffer)), start, len) }
    }

    /// Makes a view that owns a buffer of a pool. No other buffer may share a cache line with this buffer.
    pub(crate) fn pool_view(&mut self, args: &Args) {
        let len = args.sizes[0].of(5000);
        let pool = self.pool(args);
        let number = pool.number;
        if args.data.is_multiple_of(2) {
            calling!("pool {number}: word()");
            let content: u64 = value(args.data);
            if let Some(word) = pool.outcome(8, pool.pool.word(content)) {
                let start = word.view().device_address();
                self.add_pool_view(number, View::Word(word), start, bytes_of(&content));
            }
            return;
        }
        calling!("pool {number}: array({len:#x})");
        if let Some(array) = pool.outcome(len as u128 * 3, pool.pool.array(len)) {
            let start = array.view().as_bytes().device_address();
            self.add_pool_view(number, View::Array(array, len), start, &vec![0; len * 3]);
        }
    }

    /// Adds a view of a new buffer, which begins at `start` and must contain `bytes`.
    fn add_pool_view(&mut self, pool: usize, view: View, start: u64, bytes: &[u8]) {
        assert!(start.is_multiple_of(64), "{start:#x} shares a line");
        let alive = self.claim(start, bytes.len(), pool);
        self.views.push(OwnedView { view, start, alive });
        self.memory.set(start, bytes);
    }

    /// Checks that the memory of a new buffer belongs to the pool and to no other buffer. The test counts the
    /// memory as the new buffer's until the returned `Arc` is dropped.
    pub(crate) fn claim(&mut self, start: u64, len: usize, pool: usize) -> Arc<()> {
        let range = start..start + len as u64;
        assert!(self.memory.is_of_pool(&range, pool), "{range:x?} is not the pool's");
        self.buffers.retain(|(_, _, alive)| alive.strong_count() > 0);
        for (other, ..) in &self.buffers {
            assert!(other.end <= range.start || range.end <= other.start, "{range:x?} is another's");
        }
        let alive = Arc::new(());
        self.buffers.push((range, pool, Arc::downgrade(&alive)));
        alive
    }

    pub(crate) fn trim(&mut self, args: &Args) {
        if let Some(PoolOf { pool, number, .. }) = any_of(&self.pools, args) {
            calling!("pool {number}: trim()");
            outcome(true, pool.trim());
        }
    }

    pub(crate) fn report(&mut self, args: &Args) {
        let Some(PoolOf { pool, number, .. }) = any_of(&self.pools, args) else {
            return;
        };
        calling!("pool {number}: report()");
        let report = outcome(true, pool.report()).expect("predicted");
        let mut count = 0;
        let mut bytes = 0;
        for (range, pool, alive) in &self.buffers {
            if pool == number && alive.strong_count() > 0 {
                count += 1;
                bytes += range.end - range.start;
            }
        }
        assert_eq!(report.buffers, count, "{report:?}");
        assert!(report.used_bytes >= bytes, "{report:?}");
        assert!(report.largest_free <= report.pinned_bytes - report.used_bytes, "{report:?}");
    }
}

fn align(args: &Args) -> usize {
    let large = args.data >> 8 & 1 == 0;
    match args.data % 16 {
        3 => args.sizes[1].of(4096),
        // If `large`, the alignment is any power of two. Otherwise it is smaller than a GPU page.
        _ if large => 1 << (args.data >> 9 & 63),
        _ => 1 << (args.data >> 9 & 15),
    }
}
