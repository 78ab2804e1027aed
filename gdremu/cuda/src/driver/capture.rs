//! Stream capture, as far as it concerns other calls. While a stream is capturing, CUDA refuses calls that could
//! wait for it or change objects that it refers to, and the capture becomes invalid. Nothing is ever captured,
//! since work of a capturing stream is refused too.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::state::{self, Capture, State, StreamHandle};
use crate::args::Out;
use crate::error::{Error, Result, ensure};

/// CUstreamCaptureMode.
const GLOBAL: u32 = 0;
const RELAXED: u32 = 2;

/// The calls that CUDA calls potentially unsafe during a capture, as far as the stand-in has them.
const UNSAFE: &str = "cuEventQuery cuEventSynchronize cuMemAlloc cuMemAllocManaged cuMemFree cuMemFreeHost \
    cuMemHostAlloc cuMemHostRegister cuMemHostUnregister cuStreamQuery cuStreamSynchronize";

/// Streams that capture, to be read without a lock.
static CAPTURING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// Refuses a call that endangers a capture, which then is invalid.
pub(super) fn check_call(name: &str) -> Result {
    if CAPTURING.load(Ordering::SeqCst) == 0 || !UNSAFE.split(' ').any(|known| known == name) {
        return Ok(());
    }
    let mode = MODE.get();
    let mut result = Ok(());
    let mut state = state::lock();
    let State { captures, streams, .. } = &mut *state;
    for (stream, capture) in captures {
        let is_endangered = match mode {
            _ if !streams.contains(*stream) => false, // It ended with its context.
            RELAXED => false,
            _ if capture.thread == thread::current().id() => capture.mode != RELAXED,
            _ => mode == GLOBAL && capture.mode == GLOBAL,
        };
        if is_endangered {
            capture.valid = false;
            result = Err(Error::STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    result
}

/// Refuses work and queries of a stream that captures.
pub(super) fn check_stream(state: &mut State, stream: StreamHandle) -> Result {
    static SAID: AtomicBool = AtomicBool::new(false);

    let Some(capture) = state.captures.get_mut(&stream) else {
        return Ok(());
    };
    if !SAID.swap(true, Ordering::Relaxed) {
        eprintln!("gdremu: work of a capturing stream is not supported");
    }
    capture.valid = false;
    Err(Error::STREAM_CAPTURE_UNSUPPORTED)
}

pub(super) fn begin(state: &mut State, stream: StreamHandle, mode: u32) -> Result {
    state.check_stream(stream)?;
    ensure(mode <= RELAXED, Error::INVALID_VALUE)?;
    // The legacy default stream cannot be captured.
    ensure(state.streams.contains(stream), Error::STREAM_CAPTURE_UNSUPPORTED)?;
    ensure(!state.captures.contains_key(&stream), Error::ILLEGAL_STATE)?;
    state.captures.insert(stream, Capture { mode, thread: thread::current().id(), valid: true });
    CAPTURING.store(state.captures.len(), Ordering::SeqCst);
    Ok(())
}

/// Ends the capture of a stream that is destroyed.
pub(super) fn forget(state: &mut State, stream: StreamHandle) {
    state.captures.remove(&stream);
    CAPTURING.store(state.captures.len(), Ordering::SeqCst);
}

/// There are no functions for the graph, which is empty.
pub(super) fn end(state: &mut State, stream: StreamHandle, graph: Out<usize>) -> Result {
    const GRAPH: usize = 0xC7 << 40;

    graph.set(0)?;
    let capture = *state.captures.get(&stream).ok_or(Error::ILLEGAL_STATE)?;
    forget(state, stream);
    ensure(capture.valid, Error::STREAM_CAPTURE_INVALIDATED)?;
    graph.set(GRAPH)
}

/// Sets the calling thread's mode, and returns the one before in the same place.
pub(super) fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) -> Result {
    let new = mode.as_in().get()?;
    ensure(new <= RELAXED, Error::INVALID_VALUE)?;
    mode.set(MODE.replace(new))
}
