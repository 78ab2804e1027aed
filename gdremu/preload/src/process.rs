//! The emulated driver and GPUs of this process. The hooks of libc functions call them.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use gdremu_core::abi::{self, Argument, Command};
use gdremu_core::config::Config;
use gdremu_core::driver::{Access, Driver, MapRequest};
use gdremu_core::errno::Errno;
use gdremu_core::fault::Faults;
use gdremu_core::gpu::{Exported, HostProvider, PageTableId, Provider, page_size};
use gdremu_core::session::{Identity, REFUSED_KERNEL};

use crate::calls::Calls;
use crate::descriptors::{Descriptors, Kind};
use crate::hints::{device_fds, mapped_range};
use crate::refcount;
use crate::settings;

pub struct EmulatedProcess {
    pub config: &'static Config,
    pub driver: Driver,
    /// The provider of GPU memory. It emulates GPUs, unless the preload library for real GPUs has replaced it.
    pub gpu: Box<dyn Provider>,
    pub faults: Faults,
    pub(crate) descriptors: Descriptors,
    /// When this many devices and dma-bufs are recorded, `export` searches for those that the program has closed.
    reap_at: usize,
    pub(crate) calls: Calls,
    refused: BTreeSet<String>,
}

impl EmulatedProcess {
    pub(crate) fn new() -> EmulatedProcess {
        let config = settings::config();
        EmulatedProcess {
            driver: Driver::new(&config.driver),
            gpu: Box::new(HostProvider::new(&config.gpu)),
            faults: config.faults.parse().expect("checked by the launcher"),
            descriptors: Descriptors::new(&config.session),
            reap_at: 0,
            calls: Calls::default(),
            refused: BTreeSet::new(),
            config,
        }
    }

    pub(crate) fn open(&mut self, flags: c_int) -> Result<c_int, Errno> {
        self.call("open", &[("flags", flags as u64)], |process| {
            let access = Access {
                read: flags & libc::O_ACCMODE != libc::O_WRONLY,
                write: flags & libc::O_ACCMODE != libc::O_RDONLY,
            };
            process.driver.check_open()?;
            let (fd, file) = process.descriptors.add_device(access, flags)?;
            process.driver.open(file, access);
            Ok(fd)
        })
    }

    /// Runs an ioctl on a device that this process opened. `number` has the type byte of gdrdrv's commands.
    pub(crate) fn ioctl(&mut self, file: Identity, number: u32, argument: &mut Argument) -> Result<(), Errno> {
        let command = Command::from_number(number);
        let name = match command {
            Some(command) => command.name(),
            None => "ioctl",
        };
        let begin = Instant::now();
        let result = self.run_command(name, file, number, argument);
        let mut arguments = Vec::new();
        match command {
            Some(command) => arguments.extend(command.fields().iter().map(|field| (field.name, argument.get(field)))),
            None => arguments.push(("command", number.into())),
        }
        self.calls.record(name, &arguments, result.map(|()| 0), begin);
        self.publish_pins(file);
        result
    }

    fn run_command(&mut self, name: &str, file: Identity, number: u32, argument: &mut Argument) -> Result<(), Errno> {
        let answers = self.faults.take_answers(name)?;
        self.driver.ioctl(&mut *self.gpu, file, number, argument)?;
        for (field, value) in answers {
            argument.set(field, value);
        }
        Ok(())
    }

    /// Undoes a pin whose handle could not be written to the program's memory.
    pub(crate) fn undo_pin(&mut self, file: Identity, handle: u64) {
        let mut argument = Argument::ZERO;
        argument.set(&abi::unpin_buffer::HANDLE, handle);
        let unpin = Command::UnpinBuffer.number();
        // The pin was just made, so this cannot fail.
        let _ = self.driver.ioctl(&mut *self.gpu, file, unpin, &mut argument);
        self.publish_pins(file);
    }

    /// Runs an mmap of a descriptor of an emulated device or of a dma-buf.
    pub(crate) fn mmap(&mut self, fd: c_int, of: (Identity, Kind), request: &MapRequest) -> Result<usize, Errno> {
        let arguments = [("length", request.len as u64), ("offset", request.offset)];
        self.call("mmap", &arguments, |process| {
            let addr = match of {
                (file, Kind::Device) => {
                    let addr = process.driver.mmap(&mut *process.gpu, file, request)?;
                    process.descriptors.anchor(fd, file);
                    addr
                }
                (file, Kind::Export(table)) if request.shared => {
                    let (memory, memory_file) = process.gpu.host().exported(table)?;
                    let (addr, len) = map_dmabuf(process.config, &memory, memory_file, request)?;
                    process.driver.mapped_dmabuf(file, addr, len);
                    addr
                }
                (file, Kind::Received) if request.shared => {
                    process.descriptors.hold(fd);
                    let (memory, memory_file) = process.descriptors.received(fd)?;
                    let (addr, len) = map_dmabuf(process.config, &memory, memory_file.as_fd(), request)?;
                    process.driver.mapped_dmabuf(file, addr, len);
                    process.descriptors.anchor_received(fd, file);
                    addr
                }
                _ => return Err(Errno::EINVAL),
            };
            process.publish_bounds();
            Ok(addr)
        })
    }

    pub(crate) fn close(&mut self, file: Identity, run: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let begin = Instant::now();
        // `run` closes the descriptor even if `--fault` makes this close fail. On Linux, a failed close closes it, too.
        let result = match (run(), self.faults.take("close")) {
            (Ok(()), Some(errno)) => Err(errno),
            (closed, _) => closed,
        };
        self.calls.record("close", &[], result.map(|()| 0), begin);
        self.reap(file);
        result
    }

    /// Makes a dma-buf descriptor of GPU memory. It takes over the caller's reference to the memory. On failure, the
    /// reference is released.
    pub fn export(&mut self, export: PageTableId, len: u64) -> Result<c_int, Errno> {
        // `reap_all` forgets descriptors that the program has closed, and makes a system call for each to find out. So
        // it is called again only when the number of descriptors has doubled.
        let live = self.descriptors.all().len();
        if live >= self.reap_at {
            self.reap_all();
            self.reap_at = 2 * live + 16;
        }
        let exported = self.descriptors.add_export(export, len, self.gpu.host());
        if exported.is_err() {
            self.gpu.put_pages(export);
        }
        exported
    }

    /// Runs a call that ends all mappings in an address range, such as munmap. Then records that the range is unmapped.
    pub(crate) fn take_away(
        &mut self,
        name: &'static str,
        addr: usize,
        len: usize,
        run: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<c_int, Errno> {
        let arguments = [("address", addr as u64), ("length", len as u64)];
        self.call(name, &arguments, |process| {
            run()?;
            process.unmapped(addr, len);
            Ok(0)
        })
    }

    /// Records that a range of addresses was unmapped. Linux unmaps whole pages.
    pub(crate) fn unmapped(&mut self, addr: usize, len: usize) {
        let len = len.next_multiple_of(page_size());
        let touched = self.driver.unmapped(addr, len);
        self.publish_bounds();
        for file in touched {
            self.reap(file);
        }
    }

    pub(crate) fn moved(&mut self, from: usize, len: usize, to: usize) {
        self.driver.moved(from, len, to);
        self.publish_bounds();
    }

    /// Publishes the bounds of all mapped GPU memory, so that hooks need no lock for calls outside this range.
    fn publish_bounds(&self) {
        mapped_range::set(self.driver.vmas.bounds());
    }

    /// Ends the pins of these page tables, because the program has freed their memory.
    pub fn revoke(&mut self, tables: &[PageTableId]) {
        if tables.is_empty() {
            return;
        }
        for table in tables {
            self.driver.revoked(&mut *self.gpu, *table);
        }
        for file in self.descriptors.all() {
            self.publish_pins(file);
        }
    }

    /// Releases a device or dma-buf if no process has it open or maps it any more.
    pub(crate) fn reap(&mut self, file: Identity) {
        if self.driver.vmas.shows(file) {
            return;
        }
        match self.descriptors.remove_closed(file) {
            Some(Kind::Export(export)) => self.gpu.put_pages(export),
            Some(Kind::Device) => self.driver.release(&mut *self.gpu, file),
            _ => {}
        }
    }

    /// Releases all devices and dma-bufs that are no longer in use, even if no hook saw that they were closed.
    pub fn reap_all(&mut self) {
        for file in self.descriptors.all() {
            self.reap(file);
        }
    }

    pub(crate) fn refcount(&mut self) -> u64 {
        self.reap_all();
        self.config.session.refcount()
    }

    pub(crate) fn open_refcount(&mut self, flags: c_int) -> Result<c_int, Errno> {
        let fd = refcount::open(self.refcount(), flags)?;
        device_fds::add(fd);
        Ok(fd)
    }

    fn publish_pins(&mut self, file: Identity) {
        self.descriptors.publish_pins(file, self.driver.pins_of(file));
    }

    /// Records that gdremu has refused to run this GPU kernel. Returns true the first time that a process records it.
    pub(crate) fn note_refused(&mut self, kernel: &str) -> bool {
        self.config.session.record(REFUSED_KERNEL);
        self.refused.insert(kernel.to_owned())
    }

    /// Makes a driver call and records it. If gdremu's option `--fault` makes this call fail, only records the failure.
    fn call<T: Copy + TryInto<u64>>(
        &mut self,
        name: &'static str,
        arguments: &[(&str, u64)],
        make: impl FnOnce(&mut Self) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let begin = Instant::now();
        let result = match self.faults.take(name) {
            Some(errno) => Err(errno),
            None => make(self),
        };
        let returned = result.map(|value| value.try_into().unwrap_or_default());
        self.calls.record(name, arguments, returned, begin);
        result
    }

    /// Forgets devices and mappings in a forked child, because they are the parent's.
    pub(crate) fn after_fork(&mut self) {
        self.driver.forget();
        self.descriptors.after_fork();
        self.gpu.after_fork();
        self.calls.after_fork();
        self.refused.clear();
        self.publish_bounds();
    }
}

/// Maps a dma-buf as a program requests it. Returns the address, and the number of bytes, which
/// is rounded up to whole pages.
fn map_dmabuf(
    config: &Config,
    memory: &Exported,
    file: BorrowedFd<'_>,
    request: &MapRequest,
) -> Result<(usize, usize), Errno> {
    if !config.gpu.maps_dmabufs(memory.gpu) {
        return Err(Errno::ENOTSUPP);
    }
    let len = request.len.checked_next_multiple_of(page_size()).ok_or(Errno::ENOMEM)?;
    Ok((memory.map(file, request.offset, len, request.fixed)?, len))
}
