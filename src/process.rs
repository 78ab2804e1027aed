//! Which process this is: what a forked child must know before it touches anything inherited.
//!
//! A child inherits copies of all our state, but neither the mappings nor the right to use the
//! driver's descriptor. One page of memory tells the two apart at the cost of a load: the kernel hands
//! it to every child zeroed (`MADV_WIPEONFORK`). In it stand the process's *epoch*, which every object
//! remembers and compares, and the address ranges of the C handles, so that in a child the range
//! check of the copy path fails by itself.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use nix::errno::Errno;

/// Most ranges of handle memory a process can have.
pub(crate) const MAX_RANGES: usize = 16;

/// A range of addresses; readers take no lock.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Range {
    base: AtomicUsize,
    len: AtomicUsize,
}

impl Range {
    /// Publishes the range. It may be called again to make it empty (`len` = 0), never to move it.
    pub(crate) fn set(&self, base: usize, len: usize) {
        self.base.store(base, Ordering::Relaxed);
        // Release: who sees the length sees the base and the memory behind it.
        self.len.store(len, Ordering::Release);
    }

    /// The addresses in it.
    pub(crate) fn bounds(&self) -> std::ops::Range<usize> {
        let len = self.len.load(Ordering::Acquire);
        let base = self.base.load(Ordering::Relaxed);
        base..base + len
    }

    /// Whether the address lies in the range.
    #[inline(always)]
    pub(crate) fn contains(&self, address: usize) -> bool {
        let len = self.len.load(Ordering::Acquire);
        address.wrapping_sub(self.base.load(Ordering::Relaxed)) < len
    }
}

/// What reads as zeros in a forked child.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Page {
    /// Memory that C handles point into.
    pub(crate) handles: [Range; MAX_RANGES],
    epoch: AtomicU64,
}

/// The page, once the process (or an ancestor) has opened a driver. Never taken back.
static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());

/// The last epoch given out; children inherit it and count on.
static LAST_EPOCH: AtomicU64 = AtomicU64::new(0);

/// The page, if there is one.
#[inline(always)]
pub(crate) fn page() -> Option<&'static Page> {
    // SAFETY: PAGE is null or points to a page that `new_page` made and that is never unmapped; a Page
    // is made of atomics alone, for which any content is valid.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

/// This process's epoch, or 0 as long as it has opened nothing itself.
pub(crate) fn epoch() -> u64 {
    page().map_or(0, |page| page.epoch.load(Ordering::Acquire))
}

/// Gives the process an epoch if it has none yet, and returns the page.
pub(crate) fn enter() -> Result<&'static Page, Errno> {
    let page = match page() {
        Some(page) => page,
        None => publish(new_page(wipe_on_fork)?),
    };
    if page.epoch.load(Ordering::Acquire) == 0 {
        let next = LAST_EPOCH.fetch_add(1, Ordering::Relaxed) + 1;
        // Another thread may be first: then its epoch is the process's.
        let _ = page
            .epoch
            .compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire);
    }
    Ok(page)
}

/// Makes `fresh` the process's page, unless another thread was first.
fn publish(fresh: NonNull<Page>) -> &'static Page {
    let page = PAGE
        .compare_exchange(
            ptr::null_mut(),
            fresh.as_ptr(),
            Ordering::AcqRel,
            Ordering::Acquire,
        )
        .map_or_else(
            |first| {
                // SAFETY: `fresh` was mapped by `new_page` and nobody else knows it.
                unsafe { libc::munmap(fresh.as_ptr().cast(), page_size()) };
                first
            },
            |_| fresh.as_ptr(),
        );
    // SAFETY: as in `page`.
    unsafe { &*page }
}

/// A zeroed page of memory that `protect` makes children see zeroed.
fn new_page(protect: fn(NonNull<Page>) -> Result<(), Errno>) -> Result<NonNull<Page>, Errno> {
    // SAFETY: a new private mapping at an address of the kernel's choice touches no other memory.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            page_size(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    let page = NonNull::new(address.cast()).ok_or(Errno::ENOMEM)?;
    protect(page).inspect_err(|_| {
        // SAFETY: the page was just mapped and nobody else knows it.
        unsafe { libc::munmap(address, page_size()) };
    })?;
    Ok(page)
}

/// Asks the kernel to hand the page to children zeroed.
fn wipe_on_fork(page: NonNull<Page>) -> Result<(), Errno> {
    // SAFETY: the page is ours, private and anonymous, as the advice demands.
    match unsafe { libc::madvise(page.as_ptr().cast(), page_size(), libc::MADV_WIPEONFORK) } {
        0 => Ok(()),
        // Kernels before 4.14 do not know it: clear the page in the child ourselves.
        _ => clear_in_child(page),
    }
}

/// Has libc clear the process's page in every child made by `fork`.
fn clear_in_child(_: NonNull<Page>) -> Result<(), Errno> {
    extern "C" fn clear() {
        if let Some(page) = page() {
            page.epoch.store(0, Ordering::Release);
            page.handles.iter().for_each(|range| range.set(0, 0));
        }
    }
    // SAFETY: the handler touches atomics only. glibc drops it when the library is unloaded.
    match unsafe { libc::pthread_atfork(None, None, Some(clear)) } {
        0 => Ok(()),
        errno => Err(Errno::from_raw(errno)),
    }
}

/// Bytes a page of host memory.
pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

const _: () = assert!(
    size_of::<Page>() <= 4096,
    "the page must hold it on every machine"
);

#[cfg(test)]
mod tests {
    use super::*;

    /// What a forked child finds in the process's page: its epoch, and whether it holds a handle.
    fn in_child() -> (i32, bool) {
        let page = enter().expect("memory for a page");
        assert_ne!(epoch(), 0);
        let range = &page.handles[MAX_RANGES - 1];
        range.set(0x1000, 0x100);
        assert!(range.contains(0x10ff));
        assert!(!range.contains(0x1100));
        assert!(!range.contains(0xfff));
        // SAFETY: the child only reads atomics and leaves by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let seen = epoch() as i32 * 2 + i32::from(range.contains(0x1000));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(seen) }
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        let seen = libc::WEXITSTATUS(status);
        (seen / 2, seen % 2 == 1)
    }

    #[test]
    fn a_child_finds_the_page_empty() {
        assert_eq!(in_child(), (0, false), "wiped by the kernel");

        let address = PAGE.load(Ordering::Acquire);
        // SAFETY: the page is ours; the advice only undoes what `wipe_on_fork` asked for.
        let kept = unsafe { libc::madvise(address.cast(), page_size(), libc::MADV_KEEPONFORK) };
        assert_eq!(kept, 0);
        assert_ne!(in_child(), (0, false), "kept: the test sees the difference");

        clear_in_child(NonNull::new(address).expect("published")).expect("a handler more");
        assert_eq!(in_child(), (0, false), "cleared by the handler");
    }
}
