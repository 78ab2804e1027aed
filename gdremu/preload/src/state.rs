//! The emulated driver and GPUs of this process, behind one lock.
//!
//! Made on first use, so that a hook called before any constructor finds it. While a thread holds
//! the lock, its own libc calls pass through the hooks untouched.

use std::cell::{Cell, UnsafeCell};
use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, CString, c_int};
use std::fs::OpenOptions;
use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use gdremu_core::abi::{self, Argument, Command};
use gdremu_core::config::{self, Config};
use gdremu_core::driver::{Access, Driver, FileId, MapRequest};
use gdremu_core::errno::Errno;
use gdremu_core::fault::Faults;
use gdremu_core::gpu::{Gpu, PageTableId};
use gdremu_core::session::{Record, Session};
use gdremu_core::trace::Event;

use crate::exports::Exports;
use crate::hooks::{device_fds, mapped_range};
use crate::next;
use crate::system::{Identity, caller, file_status, page_size};

static PROCESS: Mutex<Option<EmulatedProcess>> = Mutex::new(None);

thread_local! {
    /// This thread holds the lock.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Everything that is emulated for this process.
pub struct EmulatedProcess {
    /// The configuration.
    pub config: &'static Config,
    /// The kernel module.
    pub driver: Driver,
    /// GPU memory.
    pub gpu: Gpu,
    /// Faults of the driver and of CUDA.
    pub faults: Faults,
    /// This process was forked from one that had this state already.
    pub forked: bool,
    session: Session,
    devices: HashMap<Identity, Device>,
    /// Descriptors that CUDA gave out.
    pub(crate) exports: Exports,
    /// Names of the GPU kernels that were not run.
    refused: BTreeSet<String>,
    /// Names of the driver calls since the last [`EmulatedProcess::take_calls`].
    calls: Vec<&'static str>,
    /// The names that it returned last.
    calls_taken: CString,
}

/// More driver calls than these are not recorded.
const MAX_CALLS: usize = 1 << 20;

/// A device that this process opened.
struct Device {
    file: FileId,
    record: Record,
    /// A page of the record that stays mapped as long as the device is: it keeps the file open, as
    /// a mapping of a real device would.
    anchor: Option<usize>,
}

/// The kind of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// A device that this process opened.
    Own(Identity, FileId),
    /// A device that another process opened.
    Foreign,
    /// No device.
    Other,
}

/// The lock, held.
pub struct Guard(MutexGuard<'static, Option<EmulatedProcess>>);

impl Deref for Guard {
    type Target = EmulatedProcess;

    fn deref(&self) -> &EmulatedProcess {
        self.0.as_ref().expect("made by lock()")
    }
}

impl DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut EmulatedProcess {
        self.0.as_mut().expect("made by lock()")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

/// Takes the lock.
///
/// # Panics
/// If the calling thread holds it.
pub fn lock() -> Guard {
    assert!(
        !INSIDE.replace(true),
        "the lock of EmulatedProcess is not recursive"
    );
    let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    process.get_or_insert_with(EmulatedProcess::new);
    Guard(process)
}

/// Takes the lock for a hook; `None` within calls that the emulation itself makes.
pub fn enter() -> Option<Guard> {
    (!is_held_here()).then(lock)
}

/// Whether the calling thread holds the lock: then the emulation itself is calling.
pub fn is_held_here() -> bool {
    INSIDE.get()
}

/// The configuration of this process.
pub fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| {
        read_config().unwrap_or_else(|why| {
            eprintln!("gdremu: {}: {why}", config::VARIABLE);
            std::process::abort();
        })
    })
}

/// The session, unless this process was not started by gdremu at all.
pub(crate) fn session() -> Option<&'static Session> {
    static SESSION: OnceLock<Option<Session>> = OnceLock::new();
    let session = || read_config().ok().map(|config| Session::at(config.session));
    SESSION.get_or_init(session).as_ref()
}

impl EmulatedProcess {
    fn new() -> EmulatedProcess {
        let config = config();
        EmulatedProcess {
            driver: Driver::new(config.driver.clone(), page_size() as u64),
            gpu: Gpu::new(&config.gpu),
            faults: config.faults.clone(),
            forked: false,
            session: Session::at(config.session.clone()),
            devices: HashMap::new(),
            exports: Exports::default(),
            refused: BTreeSet::new(),
            calls: Vec::new(),
            calls_taken: CString::default(),
            config,
        }
    }

    /// Opens the device and returns its descriptor.
    pub(crate) fn open(&mut self, flags: c_int) -> Result<c_int, Errno> {
        self.call("open", &[("flags", flags as u64)], |process| {
            let access = Access {
                read: flags & libc::O_ACCMODE != libc::O_WRONLY,
                write: flags & libc::O_ACCMODE != libc::O_RDONLY,
            };
            if config().driver.loaded {
                if flags & libc::O_DIRECTORY != 0 {
                    return Err(Errno::ENOTDIR);
                }
                if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 {
                    return Err(Errno::EEXIST);
                }
            }
            let file = process.driver.open(caller(), access)?;
            process.descriptor(file, access, flags).inspect_err(|_| {
                process.driver.release(&mut process.gpu, file);
            })
        })
        .map(|fd| fd as c_int)
    }

    fn descriptor(&mut self, file: FileId, access: Access, flags: c_int) -> Result<u64, Errno> {
        let (record, device) = self.session.open_device(access.read, access.write)?;
        let identity = record.identity()?;
        let fd = device.into_raw_fd();
        if flags & libc::O_CLOEXEC == 0 {
            // SAFETY: `fd` was just opened; only its flag changes.
            unsafe { next::fcntl()(fd, libc::F_SETFD, 0) };
        }
        self.devices.insert(
            identity,
            Device {
                file,
                record,
                anchor: None,
            },
        );
        device_fds::add(fd);
        Ok(fd as u64)
    }

    /// Identifies a descriptor by its file, not by its number.
    pub(crate) fn descriptor_of(&self, fd: c_int) -> Descriptor {
        let Some(status) = file_status(fd) else {
            return Descriptor::Other;
        };
        let identity = (status.st_dev, status.st_ino);
        if let Some(device) = self.devices.get(&identity) {
            return Descriptor::Own(identity, device.file);
        }
        let is_record = status.st_mode & libc::S_IFMT == libc::S_IFREG
            && status.st_blocks == 0
            && std::fs::read_link(format!("/proc/self/fd/{fd}"))
                .is_ok_and(|path| path.starts_with(self.session.devices()));
        if is_record {
            Descriptor::Foreign
        } else {
            Descriptor::Other
        }
    }

    /// Runs an ioctl with gdrdrv's type byte on a device of this process.
    pub(crate) fn ioctl(
        &mut self,
        identity: Identity,
        file: FileId,
        number: u32,
        argument: &mut Argument,
    ) -> Result<(), Errno> {
        let command = Command::from_number(number);
        let name = command.map_or("ioctl", Command::name);
        let begin = Instant::now();
        let result = self.faults.take_answers(name).and_then(|answers| {
            self.driver
                .ioctl(&mut self.gpu, file, caller(), number, argument)?;
            answers.put(argument);
            Ok(())
        });
        let arguments: Vec<_> = match command {
            None => vec![("command", number.into())],
            Some(command) => command
                .fields()
                .iter()
                .map(|field| (field.name, argument.get(field)))
                .collect(),
        };
        self.log_call(name, &arguments, result.map(|()| 0), begin);
        self.publish_pins(identity);
        result
    }

    /// Unpins what the program cannot know, as its handle could not be written.
    pub(crate) fn undo_pin(&mut self, identity: Identity, file: FileId, handle: u64) {
        let mut argument = Argument::default();
        argument.set(&abi::unpin_buffer::HANDLE, handle);
        let unpin = Command::UnpinBuffer.number();
        // The pin was just made, so this cannot fail.
        let _ = self
            .driver
            .ioctl(&mut self.gpu, file, caller(), unpin, &mut argument);
        self.publish_pins(identity);
    }

    /// Maps a pin of a device of this process.
    pub(crate) fn mmap(
        &mut self,
        fd: c_int,
        identity: Identity,
        file: FileId,
        request: &MapRequest,
    ) -> Result<usize, Errno> {
        let arguments = [("length", request.len as u64), ("offset", request.offset)];
        self.call("mmap", &arguments, |process| {
            let addr = process
                .driver
                .mmap(&mut process.gpu, file, caller(), request)?;
            process.anchor(fd, identity);
            process.publish_bounds();
            Ok(addr as u64)
        })
        .map(|addr| addr as usize)
    }

    /// Makes the kernel count this process's mappings of a device as a use of it.
    fn anchor(&mut self, fd: c_int, identity: Identity) {
        let Some(device) = self.devices.get_mut(&identity) else {
            return;
        };
        if device.anchor.is_some() {
            return;
        }
        // SAFETY: the kernel chooses the address, so no memory is replaced.
        let anchor = unsafe {
            next::mmap()(
                std::ptr::null_mut(),
                1,
                libc::PROT_NONE,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if anchor == libc::MAP_FAILED {
            return;
        }
        // SAFETY: the page was just mapped.
        unsafe { libc::madvise(anchor, 1, libc::MADV_DONTFORK) };
        device.anchor = Some(anchor as usize);
    }

    /// Runs a call that takes a range of addresses away, and does what follows from it for the
    /// mappings there.
    pub(crate) fn take_away(
        &mut self,
        name: &'static str,
        addr: usize,
        len: usize,
        run: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let arguments = [("address", addr as u64), ("length", len as u64)];
        self.call(name, &arguments, |process| {
            run()?;
            process.unmapped(addr, len);
            Ok(0)
        })
        .map(|_| ())
    }

    /// A range of addresses was unmapped, by whole pages.
    pub(crate) fn unmapped(&mut self, addr: usize, len: usize) {
        let len = len.next_multiple_of(page_size());
        let touched = self.driver.unmapped(addr, len);
        for export in self.exports.unmapped(addr, len) {
            self.reap_export(export);
        }
        self.publish_bounds();
        let unanchored: Vec<_> = self
            .devices
            .iter_mut()
            .filter(|(_, device)| {
                touched.contains(&device.file) && self.driver.mappings_of(device.file) == 0
            })
            .map(|(identity, device)| (*identity, device.anchor.take()))
            .collect();
        for (identity, anchor) in unanchored {
            if let Some(anchor) = anchor {
                // SAFETY: the anchor's own page, which nothing touches.
                unsafe { next::munmap()(anchor as *mut _, 1) };
            }
            self.reap(identity);
        }
    }

    /// Whether any address of a range maps GPU memory.
    pub(crate) fn maps(&self, addr: usize, len: usize) -> bool {
        self.driver.maps(addr, len) || self.exports.maps(addr, len)
    }

    /// A range of addresses was moved by mremap(2).
    pub(crate) fn moved(&mut self, from: usize, len: usize, to: usize) {
        self.driver.moved(from, len, to);
        self.exports.moved(from, len, to);
        self.publish_bounds();
    }

    /// A descriptor of a device is being closed by `run`.
    pub(crate) fn close(
        &mut self,
        identity: Identity,
        run: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let begin = Instant::now();
        // As in Linux, a close that fails has closed.
        let result = run().and_then(|()| self.faults.take("close").map_or(Ok(()), Err));
        self.log_call("close", &[], result.map(|()| 0), begin);
        self.reap(identity);
        result
    }

    /// Memory was freed under pins that are not persistent.
    pub fn revoke(&mut self, tables: &[PageTableId]) {
        if tables.is_empty() {
            return;
        }
        for table in tables {
            self.driver.revoked(&mut self.gpu, *table);
        }
        for identity in self.devices.keys().copied().collect::<Vec<_>>() {
            self.publish_pins(identity);
        }
    }

    /// Releases a device that is no longer open in any process.
    fn reap(&mut self, identity: Identity) {
        let Some(device) = self.devices.get(&identity) else {
            return;
        };
        if self.driver.mappings_of(device.file) > 0 || device.record.is_open() {
            return;
        }
        self.driver.release(&mut self.gpu, device.file);
        device.record.remove();
        self.devices.remove(&identity);
    }

    /// Releases all devices and exports that are no longer open, however they were closed.
    pub(crate) fn reap_all(&mut self) {
        for identity in self.devices.keys().copied().collect::<Vec<_>>() {
            self.reap(identity);
        }
        self.reap_exports();
    }

    /// Number of page tables pinned in all processes of the session.
    pub(crate) fn refcount(&mut self) -> u64 {
        self.reap_all();
        self.session.refcount()
    }

    /// Records that a GPU kernel is not run. Returns whether it is the first time in this process.
    pub(crate) fn note_refused(&mut self, kernel: &str) -> bool {
        self.session.record_refused_kernel();
        self.refused.insert(kernel.to_owned())
    }

    /// Publishes the bounds by which the hooks skip unrelated addresses.
    pub(crate) fn publish_bounds(&self) {
        let bounds = [self.driver.mapped_bounds(), self.exports.mapped_bounds()];
        mapped_range::set(
            bounds
                .into_iter()
                .flatten()
                .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))),
        );
    }

    /// Lets other processes know how many page tables a device has pinned.
    fn publish_pins(&self, identity: Identity) {
        if let Some(device) = self.devices.get(&identity) {
            device
                .record
                .set_pins(self.driver.pins_of(device.file) as u64);
        }
    }

    /// Makes a driver call unless a fault is due, and logs it.
    pub(crate) fn call(
        &mut self,
        name: &'static str,
        arguments: &[(&str, u64)],
        make: impl FnOnce(&mut Self) -> Result<u64, Errno>,
    ) -> Result<u64, Errno> {
        let begin = Instant::now();
        let result = match self.faults.take(name) {
            Some(errno) => Err(errno),
            None => make(self),
        };
        self.log_call(name, arguments, result, begin);
        result
    }

    fn log_call(
        &mut self,
        call: &'static str,
        arguments: &[(&str, u64)],
        result: Result<u64, Errno>,
        begin: Instant,
    ) {
        if self.calls.len() < MAX_CALLS {
            self.calls.push(call);
        }
        if let Some(path) = &config().trace {
            let duration = begin.elapsed().as_nanos();
            let event = Event {
                call,
                arguments,
                result,
                duration,
                caller: caller(),
            };
            append(path, &event.to_json());
        }
    }

    /// The driver calls since the last call of this, by name, separated by blanks.
    pub(crate) fn take_calls(&mut self) -> &CStr {
        let calls = std::mem::take(&mut self.calls).join(" ");
        self.calls_taken = CString::new(calls).expect("names have no NUL byte");
        &self.calls_taken
    }

    /// In a forked child: devices and mappings are the parent's.
    fn after_fork(&mut self) {
        self.driver.forget();
        self.devices.clear();
        self.gpu.after_fork();
        self.exports.after_fork();
        self.calls.clear();
        self.refused.clear();
        self.forked = true;
        self.publish_bounds();
    }
}

/// Appends a line to a file. Opens it for each line, so that the program never sees the descriptor.
fn append(path: &Path, line: &str) {
    // A trace that cannot be written must not stop the program.
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path) {
        let _ = file.write_all(line.as_bytes());
    }
}

fn read_config() -> Result<Config, String> {
    let name = std::ffi::CString::new(config::VARIABLE).expect("a name has no NUL byte");
    // SAFETY: `name` ends with a NUL byte; the value is copied before anyone can change it.
    let value = unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    };
    let value = value.ok_or("not set: start programs with gdremu")?;
    Config::from_variable(value.to_str().map_err(|error| error.to_string())?)
}

/// The lock, kept over a fork, so that the child gets it in a state that it can use.
struct HeldOverFork(UnsafeCell<Option<MutexGuard<'static, Option<EmulatedProcess>>>>);

// SAFETY: touched only by the handlers below, of which the first has taken the lock.
unsafe impl Sync for HeldOverFork {}

static HELD_OVER_FORK: HeldOverFork = HeldOverFork(UnsafeCell::new(None));

extern "C" fn before_fork() {
    let guard = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: this thread holds the lock.
    unsafe { *HELD_OVER_FORK.0.get() = Some(guard) };
}

extern "C" fn after_fork_in_parent() {
    // SAFETY: this thread holds the lock since `before_fork`.
    drop(unsafe { (*HELD_OVER_FORK.0.get()).take() });
}

extern "C" fn after_fork_in_child() {
    // SAFETY: this thread holds the lock since `before_fork`.
    let guard = unsafe { (*HELD_OVER_FORK.0.get()).take() };
    if let Some(mut guard) = guard
        && let Some(process) = guard.as_mut()
    {
        INSIDE.set(true);
        process.after_fork();
        INSIDE.set(false);
    }
}

/// Makes forks safe. Called when the library is loaded.
pub(crate) fn watch_forks() {
    // SAFETY: the handlers live as long as this library, which is never unloaded.
    unsafe {
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_fork_in_parent),
            Some(after_fork_in_child),
        );
    }
}
