//! Runs a launch of a GPU kernel on the calling thread.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread;

use super::kernel::{
    Access, DYNAMIC_SHARED, GRID_WINDOW, LOCAL_WINDOW, Launch, Operand, Operation, SHARED_WINDOW, Space, ThreadId,
    VARIABLES, WARP,
};

const WINDOWS: u64 = SHARED_WINDOW | LOCAL_WINDOW | GRID_WINDOW;

/// The number of instructions that a thread runs in one turn.
const TURN: usize = 64;

/// The memory that a GPU kernel shares with the CPU. An access has 1, 2, 4 or 8 bytes, and its address is a multiple of
/// this size. Implementations must not split an access, or change the order of accesses.
pub trait GlobalMemory {
    fn load(&mut self, address: u64, size: usize) -> Result<u64, Fault>;

    fn store(&mut self, address: u64, size: usize, value: u64) -> Result<(), Fault>;

    /// Changes a value as one atomic access, and returns the old one.
    fn update(&mut self, address: u64, size: usize, change: &Change<'_>) -> Result<u64, Fault>;
}

pub type Change<'a> = dyn Fn(u64) -> u64 + 'a;

/// The error of an access that the GPU kernel may not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// The reason why a thread cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// There is no memory at this address, or the access is not permitted.
    IllegalAddress(u64),
    /// This address is not a multiple of the size of the access.
    MisalignedAddress(u64),
    Explicit,
}

/// A launch that ended early, and the instruction that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    pub trap: Trap,
    /// The line of the instruction in the PTX text.
    pub line: u32,
    /// The index of the thread in its block.
    pub thread: u32,
    pub block: u64,
}

/// Runs a launch until it ends, `stop` is set, or a thread cannot go on. Calls `after_turns` each time that all threads
/// of the running blocks have had a turn.
pub fn run<M: GlobalMemory>(
    launch: &Launch,
    memory: &mut M,
    stop: &AtomicBool,
    mut after_turns: impl FnMut(),
) -> Result<(), Stopped> {
    let mut memory = GridMemory { global: memory, barrier: [0; 8] };
    let mut waiting = 0..launch.grid.iter().map(|size| u64::from(*size)).product();
    let mut blocks = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        while blocks.len() < launch.resident as usize
            && let Some(index) = waiting.next()
        {
            blocks.push(Block::new(launch, index));
        }
        if blocks.is_empty() {
            break;
        }
        for block in &mut blocks {
            block.turn(launch, &mut memory)?;
        }
        blocks.retain(|block| block.live > 0);
        after_turns();
        // The GPU kernel may wait for another thread of the program, which may need this CPU.
        thread::yield_now();
    }
    Ok(())
}

fn coordinates(index: u64, sizes: [u32; 3]) -> [u64; 3] {
    let [width, height, _] = sizes.map(u64::from);
    [index % width, index / width % height, index / width / height]
}

struct GridMemory<'a, M> {
    global: &'a mut M,
    /// The memory for `grid.sync()`, a barrier for all blocks: a size that no code reads, and a word in which blocks
    /// count their arrivals.
    barrier: [u8; 8],
}

struct Block {
    index: u64,
    threads: Vec<Thread>,
    /// The indices of the threads that can run.
    ready: Vec<usize>,
    /// The indices of the threads that wait at the barrier of the block.
    waiting: Vec<usize>,
    live: usize,
    shared: Vec<u8>,
}

impl Block {
    fn new(launch: &Launch, index: u64) -> Self {
        let count: u32 = launch.block.iter().product();
        Block {
            index,
            threads: (0..count.into()).map(|thread| Thread::new(launch, index, thread)).collect(),
            ready: (0..count as usize).collect(),
            waiting: Vec::new(),
            live: count as usize,
            shared: vec![0; launch.kernel.shared + launch.shared],
        }
    }

    fn turn<M: GlobalMemory>(&mut self, launch: &Launch, memory: &mut GridMemory<'_, M>) -> Result<(), Stopped> {
        for index in mem::take(&mut self.ready) {
            let thread = &mut self.threads[index];
            let mut next = thread.next;
            let state = thread.turn(&mut next, launch, &mut self.shared, memory);
            thread.next = next;
            thread.state = state.map_err(|trap| Stopped {
                trap,
                line: launch.kernel.code[next - 1].line,
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
            // The barrier opens when all threads that have not ended wait at it.
            if self.waiting.len() == self.live {
                self.ready.append(&mut self.waiting);
            }
        }
        Ok(())
    }

    /// Looks at all threads in the warp of thread `index`. Releases those at a warp barrier whose mask contains no
    /// thread that is still running.
    fn release_warp(&mut self, index: usize) {
        let start = index - index % WARP as usize;
        let end = self.threads.len().min(start + WARP as usize);
        let warp = &mut self.threads[start..end];
        let mut running = 0;
        for (lane, thread) in warp.iter().enumerate() {
            if matches!(thread.state, State::Ready | State::AtBarrier) {
                running |= 1 << lane;
            }
        }
        for (lane, thread) in warp.iter_mut().enumerate() {
            let State::AtWarpBarrier(mask) = thread.state else {
                continue;
            };
            if mask & running == 0 {
                thread.state = State::Ready;
                self.ready.push(start + lane);
            }
        }
    }
}

#[derive(Clone, Copy)]
enum State {
    Ready,
    AtBarrier,
    /// The thread waits for the threads of its warp whose bits are set in this mask.
    AtWarpBarrier(u32),
    Ended,
}

struct Thread {
    state: State,
    registers: Box<[u64]>,
    local: Box<[u8]>,
    next: usize,
}

impl Thread {
    fn new(launch: &Launch, block: u64, index: u64) -> Self {
        let block = coordinates(block, launch.grid);
        let thread = coordinates(index, launch.block);
        let id = ThreadId { launch, block, thread, warp: index / WARP, lane: index % WARP };
        let mut registers = vec![0; launch.kernel.registers];
        registers[VARIABLES] = launch.variables;
        for (register, special) in &launch.kernel.specials {
            registers[*register] = special(&id);
        }
        Thread { state: State::Ready, registers: registers.into(), local: vec![0; launch.kernel.local].into(), next: 0 }
    }

    /// Runs up to [`TURN`] instructions from index `next` on. If one of them traps, `next` is the index after it.
    fn turn<M: GlobalMemory>(
        &mut self,
        next: &mut usize,
        launch: &Launch,
        shared: &mut [u8],
        grid: &mut GridMemory<'_, M>,
    ) -> Result<State, Trap> {
        let code = &launch.kernel.code[..];
        let registers = &mut self.registers[..];
        let mut memory = Memory { launch, shared, local: &mut self.local, grid };
        for _ in 0..TURN {
            let instruction = &code[*next];
            *next += 1;
            if registers[instruction.guard.0] != instruction.guard.1 {
                continue;
            }
            match &instruction.operation {
                Operation::Compute { to, function, operands: [a, b, c] } => {
                    registers[*to] = function(a.sum(registers), b.sum(registers), c.sum(registers));
                }
                Operation::Load { to, from } => {
                    let mut at = from.start(registers, to.len())?;
                    for to in to {
                        registers[*to] = from.element.extend(memory.load(from, at)?);
                        at += from.element.bytes() as u64;
                    }
                }
                Operation::Store { to, values } => {
                    let mut at = to.start(registers, values.len())?;
                    for value in values {
                        memory.store(to, at, value.sum(registers))?;
                        at += to.element.bytes() as u64;
                    }
                }
                Operation::Update { old, at, update, operands: [a, b] } => {
                    let a = a.sum(registers);
                    let b = b.sum(registers);
                    let address = at.start(registers, 1)?;
                    let before = memory.update(at, address, &|old| update(old, a, b))?;
                    registers[*old] = at.element.extend(before);
                }
                Operation::Fence => fence(Ordering::SeqCst),
                Operation::Branch(target) => *next = *target,
                Operation::Sleep => return Ok(State::Ready),
                Operation::Barrier => return Ok(State::AtBarrier),
                Operation::WarpBarrier(mask) => return Ok(State::AtWarpBarrier(mask.sum(registers) as u32)),
                Operation::Trap => return Err(Trap::Explicit),
                Operation::Exit => return Ok(State::Ended),
            }
        }
        Ok(State::Ready)
    }
}

impl Operand {
    fn sum(&self, registers: &[u64]) -> u64 {
        registers[self.register].wrapping_add(self.plus)
    }
}

impl Access {
    /// Returns the address of the first element. Fails if it is not a multiple of the size of all elements together.
    fn start(&self, registers: &[u64], elements: usize) -> Result<u64, Trap> {
        let start = self.address.sum(registers) & self.mask;
        match start & ((self.element.bytes() * elements) as u64 - 1) {
            0 => Ok(start),
            _ => Err(Trap::MisalignedAddress(start)),
        }
    }

    fn is_global(&self, address: u64) -> bool {
        self.space == Space::Generic && address & WINDOWS == 0
    }
}

/// The memory that a thread can access. Its functions are not inlined, because [`Thread::turn`], which calls them, runs
/// faster if it has all CPU registers.
struct Memory<'a, 'm, M> {
    launch: &'a Launch,
    shared: &'a mut [u8],
    local: &'a mut [u8],
    grid: &'a mut GridMemory<'m, M>,
}

impl<M: GlobalMemory> Memory<'_, '_, M> {
    /// Returns the bytes at an address of shared memory, local memory or the memory for `grid.sync()`.
    fn bytes(&mut self, access: &Access, address: u64) -> Result<&mut [u8], Fault> {
        let mut offset = (address & !WINDOWS) as usize;
        let is_shared = access.space == Space::Shared || address & SHARED_WINDOW != 0;
        let memory = if address & GRID_WINDOW != 0 {
            &mut self.grid.barrier[..]
        } else if access.space == Space::Local || !is_shared {
            &mut *self.local
        } else {
            if offset >= DYNAMIC_SHARED {
                offset = offset - DYNAMIC_SHARED + self.launch.kernel.shared;
            }
            &mut *self.shared
        };
        memory.get_mut(offset..offset.saturating_add(access.element.bytes())).ok_or(Fault)
    }

    #[inline(never)]
    fn load(&mut self, access: &Access, address: u64) -> Result<u64, Trap> {
        let size = access.element.bytes();
        let value = if access.is_global(address) {
            self.grid.global.load(address, size)
        } else if access.space == Space::Parameters {
            let start = address as usize;
            let bytes = self.launch.parameters.get(start..start.saturating_add(size));
            bytes.map(little_endian).ok_or(Fault)
        } else {
            self.bytes(access, address).map(|bytes| little_endian(bytes))
        };
        value.map_err(|Fault| Trap::IllegalAddress(address))
    }

    #[inline(never)]
    fn store(&mut self, access: &Access, address: u64, value: u64) -> Result<(), Trap> {
        let size = access.element.bytes();
        let stored = if access.is_global(address) {
            self.grid.global.store(address, size, value)
        } else {
            let bytes = self.bytes(access, address);
            bytes.map(|bytes| bytes.copy_from_slice(&value.to_le_bytes()[..size]))
        };
        stored.map_err(|Fault| Trap::IllegalAddress(address))
    }

    #[inline(never)]
    fn update(&mut self, access: &Access, address: u64, change: &Change<'_>) -> Result<u64, Trap> {
        if access.is_global(address) {
            let old = self.grid.global.update(address, access.element.bytes(), change);
            return old.map_err(|Fault| Trap::IllegalAddress(address));
        }
        let old = self.load(access, address)?;
        self.store(access, address, change(old))?;
        Ok(old)
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    if let Ok(word) = bytes.try_into() {
        return u32::from_le_bytes(word).into(); // This only makes the most frequent size faster.
    }
    let mut number = 0;
    for byte in bytes.iter().rev() {
        number = number << 8 | u64::from(*byte);
    }
    number
}
