//! Stream capture. While a stream is capturing, calls that could wait for it, or change objects that the capture uses,
//! fail and make the capture invalid, as with NVIDIA's driver. gdremu captures nothing: it also refuses the work of a
//! capturing stream.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::state::{self, Capture, ContextHandle, Current, State, Stream, StreamHandle};
use crate::args::Out;
use crate::error::{Error, Result, ensure};

/// Values of CUstreamCaptureMode.
const GLOBAL: u32 = 0;
const RELAXED: u32 = 2;

/// Functions of gdremu that CUDA's documentation calls potentially unsafe during a capture.
const UNSAFE: &str = "cuEventQuery cuEventSynchronize cuMemAlloc cuMemAllocManaged cuMemFree cuMemFreeHost \
    cuMemHostAlloc cuMemHostRegister cuMemHostUnregister cuStreamQuery cuStreamSynchronize";

/// The number of captures that have not ended. It can be read without the lock that protects the list of captures.
static CAPTURING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// Refuses a call that endangers a capture, and makes the capture invalid.
pub(super) fn check_call(name: &str) -> Result {
    if CAPTURING.load(Ordering::SeqCst) == 0 || !UNSAFE.split(' ').any(|known| known == name) {
        return Ok(());
    }
    let mode = MODE.get();
    invalidate(&mut state::lock(), Error::STREAM_CAPTURE_UNSUPPORTED, |_, capture, _| match mode {
        RELAXED => false,
        _ if capture.thread == thread::current().id() => capture.mode != RELAXED,
        _ => mode == GLOBAL && capture.mode == GLOBAL,
    })
}

/// Invalidates the captures that `selects` chooses. Fails with `error` if there are any.
fn invalidate(state: &mut State, error: Error, selects: impl Fn(StreamHandle, &Capture, &Stream) -> bool) -> Result {
    let State { captures, streams, .. } = state;
    let mut result = Ok(());
    for (&handle, capture) in captures {
        if let Ok(stream) = streams.get(handle)
            && selects(handle, capture, stream)
        {
            capture.valid = false;
            result = Err(error);
        }
    }
    result
}

/// Refuses work and queries of a stream that captures, and of a default stream that would wait for such a stream.
pub(super) fn check_stream(state: &mut State, current: Current, stream: StreamHandle) -> Result {
    static SAID: AtomicBool = AtomicBool::new(false);

    if state.captures.contains_key(&stream) && !SAID.swap(true, Ordering::Relaxed) {
        eprintln!("gdremu: work of a capturing stream is not supported");
    }
    invalidate(state, Error::STREAM_CAPTURE_UNSUPPORTED, |capturing, _, _| capturing == stream)?;
    if state.streams.get(stream).is_ok() {
        return Ok(());
    }
    invalidate(state, Error::STREAM_CAPTURE_IMPLICIT, |_, _, capturing| {
        capturing.blocking && capturing.context == current.context
    })
}

pub(super) fn check_context(state: &mut State, context: ContextHandle) -> Result {
    invalidate(state, Error::STREAM_CAPTURE_UNSUPPORTED, |_, _, capturing| capturing.context == context)
}

pub(super) fn begin(state: &mut State, stream: StreamHandle, mode: u32) -> Result {
    state.check_stream(stream)?;
    ensure(mode <= RELAXED, Error::INVALID_VALUE)?;
    // The legacy default stream cannot be captured.
    ensure(state.streams.get(stream).is_ok(), Error::STREAM_CAPTURE_UNSUPPORTED)?;
    ensure(!state.captures.contains_key(&stream), Error::ILLEGAL_STATE)?;
    state.captures.insert(stream, Capture { mode, thread: thread::current().id(), valid: true });
    CAPTURING.store(state.captures.len(), Ordering::SeqCst);
    Ok(())
}

/// Returns the CUstreamCaptureStatus: 1 while the stream captures, 2 when the capture is invalid.
pub(super) fn status(state: &State, stream: StreamHandle) -> Result<u32> {
    state.check_stream(stream)?;
    Ok(match state.captures.get(&stream) {
        None => 0,
        Some(capture) if capture.valid => 1,
        Some(_) => 2,
    })
}

/// Ends a capture and stores a handle of its graph, which is empty. gdremu has no functions that take a graph.
pub(super) fn end(state: &mut State, stream: StreamHandle, graph: Out<usize>) -> Result {
    const GRAPH: usize = 0xC7 << 40;

    graph.set(0)?;
    state.check_stream(stream)?;
    let capture = *state.captures.get(&stream).ok_or(Error::ILLEGAL_STATE)?;
    ensure(capture.mode == RELAXED || capture.thread == thread::current().id(), Error::STREAM_CAPTURE_WRONG_THREAD)?;
    state.captures.remove(&stream);
    CAPTURING.store(state.captures.len(), Ordering::SeqCst);
    ensure(capture.valid, Error::STREAM_CAPTURE_INVALIDATED)?;
    graph.set(GRAPH)
}

/// Sets the calling thread's capture mode to the value at `mode`, and stores the previous mode there.
pub(super) fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) -> Result {
    let new = mode.as_in().get()?;
    ensure(new <= RELAXED, Error::INVALID_VALUE)?;
    mode.set(MODE.replace(new))
}
