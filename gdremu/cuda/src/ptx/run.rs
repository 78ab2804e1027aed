//! Runs a launch on the calling thread.

use std::mem;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread;
use std::time::Instant;

use super::kernel::{
    Access, DYNAMIC_SHARED, LOCAL_WINDOW, Operand, Operation, SHARED_WINDOW, Space, Special, Value,
};
use super::launch::{Fault, GlobalMemory, Launch, Stopped, Trap};

/// How many instructions a thread runs in one turn.
const TURN: usize = 64;

/// Threads of a warp.
const WARP: usize = 32;

/// Runs a launch to its end, or until `stop` is set.
///
/// # Errors
/// A thread cannot continue.
pub(crate) fn run<M: GlobalMemory>(
    launch: &Launch,
    memory: &mut M,
    stop: &AtomicBool,
) -> Result<(), Stopped> {
    let mut waiting = 0..launch.grid.iter().map(|size| u64::from(*size)).product();
    let mut blocks = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let room = launch.resident.max(1) as usize - blocks.len();
        blocks.extend(waiting.by_ref().take(room).map(|index| Block::new(launch, index)));
        if blocks.is_empty() {
            break;
        }
        for block in &mut blocks {
            block.turn(launch, memory)?;
        }
        blocks.retain(|block| block.live > 0);
        // The program that the GPU kernel waits for may need this CPU.
        thread::yield_now();
    }
    Ok(())
}

/// The coordinates of an index in a grid or block.
fn coordinates(index: u64, sizes: [u32; 3]) -> [u64; 3] {
    let [width, height] = [sizes[0], sizes[1]].map(u64::from);
    [index % width, index / width % height, index / width / height]
}

/// A block of threads.
struct Block {
    index: u64,
    coordinates: [u64; 3],
    threads: Vec<Thread>,
    /// Threads that can run, and those that wait at the barrier.
    ready: Vec<usize>,
    waiting: Vec<usize>,
    /// How many threads have not ended.
    live: usize,
    shared: Vec<u8>,
}

impl Block {
    fn new(launch: &Launch, index: u64) -> Self {
        let count: u32 = launch.block.iter().product();
        Block {
            index,
            coordinates: coordinates(index, launch.grid),
            threads: (0..count).map(|index| Thread::new(launch, index)).collect(),
            ready: (0..count as usize).collect(),
            waiting: Vec::new(),
            live: count as usize,
            shared: vec![0; launch.kernel.shared + launch.shared],
        }
    }

    /// Gives each thread that can run a turn.
    fn turn<M: GlobalMemory>(&mut self, launch: &Launch, memory: &mut M) -> Result<(), Stopped> {
        for index in mem::take(&mut self.ready) {
            let thread = &mut self.threads[index];
            let mut surroundings =
                Surroundings { launch, block: self.coordinates, shared: &mut self.shared, memory };
            thread.state = thread.turn(&mut surroundings).map_err(|trap| Stopped {
                trap,
                line: launch.kernel.code[thread.next].line,
                thread: index as u32,
                block: self.index,
            })?;
            match thread.state {
                State::Ready => self.ready.push(index),
                State::AtBarrier => self.waiting.push(index),
                State::AtWarpBarrier(_) => self.release_warp(index),
                State::Ended => {
                    self.live -= 1;
                    self.release_warp(index);
                }
            }
            // Barriers are for threads that have not ended.
            if self.waiting.len() == self.live {
                self.ready.append(&mut self.waiting);
            }
        }
        Ok(())
    }

    /// Releases the threads of a warp whose barrier waited for this thread.
    fn release_warp(&mut self, index: usize) {
        let start = index - index % WARP;
        let end = self.threads.len().min(start + WARP);
        let warp = &mut self.threads[start..end];
        for thread in 0..warp.len() {
            let State::AtWarpBarrier(mask) = warp[thread].state else {
                continue;
            };
            let is_here = |(lane, thread): (usize, &Thread)| {
                mask >> lane & 1 == 0
                    || matches!(thread.state, State::AtWarpBarrier(_) | State::Ended)
            };
            if warp.iter().enumerate().all(is_here) {
                for (lane, member) in warp.iter_mut().enumerate() {
                    if mask >> lane & 1 != 0 && member.state != State::Ended {
                        member.state = State::Ready;
                        self.ready.push(start + lane);
                    }
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Ready,
    AtBarrier,
    /// Waits for the lanes in this mask.
    AtWarpBarrier(u32),
    Ended,
}

/// What a thread uses that is not its own.
struct Surroundings<'a, M> {
    launch: &'a Launch,
    block: [u64; 3],
    shared: &'a mut [u8],
    memory: &'a mut M,
}

struct Thread {
    /// In its block.
    index: u32,
    coordinates: [u64; 3],
    state: State,
    registers: Box<[u64]>,
    local: Box<[u8]>,
    /// Index of the instruction that is next.
    next: usize,
}

impl Thread {
    fn new(launch: &Launch, index: u32) -> Self {
        Thread {
            index,
            coordinates: coordinates(index.into(), launch.block),
            state: State::Ready,
            registers: vec![0; launch.kernel.registers].into(),
            local: vec![0; launch.kernel.local].into(),
            next: 0,
        }
    }

    fn turn<M: GlobalMemory>(&mut self, with: &mut Surroundings<'_, M>) -> Result<State, Trap> {
        for _ in 0..TURN {
            let instruction = &with.launch.kernel.code[self.next];
            let runs = instruction
                .guard
                .is_none_or(|(predicate, wanted)| (self.registers[predicate] != 0) == wanted);
            if !runs {
                self.next += 1;
                continue;
            }
            // A thread that cannot continue stays at its instruction.
            let state = self.step(&instruction.operation, with)?;
            match instruction.operation {
                Operation::Branch(target) => self.next = target,
                _ => self.next += 1,
            }
            if state != State::Ready || matches!(instruction.operation, Operation::Sleep) {
                return Ok(state);
            }
        }
        Ok(State::Ready)
    }

    /// Runs an operation.
    fn step<M: GlobalMemory>(
        &mut self,
        operation: &Operation,
        with: &mut Surroundings<'_, M>,
    ) -> Result<State, Trap> {
        match operation {
            Operation::Compute { to, result, function, of, operands } => {
                let mut numbers = [0; 4];
                for (number, operand) in numbers.iter_mut().zip(operands) {
                    *number = self.number(*operand, with);
                }
                self.registers[*to] = result.extend(function(*of, &numbers) as u64);
            }
            Operation::Load { to, from } => {
                let size = from.element.bytes();
                let at = self.address(from, to.len(), with)?;
                for (index, to) in to.iter().enumerate() {
                    let found = self.load(from, at + (index * size) as u64, with)?;
                    self.registers[*to] = from.element.extend(found);
                }
            }
            Operation::Store { to, values } => {
                let size = to.element.bytes();
                let at = self.address(to, values.len(), with)?;
                for (index, value) in values.iter().enumerate() {
                    let value = self.number(*value, with) as u64;
                    self.store(to, at + (index * size) as u64, value, with)?;
                }
            }
            Operation::Update { old, at: access, update, operands } => {
                let of = access.element;
                let operands = operands.map(|operand| self.number(operand, with));
                let change = |old| update(of.number(old), operands) as u64;
                let at = self.address(access, 1, with)?;
                let found = if self.is_global(access, at) {
                    let size = of.bytes();
                    let found = with.memory.update(at, size, access.order, &change);
                    found.map_err(|Fault| Trap::IllegalAddress(at))?
                } else {
                    let found = self.load(access, at, with)?;
                    self.store(access, at, change(found), with)?;
                    found
                };
                if let Some(old) = old {
                    self.registers[*old] = of.extend(found);
                }
            }
            Operation::Fence => fence(Ordering::SeqCst),
            Operation::Branch(_) | Operation::Sleep => {}
            Operation::Barrier => return Ok(State::AtBarrier),
            Operation::WarpBarrier(mask) => {
                return Ok(State::AtWarpBarrier(self.number(*mask, with) as u32));
            }
            Operation::Trap => return Err(Trap::Explicit),
            Operation::Exit => return Ok(State::Ended),
        }
        Ok(State::Ready)
    }

    /// The number that a value is.
    fn number<M>(&self, value: Value, with: &Surroundings<'_, M>) -> i128 {
        let launch = with.launch;
        let bits = match value.operand {
            Operand::Register(register) => self.registers[register],
            Operand::Constant(constant) => constant,
            Operand::Variable(offset) => launch.variables + offset,
            Operand::Special(special) => match special {
                Special::Thread(axis) => self.coordinates[axis],
                Special::BlockSize(axis) => launch.block[axis].into(),
                Special::Block(axis) => with.block[axis],
                Special::GridSize(axis) => launch.grid[axis].into(),
                Special::Lane => u64::from(self.index) % WARP as u64,
                Special::Warp => u64::from(self.index) / WARP as u64,
                Special::Time => nanoseconds(),
            },
        };
        value.as_type.number(bits)
    }

    /// The address of the first of some elements, which alignment allows.
    fn address<M>(
        &self,
        access: &Access,
        elements: usize,
        with: &Surroundings<'_, M>,
    ) -> Result<u64, Trap> {
        let base = self.number(access.base, with) as u64;
        let address = base.wrapping_add(access.offset);
        let address = address & u64::MAX >> (64 - access.base.as_type.bits);
        match address.is_multiple_of((access.element.bytes() * elements) as u64) {
            true => Ok(address),
            false => Err(Trap::MisalignedAddress(address)),
        }
    }

    fn is_global(&self, access: &Access, address: u64) -> bool {
        access.space == Space::Generic && address & (SHARED_WINDOW | LOCAL_WINDOW) == 0
    }

    /// Memory at an address that is not global.
    fn bytes<'m, M>(
        &'m mut self,
        access: &Access,
        address: u64,
        with: &'m mut Surroundings<'_, M>,
    ) -> Option<&'m mut [u8]> {
        let offset = (address & !(LOCAL_WINDOW | SHARED_WINDOW)) as usize;
        let size = access.element.bytes();
        let shared = access.space == Space::Shared || address & SHARED_WINDOW != 0;
        if access.space == Space::Local || access.space == Space::Generic && !shared {
            return self.local.get_mut(offset..)?.get_mut(..size);
        }
        let dynamic = offset.checked_sub(DYNAMIC_SHARED);
        let offset = dynamic.map_or(offset, |offset| with.launch.kernel.shared + offset);
        with.shared.get_mut(offset..)?.get_mut(..size)
    }

    fn load<M: GlobalMemory>(
        &mut self,
        access: &Access,
        address: u64,
        with: &mut Surroundings<'_, M>,
    ) -> Result<u64, Trap> {
        let size = access.element.bytes();
        let found = if self.is_global(access, address) {
            let found = with.memory.load(address, size, access.order);
            found.ok()
        } else if access.space == Space::Parameters {
            let parameters = with.launch.parameters.get(address as usize..);
            parameters.and_then(|from| Some(little_endian(from.get(..size)?)))
        } else {
            let found = self.bytes(access, address, with);
            found.map(|bytes| little_endian(bytes))
        };
        found.ok_or(Trap::IllegalAddress(address))
    }

    fn store<M: GlobalMemory>(
        &mut self,
        access: &Access,
        address: u64,
        value: u64,
        with: &mut Surroundings<'_, M>,
    ) -> Result<(), Trap> {
        let size = access.element.bytes();
        let stored = if self.is_global(access, address) {
            let stored = with.memory.store(address, size, value, access.order);
            stored.ok()
        } else {
            let place = self.bytes(access, address, with);
            place.map(|place| place.copy_from_slice(&value.to_le_bytes()[..size]))
        };
        stored.ok_or(Trap::IllegalAddress(address))
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    let byte = |number, byte: &u8| number << 8 | u64::from(*byte);
    bytes.iter().rev().fold(0, byte)
}

/// The time since some moment.
fn nanoseconds() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}
