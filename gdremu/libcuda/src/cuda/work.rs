//! Work in progress, which starts with a kernel.
//!
//! A stream is done at once with whatever else it is given: the calling thread does it. Behind a
//! kernel the stream has a queue and a thread: what may return early is left to them, what may not
//! waits for them. The default stream waits for all streams but non-blocking ones, and they for it.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::thread;

use super::entry::Current;
use super::error::{Error, Result};
use super::signals;
use super::state::{self, ContextHandle, State};
use super::stream::{self, StreamHandle};

/// The state, locked.
type Locked = MutexGuard<'static, State>;

/// What a stream does in its turn.
type Job = Box<dyn FnOnce() -> Result + Send>;

/// A stream of a context. All default streams of a context are one, numbered 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueId {
    pub(super) context: ContextHandle,
    stream: StreamHandle,
}

/// What a stream has not done yet. Every queue has a thread, and both end when nothing is left.
#[derive(Debug)]
pub(super) struct Queue {
    /// The first one is being done if its job is gone.
    tasks: VecDeque<Task>,
    /// It waits for the default stream, and the default stream for it.
    blocking: bool,
}

/// A place in a queue, passed when all work up to it is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    queue: QueueId,
    number: u64,
}

struct Task {
    /// Higher than those of all tasks before.
    number: u64,
    after: Vec<Point>,
    job: Option<Job>,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {} after {:?}", self.number, self.after)
    }
}

/// When a call's work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Before the call returns.
    Now,
    /// When its turn has come.
    InOrder,
}

/// Told about every change of the queues.
static CHANGED: Condvar = Condvar::new();

/// The queue that a stream of the calling thread is, and whether it is a blocking one.
fn queue(state: &State, current: Current, stream: StreamHandle) -> (QueueId, bool) {
    let created = state.streams.get(stream);
    let id = QueueId {
        context: created.map_or(current.context, |stream| stream.context),
        stream: created.map_or(0, |_| stream),
    };
    (id, created.is_none_or(|stream| stream.is_blocking()))
}

/// The context that the stream's work is done in.
pub(super) fn context(state: &State, current: Current, stream: StreamHandle) -> ContextHandle {
    queue(state, current, stream).0.context
}

/// What the stream has been given, for the default stream also what it waits for. NVIDIA's driver
/// tells no more either when it is asked about a stream, or to wait for one.
pub(super) fn of_stream(state: &State, current: Current, stream: StreamHandle) -> Vec<Point> {
    let (id, _) = queue(state, current, stream);
    if id.stream == 0 {
        before(state, current, stream)
    } else {
        ends(state, |other, _| *other == id)
    }
}

/// All that work given to the stream now would have to wait for.
fn before(state: &State, current: Current, stream: StreamHandle) -> Vec<Point> {
    let (id, blocking) = queue(state, current, stream);
    ends(state, |other, queue| {
        let default = id.stream == 0 || other.stream == 0;
        *other == id || other.context == id.context && blocking && queue.blocking && default
    })
}

/// All work of a context.
pub(super) fn all_of(state: &State, context: ContextHandle) -> Vec<Point> {
    ends(state, |id, _| id.context == context)
}

/// All work there is.
pub(super) fn all(state: &State) -> Vec<Point> {
    ends(state, |_, _| true)
}

/// The ends of the queues that `wanted` picks.
fn ends(state: &State, wanted: impl Fn(&QueueId, &Queue) -> bool) -> Vec<Point> {
    let end = |(id, queue): (&QueueId, &Queue)| {
        let number = queue.tasks.back()?.number;
        wanted(id, queue).then_some(Point { queue: *id, number })
    };
    state.queues.iter().filter_map(end).collect()
}

/// Whether all work up to the point is done.
pub(super) fn is_passed(state: &State, point: &Point) -> bool {
    let first = state
        .queues
        .get(&point.queue)
        .and_then(|queue| queue.tasks.front());
    first.is_none_or(|task| task.number > point.number)
}

/// Waits until all points are passed.
///
/// # Errors
/// As [`check`] afterwards.
pub(super) fn wait(state: Locked, context: ContextHandle, points: &[Point]) -> Result<Locked> {
    let state = passed(state, points);
    check(&state, context)?;
    Ok(state)
}

/// Waits until all points are passed, whatever became of their contexts.
pub(super) fn passed(mut state: Locked, points: &[Point]) -> Locked {
    while !points.iter().all(|point| is_passed(&state, point)) {
        state = changed(state);
    }
    state
}

/// # Errors
/// What a kernel did wrong; CONTEXT_IS_DESTROYED.
pub(super) fn check(state: &State, context: ContextHandle) -> Result {
    state.check()?;
    let context = state.contexts.get(context);
    context.map(|_| ()).ok_or(Error::CONTEXT_IS_DESTROYED)
}

/// Whether nothing is before what the stream is given now.
pub(super) fn is_idle(state: &State, current: Current, stream: StreamHandle) -> bool {
    before(state, current, stream).is_empty()
}

/// Has the stream do something: at once, in the calling thread, if nothing is before it.
///
/// # Errors
/// What the job answers, if it is done before this returns; what a kernel did wrong.
pub(super) fn submit(
    state: Locked,
    current: Current,
    stream: StreamHandle,
    when: When,
    job: impl FnOnce() -> Result + Send + 'static,
) -> Result {
    let before = before(&state, current, stream);
    if before.is_empty() {
        drop(state);
        return job();
    }
    match when {
        When::Now => {
            let context = context(&state, current, stream);
            drop(wait(state, context, &before)?);
            job()
        }
        When::InOrder => enqueue(state, current, stream, Vec::new(), job).map(|_| ()),
    }
}

/// Leaves something to the stream's thread, after all that is before it and `also`.
///
/// # Errors
/// OUT_OF_MEMORY: there can be no more threads.
pub(super) fn enqueue(
    mut state: Locked,
    current: Current,
    stream: StreamHandle,
    also: Vec<Point>,
    job: impl FnOnce() -> Result + Send + 'static,
) -> Result<Point> {
    let (id, blocking) = queue(&state, current, stream);
    let mut after = before(&state, current, stream);
    after.retain(|point| point.queue != id); // Its own come first anyway.
    after.extend(also);
    let number = state.next_id();
    let task = Task {
        number,
        after,
        job: Some(Box::new(job)),
    };
    if let Some(queue) = state.queues.get_mut(&id) {
        queue.tasks.push_back(task);
    } else {
        let worker = thread::Builder::new().name("gdremu-stream".into());
        worker
            .spawn(move || serve(id))
            .map_err(|_| Error::OUT_OF_MEMORY)?;
        let tasks = VecDeque::from([task]);
        state.queues.insert(id, Queue { tasks, blocking });
    }
    Ok(Point { queue: id, number })
}

/// A stream's thread.
fn serve(id: QueueId) {
    signals::leave_to_the_program();
    let mut state = state::lock();
    while let Some(task) = state.queues.get(&id).and_then(|queue| queue.tasks.front()) {
        if !task.after.iter().all(|point| is_passed(&state, point)) {
            state = changed(state);
            continue;
        }
        let job = first(&mut state, id).and_then(|task| task.job.take());
        drop(state);
        // What a panic leaves half done is the kernel's memory.
        let result = job.map_or(Ok(()), |job| {
            catch_unwind(AssertUnwindSafe(job)).unwrap_or(Err(Error::UNKNOWN))
        });
        state = state::lock();
        if let Some(queue) = state.queues.get_mut(&id) {
            queue.tasks.pop_front();
        }
        if let Err(error) = result {
            fail(&mut state, error);
        }
        CHANGED.notify_all();
    }
    state.queues.remove(&id);
    CHANGED.notify_all();
}

fn first(state: &mut State, id: QueueId) -> Option<&mut Task> {
    state.queues.get_mut(&id)?.tasks.front_mut()
}

/// Waits for the next change of the queues.
fn changed(state: Locked) -> Locked {
    CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// After a failure nothing is done any more, in no context, and calls answer the error.
fn fail(state: &mut State, error: Error) {
    state.failed.get_or_insert(error);
    let contexts: Vec<_> = state.queues.keys().map(|id| id.context).collect();
    for context in contexts {
        if let Some(context) = state.contexts.get(context) {
            context.stop.store(true, Ordering::Relaxed);
        }
        drop_waiting(state, context);
    }
}

/// Ends the work of a context that is no more: kernels are stopped, what waits is dropped.
pub(super) fn end(mut state: Locked, context: ContextHandle) -> Locked {
    drop_waiting(&mut state, context);
    while !all_of(&state, context).is_empty() {
        state = changed(state);
    }
    state
}

/// Drops what a context's streams have not begun with.
fn drop_waiting(state: &mut State, context: ContextHandle) {
    let queues = state.queues.iter_mut();
    for (_, queue) in queues.filter(|(id, _)| id.context == context) {
        queue.tasks.retain(|task| task.job.is_none());
    }
    CHANGED.notify_all();
}

/// # Errors
/// INVALID_HANDLE for what is no stream; what [`check`] answers for its context.
pub(super) fn check_stream(state: &State, current: Current, stream: StreamHandle) -> Result {
    stream::check(state, stream)?;
    check(state, context(state, current, stream))
}
