//! Runs the work of streams. GPU kernels and host functions go to a queue of their stream, and a thread runs the queue.
//! If the queue is empty, other work, such as a copy, runs at once in the calling thread. Else asynchronous work is
//! added to the queue, and synchronous work waits. The default stream and all blocking streams wait for each other.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, PoisonError};
use std::thread;

use nix::sys::signal::SigSet;

use super::state::{self, ContextHandle, Current, Locked, Point, Queue, QueueId, State, StreamHandle, Task};
use super::{capture, entry};
use crate::error::{Error, Result, ensure};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Now,
    InOrder,
}

/// Threads that wait for the end of work sleep on this. It is notified when a stream's work is done or dropped.
static CHANGED: Condvar = Condvar::new();

/// A stream during a CUDA call that uses it. The call holds the lock of this library's contexts, streams and memory.
pub(super) struct Turn {
    pub(super) state: Locked,
    pub(super) current: Current,
    stream: StreamHandle,
    pub(super) queue: QueueId,
    blocking: bool,
}

impl Turn {
    pub(super) fn of(stream: StreamHandle) -> Result<Turn> {
        let state = state::lock();
        let current = state.current()?;
        state.check_stream(stream)?;
        let mut queue = QueueId { context: current.context, stream: 0 };
        let mut blocking = true;
        if let Ok(created) = state.streams.get(stream) {
            queue = QueueId { context: created.context, stream };
            blocking = created.blocking;
        }
        Ok(Turn { state, current, stream, queue, blocking })
    }

    pub(super) fn check_capture(&mut self) -> Result {
        capture::check_stream(&mut self.state, self.current, self.stream)
    }

    /// Returns the work that cuStreamQuery asks about and cuStreamSynchronize waits for, as with NVIDIA's driver. It is
    /// the stream's own work, and for the default stream also the work of other streams that it waits for.
    pub(super) fn own_work(&self) -> Vec<Point> {
        match self.queue.stream {
            0 => self.work_before(),
            _ => self.state.queues.ends(|id, _| *id == self.queue),
        }
    }

    /// Returns the work that new work of the stream must wait for.
    fn work_before(&self) -> Vec<Point> {
        self.state.queues.ends(|id, queue| {
            let default = self.queue.stream == 0 || id.stream == 0;
            *id == self.queue || id.context == self.queue.context && self.blocking && queue.blocking && default
        })
    }

    pub(super) fn is_idle(&self) -> bool {
        self.work_before().is_empty()
    }

    /// Runs a job in the stream's order. With `When::Now`, or if the stream is idle, the calling thread runs the job,
    /// and its error is returned. Otherwise the job is queued.
    pub(super) fn submit(mut self, when: When, job: impl FnOnce() -> Result + Send + 'static) -> Result {
        self.check_capture()?;
        let before = self.work_before();
        if when == When::InOrder && !before.is_empty() {
            return self.enqueue(None, job).map(drop);
        }
        drop(wait(self.state, self.queue.context, &before)?);
        job()
    }

    /// Queues a job for the stream's thread. The job starts after the stream's earlier work, and after the work up to
    /// `other`, a position in another stream's queue.
    pub(super) fn enqueue(
        mut self,
        other: Option<Point>,
        job: impl FnOnce() -> Result + Send + 'static,
    ) -> Result<Point> {
        self.check_capture()?;
        let id = self.queue;
        let mut after = self.work_before();
        after.extend(other);
        after.retain(|point| point.queue != id); // The queue runs its own work in order anyway.
        let number = self.state.next_id();
        let queues = &mut self.state.queues.0;
        if !queues.contains_key(&id) {
            let worker = thread::Builder::new().name("gdremu-stream".into());
            worker.spawn(move || serve(id)).map_err(|_| Error::OUT_OF_MEMORY)?;
        }
        let queue = queues.entry(id).or_insert(Queue { tasks: VecDeque::new(), blocking: self.blocking });
        queue.tasks.push_back(Task { number, after, job: Some(Box::new(job)) });
        Ok(Point { queue: id, number })
    }
}

pub(super) fn all_of(state: &State, context: ContextHandle) -> Vec<Point> {
    state.queues.ends(|id, _| id.context == context)
}

/// Waits until the queues have done all work up to `points`, which are positions in queues. Fails if [`check`] does.
pub(super) fn wait(state: Locked, context: ContextHandle, points: &[Point]) -> Result<Locked> {
    let state = passed(state, points);
    check(&state, context)?;
    Ok(state)
}

/// Waits until all work up to the points, which are positions in queues, is done. Unlike [`wait`], this does not fail
/// if a context was destroyed.
pub(super) fn passed(mut state: Locked, points: &[Point]) -> Locked {
    while !state.queues.are_passed(points) {
        state = changed(state);
    }
    state
}

/// Fails if queued work of the process, such as a GPU kernel, has failed, or if the context was destroyed.
pub(super) fn check(state: &State, context: ContextHandle) -> Result {
    state.check()?;
    ensure(state.contexts.get(context).is_ok(), Error::CONTEXT_IS_DESTROYED)
}

fn serve(id: QueueId) {
    let _ = SigSet::all().thread_block(); // Signals must go to the program's own threads.
    entry::forbid_calls();
    let mut state = state::lock();
    while let Some(task) = state.queues.first(id) {
        let after = task.after.clone();
        if !state.queues.are_passed(&after) {
            state = changed(state);
            continue;
        }
        let Some(job) = state.queues.first(id).and_then(|task| task.job.take()) else { break };
        drop(state);
        // AssertUnwindSafe: a panic leaves at most some memory of the job half written.
        let result = catch_unwind(AssertUnwindSafe(job)).unwrap_or(Err(Error::UNKNOWN));
        state = state::lock();
        if let Some(queue) = state.queues.0.get_mut(&id) {
            queue.tasks.pop_front();
        }
        if let Err(error) = result {
            fail(&mut state, error);
        }
        CHANGED.notify_all();
    }
    state.queues.0.remove(&id);
    CHANGED.notify_all();
}

fn changed(state: Locked) -> Locked {
    CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Stops the work of all contexts. All later calls return the error.
fn fail(state: &mut State, error: Error) {
    state.failed.get_or_insert(error);
    let contexts: Vec<ContextHandle> = state.queues.0.keys().map(|id| id.context).collect();
    for context in contexts {
        if let Ok(context) = state.contexts.get(context) {
            context.stop.store(true, Ordering::Relaxed);
        }
        drop_waiting(state, context);
    }
}

/// Ends the work of a removed context: drops its queued work and waits for its running work.
pub(super) fn end(mut state: Locked, context: ContextHandle) -> Locked {
    drop_waiting(&mut state, context);
    while !all_of(&state, context).is_empty() {
        state = changed(state);
    }
    state
}

fn drop_waiting(state: &mut State, context: ContextHandle) {
    for (id, queue) in &mut state.queues.0 {
        if id.context == context {
            queue.tasks.retain(|task| task.job.is_none());
        }
    }
    CHANGED.notify_all();
}

/// Waits for all work of the context `owner`, or of all contexts if `owner` is `None`, so that memory can be freed. The
/// calling thread need not have a current context, because the memory may belong to any context.
pub(super) fn finish(state: Locked, owner: Option<ContextHandle>) -> Result<Locked> {
    let work = state.queues.ends(|id, _| owner.is_none() || owner == Some(id.context));
    let state = passed(state, &work);
    state.check()?;
    Ok(state)
}
