//! What a pin and its mapping share: the driver's pin, and whether it is mapped.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::backend::{PinRequest, Source, SourcePin};
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::sys::fork::Owner;
use crate::sys::mmap::{Region, Reservations, Span};
use crate::types::{MapFlag, MappingType, raw};

/// A pin of the driver, which lasts as long as a `Pin` or a mapping holds it, except during suspensions.
#[derive(Debug)]
pub(crate) struct PinState {
    backend: Arc<dyn Source>,
    request: PinRequest,
    device_address: u64,
    state: Mutex<State>,
    /// The live mapping's type, or one of the values below.
    mapped: AtomicU32,
    owner: Owner,
}

struct State {
    range: Range,
    /// The last mapping that was made.
    mapping: Option<Mapping>,
}

/// The driver's pin.
enum Range {
    Pinned(Box<dyn SourcePin>),
    Suspended {
        /// The memory had been freed by then, and its addresses may have other memory.
        freed: bool,
    },
    /// It could not be restored, or is not to be.
    Gone,
}

/// The arguments of a mapping, to make it again.
struct Mapping {
    span: Arc<Span>,
    len: usize,
    flag: MapFlag,
    kind: MappingType,
}

/// In `PinState::mapped` while there is no mapping.
const NOT_MAPPED: u32 = 0;
/// In `PinState::mapped` while a mapping is being made.
const BEING_MAPPED: u32 = u32::MAX;

impl PinState {
    /// `device_address` is the one that the caller pinned, before rounding to pages.
    pub(crate) fn new(backend: &Arc<dyn Source>, request: PinRequest, device_address: u64) -> Result<Arc<PinState>> {
        let range = Range::Pinned(backend.pin(&request)?);
        Ok(Arc::new(PinState {
            backend: Arc::clone(backend),
            request,
            device_address,
            state: Mutex::new(State { range, mapping: None }),
            mapped: AtomicU32::new(NOT_MAPPED),
            owner: Owner::current(),
        }))
    }

    pub(crate) fn device_address(&self) -> u64 {
        self.device_address
    }

    /// Works on the driver's pin.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&dyn SourcePin) -> Result<R>) -> Result<R> {
        self.owner.check()?;
        work(self.state.lock().pinned()?)
    }

    /// Maps the first `len` bytes.
    pub(crate) fn map(&self, len: usize, flag: MapFlag) -> Result<(Region, MappingType)> {
        self.owner.check()?;
        let mut state = self.state.lock();
        let (region, kind) = state.pinned()?.map(len, flag, None)?;
        state.mapping = region.span().map(|span| Mapping { span: Arc::clone(span), len, flag, kind });
        Ok((region, kind))
    }

    /// Unpins it. After an error it is still pinned.
    pub(crate) fn unpin(&self) -> Result<()> {
        self.owner.check()?;
        let mut state = self.state.lock();
        if let Range::Pinned(range) = &state.range {
            range.unpin()?;
        }
        state.range = Range::Gone; // A suspension of another thread may still find it.
        Ok(())
    }

    /// Takes its mapping away, and unpins it. After an error it is as it was, or suspended.
    pub(crate) fn suspend(&self) -> Result<()> {
        let mut state = self.state.lock();
        let Range::Pinned(range) = &state.range else {
            return Ok(());
        };
        // This fails before the mapping is gone where gdrdrv 2.0 serves only the thread that opened it.
        range.info(None)?;
        let freed = range.callback_flag()?;
        if let Some(mapping) = &state.mapping {
            mapping.span.vacate()?;
        }
        if let Err(error) = range.unpin() {
            let reserved = Reservations::read().ok();
            let mapping = state.mapping.as_ref();
            if mapping.is_some_and(|mapping| mapping.make_again(&**range, reserved.as_ref()).is_err()) {
                state.range = Range::Suspended { freed };
            }
            return Err(error);
        }
        state.range = Range::Suspended { freed };
        Ok(())
    }

    /// Pins and maps it again, where it was suspended; and returns whether that worked.
    pub(crate) fn resume(&self, reserved: Option<&Reservations>) -> bool {
        let mut state = self.state.lock();
        let Range::Suspended { freed } = state.range else {
            return true;
        };
        let pinned = if freed { Err(Error::MappingRevoked) } else { self.backend.pin(&self.request) };
        let restored = pinned.and_then(|range| {
            let mapping = state.mapping.as_ref();
            mapping.map_or(Ok(()), |mapping| mapping.make_again(&*range, reserved))?;
            Ok(range)
        });
        let (address, size) = (self.request.address, self.request.size);
        state.range = restored.map_or_else(
            |error| {
                log::error!("the pin of {address:#x}+{size:#x} is not restored: {error}");
                Range::Gone
            },
            Range::Pinned,
        );
        matches!(state.range, Range::Pinned(_))
    }

    /// How it is mapped now.
    pub(crate) fn mapping_type(&self) -> Option<MappingType> {
        raw::mapping_type(self.mapped.load(Ordering::Acquire))
    }

    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped.load(Ordering::Acquire) != NOT_MAPPED
    }
}

impl State {
    fn pinned(&self) -> Result<&dyn SourcePin> {
        match &self.range {
            Range::Pinned(range) => Ok(&**range),
            Range::Suspended { .. } => Err(Error::Suspended),
            Range::Gone => Err(Error::NotRestored),
        }
    }
}

impl Mapping {
    /// Maps the memory of a new pin in the place of this mapping, if that still has its addresses.
    fn make_again(&self, range: &dyn SourcePin, reserved: Option<&Reservations>) -> Result<()> {
        let Some(addresses) = self.span.vacant() else {
            return Ok(()); // Unmapped, before or during the suspension.
        };
        if !reserved.is_some_and(|reserved| reserved.contain(&addresses)) {
            return Err(Error::AddressesTaken { address: addresses.start });
        }
        let made = range.map(self.len, self.flag, Some(&self.span)).and_then(|(_, given)| {
            let (wanted, is_same) = (self.kind, given == self.kind);
            is_same.then_some(()).ok_or(Error::MappingTypeRefused { wanted, given })
        });
        made.or_else(|error| {
            self.span.vacate()?; // Where it was made nevertheless.
            self.span.vacant().map_or(Ok(()), |_| Err(error)) // Or unmapped by another thread.
        })
    }
}

/// Marks a pin as mapped as long as it exists, and keeps the pin.
#[derive(Debug)]
pub(crate) struct MappingGuard(Arc<PinState>);

impl MappingGuard {
    /// Sets the mark on a pin that has none.
    pub(crate) fn set(pinned: &Arc<PinState>) -> Result<MappingGuard> {
        let (acq_rel, acquire) = (Ordering::AcqRel, Ordering::Acquire);
        pinned
            .mapped
            .compare_exchange(NOT_MAPPED, BEING_MAPPED, acq_rel, acquire)
            .map(|_| MappingGuard(Arc::clone(pinned)))
            .map_err(|_| Error::AlreadyMapped)
    }

    #[inline]
    pub(crate) fn device_address(&self) -> u64 {
        self.0.device_address
    }

    /// The mapping is made, and of this type.
    pub(crate) fn made(&self, kind: MappingType) {
        self.0.mapped.store(kind as u32, Ordering::Release);
    }
}

impl Drop for MappingGuard {
    fn drop(&mut self) {
        self.0.mapped.store(NOT_MAPPED, Ordering::Release);
    }
}
