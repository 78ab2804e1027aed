//! Large copies by several threads, if [`set_threads`] asks for N of them (`GDRCOPY_THREADS=N` in C programs).
//!
//! One core copies at the rate of its own buffers, a fraction of what PCIe carries. The first large copy of a
//! process starts N - 1 helpers, or fewer if its thread is bound to fewer than N CPUs. They are bound to the
//! same CPUs. From then on each large copy is cut into chunks that its caller and the helpers take in turn. A copy
//! never waits for a helper to wake up, only for those that are copying one of its chunks. While one copy uses
//! the helpers, other copies use their callers' threads only. So do all copies in a forked child, which
//! inherits the helpers' data but not the threads.
//!
//! The helpers are threads of `sys::thread`.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::sync::Mutex;
use crate::sys::fork::Owner;
use crate::sys::thread::Thread;
use crate::types::MappingType;

/// Bytes of device memory that one thread writes at a time. Each chunk ends with a fence.
pub(super) const WRITTEN_AT_A_TIME: usize = 128 << 10;

/// Bytes that one thread reads at a time. Reads take 20 times as long as writes. With small chunks, the other
/// threads take more of them while a helper wakes up. With 8 threads and an H200, reads of 1 MiB and 16 MiB
/// took a fifth less time than in the chunks of writes. Writes took up to 9% more.
pub(super) const READ_AT_A_TIME: usize = 16 << 10;

/// More threads than the bandwidth of PCIe can keep busy.
pub const MAX_THREADS: usize = 128;

/// One copy, with its function and its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Copies a part of it, with the fences that a copy of its own needs.
    pub(super) copy: unsafe fn(mapping_type: MappingType, dst: *mut u8, src: *const u8, len: usize),
    pub(super) mapping_type: MappingType,
    pub(super) dst: *mut u8,
    pub(super) src: *const u8,
    pub(super) len: usize,
    /// Whichever of the two addresses is the mapping's.
    pub(super) device: usize,
    /// Bytes that one thread copies at a time. A multiple of the cache line, so that no line is shared.
    pub(super) chunk_size: usize,
}

impl Job {
    /// Makes the whole copy, with the process's helpers if it has any to spare.
    ///
    /// # Safety
    /// `copy` must be sound for the rest.
    pub(super) unsafe fn run(self) {
        // When one thread is asked for, do not touch the shared value.
        if threads() > 1
            && let Some(mut helpers) = HELPERS.try_lock()
        {
            let helpers = helpers.get_or_insert_with(Helpers::of_process);
            if helpers.is_usable() {
                // SAFETY: contract of this function.
                return unsafe { helpers.run(self) };
            }
        }
        // SAFETY: contract of this function.
        unsafe { self.part(0..self.len) }
    }

    /// # Safety
    /// The contract of [`Job::run`]; the bytes must be some of the copy's.
    unsafe fn part(&self, bytes: Range<usize>) {
        // SAFETY: contract of this function.
        unsafe {
            let (dst, src) = (self.dst.add(bytes.start), self.src.add(bytes.start));
            (self.copy)(self.mapping_type, dst, src, bytes.len());
        }
    }

    fn chunks(&self) -> usize {
        (self.device % self.chunk_size + self.len).div_ceil(self.chunk_size)
    }

    /// The bytes of a chunk. Chunks begin and end at multiples of their size in device memory.
    fn chunk(&self, index: usize) -> Range<usize> {
        let size = self.chunk_size;
        let before = self.device % size;
        let start = (index * size).saturating_sub(before);
        start..((index + 1) * size - before).min(self.len)
    }
}

/// The helpers, once there was a large copy for which some were requested.
static HELPERS: Mutex<Option<Helpers>> = Mutex::new(None);

/// Threads that wait for work.
struct Helpers {
    threads: Vec<Thread>,
    /// Owned: freed when the threads are gone.
    shared: *mut Shared,
    /// The process that started them.
    owner: Owner,
}

// SAFETY: a thread may be joined by any other thread, and `Shared` is `Sync`.
unsafe impl Send for Helpers {}

impl Helpers {
    /// The helpers that [`set_threads`] asks for, as far as the calling thread may use CPUs for them, since
    /// they inherit its CPU affinity.
    fn of_process() -> Helpers {
        Helpers::start(threads_allowed(threads()) - 1)
    }

    fn start(helpers: usize) -> Helpers {
        let shared = Box::into_raw(Box::new(Shared::new()));
        // SAFETY: the box is not moved before `join` frees it, and no other thread has its address yet.
        unsafe { libc::sem_init((*shared).work.get(), 0, 0) };
        let threads: Vec<_> = (0..helpers)
            // SAFETY: `join` frees the box after it has joined the thread.
            .map_while(|_| unsafe { Thread::start(help, shared.cast()) })
            .collect();
        if threads.len() < helpers {
            log::warn!(
                "large copies are made by {} threads: no more of the {} asked for could be started",
                threads.len() + 1,
                helpers + 1
            );
        }
        Helpers { threads, shared, owner: Owner::current() }
    }

    fn is_usable(&self) -> bool {
        !self.threads.is_empty() && self.owner.is_current()
    }

    /// # Safety
    /// The contract of [`Job::run`].
    unsafe fn run(&mut self, job: Job) {
        // SAFETY: only `join` frees it, which consumes `self`.
        let shared = unsafe { &*self.shared };
        let wanted = self.threads.len().min(job.chunks() - 1);
        // SAFETY: `&mut self` excludes other copies. The last one returned with the gate closed and no helper
        // inside, so nothing reads `job` while it is written. `part` is sound for all chunks: contract of this
        // function.
        unsafe {
            *shared.job.get() = MaybeUninit::new(job);
            shared.next_chunk.store(0, Ordering::Relaxed);
            shared.gate.open();
            for _ in 0..wanted {
                libc::sem_post(shared.work.get());
            }
            shared.take_chunks();
        }
        shared.gate.close();
    }

    /// Ends the helpers.
    fn join(self) {
        // SAFETY: freed below, after all threads that have its address were joined.
        let shared = unsafe { &*self.shared };
        shared.end.store(true, Ordering::Release);
        for _ in &self.threads {
            // SAFETY: the semaphore was initialized by `start`.
            unsafe { libc::sem_post(shared.work.get()) };
        }
        self.threads.into_iter().for_each(Thread::join);
        // SAFETY: the threads that waited for the semaphore have ended, and `self` owns the box.
        unsafe {
            libc::sem_destroy(shared.work.get());
            drop(Box::from_raw(self.shared));
        }
    }
}

/// Ends the helpers, when the library is unloaded and at the end of the process.
pub fn end_threads() {
    // Copies during unload are not supported; and a child has no thread to join.
    let helpers = HELPERS.try_lock().and_then(|mut helpers| helpers.take());
    match helpers {
        Some(helpers) if helpers.owner.is_current() => helpers.join(),
        _ => (),
    }
}

/// The number of threads that may make one copy, the caller's among them.
static THREADS: AtomicUsize = AtomicUsize::new(1);

fn threads() -> usize {
    THREADS.load(Ordering::Relaxed)
}

/// Lets up to `threads` threads, the caller's among them, share each copy of 1 MiB and more, in this process.
/// The number is from 1 to [`MAX_THREADS`]; others are taken as the nearest of these. 1, the default, creates
/// no thread.
pub fn set_threads(threads: usize) {
    THREADS.store(threads.clamp(1, MAX_THREADS), Ordering::Relaxed);
}

/// At most one thread for each CPU that the calling thread may use, because more would wait for each other.
fn threads_allowed(asked_for: usize) -> usize {
    // Fails where the kernel knows more CPUs than this has bits.
    let mut cpus = [0_u64; 128];
    // SAFETY: the kernel writes no more than the size that it is given.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&cpus), cpus.as_mut_ptr().cast()) };
    let allowed: usize = cpus.iter().map(|word| word.count_ones() as usize).sum();
    if asked_for == 1 || result != 0 || asked_for <= allowed {
        return asked_for;
    }
    log::warn!(
        "large copies are made by {allowed} of the {asked_for} threads asked for, because the thread that copies is \
         bound to {allowed} CPUs: bind it to more (taskset, numactl, the job launcher), or ask for fewer"
    );
    allowed
}

/// The state that the helpers share.
struct Shared {
    /// Posted once for each helper that is wanted.
    work: UnsafeCell<libc::sem_t>,
    gate: Gate,
    /// The copy in progress. Written while the gate is closed and no helper is inside, read inside.
    job: UnsafeCell<MaybeUninit<Job>>,
    next_chunk: AtomicUsize,
    end: AtomicBool,
}

// SAFETY: POSIX semaphores may be shared by threads. The gate keeps the writer of `job` and its readers apart,
// and the addresses in it are valid in every thread of the process.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Shared {
        Shared {
            // SAFETY: sem_t consists of integers only; it is initialized before use.
            work: UnsafeCell::new(unsafe { MaybeUninit::zeroed().assume_init() }),
            gate: Gate(AtomicU32::new(0)),
            job: UnsafeCell::new(MaybeUninit::uninit()),
            next_chunk: AtomicUsize::new(0),
            end: AtomicBool::new(false),
        }
    }

    /// Copies one chunk after another, until all are taken.
    ///
    /// # Safety
    /// The caller has opened the gate, or has been let in.
    unsafe fn take_chunks(&self) {
        // SAFETY: the copy was written before the gate opened, and is not changed while a helper is inside.
        let job = unsafe { (*self.job.get()).assume_init() };
        loop {
            let index = self.next_chunk.fetch_add(1, Ordering::Relaxed);
            if index >= job.chunks() {
                return;
            }
            // SAFETY: contract of `Helpers::run`; `fetch_add` gives each chunk to one thread only.
            unsafe { job.part(job.chunk(index)) }
        }
    }
}

/// Admits helpers while there is a copy to share; `close` waits until all have left.
struct Gate(AtomicU32);

/// The gate is open. The bits below count who is inside.
const OPEN: u32 = 1 << 31;

impl Gate {
    fn open(&self) {
        // Release: helpers that enter see the copy.
        self.0.store(OPEN, Ordering::Release);
    }

    /// Admits no more helpers, and waits until those inside have left.
    fn close(&self) {
        self.0.fetch_and(!OPEN, Ordering::Relaxed);
        let mut looks = 0_u32;
        // Acquire: the reads of those inside are done, and their writes are visible.
        while self.0.load(Ordering::Acquire) != 0 {
            looks += 1;
            if looks.is_multiple_of(1024) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn enter(&self) -> bool {
        let one_more = |inside: u32| (inside & OPEN != 0).then(|| inside + 1);
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more).is_ok()
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// The loop of a helper.
extern "C" fn help(shared: *mut c_void) -> *mut c_void {
    // SAFETY: the box that `Helpers::start` made; `Helpers::join` frees it after it has joined this thread.
    let shared = unsafe { &*shared.cast::<Shared>() };
    loop {
        // SAFETY: the semaphore was initialized before the thread was started.
        if unsafe { libc::sem_wait(shared.work.get()) } != 0 {
            continue; // Interrupted.
        }
        if shared.end.load(Ordering::Acquire) {
            return ptr::null_mut();
        }
        if shared.gate.enter() {
            // SAFETY: `enter` returned true.
            unsafe { shared.take_chunks() }
            shared.gate.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hot::WORTHWHILE;
    use crate::sys::fork;

    /// Copies by the C library, as for a cached mapping.
    unsafe fn copy_bytes(_: MappingType, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: contract of this function.
        unsafe { dst.copy_from_nonoverlapping(src, len) }
    }

    const CHUNK: usize = READ_AT_A_TIME;

    fn copy_between(dst: &mut [u8], src: &[u8]) -> Job {
        assert_eq!(dst.len(), src.len());
        Job {
            copy: copy_bytes,
            mapping_type: MappingType::Caching,
            dst: dst.as_mut_ptr(),
            src: src.as_ptr(),
            len: src.len(),
            device: dst.as_ptr().addr(),
            chunk_size: CHUNK,
        }
    }

    fn pattern(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251 + seed) as u8).collect()
    }

    #[test]
    fn chunks_cover_the_copy_and_share_no_line() {
        for (device, len) in
            [(0, CHUNK), (0, CHUNK + 1), (1, CHUNK), (CHUNK - 1, 1), (CHUNK - 1, 2), (5 * CHUNK + 77, 1 << 20)]
        {
            let job = Job { len, device, ..copy_between(&mut [], &[]) };
            let mut end = 0;
            for index in 0..job.chunks() {
                let chunk = job.chunk(index);
                assert_eq!(chunk.start, end);
                assert!(!chunk.is_empty());
                assert!(index == 0 || (device + chunk.start).is_multiple_of(CHUNK));
                end = chunk.end;
            }
            assert_eq!(end, len);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no semaphores")]
    fn helpers_copy_every_byte_in_each_round() {
        let mut helpers = Helpers::start(3);
        assert_eq!(helpers.threads.len(), 3);
        for round in 0..50 {
            let src = pattern(CHUNK * (1 + round % 9) + round, round);
            let mut dst = vec![0; src.len()];
            // SAFETY: two buffers of one length.
            unsafe { helpers.run(copy_between(&mut dst, &src)) };
            assert!(dst == src, "round {round}");
        }
        helpers.join();
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no semaphores")]
    fn helpers_copy_some_of_the_chunks() {
        use std::sync::atomic::AtomicU32;
        static BY_OTHERS: AtomicU32 = AtomicU32::new(0);
        static CALLER: AtomicUsize = AtomicUsize::new(0);
        unsafe fn slow_copy(_: MappingType, _: *mut u8, _: *const u8, _: usize) {
            // SAFETY: no arguments.
            if unsafe { libc::pthread_self() } as usize != CALLER.load(Ordering::Relaxed) {
                BY_OTHERS.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // SAFETY: no arguments.
        CALLER.store(unsafe { libc::pthread_self() } as usize, Ordering::Relaxed);
        let mut helpers = Helpers::start(2);
        // While the caller sleeps in one of its chunks, a helper comes in time for another.
        let job = Job { copy: slow_copy, len: 64 * CHUNK, ..copy_between(&mut [], &[]) };
        // SAFETY: `slow_copy` touches no memory.
        unsafe { helpers.run(job) };
        assert_ne!(BY_OTHERS.load(Ordering::Relaxed), 0);
        helpers.join();
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no fork")]
    fn pool_in_forked_child_is_not_usable() {
        fork::enter().expect("memory for a page");
        let helpers = Helpers::start(2);
        assert!(helpers.is_usable());
        assert_eq!(fork::tests::in_child(|| helpers.is_usable().into()), 0);
        helpers.join();
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sched_setaffinity of one's own thread")]
    fn threads_are_no_more_than_the_cpus_of_the_caller() {
        std::thread::spawn(|| {
            let all = threads_allowed(MAX_THREADS);
            // SAFETY: a zeroed set is an empty one; the kernel fills it in, and takes one CPU of it.
            unsafe {
                let mut cpus: libc::cpu_set_t = MaybeUninit::zeroed().assume_init();
                let size = size_of_val(&cpus);
                assert_eq!(libc::sched_getaffinity(0, size, &mut cpus), 0);
                assert_eq!(all, MAX_THREADS.min(libc::CPU_COUNT(&cpus) as usize));
                let is_allowed = |cpu: &usize| libc::CPU_ISSET(*cpu, &cpus);
                let first = (0..8 * size).find(is_allowed).expect("a CPU");
                libc::CPU_ZERO(&mut cpus);
                libc::CPU_SET(first, &mut cpus);
                assert_eq!(libc::sched_setaffinity(0, size, &cpus), 0);
            }
            assert_eq!(threads_allowed(8), 1);
            assert_eq!(threads_allowed(1), 1);
        })
        .join()
        .expect("no panic");
    }

    #[test]
    #[cfg_attr(miri, ignore = "2 MiB take Miri minutes")]
    fn no_thread_is_created_by_default() {
        let src = pattern(2 * WORTHWHILE, 3);
        let mut dst = vec![0; src.len()];
        // SAFETY: two buffers of one length.
        unsafe { copy_between(&mut dst, &src).run() };
        assert!(dst == src);
        let helpers = HELPERS.lock();
        assert!(helpers.as_ref().is_none_or(|helpers| helpers.threads.is_empty()));
    }
}
