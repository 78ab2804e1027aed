//! A launch: its blocks in turn, on the calling thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::block::Block;
use super::kernel::Kernel;
use super::memory::GlobalMemory;
use super::thread::Trap;

/// What to run.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: Arc<Kernel>,
    /// Blocks by dimension; none is 0.
    pub grid: [u32; 3],
    /// Threads of a block by dimension; none is 0.
    pub block: [u32; 3],
    /// The parameters' memory, as long as [`Kernel::parameter_bytes`] says.
    pub parameters: Vec<u8>,
    /// Bytes of shared memory beside the kernel's own.
    pub dynamic_shared: u32,
    /// Threads that run side by side at most; further blocks start when others have ended.
    pub resident_threads: u32,
}

/// How a launch was cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Why.
    pub trap: Trap,
    /// The line of the instruction.
    pub line: u32,
    /// The thread's index in its block.
    pub thread: usize,
    /// The block's index in the grid.
    pub block: [u32; 3],
}

/// What all threads of a launch have in common.
pub(super) struct Place<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) parameters: &'a [u8],
    dynamic_shared: u32,
}

impl Place<'_> {
    pub(super) fn dynamic_shared_start(&self) -> u32 {
        self.kernel.shared_bytes.next_multiple_of(16)
    }

    pub(super) fn shared_bytes(&self) -> u32 {
        self.dynamic_shared_start() + self.dynamic_shared
    }
}

/// Runs a launch to its end, or until `stop` is set.
///
/// # Errors
/// A thread met something that it cannot do.
pub fn run<M: GlobalMemory>(
    launch: &Launch,
    global: &mut M,
    stop: &AtomicBool,
) -> Result<(), Stopped> {
    let place = Place {
        kernel: &launch.kernel,
        grid: launch.grid,
        block: launch.block,
        parameters: &launch.parameters,
        dynamic_shared: launch.dynamic_shared,
    };
    let [width, height, depth] = launch.grid.map(u64::from);
    let mut waiting = (0..width * height * depth).map(|index| {
        let index = [
            index % width,
            index / width % height,
            index / width / height,
        ];
        index.map(|index| index as u32)
    });
    let threads: u32 = launch.block.iter().product();
    let room = (launch.resident_threads / threads).max(1) as usize;
    let mut resident: Vec<Block> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let free = room - resident.len();
        resident.extend(
            waiting
                .by_ref()
                .take(free)
                .map(|index| Block::new(&place, index)),
        );
        if resident.is_empty() {
            break;
        }
        for block in &mut resident {
            block.turn(&place, global)?;
        }
        resident.retain(|block| !block.has_ended());
        // Whoever the kernel waits for may need this CPU.
        thread::yield_now();
    }
    Ok(())
}
