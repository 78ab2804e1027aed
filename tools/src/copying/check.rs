//! Every byte of a copy, and those around it, against CUDA's view.
#![forbid(unsafe_code)]

use anyhow::Result;

use super::{Copy, Direction, Method};
use crate::clock::Clock;
use crate::cuda::PinnedBuffer;
use crate::verify::{difference, pattern};

/// Bytes on each side of a copy that must stay as they were. The host side of copies begins so far
/// into the host buffer.
pub(super) const GUARD: usize = 128;

/// What is on both sides where no byte was copied to.
const POISON: u8 = 0xee;

/// Makes the copy once. What is wrong with it; none if every byte is right.
///
/// # Errors
/// A call of CUDA's or of the library's fails.
pub(super) fn check(
    method: &Method,
    copy: Copy,
    host: &mut PinnedBuffer,
    clock: &Clock,
) -> Result<Option<String>> {
    let bytes = pattern(copy.size, 3);
    match copy.direction {
        Direction::Write => {
            let poison = vec![POISON; device_len(method, copy)];
            method.buffer.write(&poison)?;
            host.as_mut_slice()[GUARD..][..copy.size].copy_from_slice(&bytes);
            method.time(copy, host, GUARD, 1, clock)?;
            written(method, copy, host)
        }
        Direction::Read => {
            let mut device = vec![POISON; device_len(method, copy)];
            device[copy.offset..][..copy.size].copy_from_slice(&bytes);
            method.buffer.write(&device)?;
            read(method, copy, host, clock)
        }
    }
}

/// What is wrong after the last of many copies: for writes with that one, for reads with one more.
///
/// # Errors
/// As for [`check`].
pub(super) fn check_last(
    method: &Method,
    copy: Copy,
    host: &mut PinnedBuffer,
    clock: &Clock,
) -> Result<Option<String>> {
    match copy.direction {
        Direction::Write => written(method, copy, host),
        Direction::Read => read(method, copy, host, clock),
    }
}

/// Bytes of the GPU buffer up to the copy's end, and a guard if there is room for one.
fn device_len(method: &Method, copy: Copy) -> usize {
    (copy.offset + copy.size + GUARD).min(method.buffer.len())
}

/// What is wrong in the GPU buffer, poisoned before, after the host's bytes were copied to it.
fn written(method: &Method, copy: Copy, host: &PinnedBuffer) -> Result<Option<String>> {
    let mut seen = vec![0; device_len(method, copy)];
    method.buffer.read(&mut seen)?;
    let wanted = &host.as_slice()[GUARD..][..copy.size];
    let (before, rest) = seen.split_at(copy.offset);
    let (copied, after) = rest.split_at(copy.size);
    Ok(difference(copied, wanted, "device byte")
        .or_else(|| poisoned(before, "device byte before the copy,"))
        .or_else(|| poisoned(after, "device byte after the copy,")))
}

/// Copies from the GPU buffer to host memory. What is wrong there.
fn read(
    method: &Method,
    copy: Copy,
    host: &mut PinnedBuffer,
    clock: &Clock,
) -> Result<Option<String>> {
    let mut device = vec![0; copy.offset + copy.size];
    method.buffer.read(&mut device)?;
    let all = GUARD + copy.size + GUARD;
    host.as_mut_slice()[..all].fill(POISON);
    method.time(copy, host, GUARD, 1, clock)?;
    let (before, rest) = host.as_slice()[..all].split_at(GUARD);
    let (copied, after) = rest.split_at(copy.size);
    Ok(difference(copied, &device[copy.offset..], "host byte")
        .or_else(|| poisoned(before, "host byte before the copy,"))
        .or_else(|| poisoned(after, "host byte after the copy,")))
}

fn poisoned(seen: &[u8], what: &str) -> Option<String> {
    difference(seen, &vec![POISON; seen.len()], what)
}
