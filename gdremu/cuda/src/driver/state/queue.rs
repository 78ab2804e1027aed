//! Queues: the work that streams have not done yet.

use std::collections::{BTreeMap, VecDeque};

use super::handles::{ContextHandle, StreamHandle};
use crate::error::Result;

/// A stream's unit of work.
pub(crate) type Job = Box<dyn FnOnce() -> Result + Send>;

/// A stream of a context. All default streams of a context are one, numbered 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueId {
    pub(crate) context: ContextHandle,
    pub(crate) stream: StreamHandle,
}

/// A place in a queue, passed when all work up to it is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) queue: QueueId,
    pub(crate) number: u64,
}

pub(crate) struct Task {
    /// Higher than those of all tasks before.
    pub(crate) number: u64,
    pub(crate) after: Vec<Point>,
    /// None once it has started.
    pub(crate) job: Option<Job>,
}

/// The unfinished work of a stream.
pub(crate) struct Queue {
    /// The first one is running if its job is gone.
    tasks: VecDeque<Task>,
    /// It waits for the default stream, and the default stream for it.
    pub(crate) blocking: bool,
}

/// All streams with unfinished work.
#[derive(Default)]
pub(crate) struct Queues(BTreeMap<QueueId, Queue>);

impl Queues {
    pub(crate) fn contains(&self, id: QueueId) -> bool {
        self.0.contains_key(&id)
    }

    /// The ends of the queues that `wanted` picks.
    pub(crate) fn ends(&self, wanted: impl Fn(&QueueId, &Queue) -> bool) -> Vec<Point> {
        let mut ends = Vec::new();
        for (id, queue) in &self.0 {
            if let Some(last) = queue.tasks.back()
                && wanted(id, queue)
            {
                ends.push(Point { queue: *id, number: last.number });
            }
        }
        ends
    }

    /// Returns whether all work up to the point is done.
    pub(crate) fn is_passed(&self, point: &Point) -> bool {
        let first = self.first(point.queue);
        first.is_none_or(|task| task.number > point.number)
    }

    /// The task of a queue that is running or will run next.
    pub(crate) fn first(&self, id: QueueId) -> Option<&Task> {
        self.0.get(&id)?.tasks.front()
    }

    /// Appends a task. `blocking` describes a queue that this creates.
    pub(crate) fn push(&mut self, id: QueueId, blocking: bool, task: Task) {
        let tasks = VecDeque::new();
        let queue = self.0.entry(id).or_insert(Queue { tasks, blocking });
        queue.tasks.push_back(task);
    }

    /// The job of the first task, which is running from now on.
    pub(crate) fn start_first(&mut self, id: QueueId) -> Job {
        let queue = self.0.get_mut(&id).expect("its thread removes it");
        let task = queue.tasks.front_mut().expect("its thread has seen it");
        task.job.take().expect("its thread runs each once")
    }

    pub(crate) fn finish_first(&mut self, id: QueueId) {
        if let Some(queue) = self.0.get_mut(&id) {
            queue.tasks.pop_front();
        }
    }

    pub(crate) fn remove(&mut self, id: QueueId) {
        self.0.remove(&id);
    }

    /// Drops the tasks of a context that have not started.
    pub(crate) fn drop_waiting(&mut self, context: ContextHandle) {
        for (id, queue) in &mut self.0 {
            if id.context == context {
                queue.tasks.retain(|task| task.job.is_none());
            }
        }
    }

    pub(crate) fn contexts(&self) -> Vec<ContextHandle> {
        self.0.keys().map(|id| id.context).collect()
    }
}
