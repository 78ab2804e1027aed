//! The emulated driver and GPUs of this process: every call of a program that concerns them.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int};
use std::time::Instant;

use gdremu_core::abi::{self, Argument, Command};
use gdremu_core::config::Config;
use gdremu_core::driver::{Access, Driver, MapRequest};
use gdremu_core::errno::Errno;
use gdremu_core::fault::Faults;
use gdremu_core::gpu::{self, PageTableId, Provider};
use gdremu_core::session::{Identity, Session};

use crate::calls::Calls;
use crate::devices::{Descriptor, Devices};
use crate::hints::{device_fds, mapped_range};
use crate::proc_files;
use crate::settings;
use crate::shared_memory::{Export, Exports};
use crate::system::{caller, page_size};

/// Everything that is emulated for this process.
pub struct EmulatedProcess {
    /// The configuration.
    pub config: &'static Config,
    /// The kernel module.
    pub driver: Driver,
    /// GPU memory.
    pub gpu: Box<dyn Provider>,
    /// Faults of the driver and of CUDA.
    pub faults: Faults,
    /// This process was forked from one that had this state already.
    pub forked: bool,
    devices: Devices,
    /// Descriptors that CUDA gave out.
    exports: Exports,
    calls: Calls,
    /// Descriptors of `nv_get_pages_refcount`, as they were opened.
    refcounts: Vec<c_int>,
    /// Names of the GPU kernels that were not run.
    refused: BTreeSet<String>,
}

impl EmulatedProcess {
    pub(crate) fn new() -> EmulatedProcess {
        let config = settings::config();
        EmulatedProcess {
            driver: Driver::new(config.driver.clone(), page_size() as u64),
            gpu: gpu::provider(&config.gpu),
            faults: config.faults.clone(),
            forked: false,
            devices: Devices::new(Session::at(config.session.clone())),
            exports: Exports::default(),
            calls: Calls::default(),
            refcounts: Vec::new(),
            refused: BTreeSet::new(),
            config,
        }
    }

    // ---- Calls of the device ----

    /// Opens the device and returns its descriptor.
    pub(crate) fn open(&mut self, flags: c_int) -> Result<c_int, Errno> {
        self.call("open", &[("flags", flags as u64)], |process| {
            let access = Access {
                read: flags & libc::O_ACCMODE != libc::O_WRONLY,
                write: flags & libc::O_ACCMODE != libc::O_RDONLY,
            };
            if process.config.driver.loaded {
                if flags & libc::O_DIRECTORY != 0 {
                    return Err(Errno::ENOTDIR);
                }
                if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 {
                    return Err(Errno::EEXIST);
                }
            }
            process.driver.check_open()?;
            let (fd, file) = process.devices.add(access, flags)?;
            process.driver.open(file, caller(), access);
            device_fds::add(fd);
            Ok(fd as u64)
        })
        .map(|fd| fd as c_int)
    }

    /// Identifies a descriptor by its file, not by its number.
    pub(crate) fn descriptor_of(&self, fd: c_int) -> Descriptor {
        self.devices.descriptor(fd)
    }

    /// Runs an ioctl with gdrdrv's type byte on a device of this process.
    pub(crate) fn ioctl(
        &mut self,
        file: Identity,
        number: u32,
        argument: &mut Argument,
    ) -> Result<(), Errno> {
        let command = Command::from_number(number);
        let name = command.map_or("ioctl", Command::name);
        let begin = Instant::now();
        let result = self.faults.take_answers(name).and_then(|answers| {
            self.driver.ioctl(&mut *self.gpu, file, caller(), number, argument)?;
            answers.put(argument);
            Ok(())
        });
        let arguments: Vec<_> = match command {
            None => vec![("command", number.into())],
            Some(command) => {
                command.fields().iter().map(|field| (field.name, argument.get(field))).collect()
            }
        };
        self.calls.record(name, &arguments, result.map(|()| 0), begin);
        self.publish_pins(file);
        result
    }

    /// Unpins what the program cannot know, as its handle could not be written.
    pub(crate) fn undo_pin(&mut self, file: Identity, handle: u64) {
        let mut argument = Argument::default();
        argument.set(&abi::unpin_buffer::HANDLE, handle);
        let unpin = Command::UnpinBuffer.number();
        // The pin was just made, so this cannot fail.
        let _ = self.driver.ioctl(&mut *self.gpu, file, caller(), unpin, &mut argument);
        self.publish_pins(file);
    }

    /// Maps a pin of a device of this process.
    pub(crate) fn mmap(
        &mut self,
        fd: c_int,
        file: Identity,
        request: &MapRequest,
    ) -> Result<usize, Errno> {
        let arguments = [("length", request.len as u64), ("offset", request.offset)];
        self.call("mmap", &arguments, |process| {
            let addr = process.driver.mmap(&mut *process.gpu, file, caller(), request)?;
            process.devices.anchor(fd, file);
            process.publish_bounds();
            Ok(addr as u64)
        })
        .map(|addr| addr as usize)
    }

    /// A descriptor of a device is being closed by `run`.
    pub(crate) fn close(
        &mut self,
        file: Identity,
        run: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let begin = Instant::now();
        // As in Linux, a close that fails has closed.
        let result = run().and_then(|()| self.faults.take("close").map_or(Ok(()), Err));
        self.calls.record("close", &[], result.map(|()| 0), begin);
        self.reap(file);
        result
    }

    // ---- Descriptors of GPU memory ----

    /// Creates a descriptor for GPU memory that the caller holds a reference to. The descriptor takes over
    /// the reference.
    ///
    /// # Errors
    /// The file system's error; the reference is released.
    pub fn export(&mut self, export: Export, len: u64) -> Result<c_int, Errno> {
        self.exports.add(self.devices.session(), &mut *self.gpu, export, len)
    }

    /// The memory behind a descriptor.
    pub fn exported(&self, fd: c_int) -> Option<Export> {
        self.exports.find(fd).map(|(_, export)| export)
    }

    /// Maps a dma-buf.
    pub(crate) fn map_export(
        &mut self,
        fd: c_int,
        offset: u64,
        len: usize,
    ) -> Result<usize, Errno> {
        let arguments = [("length", len as u64), ("offset", offset)];
        self.call("mmap", &arguments, |process| {
            let addr = process.exports.map(&mut *process.gpu, fd, offset, len)?;
            process.publish_bounds();
            Ok(addr as u64)
        })
        .map(|addr| addr as usize)
    }

    /// A descriptor of an export is being closed by `run`.
    pub(crate) fn close_export<R>(&mut self, fd: c_int, run: impl FnOnce() -> R) -> R {
        let found = self.exports.find(fd);
        let result = run();
        if let Some((identity, _)) = found {
            self.exports.reap_one(&mut *self.gpu, identity);
        }
        result
    }

    /// Releases the memory of exports whose descriptors and mappings are all closed, by any process and
    /// in any manner.
    pub fn reap_exports(&mut self) {
        self.exports.reap(&mut *self.gpu);
    }

    // ---- Mapped addresses ----

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
        self.exports.unmapped(&mut *self.gpu, addr, len);
        self.publish_bounds();
        for file in self.devices.all() {
            if touched.contains(&file) && self.driver.mappings_of(file) == 0 {
                self.devices.remove_anchor(file);
                self.reap(file);
            }
        }
    }

    /// Whether any address of a range maps GPU memory.
    pub(crate) fn maps(&self, addr: usize, len: usize) -> bool {
        self.driver.maps(addr, len) || self.exports.vmas.touches(addr, len)
    }

    /// A range of addresses was moved by mremap(2).
    pub(crate) fn moved(&mut self, from: usize, len: usize, to: usize) {
        self.driver.moved(from, len, to);
        self.exports.vmas.relocate(from, len, to);
        self.publish_bounds();
    }

    /// Publishes the bounds by which the hooks skip unrelated addresses.
    fn publish_bounds(&self) {
        let bounds = [self.driver.mapped_bounds(), self.exports.vmas.bounds()];
        mapped_range::set(bounds.into_iter().flatten().reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))));
    }

    // ---- Releases ----

    /// Memory was freed under pins that are not persistent.
    pub fn revoke(&mut self, tables: &[PageTableId]) {
        if tables.is_empty() {
            return;
        }
        for table in tables {
            self.driver.revoked(&mut *self.gpu, *table);
        }
        for file in self.devices.all() {
            self.publish_pins(file);
        }
    }

    /// Releases a device that is no longer open in any process.
    fn reap(&mut self, file: Identity) {
        if self.driver.mappings_of(file) == 0 && self.devices.remove_closed(file) {
            self.driver.release(&mut *self.gpu, file);
            self.write_refcounts();
        }
    }

    /// Releases all devices and exports that are no longer open, however they were closed.
    pub(crate) fn reap_all(&mut self) {
        for file in self.devices.all() {
            self.reap(file);
        }
        self.reap_exports();
    }

    /// Number of page tables pinned in all processes of the session.
    pub(crate) fn refcount(&mut self) -> u64 {
        self.reap_all();
        self.devices.session().refcount()
    }

    /// Opens `nv_get_pages_refcount`. Its text follows the pins of this process, and those of others
    /// whenever a hook reads it: a stream (FILE) reads without hooks.
    pub(crate) fn open_refcount(&mut self, flags: c_int) -> Result<c_int, Errno> {
        let text = proc_files::refcount(self.refcount());
        let fd = proc_files::open(proc_files::REFCOUNT, &text, flags)?;
        device_fds::add(fd);
        self.refcounts.push(fd);
        Ok(fd)
    }

    fn write_refcounts(&mut self) {
        self.refcounts.retain(|fd| proc_files::is_refcount(*fd));
        if !self.refcounts.is_empty() {
            let text = proc_files::refcount(self.devices.session().refcount());
            self.refcounts.iter().for_each(|fd| proc_files::put(*fd, &text));
        }
    }

    fn publish_pins(&mut self, file: Identity) {
        self.devices.publish_pins(file, self.driver.pins_of(file));
        self.write_refcounts();
    }

    // ---- Records ----

    /// Records that a GPU kernel is not run. Returns whether it is the first time in this process.
    pub(crate) fn note_refused(&mut self, kernel: &str) -> bool {
        self.devices.session().record_refused_kernel();
        self.refused.insert(kernel.to_owned())
    }

    /// Makes a driver call unless a fault is due, and logs it.
    fn call(
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
        self.calls.record(name, arguments, result, begin);
        result
    }

    /// The driver calls since the last call of this, by name, separated by blanks.
    pub(crate) fn take_calls(&mut self) -> &CStr {
        self.calls.take()
    }

    /// In a forked child: devices and mappings are the parent's.
    pub(crate) fn after_fork(&mut self) {
        self.driver.forget();
        self.devices.after_fork();
        self.gpu.after_fork();
        self.exports.after_fork();
        self.calls.after_fork();
        self.refused.clear();
        self.forked = true;
        self.publish_bounds();
    }
}
