//! Detects forked children, before they use anything inherited.
//!
//! A child inherits copies of all our state, but neither the mappings nor the right to use the
//! driver's descriptor. One page of memory distinguishes the two at the cost of a load, because the kernel hands it to
//! every child zeroed (`MADV_WIPEONFORK`). It holds the process's *epoch*, which every `Owner` remembers and compares.
//! It also holds the address range of the C handles, so that in a child the range check of the copy path fails by
//! itself.

use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use memmap2::MmapMut; // Unmaps the page unless it becomes the process's.
use nix::errno::Errno;

use crate::error::{self, Error, Result};
use crate::hot::HOT;
use crate::sync::Mutex;

/// The process that an object belongs to. Objects that must not be used across a fork keep one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Owner {
    epoch: u64,
}

impl Owner {
    /// The calling process.
    pub fn current() -> Owner {
        // Fails only without memory for a page; then no driver can be opened either.
        let _ = enter();
        Owner { epoch: epoch() }
    }

    /// Returns whether the calling process is the owner, and not a child forked off from it.
    #[inline]
    pub fn is_current(self) -> bool {
        self.epoch == epoch()
    }

    /// # Panics
    /// In a child forked off from the owner.
    #[inline]
    pub fn assert(self) {
        if !self.is_current() {
            Owner::refuse();
        }
    }

    /// Panics as [`Owner::assert`] does.
    #[cold]
    pub fn refuse() -> ! {
        panic!("{}", Error::ForkedChild)
    }

    /// # Errors
    /// [`Error::ForkedChild`] in a child forked off from the owner.
    #[inline]
    pub fn check(self) -> Result<()> {
        if self.is_current() { Ok(()) } else { Err(Error::ForkedChild) }
    }
}

/// A descriptor's number, and the file that it was opened for.
///
/// As long as a forked child keeps its copy, the driver keeps the parent's pins, even if the parent ends. So the child
/// can close it; but its number may stand for another file by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile {
    pub number: RawFd,
    /// Of its filesystem.
    pub device: u64,
    /// 0, which no file has, if it could not be examined.
    pub inode: u64,
}

/// The state of a process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// The numbers at which it has opened the driver itself. They may equal inherited ones that were closed, and
    /// all are the same file. Locked while one is opened or closed.
    own: Mutex<Vec<RawFd>>,
    /// The number of live mappings of each type.
    pub(crate) mappings: Mutex<[usize; 3]>,
}

static PROCESS: PerProcess<Process> = PerProcess::new();

pub(crate) fn process() -> &'static Process {
    PROCESS.get(|_| Process::default())
}

/// Frees the state of the process, when the library is unloaded.
///
/// # Safety
/// Where `may` returns true, no mapping is live, and no other thread opens, closes, maps or unmaps.
pub unsafe fn unload(may: impl FnOnce() -> bool) {
    // SAFETY: references live as long as a call that opens, closes, maps or unmaps.
    unsafe { PROCESS.free(|process| may() && process.own.lock().is_empty()) }
}

impl OpenFile {
    /// The file behind this number.
    fn of(number: RawFd) -> OpenFile {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the kernel checks the number, and writes one struct.
        if unsafe { libc::fstat(number, stat.as_mut_ptr()) } != 0 {
            return OpenFile { number, device: 0, inode: 0 };
        }
        // SAFETY: filled in.
        let stat = unsafe { stat.assume_init() };
        OpenFile { number, device: stat.st_dev, inode: stat.st_ino }
    }

    /// Closes an inherited descriptor in a forked child, unless its number stands for another file.
    pub fn close_inherited(self) {
        // Locked until it is closed.
        let own = PROCESS.current().map(|process| process.own.lock());
        if let Some(own) = &own
            && own.contains(&self.number)
        {
            return;
        }
        if self.inode == 0 {
            log::warn!("descriptor {} stays open in this child: fstat has failed for it", self.number);
        } else if OpenFile::of(self.number) == self {
            // Linux releases the number whatever it answers.
            let _ = nix::unistd::close(self.number);
        }
    }
}

/// A file descriptor, and the process that opened it. Dropping it closes it; in a forked child, as
/// [`OpenFile::close_inherited`] does.
#[derive(Debug)]
pub struct Descriptor {
    file: OpenFile,
    is_open: bool,
    owner: Owner,
}

impl Descriptor {
    /// The result of `open`, a file that others may also open.
    pub fn open(open: impl FnOnce() -> Result<OwnedFd>) -> Result<Descriptor> {
        let mut own = process().own.lock();
        own.try_reserve(1).map_err(|_| error::no_memory(Errno::ENOMEM))?;
        let descriptor = Descriptor::new(open()?);
        own.push(descriptor.file.number);
        Ok(descriptor)
    }

    /// A file that no one else can open.
    pub fn new(fd: OwnedFd) -> Descriptor {
        Descriptor { file: OpenFile::of(fd.into_raw_fd()), is_open: true, owner: Owner::current() }
    }

    pub fn file(&self) -> OpenFile {
        self.file
    }

    /// Closes it, and returns the kernel's answer. The descriptor is gone in any case.
    pub fn close(mut self) -> nix::Result<()> {
        self.end()
    }

    fn end(&mut self) -> nix::Result<()> {
        if !mem::take(&mut self.is_open) {
            return Ok(());
        }
        if !self.owner.is_current() {
            self.file.close_inherited();
            return Ok(());
        }
        let mut own = process().own.lock();
        own.retain(|&number| number != self.file.number);
        // Not retried on EINTR, because Linux has released the number by then, and another thread may own it.
        nix::unistd::close(self.file.number)
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the descriptor lives. Programs that close it themselves get EBADF.
        unsafe { BorrowedFd::borrow_raw(self.file.number) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // A destructor cannot return the error; callers that want it call `close`.
        let _ = self.end();
    }
}

/// A per-process value. A forked child that asks for it gets a new one. It may have inherited its parent's in the
/// middle of a change, with a locked mutex in it.
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    latest: AtomicPtr<Generation<T>>,
}

#[derive(Debug)]
struct Generation<T: 'static> {
    owner: Owner,
    value: T,
    /// The parent process's, which a child can neither use nor free.
    parent: *mut Generation<T>,
}

/// A per-process value as the calling process sees it.
pub struct Latest<T: 'static> {
    pub value: &'static T,
    /// False for one that a parent process has made.
    pub is_own: bool,
}

impl<T> PerProcess<T> {
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> PerProcess<T> {
        PerProcess { latest: AtomicPtr::new(ptr::null_mut()) }
    }

    fn generation(&self) -> Option<&'static Generation<T>> {
        // SAFETY: null, or a box that `get` published, which only `free` takes back; its caller
        // ensures that no reference is in use.
        unsafe { self.latest.load(Ordering::SeqCst).as_ref() }
    }

    /// The value of this process, or of the ancestor that made one last.
    pub fn look(&self) -> Option<Latest<T>> {
        let latest = self.generation()?;
        Some(Latest { value: &latest.value, is_own: latest.owner.is_current() })
    }

    /// The value of this process, if it has made one.
    pub fn current(&self) -> Option<&'static T> {
        let latest = self.look()?;
        if latest.is_own { Some(latest.value) } else { None }
    }

    /// The value of this process, made now if need be; `make` gets the parent's.
    pub fn get(&self, make: impl Fn(Option<&'static T>) -> T) -> &'static T {
        loop {
            if let Some(value) = self.current() {
                return value;
            }
            let parent = self.latest.load(Ordering::SeqCst);
            let fresh = Box::into_raw(Box::new(Generation {
                owner: Owner::current(),
                value: make(self.look().map(|parent| parent.value)),
                parent,
            }));
            let published = self.latest.compare_exchange(parent, fresh, Ordering::SeqCst, Ordering::SeqCst);
            if published.is_err() {
                // SAFETY: another thread published first, so no other thread has this address.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }

    /// Frees the value of this process, if it has one and `may` agrees; a later `get` makes a new one.
    ///
    /// # Safety
    /// Where `may`, called after the value has become unreachable, returns true, no reference to the
    /// value is in use.
    pub unsafe fn free(&self, may: impl FnOnce(&T) -> bool) {
        let Some(generation) = self.generation() else {
            return;
        };
        if !generation.owner.is_current() {
            return;
        }
        self.latest.store(generation.parent, Ordering::SeqCst);
        let address = ptr::from_ref(generation).cast_mut();
        if may(&generation.value) {
            // SAFETY: made by `Box::into_raw` in `get`; unreachable, and unused by contract.
            drop(unsafe { Box::from_raw(address) });
        } else {
            // Put back, unless another thread has made a new one already.
            let _ = self.latest.compare_exchange(generation.parent, address, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

/// A range of addresses; readers take no lock.
#[derive(Debug, Default)]
#[repr(C)]
pub struct AddressRange {
    base: AtomicUsize,
    len: AtomicUsize,
}

impl AddressRange {
    /// Publishes the range. It may be called again to make it longer or empty, never to move it while
    /// it is not empty.
    pub fn set(&self, base: usize, len: usize) {
        self.base.store(base, Ordering::Relaxed);
        // Release: a reader that sees the length sees the base and the memory behind it.
        self.len.store(len, Ordering::Release);
    }

    /// The addresses in it.
    pub fn bounds(&self) -> std::ops::Range<usize> {
        let len = self.len.load(Ordering::Acquire);
        let base = self.base.load(Ordering::Relaxed);
        base..base + len
    }

    /// Returns whether the address lies in the range.
    #[inline(always)]
    pub fn contains(&self, address: usize) -> bool {
        let len = self.len.load(Ordering::Acquire);
        address.wrapping_sub(self.base.load(Ordering::Relaxed)) < len
    }
}

/// Words that read as zeros in a forked child.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Page {
    /// Memory that C handles point into.
    pub handles: AddressRange,
    /// Calls of C functions in progress. Below 0 in a child that a signal handler has forked inside of one.
    pub calls: AtomicIsize,
    epoch: AtomicU64,
}

/// The last epoch given out; children inherit it and count on.
static LAST_EPOCH: AtomicU64 = AtomicU64::new(0);

/// The page, if there is one.
#[inline(always)]
pub fn page() -> Option<&'static Page> {
    // SAFETY: null, or a page that `new_page` made and that is never unmapped; a Page
    // consists of atomics, for which any content is valid.
    unsafe { HOT.page.load(Ordering::Acquire).cast::<Page>().as_ref() }
}

/// This process's epoch, or 0 as long as it has not entered.
#[inline]
fn epoch() -> u64 {
    match page() {
        Some(page) => page.epoch.load(Ordering::Acquire),
        None => 0,
    }
}

/// Gives the process an epoch if it has none yet, and returns the page.
///
/// # Errors
/// [`Error::OutOfHandles`] if there is no memory for the page.
pub fn enter() -> Result<&'static Page> {
    let page = match page() {
        Some(page) => page,
        None => publish(new_page().map_err(error::no_memory)?),
    };
    if page.epoch.load(Ordering::Acquire) == 0 {
        let next = LAST_EPOCH.fetch_add(1, Ordering::Relaxed) + 1;
        // Another thread may be first. Then its epoch is the process's.
        let _ = page.epoch.compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire);
    }
    Ok(page)
}

/// Makes `fresh` the process's page, unless another thread was first.
fn publish(mut fresh: MmapMut) -> &'static Page {
    let address = fresh.as_mut_ptr().cast();
    let published = HOT.page.compare_exchange(ptr::null_mut(), address, Ordering::AcqRel, Ordering::Acquire);
    let address = match published {
        Ok(_) => {
            // It stays: copies look at it without being counted as calls.
            mem::forget(fresh);
            address
        }
        Err(first) => first,
    };
    // SAFETY: as in `page`.
    unsafe { &*address.cast() }
}

/// A zeroed page of memory that children see zeroed.
fn new_page() -> nix::Result<MmapMut> {
    let page = MmapMut::map_anon(page_size()).map_err(|_| Errno::ENOMEM)?;
    if cfg!(miri) {
        return Ok(page); // Miri has neither the advice nor children.
    }
    // SAFETY: the page is ours, private and anonymous, as the advice demands.
    let advised = unsafe { libc::madvise(page.as_ptr().cast_mut().cast(), page.len(), libc::MADV_WIPEONFORK) };
    if advised != 0 {
        // Kernels before 4.14 do not know it, so clear the page in the child ourselves.
        clear_in_child()?;
    }
    Ok(page)
}

/// Has libc clear the process's page in every child made by `fork`.
fn clear_in_child() -> nix::Result<()> {
    extern "C" fn clear() {
        if let Some(page) = page() {
            page.epoch.store(0, Ordering::Release);
            page.calls.store(0, Ordering::SeqCst);
            page.handles.set(0, 0);
        }
    }
    // SAFETY: the handler touches atomics only. glibc drops it when the library is unloaded.
    match unsafe { libc::pthread_atfork(None, None, Some(clear)) } {
        0 => Ok(()),
        errno => Err(Errno::from_raw(errno)),
    }
}

/// Size of a host page in bytes.
pub fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

const _: () = assert!(size_of::<Page>() <= 4096, "the smallest host page must hold it");

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The result of `look`, below 256, in a forked child.
    pub(crate) fn in_child(look: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child takes no lock and leaves by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let seen = look();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(seen) }
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        libc::WEXITSTATUS(status)
    }

    /// The epoch in the process's page in a forked child, and whether it holds a handle.
    fn page_in_child() -> (i32, bool) {
        let page = enter().expect("memory for a page");
        assert_ne!(epoch(), 0);
        let range = &page.handles;
        range.set(0x1000, 0x100);
        assert!(range.contains(0x10ff));
        assert!(!range.contains(0x1100));
        assert!(!range.contains(0xfff));
        let seen = in_child(|| epoch() as i32 * 2 + i32::from(range.contains(0x1000)));
        (seen / 2, seen % 2 == 1)
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no fork")]
    fn page_in_forked_child_is_empty() {
        assert_eq!(page_in_child(), (0, false), "wiped by the kernel");

        let address = HOT.page.load(Ordering::Acquire);
        // SAFETY: the page is ours; the advice only undoes that of `new_page`.
        let kept = unsafe { libc::madvise(address.cast(), page_size(), libc::MADV_KEEPONFORK) };
        assert_eq!(kept, 0);
        assert_ne!(page_in_child(), (0, false), "kept: the test can fail");

        clear_in_child().expect("a handler more");
        assert_eq!(page_in_child(), (0, false), "cleared by the handler");
    }
}
