//! Fills memory, and copies between device and host memory in every direction. The address shows the kind of memory.

use std::ptr;

use gdremu_core::gpu::address_space::Access;
use gdremu_core::gpu::files::Span;

use super::state::{State, StreamHandle};
use super::work::{Turn, When};
use super::{host, pointer};
use crate::error::{Error, Result, ensure, valid};
use crate::gpus;

/// The source or the destination of a copy.
#[derive(Clone, Copy)]
pub(super) enum Side {
    /// The address of memory that CUDA must know: device memory, managed memory, or registered host memory.
    Device(u64),
    /// The address of any memory, including host memory that CUDA does not know.
    Any(u64),
}

pub(super) use Side::{Any, Device};

impl Side {
    fn address(self) -> u64 {
        let (Device(address) | Any(address)) = self;
        address
    }
}

/// The memory of one side of a copy or fill.
enum Memory {
    Gpu(Vec<Span>),
    Host {
        start: usize,
        len: usize,
        /// True if CUDA does not know the memory, so that copies return only after they have accessed it.
        pageable: bool,
    },
    /// The contents that host memory had during the CUDA call. The program may change the memory after the call.
    Staged(Vec<u8>),
}

impl Memory {
    fn pieces(&self) -> Vec<(*mut u8, usize)> {
        match self {
            Memory::Gpu(spans) => spans.iter().map(|span| (span.bytes(), span.len)).collect(),
            Memory::Host { start, len, .. } => vec![(ptr::with_exposed_provenance_mut(*start), *len)],
            Memory::Staged(bytes) => vec![(bytes.as_ptr().cast_mut(), bytes.len())],
        }
    }

    /// Copies host memory that CUDA does not know, because the program may change it as soon as the CUDA call returns.
    fn staged(self) -> Memory {
        match self {
            Memory::Host { len, pageable: true, .. } => {
                let mut bytes = vec![0; len];
                copy_pieces(&[(bytes.as_mut_ptr(), len)], &self.pieces());
                Memory::Staged(bytes)
            }
            other => other,
        }
    }
}

/// Returns the `len` bytes at an address. Fails if they are device memory, but not in one buffer or adjacent mappings
/// of cuMemMap. If `side` is `Device`, also fails if they are host memory, but not in one range that CUDA knows.
fn resolve(state: &State, side: Side, len: usize, need: Access) -> Result<Memory> {
    let address = side.address();
    if gpus::with(|gpu| gpu.is_device_address(address)) {
        return Ok(Memory::Gpu(gpus::with(|gpu| gpu.spans(address, len as u64, need))?));
    }
    let mut is_known = false;
    if let Some(range) = host::find(state, address as usize) {
        is_known = range.len - (address as usize - range.start) >= len;
    }
    ensure(!matches!(side, Device(_)) || is_known || len == 0, Error::INVALID_VALUE)?;
    Ok(Memory::Host { start: address as usize, len, pageable: !is_known })
}

/// Copies `len` bytes after the earlier work of `stream`. If `stream` is `None`, the default stream is used. The lock
/// that CUDA calls take is not held during the copy, because an invalid host address raises SIGSEGV, and the program's
/// signal handler may call CUDA.
pub(super) fn copy(to: Side, from: Side, len: usize, stream: Option<StreamHandle>) -> Result {
    let turn = Turn::of(stream.unwrap_or(0))?;
    let when = pointer::when(&turn, stream, &[to.address(), from.address()]);
    let destination = resolve(&turn.state, to, len, Access::ReadWrite)?;
    let source = resolve(&turn.state, from, len, Access::Read)?;
    if let Memory::Host { pageable: true, .. } = destination {
        return submit(turn, When::Now, destination, source);
    }
    if when == When::Now || turn.is_idle() {
        return submit(turn, when, destination, source);
    }
    drop(turn);
    let staged = source.staged();
    submit(Turn::of(stream.unwrap_or(0))?, When::InOrder, destination, staged)
}

fn submit(turn: Turn, when: When, destination: Memory, source: Memory) -> Result {
    turn.submit(when, move || {
        copy_pieces(&destination.pieces(), &source.pieces());
        Ok(())
    })
}

fn copy_pieces(to: &[(*mut u8, usize)], from: &[(*mut u8, usize)]) {
    let mut to = to.iter().copied();
    let mut from = from.iter().copied();
    let mut destination = (ptr::null_mut(), 0);
    let mut source = (ptr::null_mut(), 0);
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
        // SAFETY: GPU memory stays mapped while its `Span`s exist, and the callers keep them. Host memory is valid by
        // CUDA's contract with the program. `ptr::copy` allows overlap.
        unsafe {
            ptr::copy(source.0, destination.0, len);
            destination = (destination.0.add(len), destination.1 - len);
            source = (source.0.add(len), source.1 - len);
        }
    }
}

pub(super) fn write(to: Vec<Span>, bytes: &[u8]) {
    let from = (bytes.as_ptr().cast_mut(), bytes.len());
    copy_pieces(&Memory::Gpu(to).pieces(), &[from]);
}

/// Fills `count` elements with `value` (bytes in memory order). If `stream` is `None`, the default stream is used.
pub(super) fn fill<const SIZE: usize>(
    value: [u8; SIZE],
    address: u64,
    count: usize,
    stream: Option<StreamHandle>,
) -> Result {
    let turn = Turn::of(stream.unwrap_or(0))?;
    let when = pointer::when(&turn, stream, &[address]);
    let len = valid(count.checked_mul(SIZE))?;
    ensure(address.is_multiple_of(SIZE as u64), Error::INVALID_VALUE)?;
    let memory = resolve(&turn.state, Device(address), len, Access::ReadWrite)?;
    turn.submit(when, move || {
        for (start, len) in memory.pieces() {
            // SAFETY: the pieces stay mapped while `memory` exists. A piece ends where a block of device memory or the
            // filled range ends. Both ends are multiples of the element's size, so a piece holds whole elements.
            unsafe {
                if value == [value[0]; SIZE] {
                    start.write_bytes(value[0], len);
                } else {
                    for index in 0..len / SIZE {
                        start.cast::<[u8; SIZE]>().add(index).write(value);
                    }
                }
            }
        }
        Ok(())
    })
}
