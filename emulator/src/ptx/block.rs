//! A block: threads in turn, barriers, shared memory.

use super::grid::{Place, Stopped};
use super::memory::GlobalMemory;
use super::thread::{Next, Surroundings, Thread, Trap};

/// Instructions that a thread runs in its turn at most.
const TURN: usize = 64;

/// Barriers of a block.
const BARRIERS: usize = 16;

/// Where threads wait for each other.
#[derive(Debug, Default)]
struct Barrier {
    arrived: u64,
    /// How many complete it; all that have not ended if nobody said.
    expected: Option<u64>,
    waiting: Vec<usize>,
}

/// A block of threads.
#[derive(Debug)]
pub(super) struct Block {
    index: [u32; 3],
    threads: Vec<Thread>,
    /// Threads that wait for nothing.
    ready: Vec<usize>,
    /// Threads that have not ended.
    live: u64,
    barriers: [Barrier; BARRIERS],
    shared: Vec<u8>,
}

impl Block {
    pub(super) fn new(place: &Place<'_>, index: [u32; 3]) -> Self {
        let count: u32 = place.block.iter().product();
        let thread = |index| Thread::new(index, place.block, place.kernel.registers);
        Block {
            index,
            threads: (0..count).map(thread).collect(),
            ready: (0..count as usize).collect(),
            live: count.into(),
            barriers: Default::default(),
            shared: vec![0; place.shared_bytes() as usize],
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.live == 0
    }

    /// Gives each thread that can run a turn.
    ///
    /// # Errors
    /// A thread cannot go on, and so the launch cannot.
    pub(super) fn turn<M: GlobalMemory>(
        &mut self,
        place: &Place<'_>,
        global: &mut M,
    ) -> Result<(), Stopped> {
        for index in std::mem::take(&mut self.ready) {
            let mut around = Surroundings {
                place,
                block: self.index,
                shared: &mut self.shared,
                global: &mut *global,
            };
            let thread = &mut self.threads[index];
            let next = run(thread, &mut around).map_err(|trap| Stopped {
                trap,
                line: thread.instruction(&place.kernel.code).line,
                thread: index,
                block: self.index,
            })?;
            match next {
                Next::Continue | Next::Pause => self.ready.push(index),
                Next::Arrive {
                    barrier,
                    threads,
                    wait,
                } => self.arrive(index, barrier, threads, wait),
                Next::Exit => {
                    self.live -= 1;
                    (0..BARRIERS).for_each(|barrier| self.complete(barrier));
                }
            }
        }
        Ok(())
    }

    fn arrive(&mut self, thread: usize, barrier: u64, threads: Option<u64>, wait: bool) {
        let number = barrier as usize % BARRIERS;
        let barrier = &mut self.barriers[number];
        barrier.arrived += 1;
        barrier.expected = threads;
        if wait {
            barrier.waiting.push(thread);
        } else {
            self.ready.push(thread);
        }
        self.complete(number);
    }

    /// Lets the threads at a barrier go on if all have come.
    fn complete(&mut self, number: usize) {
        let barrier = &mut self.barriers[number];
        if barrier.arrived > 0 && barrier.arrived >= barrier.expected.unwrap_or(self.live) {
            self.ready.append(&mut barrier.waiting);
            *barrier = Barrier::default();
        }
    }
}

/// A thread's turn.
fn run<M: GlobalMemory>(
    thread: &mut Thread,
    around: &mut Surroundings<'_, M>,
) -> Result<Next, Trap> {
    for _ in 0..TURN {
        match thread.step(around)? {
            Next::Continue => {}
            next => return Ok(next),
        }
    }
    Ok(Next::Continue)
}
