//! gdrdrv as a state machine, with open devices, pins, handles and mappings. It maps no memory and
//! opens no file itself. GPU memory comes from a [`Provider`], and the owner of a `Driver` turns
//! libc calls into calls of it.
//!
//! ```text
//! open     ← an open file, owned by the process that opened
//! ioctl    → commands.rs: one function per command
//! mmap, unmapped, moved → mmap.rs over vmas.rs, the address ranges, which those of dma-bufs are among
//! revoked  ← the GPU's memory was freed under a pin
//! release  ← the last descriptor and the last mapping are gone
//! ```
#![forbid(unsafe_code)]

mod commands;
mod mmap;
mod pin;
mod release;
mod vmas;

use std::collections::BTreeMap;

use crate::config::DriverConfig;
use crate::errno::Errno;
use crate::gpu::{PageTableId, Provider};
use crate::session::Identity;

pub use mmap::MapRequest;

use pin::Pins;
use vmas::Vmas;

/// The clock of GET_INFO's pin durations, in nanoseconds.
pub const CLOCK_KHZ: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub pid: i32,
    pub tid: i32,
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

/// The GPU memory at a range of addresses.
#[derive(Clone, Copy, Debug)]
struct Shown {
    file: Identity,
    /// `None` for that of a dma-buf.
    pin: Option<MappedPin>,
}

#[derive(Clone, Copy, Debug)]
struct MappedPin {
    handle: u64,
    /// Which mmap it comes from, whatever became of its parts.
    origin: u64,
}

pub struct Driver {
    config: DriverConfig,
    page_size: u64,
    files: BTreeMap<Identity, File>,
    vmas: Vmas<Shown>,
    next_mmap: u64,
}

impl Driver {
    /// A freshly loaded module on a system with pages of `page_size` bytes.
    pub fn new(config: DriverConfig, page_size: u64) -> Self {
        Driver { config, page_size, files: BTreeMap::new(), vmas: Vmas::default(), next_mmap: 0 }
    }

    pub fn check_open(&self) -> Result<(), Errno> {
        if !self.config.loaded {
            return Err(Errno::ENOENT);
        }
        self.config.open_errno.map_or(Ok(()), Err)
    }

    pub fn open(&mut self, file: Identity, owner: Caller, access: Access) {
        let pins = Pins::new(self.config.handle_base);
        self.files.insert(file, File { owner, access, pins });
    }

    /// The memory of a page table was freed under its pin. Takes its pages out of the CPU's address
    /// space and gives the table back. Only pins that are not persistent are ever revoked.
    pub fn revoked(&mut self, gpu: &mut dyn Provider, table: PageTableId) {
        let mut pins = self.files.values_mut().flat_map(|file| &mut file.pins.list);
        let Some(pin) = pins.find(|pin| pin.table == Some(table)) else {
            return;
        };
        pin.table = None;
        if let Some(mapping) = pin.mapping {
            gpu.zap(mapping.addr, mapping.len);
        }
        if !self.config.forgets_to_unmark_freed() {
            pin.mapping = None;
        }
        gpu.put_pages(table);
    }

    /// The last descriptor and the last mapping of an open device are gone. Releases its pins.
    pub fn release(&mut self, gpu: &mut dyn Provider, file: Identity) {
        let pins = self.files.remove(&file).into_iter().flat_map(|file| file.pins.list);
        pins.filter_map(|pin| pin.table).for_each(|table| gpu.put_pages(table));
    }

    /// Forgets everything and gives nothing back, because in a forked child all of it is the
    /// parent's.
    pub fn forget(&mut self) {
        self.files.clear();
        self.vmas = Vmas::default();
    }

    /// Number of page tables that an open device has pinned.
    pub fn pins_of(&self, file: Identity) -> usize {
        let pins = self.files.get(&file).into_iter().flat_map(|file| &file.pins.list);
        pins.filter_map(|pin| pin.table).count()
    }

    pub fn pins(&self) -> usize {
        self.files.keys().map(|file| self.pins_of(*file)).sum()
    }

    /// The open device, if `caller` may use it, and the configuration.
    fn file(&mut self, file: Identity, caller: Caller) -> Result<(&DriverConfig, &mut File), Errno> {
        let per_thread = self.config.owner_is_a_thread();
        let file = self.files.get_mut(&file).ok_or(Errno::EBADF)?;
        let same = if per_thread { file.owner == caller } else { file.owner.pid == caller.pid };
        if same { Ok((&self.config, file)) } else { Err(Errno::EACCES) }
    }
}
