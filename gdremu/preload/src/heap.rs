//! The allocator of gdremu's own memory. Hooks must not call the program's malloc, because malloc itself calls hooked
//! functions, such as mmap, while it starts or holds its locks.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::mem::{ManuallyDrop, transmute};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlmalloc::{Allocator, Dlmalloc};
use libc::{MAP_ANONYMOUS, MAP_PRIVATE, MREMAP_MAYMOVE, PROT_READ, PROT_WRITE, syscall};

struct Heap(Mutex<Dlmalloc<Pages>>);

#[global_allocator]
static HEAP: Heap = Heap(Mutex::new(reserved()));

/// Returns a heap that takes address space in pieces of 16 MiB. So programs that measure their address space
/// rarely see it grow.
const fn reserved() -> Dlmalloc<Pages> {
    let mut heap = Dlmalloc::new_with_allocator(Pages::new());
    assert!(heap.set_granularity(16 << 20));
    heap
}

thread_local! {
    static OVER_FORK: Cell<Option<ManuallyDrop<MutexGuard<'static, Dlmalloc<Pages>>>>> = const { Cell::new(None) };
}

/// Takes the lock of the heap for the time of a fork. If another thread held it at the fork, no thread of the child
/// would ever release it.
pub(crate) fn before_fork() {
    OVER_FORK.set(Some(ManuallyDrop::new(HEAP.get())));
}

/// Registers this heap with LeakSanitizer, if the program has it. Rust's std allocates memory for threads by malloc,
/// and stores pointers to it in this heap. Unless LeakSanitizer searches the heap, it reports that memory as leaked.
pub(crate) fn show_to_leak_sanitizer() {
    // SAFETY: the name ends with a NUL byte.
    let register = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__lsan_register_root_region".as_ptr()) };
    // SAFETY: a function with this name has the type `Register`, and NULL becomes `None`.
    let register = unsafe { transmute::<*mut libc::c_void, Option<Register>>(register) };
    let mut heap = HEAP.get();
    heap.allocator_mut().register = register;
    for (start, size) in heap.allocator().early.each_ref().map(Cell::get) {
        if size > 0
            && let Some(register) = register
        {
            register(start, size);
        }
    }
}

/// Releases the lock of the heap after a fork, in the parent and in the child.
pub(crate) fn after_fork() {
    drop(OVER_FORK.take().map(ManuallyDrop::into_inner));
}

// SAFETY: dlmalloc returns memory of the requested size and alignment, and only one thread at a time uses it.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout is valid: contract of GlobalAlloc.
        unsafe { self.get().malloc(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` was allocated here with this layout: contract of GlobalAlloc.
        unsafe { self.get().free(memory, layout.size(), layout.align()) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout is valid: contract of GlobalAlloc.
        unsafe { self.get().calloc(layout.size(), layout.align()) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: `memory` was allocated here with this layout: contract of GlobalAlloc.
        unsafe { self.get().realloc(memory, layout.size(), layout.align(), size) }
    }
}

impl Heap {
    fn get(&self) -> MutexGuard<'_, Dlmalloc<Pages>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Register = extern "C" fn(*mut u8, usize);

/// Gets pages from Linux by system calls, because the functions of libc are hooked.
struct Pages {
    /// LeakSanitizer's function that takes a region to search for pointers. `None` at first, and without LeakSanitizer.
    register: Option<Register>,
    /// The regions that were mapped before `register` was found. `show_to_leak_sanitizer` passes them to `register`.
    early: [Cell<(*mut u8, usize)>; 8],
}

impl Pages {
    const fn new() -> Pages {
        Pages { register: None, early: [const { Cell::new((null_mut(), 0)) }; 8] }
    }

    /// Registers a region of pages. If `register` is not known yet, adds the region to `early`.
    fn note(&self, start: *mut u8, size: usize) {
        if let Some(register) = self.register {
            register(start, size);
        } else if let Some(free) = self.early.iter().find(|region| region.get().1 == 0) {
            free.set((start, size));
        }
    }
}

// SAFETY: the pages belong to the process, and any thread may use them.
unsafe impl Send for Pages {}

// SAFETY: the pages belong to the heap until it frees them.
unsafe impl Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let protection = PROT_READ | PROT_WRITE;
        let flags = MAP_PRIVATE | MAP_ANONYMOUS;
        // SAFETY: no address is requested, so nothing is replaced.
        match unsafe { syscall(libc::SYS_mmap, null_mut::<u8>(), size, protection, flags, -1, 0_i64) } {
            -1 => (null_mut(), 0, 0),
            start => {
                let start = with_exposed_provenance_mut(start as usize);
                self.note(start, size);
                (start, size, 0)
            }
        }
    }

    fn remap(&self, pages: *mut u8, old: usize, new: usize, can_move: bool) -> *mut u8 {
        let flags = if can_move { MREMAP_MAYMOVE } else { 0 };
        // SAFETY: these are the heap's own pages, which it asks to move or to resize.
        match unsafe { syscall(libc::SYS_mremap, pages, old, new, flags) } {
            -1 => null_mut(),
            start => {
                let start = with_exposed_provenance_mut(start as usize);
                self.note(start, new);
                start
            }
        }
    }

    fn free_part(&self, pages: *mut u8, old: usize, new: usize) -> bool {
        self.free(pages.wrapping_add(new), old - new)
    }

    fn free(&self, pages: *mut u8, size: usize) -> bool {
        // SAFETY: these are the heap's own pages, which it does not use any more.
        unsafe { syscall(libc::SYS_munmap, pages, size) == 0 }
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        gdremu_core::gpu::page_size()
    }
}
