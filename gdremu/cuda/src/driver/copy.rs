//! Copies in every direction. The address determines what memory it is, as with CUDA's unified
//! addressing.

use std::ptr;

use gdremu_core::gpu::host::Span;
use gdremu_core::gpu::memory::Access;

use super::entry::initialized;
use super::host;
use super::state::{self, ContextHandle, State, StreamHandle};
use super::work::{self, When};
use crate::error::{Error, Result};
use crate::gpus;

/// The kind of memory at one side of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Memory that is known to CUDA: device, managed, registered.
    Device,
    /// Any memory, also the program's own.
    Any,
}

/// Memory of one side of a copy or fill, in address order.
pub(crate) enum Memory {
    Gpu(Vec<Span>),
    Host {
        start: usize,
        len: usize,
        /// Unknown to CUDA: copies return only after they have accessed it.
        pageable: bool,
    },
    /// A copy of host memory, taken during the call.
    Staged(Vec<u8>),
}

impl Memory {
    /// Its pieces: address and length.
    pub(crate) fn pieces(&self) -> Vec<(*mut u8, usize)> {
        match self {
            Memory::Gpu(spans) => spans.iter().map(|span| (span.bytes(), span.len)).collect(),
            Memory::Host { start, len, .. } => {
                vec![(ptr::with_exposed_provenance_mut(*start), *len)]
            }
            Memory::Staged(bytes) => vec![(bytes.as_ptr().cast_mut(), bytes.len())],
        }
    }

    fn is_pageable(&self) -> bool {
        matches!(self, Memory::Host { pageable: true, .. })
    }

    /// The same, with a copy of its own of what the program may change after the call.
    fn staged(self) -> Memory {
        match self {
            Memory::Host {
                len,
                pageable: true,
                ..
            } => {
                let mut bytes = vec![0; len];
                copy_pieces(&[(bytes.as_mut_ptr(), len)], &self.pieces());
                Memory::Staged(bytes)
            }
            other => other,
        }
    }
}

/// The memory at an address.
///
/// # Errors
/// INVALID_VALUE: not all of it is one buffer, or CUDA does not know it and must.
fn resolve(state: &State, address: u64, len: usize, side: Side, need: Access) -> Result<Memory> {
    if gpus::with(|gpu| gpu.is_device_address(address)) {
        return Ok(Memory::Gpu(gpus::with(|gpu| {
            gpu.spans(address, len as u64, need)
        })?));
    }
    let known = host::find(state, address as usize)
        .is_some_and(|(start, range)| range.len - (address as usize - start) >= len);
    if side == Side::Device && !known && len > 0 {
        return Err(Error::INVALID_VALUE);
    }
    Ok(Memory::Host {
        start: address as usize,
        len,
        pageable: !known,
    })
}

/// Memory that CUDA knows, to be written.
pub(crate) fn device_memory(state: &State, address: u64, len: usize) -> Result<Memory> {
    resolve(state, address, len, Side::Device, Access::ReadWrite)
}

/// In the default stream, finished when the call returns.
const NOW: (StreamHandle, When) = (0, When::Now);

/// Copies `len` bytes without holding the lock: an invalid host address faults as in the program.
fn copy(
    name: &str,
    to: (Side, u64),
    from: (Side, u64),
    len: usize,
    (stream, when): (StreamHandle, When),
) -> i32 {
    initialized(name, || {
        let state = state::lock();
        let current = state.current()?;
        state.check_stream(stream)?;
        let destination = resolve(&state, to.1, len, to.0, Access::ReadWrite)?;
        let source = resolve(&state, from.1, len, from.0, Access::Read)?;
        let when = if destination.is_pageable() {
            When::Now
        } else {
            when
        };
        let (state, source) = if when == When::Now || work::is_idle(&state, current, stream) {
            (state, source)
        } else {
            drop(state);
            let source = source.staged();
            (state::lock(), source)
        };
        work::submit(state, current, stream, when, move || {
            copy_pieces(&destination.pieces(), &source.pieces());
            Ok(())
        })
    })
}

/// Copies between two lists of pieces of the same total length.
fn copy_pieces(to: &[(*mut u8, usize)], from: &[(*mut u8, usize)]) {
    let (mut to, mut from) = (to.iter().copied(), from.iter().copied());
    let (mut destination, mut source) = ((ptr::null_mut(), 0), (ptr::null_mut(), 0));
    loop {
        if destination.1 == 0 {
            let Some(next) = to.next() else { return };
            destination = next;
        }
        if source.1 == 0 {
            let Some(next) = from.next() else { return };
            source = next;
        }
        let len = destination.1.min(source.1);
        // SAFETY: pieces of GPU memory are mapped while their spans live, host memory is
        // valid by CUDA's contract with the program.
        // `copy` takes overlap.
        unsafe {
            ptr::copy(source.0, destination.0, len);
            destination = (destination.0.add(len), destination.1 - len);
            source = (source.0.add(len), source.1 - len);
        }
    }
}

pub(crate) extern "C" fn cuMemcpy(to: u64, from: u64, size: usize) -> i32 {
    copy("cuMemcpy", (Side::Any, to), (Side::Any, from), size, NOW)
}

pub(crate) extern "C" fn cuMemcpyAsync(
    to: u64,
    from: u64,
    size: usize,
    stream: StreamHandle,
) -> i32 {
    copy(
        "cuMemcpyAsync",
        (Side::Any, to),
        (Side::Any, from),
        size,
        (stream, When::InOrder),
    )
}

pub(crate) extern "C" fn cuMemcpyHtoD_v2(to: u64, from: u64, size: usize) -> i32 {
    copy(
        "cuMemcpyHtoD",
        (Side::Device, to),
        (Side::Any, from),
        size,
        NOW,
    )
}

pub(crate) extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: u64,
    size: usize,
    stream: StreamHandle,
) -> i32 {
    copy(
        "cuMemcpyHtoDAsync",
        (Side::Device, to),
        (Side::Any, from),
        size,
        (stream, When::InOrder),
    )
}

pub(crate) extern "C" fn cuMemcpyDtoH_v2(to: u64, from: u64, size: usize) -> i32 {
    copy(
        "cuMemcpyDtoH",
        (Side::Any, to),
        (Side::Device, from),
        size,
        NOW,
    )
}

pub(crate) extern "C" fn cuMemcpyDtoHAsync_v2(
    to: u64,
    from: u64,
    size: usize,
    stream: StreamHandle,
) -> i32 {
    copy(
        "cuMemcpyDtoHAsync",
        (Side::Any, to),
        (Side::Device, from),
        size,
        (stream, When::InOrder),
    )
}

pub(crate) extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) -> i32 {
    copy(
        "cuMemcpyDtoD",
        (Side::Device, to),
        (Side::Device, from),
        size,
        (0, When::InOrder),
    )
}

pub(crate) extern "C" fn cuMemcpyDtoDAsync_v2(
    to: u64,
    from: u64,
    size: usize,
    stream: StreamHandle,
) -> i32 {
    copy(
        "cuMemcpyDtoDAsync",
        (Side::Device, to),
        (Side::Device, from),
        size,
        (stream, When::InOrder),
    )
}

pub(crate) extern "C" fn cuMemcpyPeer(
    to: u64,
    to_context: ContextHandle,
    from: u64,
    from_context: ContextHandle,
    size: usize,
) -> i32 {
    cuMemcpyPeerAsync(to, to_context, from, from_context, size, 0)
}

pub(crate) extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: ContextHandle,
    from: u64,
    from_context: ContextHandle,
    size: usize,
    stream: StreamHandle,
) -> i32 {
    let contexts = initialized("cuMemcpyPeerAsync", || {
        let state = state::lock();
        let live = |context| state.contexts.get(context).is_some();
        if live(to_context) && live(from_context) {
            Ok(())
        } else {
            Err(Error::INVALID_CONTEXT)
        }
    });
    if contexts != 0 {
        return contexts;
    }
    copy(
        "cuMemcpyPeerAsync",
        (Side::Device, to),
        (Side::Device, from),
        size,
        (stream, When::InOrder),
    )
}
