//! gdrdrv as a state machine, with open devices, pins, handles and mappings. It maps no memory and opens no file
//! itself. GPU memory comes from a [`Provider`], and the owner of a `Driver` turns libc calls into calls of the driver.
//!
//! ```text
//! open                   adds an open file, which the process that opened it owns
//! ioctl                  runs a command (commands.rs)
//! mmap, unmapped, moved  record where pins and dma-bufs are mapped (mmap.rs, vmas.rs)
//! revoked                ends a pin whose GPU memory was freed
//! release                removes an open file after its last descriptor and mapping are gone
//! ```
#![forbid(unsafe_code)]

mod commands;
mod mmap;
mod pin;
mod vmas;

use std::collections::BTreeMap;

use nix::unistd::{Pid, getpid, gettid};

use crate::config::DriverConfig;
use crate::errno::Errno;
use crate::gpu::{PageTableId, Provider};
use crate::session::Identity;

pub use mmap::MapRequest;

use pin::Pins;
use vmas::Vmas;

/// The frequency in kHz of the clock by which GET_INFO reports how long pins took. So one cycle is a nanosecond.
pub const CLOCK_KHZ: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub pid: Pid,
    pub tid: Pid,
}

impl Caller {
    pub fn now() -> Caller {
        Caller { pid: getpid(), tid: gettid() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub read: bool,
    pub write: bool,
}

struct File {
    owner: Caller,
    access: Access,
    pins: Pins,
}

impl File {
    fn tables(&self) -> impl Iterator<Item = PageTableId> {
        self.pins.list.iter().filter_map(|pin| pin.table)
    }
}

pub struct Driver {
    config: &'static DriverConfig,
    files: BTreeMap<Identity, File>,
    /// The addresses at which pins and dma-bufs are mapped.
    pub vmas: Vmas,
    next_mmap: u64,
}

impl Driver {
    pub fn new(config: &'static DriverConfig) -> Self {
        Driver { config, files: BTreeMap::new(), vmas: Vmas::default(), next_mmap: 0 }
    }

    pub fn check_open(&self) -> Result<(), Errno> {
        match self.config.open_errno {
            _ if !self.config.loaded => Err(Errno::ENOENT),
            Some(errno) => Err(errno),
            None => Ok(()),
        }
    }

    pub fn open(&mut self, file: Identity, access: Access) {
        self.files.insert(file, File { owner: Caller::now(), access, pins: Pins::new(self.config) });
    }

    /// Ends a non-persistent pin whose memory was freed: unmaps its pages from the CPU and gives the page table back.
    pub fn revoked(&mut self, gpu: &mut dyn Provider, table: PageTableId) {
        let mut pins = self.files.values_mut().flat_map(|file| &mut file.pins.list);
        let Some(pin) = pins.find(|pin| pin.table == Some(table)) else {
            return;
        };
        pin.table = None;
        if let Some(mapping) = pin.mapping {
            gpu.zap(mapping.addr, mapping.len);
        }
        if self.config.since(3) {
            pin.mapping = None; // Before gdrdrv 2.3, the pin stays marked as mapped.
        }
        gpu.put_pages(table);
    }

    pub fn release(&mut self, gpu: &mut dyn Provider, file: Identity) {
        if let Some(file) = self.files.remove(&file) {
            file.tables().for_each(|table| gpu.put_pages(table));
        }
    }

    /// Forgets all devices in a forked child. Their memory stays pinned, because the pins are the parent's.
    pub fn forget(&mut self) {
        self.files.clear();
        self.vmas = Vmas::default();
    }

    pub fn pins_of(&self, file: Identity) -> usize {
        let Some(file) = self.files.get(&file) else { return 0 };
        file.tables().count()
    }

    pub fn pins(&self) -> usize {
        self.files.values().map(|file| file.tables().count()).sum()
    }

    fn file(&mut self, file: Identity) -> Result<&mut File, Errno> {
        self.files.get_mut(&file).ok_or(Errno::EBADF)
    }

    /// Returns the pins of an open device, if the caller may use it.
    fn pins_of_caller(&mut self, file: Identity) -> Result<&mut Pins, Errno> {
        let by_process = self.config.since(1);
        let caller = Caller::now();
        let file = self.file(file)?;
        let same = if by_process { file.owner.pid == caller.pid } else { file.owner == caller };
        if same { Ok(&mut file.pins) } else { Err(Errno::EACCES) }
    }
}
