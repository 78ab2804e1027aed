//! Runs a launch on the calling thread.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread;

use super::kernel::{Address, Operand, Operation, Register};
use super::launch::{Fault, GlobalMemory, Launch, Stopped, Trap};

/// How many instructions a thread runs in one turn.
const TURN: usize = 64;

/// Runs a launch to its end, or until `stop` is set.
///
/// # Errors
/// A thread cannot continue.
pub(crate) fn run<M: GlobalMemory>(
    launch: &Launch,
    memory: &mut M,
    stop: &AtomicBool,
) -> Result<(), Stopped> {
    let mut blocks: Vec<Block> = (0..launch.grid).map(|i| Block::new(launch, i)).collect();
    while !blocks.is_empty() && !stop.load(Ordering::Relaxed) {
        for block in &mut blocks {
            block.turn(launch, memory)?;
        }
        blocks.retain(|block| block.live > 0);
        // The program that the GPU kernel waits for may need this CPU.
        thread::yield_now();
    }
    Ok(())
}

/// A block of threads.
struct Block {
    index: u32,
    threads: Vec<Thread>,
    /// Threads that can run.
    ready: Vec<usize>,
    /// Threads that wait at the barrier.
    waiting: Vec<usize>,
    /// How many threads have not ended.
    live: usize,
    shared: Vec<u32>,
}

impl Block {
    fn new(launch: &Launch, index: u32) -> Self {
        let threads = launch.block as usize;
        Block {
            index,
            threads: (0..launch.block).map(|i| Thread::new(launch, i)).collect(),
            ready: (0..threads).collect(),
            waiting: Vec::new(),
            live: threads,
            shared: vec![0; launch.kernel.shared],
        }
    }

    /// Gives each thread that can run a turn.
    fn turn<M: GlobalMemory>(&mut self, launch: &Launch, memory: &mut M) -> Result<(), Stopped> {
        for index in mem::take(&mut self.ready) {
            let thread = &mut self.threads[index];
            let next = thread
                .turn(launch, self.index, &mut self.shared, memory)
                .map_err(|trap| Stopped {
                    trap,
                    line: launch.kernel.code[thread.next].line,
                    thread: thread.index,
                    block: self.index,
                })?;
            match next {
                Next::Continue => self.ready.push(index),
                Next::Wait => self.waiting.push(index),
                Next::End => self.live -= 1,
            }
            // The barrier is for all threads that have not ended.
            if self.waiting.len() == self.live {
                self.ready.append(&mut self.waiting);
            }
        }
        Ok(())
    }
}

/// What a thread does next.
#[derive(PartialEq)]
enum Next {
    Continue,
    /// Waits at the barrier.
    Wait,
    End,
}

struct Thread {
    /// In its block.
    index: u32,
    registers: Box<[u64]>,
    /// Index of the instruction that is next.
    next: usize,
}

impl Thread {
    fn new(launch: &Launch, index: u32) -> Self {
        Thread {
            index,
            registers: vec![0; launch.kernel.registers].into(),
            next: 0,
        }
    }

    fn turn<M: GlobalMemory>(
        &mut self,
        launch: &Launch,
        block: u32,
        shared: &mut [u32],
        memory: &mut M,
    ) -> Result<Next, Trap> {
        for _ in 0..TURN {
            match self.step(launch, block, shared, memory)? {
                Next::Continue => {}
                next => return Ok(next),
            }
        }
        Ok(Next::Continue)
    }

    /// Runs one instruction. A thread that cannot stays at it.
    fn step<M: GlobalMemory>(
        &mut self,
        launch: &Launch,
        block: u32,
        shared: &mut [u32],
        memory: &mut M,
    ) -> Result<Next, Trap> {
        let instruction = &launch.kernel.code[self.next];
        if let Some((predicate, wanted)) = instruction.guard
            && (self.registers[predicate] != 0) != wanted
        {
            self.next += 1;
            return Ok(Next::Continue);
        }
        let value = |operand| match operand {
            Operand::Register(register) => self.registers[register],
            Operand::Constant(constant) => constant,
            Operand::ThreadIndex => self.index.into(),
            Operand::BlockSize => launch.block.into(),
            Operand::BlockIndex => block.into(),
            Operand::GridSize => launch.grid.into(),
        };
        let mut result: Option<(Register, u64)> = None;
        let mut next = Next::Continue;
        match instruction.operation {
            Operation::Compute {
                to,
                function,
                operands: [a, b, c],
            } => result = Some((to, function(value(a), value(b), value(c)))),
            Operation::LoadParameter { to, parameter } => {
                result = Some((to, launch.parameters[parameter]));
            }
            Operation::LoadShared { to, from } => result = Some((to, shared[from].into())),
            Operation::StoreShared { to, value: new } => shared[to] = value(new) as u32,
            Operation::Load { to, from, order } => {
                let old = self.access(from, |address| memory.load(address, order))?;
                result = Some((to, old.into()));
            }
            Operation::Store {
                to,
                value: new,
                order,
            } => {
                let new = value(new) as u32;
                self.access(to, |address| memory.store(address, new, order))?;
            }
            Operation::Add {
                old_value,
                to,
                value: added,
                order,
            } => {
                let added = value(added) as u32;
                let old = self.access(to, |address| memory.add(address, added, order))?;
                result = old_value.map(|register| (register, old.into()));
            }
            Operation::Fence => fence(Ordering::AcqRel),
            Operation::Barrier => next = Next::Wait,
            Operation::Exit => next = Next::End,
            Operation::Branch(target) => {
                self.next = target;
                return Ok(next);
            }
        }
        if let Some((register, value)) = result {
            self.registers[register] = value;
        }
        self.next += 1;
        Ok(next)
    }

    /// Accesses global memory at an address that the alignment allows.
    fn access<T>(
        &self,
        address: Address,
        access: impl FnOnce(u64) -> Result<T, Fault>,
    ) -> Result<T, Trap> {
        let address = self.registers[address.base].wrapping_add(address.offset);
        if !address.is_multiple_of(4) {
            return Err(Trap::MisalignedAddress(address));
        }
        access(address).map_err(|Fault| Trap::IllegalAddress(address))
    }
}
