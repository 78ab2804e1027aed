//! cuMemset: fills of 1, 2 and 4-byte elements.

use super::copy::device_memory;
use super::state::{self, StreamHandle};
use super::{pointer, work};
use crate::error::{Error, Result, ensure};

/// Fills `count` elements with `value`, whose bytes are in memory order. Asynchronously in a stream, otherwise in the
/// default stream.
pub(super) fn fill<const SIZE: usize>(
    value: [u8; SIZE],
    address: u64,
    count: usize,
    stream: Option<StreamHandle>,
) -> Result {
    let state = state::lock();
    let current = state.current()?;
    let when = pointer::when(&state, current, stream, &[address]);
    let stream = stream.unwrap_or(0);
    state.check_stream(stream)?;
    let len = count.checked_mul(SIZE).ok_or(Error::INVALID_VALUE)?;
    ensure(address.is_multiple_of(SIZE as u64), Error::INVALID_VALUE)?;
    let memory = device_memory(&state, address, len)?;
    work::submit(state, current, stream, when, move || {
        for (start, len) in memory.pieces() {
            fill_piece(start, len, value);
        }
        Ok(())
    })
}

fn fill_piece<const SIZE: usize>(start: *mut u8, len: usize, value: [u8; SIZE]) {
    // SAFETY: a piece of memory that is mapped while its owner, held by the caller, lives. Pieces
    // are whole blocks of device memory or the ends of an aligned range, so they hold whole
    // elements.
    unsafe {
        if value.iter().all(|byte| *byte == value[0]) {
            start.write_bytes(value[0], len);
        } else {
            for index in 0..len / SIZE {
                start.cast::<[u8; SIZE]>().add(index).write(value);
            }
        }
    }
}
