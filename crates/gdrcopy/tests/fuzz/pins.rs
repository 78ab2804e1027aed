//! Calls that open drivers, pin, map and export.

use std::sync::{Arc, Weak};

use gdrcopy::{Backend, Gdr, MapFlag, Mapped as _, Pin, PinFlags};

use crate::isolated::{calling, outcome, outcome_if_known};
use crate::ops::Args;
use crate::owners::{Mapped, Owner, any_of, take};
use crate::world::{ARENA, World};

pub(crate) struct Pinned {
    pin: Pin,
    len: usize,
    /// A reference to [`Mapped::alive`], which exists as long as the mapping of the pin.
    mapped: Weak<()>,
}

const FLAGS: [MapFlag; 4] = [MapFlag::Default, MapFlag::WriteCombining, MapFlag::Caching, MapFlag::Device];

pub(crate) fn map_flag(data: u64) -> MapFlag {
    // Most values select `MapFlag::Default`, which works on each platform.
    FLAGS[(data % 12).saturating_sub(8) as usize]
}

pub(crate) fn pin_flags(data: u64) -> PinFlags {
    match data % 8 {
        6 | 7 => PinFlags::FORCE_PCIE,
        _ => PinFlags::DEFAULT,
    }
}

impl World {
    pub(crate) fn open(&mut self, args: &Args) {
        let backends = [Backend::Auto, Backend::Gdrdrv, Backend::DmaBuf];
        self.open_backend(backends[args.data as usize % 3], args.data & 4 != 0);
    }

    fn open_backend(&mut self, backend: Backend, compat: bool) {
        calling!("gdrs[{}] = {backend:?}, force_pcie_compat({compat})", self.gdrs.len());
        let options = Gdr::options().backend(backend).force_pcie_compat(compat);
        self.gdrs.extend(outcome_if_known(backend == Backend::Auto, true, options.open()));
    }

    /// Returns one of the open drivers. It opens one if there is none.
    pub(crate) fn gdr(&mut self, args: &Args) -> Gdr {
        if self.gdrs.is_empty() {
            self.open_backend(Backend::Auto, false);
        }
        self.gdrs[args.data as usize % self.gdrs.len()].clone()
    }

    pub(crate) fn clone_gdr(&mut self, args: &Args) {
        let Some(clone) = any_of(&self.gdrs, args).cloned() else {
            return;
        };
        // Half of the clones are closed. Closing a clone leaves the connection open for the other clones.
        if args.data & 1 == 0 {
            calling!("gdrs[{}].clone().close()", args.which);
            outcome(true, clone.close());
        } else {
            self.gdrs.push(clone);
        }
    }

    pub(crate) fn pin(&mut self, args: &Args) {
        let offset = args.sizes[0].inside(ARENA);
        let len = args.sizes[1].inside(ARENA - offset);
        let gdr = self.gdr(args);
        let flags = pin_flags(args.data >> 8);
        let address = self.arena + offset as u64;
        calling!("pins[{}] = pin({address:#x}, {len:#x}, {flags:?})", self.pins.len());
        // SAFETY: the memory is never freed, and no other Rust code than this test accesses it.
        let result = unsafe { gdr.pin(address, len, flags) };
        let works_everywhere = flags == PinFlags::DEFAULT && len > 0;
        let pin = outcome_if_known(works_everywhere, true, result);
        self.pins.extend(pin.map(|pin| Pinned { pin, len, mapped: Weak::new() }));
    }

    pub(crate) fn map(&mut self, args: &Args) -> Option<Mapped> {
        let number = args.which % self.pins.len().max(1);
        let pinned = self.pins.get_mut(number)?;
        let len = args.sizes[0].of(pinned.len);
        let flag = map_flag(args.data);
        calling!("pins[{number}].map({len:#x}, {flag:?})");
        let is_valid = len > 0 && len <= pinned.len && pinned.mapped.strong_count() == 0;
        let is_known = flag == MapFlag::Default || !is_valid;
        let mapping = outcome_if_known(is_known, is_valid, pinned.pin.map(len, flag))?;
        assert_eq!(mapping.len(), len);
        let mapped = Mapped::new(Owner::Mapping(Arc::new(mapping)), pinned.pin.address(), len);
        pinned.mapped = Arc::downgrade(&mapped.alive);
        Some(mapped)
    }

    pub(crate) fn info(&mut self, args: &Args) {
        let Some(pinned) = any_of(&self.pins, args) else {
            return;
        };
        calling!("pins[{}].info(), .is_revoked()", args.which);
        let info = outcome(true, pinned.pin.info()).expect("predicted");
        let start = pinned.pin.address();
        let end = start + pinned.len as u64;
        assert!(info.address <= start && end <= info.address + info.len as u64, "{info:?}");
        assert_eq!(info.mapping_type.is_some(), pinned.mapped.strong_count() > 0);
        assert_eq!(pinned.pin.len(), pinned.len);
        assert_eq!(pinned.pin.is_revoked().ok(), Some(false));
    }

    /// Exports a range, which may be outside the test's GPU memory (`arena`).
    pub(crate) fn export(&mut self, args: &Args) {
        let offset = args.sizes[0].of(ARENA) as u64;
        let address = match args.data >> 4 & 3 {
            0 => offset,
            _ => self.arena.wrapping_add(offset),
        };
        let len = args.sizes[1].of(ARENA);
        let flags = pin_flags(args.data);
        calling!("export_dma_buf({address:#x}, {len:#x}, {flags:?})");
        let result = gdrcopy::export_dma_buf(address, len, flags);
        let pages = ARENA / 65536 * 65536;
        let end = match address.checked_sub(self.arena) {
            Some(first) => (first as usize).saturating_add(len),
            None => usize::MAX,
        };
        // An emulated GPU can export either all ranges that lie in whole pages of the test's GPU memory, or none of
        // them. So the first export of such a range decides what the test expects of the later ones.
        let is_certain = flags == PinFlags::DEFAULT && end <= pages && len > 0;
        let is_outside = len == 0 || end > 1 << 40;
        let export = match self.exports {
            Some(predicted) if is_certain => outcome(predicted, result),
            _ => outcome_if_known(is_outside, false, result),
        };
        if is_certain {
            self.exports = Some(export.is_some());
        }
        if let Some(export) = export {
            assert!(export.offset < 65536 && export.offset as usize + len <= export.len);
        }
    }

    pub(crate) fn unpin(&mut self, args: &Args) {
        if let Some(Pinned { pin, .. }) = take(&mut self.pins, args) {
            calling!("pin of {:#x}: unpin()", pin.address());
            outcome(true, pin.unpin().map_err(|(_, error)| error));
        }
    }
}
