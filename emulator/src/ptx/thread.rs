//! One thread of a kernel: its registers, and what each instruction does to them and to memory.

use std::sync::atomic::{Ordering, fence};
use std::time::{SystemTime, UNIX_EPOCH};

use super::alu;
use super::grid::Place;
use super::instruction::{
    Address, Atomic, Binary, Instruction, Operand, Operation, Register, Space, Special,
};
use super::memory::{Fault, GlobalMemory};
use super::parse::WARP_SIZE;
use super::types::{Kind, Type, Width};

/// Generic addresses of shared memory start here, where neither CPU nor GPU has any other memory.
const SHARED_WINDOW: u64 = 1 << 62;

/// Why a kernel cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// There is no memory that it may access so.
    IllegalAddress(u64),
    /// The address is no multiple of what is accessed there.
    MisalignedAddress(u64),
    /// It asked for it.
    Instruction,
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The next instruction.
    Continue,
    /// Lets others run.
    Pause,
    /// Arrives at a barrier, with so many threads if that is not all; waits there or goes on.
    Arrive {
        barrier: u64,
        threads: Option<u64>,
        wait: bool,
    },
    /// Nothing more.
    Exit,
}

/// A thread.
#[derive(Debug)]
pub(super) struct Thread {
    registers: Box<[u64]>,
    next: usize,
    /// Its index in the block, by dimension and in all.
    place: [u32; 3],
    index: u32,
}

/// What threads of a block have in common.
pub(super) struct Surroundings<'a, M> {
    pub(super) place: &'a Place<'a>,
    /// Index of the block.
    pub(super) block: [u32; 3],
    pub(super) shared: &'a mut [u8],
    pub(super) global: &'a mut M,
}

type Result<T = ()> = std::result::Result<T, Trap>;

impl Thread {
    pub(super) fn new(index: u32, block_size: [u32; 3], registers: u32) -> Self {
        let [width, height, _] = block_size;
        Thread {
            registers: vec![0; registers as usize].into(),
            next: 0,
            place: [
                index % width,
                index / width % height,
                index / width / height,
            ],
            index,
        }
    }

    /// The instruction that runs next.
    pub(super) fn instruction<'a>(&self, code: &'a [Instruction]) -> &'a Instruction {
        &code[self.next]
    }

    /// Runs one instruction.
    ///
    /// # Errors
    /// It cannot be run; the thread stays at it.
    pub(super) fn step<M: GlobalMemory>(
        &mut self,
        around: &mut Surroundings<'_, M>,
    ) -> Result<Next> {
        let instruction = &around.place.kernel.code[self.next];
        if let Some((predicate, wanted)) = instruction.guard
            && (self.get(predicate) != 0) != wanted
        {
            self.next += 1;
            return Ok(Next::Continue);
        }
        let mut next = Next::Continue;
        match &instruction.operation {
            Operation::Branch { target } => {
                self.next = *target;
                return Ok(Next::Continue);
            }
            Operation::Pause => next = Next::Pause,
            Operation::Trap => return Err(Trap::Instruction),
            Operation::Exit => return Ok(Next::Exit),
            Operation::Barrier {
                number,
                threads,
                wait,
            } => {
                next = Next::Arrive {
                    barrier: self.value(around, *number),
                    threads: threads.map(|threads| self.value(around, threads)),
                    wait: *wait,
                };
            }
            Operation::Fence(order) => fence(*order),
            Operation::Load {
                kind,
                order,
                to,
                from,
            } => self.load(around, *kind, *order, to, *from)?,
            Operation::Store {
                width,
                order,
                to,
                from,
            } => self.store(around, *width, *order, *to, from)?,
            Operation::Atomic {
                what,
                kind,
                order,
                to,
                at,
                a,
                b,
            } => {
                let address = self.address(around, *at, kind.width)?;
                let (a, b) = (self.value(around, *a), self.value(around, *b));
                let change = |old| atomic(*what, *kind, old, a, b);
                let old = update(around, address, kind.width, *order, change)?;
                if let Some(to) = to {
                    self.set(*to, kind.of(old));
                }
            }
            operation => self.compute(around, operation),
        }
        self.next += 1;
        Ok(next)
    }

    /// Instructions on registers alone.
    fn compute<M>(&mut self, around: &Surroundings<'_, M>, operation: &Operation) {
        let value = |operand: &Operand| self.value(around, *operand);
        let (to, result) = match operation {
            Operation::Move { kind, to, from } => (to, kind.of(value(from))),
            Operation::Not { kind, to, from } => (to, kind.of(!value(from))),
            Operation::Negate { kind, to, from } => (to, kind.of(value(from).wrapping_neg())),
            Operation::Binary {
                what,
                kind,
                to,
                a,
                b,
            } => (to, alu::binary(*what, *kind, value(a), value(b))),
            Operation::MultiplyAdd {
                what,
                kind,
                to,
                a,
                b,
                c,
            } => {
                let product = alu::binary(*what, *kind, value(a), value(b));
                let sum = product.wrapping_add(value(c));
                let wide = *what == Binary::MultiplyWide;
                (to, if wide { sum } else { kind.of(sum) })
            }
            Operation::Convert {
                to_kind,
                from_kind,
                to,
                from,
            } => (to, to_kind.of(from_kind.of(value(from)))),
            Operation::SharedToGeneric { to, from } => {
                (to, SHARED_WINDOW.wrapping_add(value(from)))
            }
            Operation::GenericToShared { to, from } => {
                (to, value(from).wrapping_sub(SHARED_WINDOW))
            }
            Operation::Compare {
                what,
                kind,
                to,
                opposite,
                a,
                b,
            } => {
                let holds = alu::compare(*what, *kind, value(a), value(b));
                if let Some(opposite) = opposite {
                    self.set(*opposite, u64::from(!holds));
                }
                (to, u64::from(holds))
            }
            Operation::Select {
                kind,
                to,
                a,
                b,
                predicate,
            } => {
                let chosen = if self.get(*predicate) != 0 { a } else { b };
                (to, kind.of(value(chosen)))
            }
            _ => unreachable!("what touches more than registers is done by step"),
        };
        self.set(*to, result);
    }

    fn load<M: GlobalMemory>(
        &mut self,
        around: &mut Surroundings<'_, M>,
        kind: Type,
        order: Ordering,
        to: &[Register],
        from: Address,
    ) -> Result {
        let bytes = kind.width.bytes();
        let start = self.address(around, from, kind.width)?;
        aligned(start.number(), u64::from(bytes) * to.len() as u64)?;
        for (index, register) in to.iter().enumerate() {
            let address = start.plus(index as u64 * u64::from(bytes));
            let value = match address {
                Located::Parameters(offset) => bytes_at(around.place.parameters, offset, bytes)
                    .map(read)
                    .ok_or(Trap::IllegalAddress(offset))?,
                Located::Shared(offset) => bytes_at(around.shared, offset, bytes)
                    .map(read)
                    .ok_or(Trap::IllegalAddress(offset))?,
                Located::Global(address) => around
                    .global
                    .load(address, kind.width, order)
                    .map_err(|Fault| Trap::IllegalAddress(address))?,
            };
            self.set(*register, kind.of(value));
        }
        Ok(())
    }

    fn store<M: GlobalMemory>(
        &mut self,
        around: &mut Surroundings<'_, M>,
        width: Width,
        order: Ordering,
        to: Address,
        from: &[Operand],
    ) -> Result {
        let bytes = width.bytes();
        let start = self.address(around, to, width)?;
        aligned(start.number(), u64::from(bytes) * from.len() as u64)?;
        for (index, operand) in from.iter().enumerate() {
            let value = self.value(around, *operand);
            match start.plus(index as u64 * u64::from(bytes)) {
                Located::Global(address) => around
                    .global
                    .store(address, width, value, order)
                    .map_err(|Fault| Trap::IllegalAddress(address))?,
                shared => {
                    update(around, shared, width, order, |_| value)?;
                }
            }
        }
        Ok(())
    }

    /// Where an address is, in the memory that it is in.
    fn address<M>(
        &self,
        around: &Surroundings<'_, M>,
        address: Address,
        width: Width,
    ) -> Result<Located> {
        let number = self
            .value(around, address.base)
            .wrapping_add(address.offset);
        aligned(number, width.bytes().into())?;
        Ok(match address.space {
            Space::Parameters => Located::Parameters(number),
            Space::Shared => Located::Shared(number & 0xffff_ffff),
            Space::Generic if number >= SHARED_WINDOW && number - SHARED_WINDOW < 1 << 32 => {
                Located::Shared(number - SHARED_WINDOW)
            }
            Space::Generic | Space::Global => Located::Global(number),
        })
    }

    fn value<M>(&self, around: &Surroundings<'_, M>, operand: Operand) -> u64 {
        match operand {
            Operand::Register(register) => self.get(register),
            Operand::Constant(constant) => constant,
            Operand::DynamicShared => around.place.dynamic_shared_start().into(),
            Operand::Special(special) => self.special(around, special),
        }
    }

    fn special<M>(&self, around: &Surroundings<'_, M>, special: Special) -> u64 {
        let narrow = match special {
            Special::Thread(dimension) => self.place[dimension],
            Special::BlockSize(dimension) => around.place.block[dimension],
            Special::Block(dimension) => around.block[dimension],
            Special::GridSize(dimension) => around.place.grid[dimension],
            Special::Lane => self.index % WARP_SIZE as u32,
            Special::Warp => self.index / WARP_SIZE as u32,
            Special::Nanoseconds => return nanoseconds(),
        };
        narrow.into()
    }

    fn get(&self, register: Register) -> u64 {
        self.registers[register as usize]
    }

    fn set(&mut self, register: Register, value: u64) {
        self.registers[register as usize] = value;
    }
}

/// An address, by the memory that it is in.
#[derive(Clone, Copy)]
enum Located {
    Parameters(u64),
    Shared(u64),
    Global(u64),
}

impl Located {
    fn number(self) -> u64 {
        let (Located::Parameters(number) | Located::Shared(number) | Located::Global(number)) =
            self;
        number
    }

    fn plus(self, bytes: u64) -> Self {
        match self {
            Located::Parameters(offset) => Located::Parameters(offset + bytes),
            Located::Shared(offset) => Located::Shared(offset + bytes),
            Located::Global(address) => Located::Global(address.wrapping_add(bytes)),
        }
    }
}

fn aligned(address: u64, bytes: u64) -> Result {
    if address.is_multiple_of(bytes) {
        Ok(())
    } else {
        Err(Trap::MisalignedAddress(address))
    }
}

fn bytes_at(memory: &[u8], offset: u64, bytes: u32) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    memory.get(start..start.checked_add(bytes as usize)?)
}

/// A value whose bytes are in memory order.
fn read(bytes: &[u8]) -> u64 {
    let mut value = [0; 8];
    value[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(value)
}

/// Changes a value in memory and returns the old one. Shared memory is this launch's host thread's
/// alone.
fn update<M: GlobalMemory>(
    around: &mut Surroundings<'_, M>,
    address: Located,
    width: Width,
    order: Ordering,
    mut change: impl FnMut(u64) -> u64,
) -> Result<u64> {
    let illegal = Trap::IllegalAddress(address.number());
    match address {
        Located::Global(address) => around
            .global
            .update(address, width, order, &mut change)
            .map_err(|Fault| illegal),
        Located::Shared(offset) => {
            let bytes = width.bytes();
            let old = bytes_at(around.shared, offset, bytes)
                .map(read)
                .ok_or(illegal)?;
            let new = change(old).to_le_bytes();
            let start = offset as usize; // In range, as the read was.
            around.shared[start..start + bytes as usize].copy_from_slice(&new[..bytes as usize]);
            Ok(old)
        }
        Located::Parameters(_) => Err(illegal),
    }
}

/// The new value that an atomic operation leaves.
fn atomic(what: Atomic, kind: Type, old: u64, a: u64, b: u64) -> u64 {
    let unsigned = Type {
        kind: Kind::Unsigned,
        width: kind.width,
    };
    match what {
        Atomic::Combine(what) => alu::binary(what, kind, old, a),
        Atomic::Exchange => a,
        Atomic::CompareAndSwap if unsigned.of(old) == unsigned.of(a) => b,
        Atomic::CompareAndSwap => old,
    }
}

fn nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}
