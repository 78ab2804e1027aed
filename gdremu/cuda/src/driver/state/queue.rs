//! Queues: the work that streams have not done yet.

use std::collections::{BTreeMap, VecDeque};

use super::handles::{ContextHandle, StreamHandle};
use crate::error::Result;

pub(crate) type Job = Box<dyn FnOnce() -> Result + Send>;

/// A stream of a context. All default streams of a context are one stream, with the number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueId {
    pub(crate) context: ContextHandle,
    pub(crate) stream: StreamHandle,
}

/// A position in a queue. It is passed when all work up to it is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) queue: QueueId,
    pub(crate) number: u64,
}

pub(crate) struct Task {
    pub(crate) number: u64,
    pub(crate) after: Vec<Point>,
    /// `None` once the task has started.
    pub(crate) job: Option<Job>,
}

pub(crate) struct Queue {
    /// The tasks that are not done. The first task is running if its job is `None`.
    pub(crate) tasks: VecDeque<Task>,
    /// True if this stream and the default stream wait for each other's work.
    pub(crate) blocking: bool,
}

#[derive(Default)]
pub(crate) struct Queues(pub(crate) BTreeMap<QueueId, Queue>);

impl Queues {
    /// Returns the position of the last task in each queue that has tasks and that `selects` chooses.
    pub(crate) fn ends(&self, selects: impl Fn(&QueueId, &Queue) -> bool) -> Vec<Point> {
        let mut ends = Vec::new();
        for (id, queue) in &self.0 {
            if let Some(last) = queue.tasks.back()
                && selects(id, queue)
            {
                ends.push(Point { queue: *id, number: last.number });
            }
        }
        ends
    }

    /// Returns the task of a queue that is running or will run next.
    pub(crate) fn first(&mut self, id: QueueId) -> Option<&mut Task> {
        self.0.get_mut(&id)?.tasks.front_mut()
    }

    pub(crate) fn is_passed(&self, point: &Point) -> bool {
        let first = self.0.get(&point.queue).and_then(|queue| queue.tasks.front());
        first.is_none_or(|task| task.number > point.number)
    }

    pub(crate) fn are_passed(&self, points: &[Point]) -> bool {
        points.iter().all(|point| self.is_passed(point))
    }
}
