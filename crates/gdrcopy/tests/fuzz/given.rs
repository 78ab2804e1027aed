//! Memory that is given to `Gdr::map_owned`.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use gdrcopy::memory::{DeviceMemory, MapOptions, OwnedMapping};
use gdrcopy::{MapFlag, Mapped as _, PinFlags};

use crate::isolated::{calling, list, outcome, outcome_if_known};
use crate::ops::Args;
use crate::owners::{Mapped, Owner, take};
use crate::pins::{map_flag, pin_flags};
use crate::pools::Lent;
use crate::world::{ARENA, World, pins};

/// Memory that a test gives to a mapping. No call may change the bytes around it.
#[derive(Debug)]
pub(crate) struct Given {
    lent: Lent,
    watch: Arc<Watch>,
}

/// Records where [`Given`] memory is mapped, and how often it was dropped.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The CPU address of the memory's mapping, or 0 while it is not mapped.
    mapped_at: AtomicUsize,
    drops: AtomicUsize,
}

impl Watch {
    pub(crate) fn drops(&self) -> usize {
        self.drops.load(Ordering::Relaxed)
    }
}

// SAFETY: the `Lent` memory meets the contract of `DeviceMemory`.
unsafe impl DeviceMemory for Given {
    fn address(&self) -> u64 {
        self.lent.address()
    }

    fn len(&self) -> usize {
        self.lent.len()
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        // If a check failed while another panic unwinds, the process would end before it reports that panic.
        if !thread::panicking() {
            let drops = self.watch.drops.fetch_add(1, Ordering::Relaxed);
            assert_eq!(drops, 0, "{self:x?} was freed before");
            let mapped_at = self.watch.mapped_at.load(Ordering::Relaxed);
            assert!(!is_mapped(mapped_at), "{self:x?} is freed while it is mapped");
        }
    }
}

fn is_mapped(address: usize) -> bool {
    let mut resident = 0;
    // SAFETY: the call only asks about one page, and writes one byte for it.
    unsafe { libc::mincore((address & !4095) as *mut _, 4096, &mut resident) == 0 }
}

impl World {
    /// Allocates memory, and passes it to `Gdr::map_owned`. No call may change the bytes before and after that memory.
    pub(crate) fn map_owned(&mut self, args: &Args) -> Option<Mapped> {
        let lent = self.lender(args).lend(args.sizes[1].inside(ARENA)).expect("little");
        let watch = Arc::new(Watch::default());
        self.watches.push(Arc::clone(&watch));
        self.map_given(Given { lent, watch }, args)
    }

    fn map_given(&mut self, given: Given, args: &Args) -> Option<Mapped> {
        let start = given.address();
        let len = given.len();
        let watch = Arc::clone(&given.watch);
        let pin_flags = pin_flags(args.data >> 8);
        let map_flag = map_flag(args.data >> 16);
        let options = MapOptions::default().pin_flags(pin_flags).map_flag(map_flag);
        let gdr = self.gdr(args);
        calling!("map_owned({start:#x}+{len:#x}, {options:?})");
        let is_ordinary = (pin_flags, map_flag) == (PinFlags::DEFAULT, MapFlag::Default);
        let mapping = outcome_if_known(is_ordinary || len == 0, len > 0, gdr.map_owned(given, options));
        assert_eq!(watch.drops(), usize::from(mapping.is_none()));
        let mapping = mapping?;
        assert_eq!((mapping.device_address(), mapping.len()), (start, len));
        let address = mapping.as_slice().as_mut_ptr().addr();
        assert!(is_mapped(address));
        watch.mapped_at.store(address, Ordering::Relaxed);
        Some(Mapped::new(Owner::Owned(Arc::new(mapping)), start, len))
    }

    /// Takes a mapping from the list, and unmaps it unless something else keeps it. Memory that was passed to
    /// `Gdr::map_owned` comes back, and is mapped again in half of the cases.
    pub(crate) fn unmap(&mut self, args: &Args) -> Option<Mapped> {
        let mapped = take(&mut self.mapped, args)?;
        // The match moves the owner out of `mapped`, and unmaps its memory. The other fields of `mapped`, such as
        // `alive`, are dropped after that.
        let mapped = Arc::try_unwrap(mapped).ok()?;
        match mapped.owner {
            Owner::Mapping(mapping) => {
                let mapping = Arc::into_inner(mapping)?;
                calling!("{:#x}: unmap()", mapping.device_address());
                outcome(true, mapping.unmap().map_err(|(_, error)| error));
                None
            }
            Owner::Owned(mapping) => self.end_owned(Arc::into_inner(mapping)?, args),
            _ => None,
        }
    }

    /// Ends all mappings. At every second place of the list, a mapping that `Gdr::map_owned` made is ended by
    /// `into_memory`, which returns the memory. All other mappings are dropped.
    pub(crate) fn end_mapped(&mut self) {
        for (number, mapped) in mem::take(&mut self.mapped).into_iter().enumerate() {
            let Ok(mapped) = Arc::try_unwrap(mapped) else {
                continue;
            };
            if number % 2 == 0
                && let Owner::Owned(mapping) = mapped.owner
                && let Some(mapping) = Arc::into_inner(mapping)
            {
                drop(self.unmap_owned(mapping));
            }
        }
    }

    fn end_owned(&mut self, mapping: OwnedMapping<Given>, args: &Args) -> Option<Mapped> {
        let memory = self.unmap_owned(mapping);
        if args.data & 1 == 0 {
            return self.map_given(memory, args);
        }
        let watch = Arc::clone(&memory.watch);
        list(format_args!("drop its memory\n"));
        drop(memory);
        assert_eq!(watch.drops(), 1);
        None
    }

    fn unmap_owned(&self, mapping: OwnedMapping<Given>) -> Given {
        let start = mapping.device_address();
        let len = mapping.len();
        let pins_before = pins();
        calling!("{start:#x}: into_memory()");
        let result = mapping.into_memory().map_err(|(_, error)| error);
        let memory = outcome(true, result).expect("predicted");
        assert_eq!((memory.address(), memory.len(), memory.watch.drops()), (start, len, 0));
        // The count does not include pins that are made by dma-bufs, so it may be 0.
        assert!(pins() < pins_before || pins_before == 0, "still pinned");
        assert!(!is_mapped(memory.watch.mapped_at.swap(0, Ordering::Relaxed)));
        memory
    }
}
