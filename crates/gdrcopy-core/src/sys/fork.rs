//! Detects forked children, before they use anything inherited.
//!
//! A child inherits copies of all our data, but neither the mappings nor the right to use the driver's descriptor. One
//! page of memory distinguishes child and parent at the cost of a load, because the kernel clears it in every child
//! (`MADV_WIPEONFORK`). The page holds the process's *epoch*, a number that differs between a parent and its children.
//! Every `Owner` stores its process's epoch, and later compares it with the page's. The page also holds the address
//! range of the C handles, which is empty in a child, so that the copy functions refuse the parent's handles.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::sys::mman::{MmapAdvise, madvise};
use nix::sys::stat::fstat;

use crate::error::{self, Error, Result};
use crate::heap;
use crate::sync::Mutex;

/// The process that an object belongs to. Objects that a forked child must not use store their `Owner`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Owner {
    epoch: u64,
}

impl Owner {
    /// The calling process.
    pub fn current() -> Owner {
        // An error need not be returned, because opening a driver calls `enter`, too, and then returns the error.
        let _ = enter();
        Owner { epoch: epoch() }
    }

    /// Returns whether the calling process is the owner, and not a child forked off from it.
    #[inline]
    pub fn is_current(self) -> bool {
        self.epoch == epoch()
    }

    /// Panics in a child forked off from the owner.
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

    /// Returns [`Error::ForkedChild`] in a child forked off from the owner.
    #[inline]
    pub fn check(self) -> Result<()> {
        if self.is_current() { Ok(()) } else { Err(Error::ForkedChild) }
    }
}

/// A descriptor's number, and the file that it was opened for.
///
/// As long as a forked child keeps its copy of the descriptor, the driver keeps the parent's pins, even if the parent
/// ends. So the child should close its copy, unless the number stands for another file by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile {
    pub number: RawFd,
    /// The number of the device that holds the file.
    pub device: u64,
    /// The file's number in its filesystem; 0, which no file has, if fstat has failed.
    pub inode: u64,
}

/// The numbers of the descriptors by which this process itself has opened the driver. One of them can have the number
/// of an inherited descriptor that was closed, and stand for the same file. [`OpenFile::close_inherited`] closes no
/// descriptor whose number is in this list. The list is locked while a file is opened or closed.
static OWN_FILES: PerProcess<Mutex<Vec<RawFd>>> = PerProcess::new();

impl OpenFile {
    /// Returns the open file with this number.
    fn of(number: RawFd) -> OpenFile {
        // SAFETY: the kernel checks the number.
        match fstat(unsafe { BorrowedFd::borrow_raw(number) }) {
            Ok(stat) => OpenFile { number, device: stat.st_dev, inode: stat.st_ino },
            Err(_) => OpenFile { number, device: 0, inode: 0 },
        }
    }

    /// Closes an inherited descriptor in a forked child, unless its number now stands for another file.
    pub fn close_inherited(self) {
        // The list stays locked until the close, so that no other thread opens a driver under this number before that.
        let own = OWN_FILES.current().map(Mutex::lock);
        if let Some(own) = &own
            && own.contains(&self.number)
        {
            return;
        }
        if self.inode == 0 {
            log::warn!("descriptor {} stays open in this child: fstat has failed for it", self.number);
        } else if OpenFile::of(self.number) == self {
            // Linux releases the number even if close returns an error.
            let _ = nix::unistd::close(self.number);
        }
    }
}

/// A file descriptor, and the process that opened it. Dropping the value closes the descriptor, in a forked child by
/// [`OpenFile::close_inherited`].
#[derive(Debug)]
pub struct Descriptor {
    file: OpenFile,
    owner: Owner,
}

impl Descriptor {
    /// Calls `open` to open a device file, or another file that can be opened several times. For all others, see `new`.
    pub fn open(open: impl FnOnce() -> Result<OwnedFd>) -> Result<Descriptor> {
        let mut own = OWN_FILES.get(|_| Mutex::default())?.lock();
        own.try_reserve(1).map_err(|_| error::no_memory(Errno::ENOMEM))?;
        let descriptor = Descriptor::new(open()?);
        own.push(descriptor.file.number);
        Ok(descriptor)
    }

    /// Takes over the descriptor of a file that cannot be opened a second time, such as a dma-buf.
    pub fn new(fd: OwnedFd) -> Descriptor {
        Descriptor { file: OpenFile::of(fd.into_raw_fd()), owner: Owner::current() }
    }

    pub fn file(&self) -> OpenFile {
        self.file
    }

    /// Closes the file, and returns the kernel's answer. The descriptor is gone in any case.
    pub fn close(self) -> nix::Result<()> {
        ManuallyDrop::new(self).end()
    }

    fn end(&self) -> nix::Result<()> {
        if !self.owner.is_current() {
            self.file.close_inherited();
            return Ok(());
        }
        let mut own = OWN_FILES.current().map(Mutex::lock);
        if let Some(own) = &mut own {
            own.retain(|&number| number != self.file.number);
        }
        // EINTR is no reason to retry, because Linux has released the number by then, and another thread may own it.
        nix::unistd::close(self.file.number)
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the file stays open while this `Descriptor` lives. If the program closed it, calls return EBADF.
        unsafe { BorrowedFd::borrow_raw(self.file.number) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // A destructor cannot return the error; callers that want it call `close`.
        let _ = self.end();
    }
}

/// A value of which each process has its own. A forked child makes a new one, because it may have inherited its
/// parent's value in the middle of a change, with a locked mutex in it. Values are never freed.
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    latest: AtomicPtr<Generation<T>>,
}

#[derive(Debug)]
struct Generation<T: 'static> {
    owner: Owner,
    value: T,
}

/// A [`PerProcess`] value as the calling process sees it.
pub struct Latest<T: 'static> {
    pub value: &'static T,
    /// True unless a parent process made the value.
    pub is_own: bool,
}

impl<T> PerProcess<T> {
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> PerProcess<T> {
        PerProcess { latest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the value that this process made or, if it has made none, the latest value that an ancestor made.
    pub fn look(&self) -> Option<Latest<T>> {
        // SAFETY: the pointer is null, or `get` has published it, and then it is never freed.
        let latest: &'static Generation<T> = unsafe { self.latest.load(Ordering::Acquire).as_ref() }?;
        Some(Latest { value: &latest.value, is_own: latest.owner.is_current() })
    }

    /// Returns the value of this process, if it has made one.
    pub fn current(&self) -> Option<&'static T> {
        let latest = self.look()?;
        if latest.is_own { Some(latest.value) } else { None }
    }

    /// Returns the value of this process, and makes it first if there is none; `make` gets the parent's value.
    pub fn get(&self, make: impl Fn(Option<&'static T>) -> T) -> Result<&'static T> {
        loop {
            if let Some(value) = self.current() {
                return Ok(value);
            }
            let parent = self.latest.load(Ordering::Acquire);
            let value = make(self.look().map(|parent| parent.value));
            let fresh = Box::into_raw(heap::boxed(Generation { owner: Owner::current(), value })?);
            let published = self.latest.compare_exchange(parent, fresh.cast(), Ordering::AcqRel, Ordering::Acquire);
            if published.is_err() {
                // SAFETY: `fresh` was not published, because another thread was first. So no other thread has it.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }
}

/// A range of addresses, which is read without a lock.
#[derive(Debug, Default)]
#[repr(C)]
pub struct AddressRange {
    base: AtomicUsize,
    len: AtomicUsize,
}

impl AddressRange {
    /// Publishes the range. Callers may make the range longer or empty, but may move it only while it is empty.
    pub fn set(&self, base: usize, len: usize) {
        self.base.store(base, Ordering::Relaxed);
        // Release: a reader that sees the length sees the base and the memory behind it.
        self.len.store(len, Ordering::Release);
    }

    /// The addresses in the range.
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

/// Words that read as zeros in a forked child. No other data is on their page, whatever the page size of this CPU.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(align(65536)))]
pub struct Page {
    /// The memory that the handles of the C API point into.
    pub handles: AddressRange,
    epoch: AtomicU64,
}

/// The page that the kernel clears in forked children.
pub static PAGE: Page =
    Page { handles: AddressRange { base: AtomicUsize::new(0), len: AtomicUsize::new(0) }, epoch: AtomicU64::new(0) };

/// True once the kernel or libc has been asked to clear `PAGE` in children. A child inherits the flag, and need not
/// ask again, because the request holds for its own children too.
static IS_CLEARED_IN_CHILDREN: AtomicBool = AtomicBool::new(false);

/// The last number that a process got as its epoch. Children inherit it, and continue to count.
static LAST_EPOCH: AtomicU64 = AtomicU64::new(0);

/// This process's epoch, a number that differs from its parent's; 0 before `enter`.
#[inline]
fn epoch() -> u64 {
    PAGE.epoch.load(Ordering::Acquire)
}

/// Gives the process an epoch, a number that differs from its parent's, if it has none yet.
///
/// # Errors
/// [`Error::OutOfHandles`] if neither Linux nor libc agrees to clear the page with the epoch in forked children.
pub fn enter() -> Result<()> {
    if epoch() != 0 {
        return Ok(());
    }
    if !IS_CLEARED_IN_CHILDREN.load(Ordering::Acquire) {
        // Two threads may make this call at the same time, which does no harm.
        clear_in_children().map_err(error::no_memory)?;
        IS_CLEARED_IN_CHILDREN.store(true, Ordering::Release);
    }
    let next = LAST_EPOCH.fetch_add(1, Ordering::Relaxed) + 1;
    // If another thread has stored an epoch first, the process keeps that one.
    let _ = PAGE.epoch.compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire);
    Ok(())
}

/// Makes the kernel clear [`PAGE`] in every forked child, or libc if the kernel cannot.
fn clear_in_children() -> nix::Result<()> {
    if cfg!(miri) {
        return Ok(()); // Miri knows neither MADV_WIPEONFORK nor fork.
    }
    // SAFETY: the page is ours. The kernel clears its atomics in children, and zero is a valid value of them.
    match unsafe { madvise(NonNull::from(&PAGE).cast(), page_size(), MmapAdvise::MADV_WIPEONFORK) } {
        Ok(()) => Ok(()),
        // Linux before 4.14 does not know MADV_WIPEONFORK.
        Err(_) => clear_after_fork(),
    }
}

/// Makes libc clear `PAGE` in every child that `fork` makes.
fn clear_after_fork() -> nix::Result<()> {
    extern "C" fn clear() {
        PAGE.epoch.store(0, Ordering::Release);
        PAGE.handles.set(0, 0);
    }
    // SAFETY: the handler touches atomics only. glibc removes the handler when the library is unloaded.
    match unsafe { libc::pthread_atfork(None, None, Some(clear)) } {
        0 => Ok(()),
        errno => Err(Errno::from_raw(errno)),
    }
}

/// Returns the size of a host page in bytes.
#[inline]
pub fn page_size() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    match SIZE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: sysconf has no preconditions.
            let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize };
            SIZE.store(size, Ordering::Relaxed);
            size
        }
        size => size,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Calls `look` in a forked child, and returns its result, which must be below 256.
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

    #[test]
    fn page_holds_nothing_else() {
        assert!(ptr::from_ref(&PAGE).addr().is_multiple_of(page_size()));
        assert!(size_of::<Page>().is_multiple_of(page_size()));
    }
}
