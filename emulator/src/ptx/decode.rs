//! One instruction: its opcode with suffixes, and its arguments.

use std::sync::atomic::Ordering;

use super::instruction::{
    Address, Atomic, Binary, Comparison, Operand, Operation, Register, Space,
};
use super::types::{Kind, Type, Width};

/// An argument as it is written.
#[derive(Clone, Debug)]
pub(super) enum Argument {
    Value(Operand),
    /// `[base + offset]`
    Address(Operand, u64),
    /// `{a, b}`
    Vector(Vec<Operand>),
    /// `p|q`
    Pair(Register, Register),
    /// What has no other meaning: a label.
    Name(String),
}

/// An instruction, but for the place of its label.
pub(super) enum Decoded {
    Operation(Operation),
    Branch(String),
}

type Result<T> = std::result::Result<T, String>;

/// Decodes an instruction.
///
/// # Errors
/// What is wrong with it, or that it is beyond what is understood.
pub(super) fn decode(opcode: &str, arguments: &[Argument]) -> Result<Decoded> {
    let (name, suffixes) = opcode.split_once('.').unwrap_or((opcode, ""));
    let suffixes = suffixes.split('.').filter(|suffix| !suffix.is_empty());
    let mut instruction = Parts {
        opcode,
        suffixes: suffixes.collect(),
        arguments,
        used: 0,
    };
    let decoded = match name {
        "bra" => {
            instruction.skip(&["uni"]);
            Decoded::Branch(instruction.label()?)
        }
        _ => Decoded::Operation(instruction.operation(name)?),
    };
    instruction.finish()?;
    Ok(decoded)
}

/// What is left of an instruction to look at.
struct Parts<'a> {
    opcode: &'a str,
    suffixes: Vec<&'a str>,
    arguments: &'a [Argument],
    used: usize,
}

impl<'a> Parts<'a> {
    fn operation(&mut self, name: &str) -> Result<Operation> {
        Ok(match name {
            "mov" => {
                let kind = self.kind()?;
                Operation::Move {
                    kind,
                    to: self.register()?,
                    from: self.value()?,
                }
            }
            "not" => {
                let kind = self.computed()?;
                Operation::Not {
                    kind,
                    to: self.register()?,
                    from: self.value()?,
                }
            }
            "neg" => {
                let kind = self.integer()?;
                Operation::Negate {
                    kind,
                    to: self.register()?,
                    from: self.value()?,
                }
            }
            "add" => self.binary(Binary::Add)?,
            "sub" => self.binary(Binary::Subtract)?,
            "div" => self.binary(Binary::Divide)?,
            "rem" => self.binary(Binary::Remainder)?,
            "min" => self.binary(Binary::Minimum)?,
            "max" => self.binary(Binary::Maximum)?,
            "shl" => self.binary(Binary::ShiftLeft)?,
            "shr" => self.binary(Binary::ShiftRight)?,
            "and" => self.binary(Binary::And)?,
            "or" => self.binary(Binary::Or)?,
            "xor" => self.binary(Binary::Xor)?,
            "mul" => {
                let what = self.part_of_product()?;
                self.binary(what)?
            }
            "mad" => {
                let what = self.part_of_product()?;
                let kind = self.integer()?;
                Operation::MultiplyAdd {
                    what,
                    kind,
                    to: self.register()?,
                    a: self.value()?,
                    b: self.value()?,
                    c: self.value()?,
                }
            }
            "cvt" => {
                let (to_kind, from_kind) = (self.integer()?, self.integer()?);
                Operation::Convert {
                    to_kind,
                    from_kind,
                    to: self.register()?,
                    from: self.value()?,
                }
            }
            "cvta" => self.convert_address()?,
            "setp" => {
                let what = self.comparison()?;
                let kind = self.integer()?;
                let (to, opposite) = self.predicates()?;
                let what = what.of(kind);
                Operation::Compare {
                    what: what.0,
                    kind: what.1,
                    to,
                    opposite,
                    a: self.value()?,
                    b: self.value()?,
                }
            }
            "selp" => {
                let kind = self.kind()?;
                Operation::Select {
                    kind,
                    to: self.register()?,
                    a: self.value()?,
                    b: self.value()?,
                    predicate: self.register()?,
                }
            }
            "ld" => self.load()?,
            "st" => self.store()?,
            "atom" => self.atomic(true)?,
            "red" => self.atomic(false)?,
            "fence" => {
                let order = self.pick(&[
                    ("sc", Ordering::SeqCst),
                    ("acq_rel", Ordering::AcqRel),
                    ("acquire", Ordering::Acquire),
                    ("release", Ordering::Release),
                ]);
                self.skip(&SCOPES);
                Operation::Fence(order.unwrap_or(Ordering::AcqRel))
            }
            "membar" => {
                self.skip(&["cta", "gl", "sys"]);
                Operation::Fence(Ordering::SeqCst)
            }
            "bar" | "barrier" => self.barrier()?,
            "nanosleep" => {
                self.skip(&["u32"]);
                self.value()?;
                Operation::Pause
            }
            "trap" => Operation::Trap,
            "ret" | "exit" => {
                self.skip(&["uni"]);
                Operation::Exit
            }
            _ => return Err(self.beyond()),
        })
    }

    fn binary(&mut self, what: Binary) -> Result<Operation> {
        let kind = if matches!(what, Binary::And | Binary::Or | Binary::Xor) {
            self.computed()?
        } else {
            self.integer()?
        };
        Ok(Operation::Binary {
            what,
            kind,
            to: self.register()?,
            a: self.value()?,
            b: self.value()?,
        })
    }

    fn part_of_product(&mut self) -> Result<Binary> {
        self.pick(&[
            ("lo", Binary::MultiplyLow),
            ("hi", Binary::MultiplyHigh),
            ("wide", Binary::MultiplyWide),
        ])
        .ok_or_else(|| self.beyond())
    }

    /// From and to generic addresses, which for global memory are the same.
    fn convert_address(&mut self) -> Result<Operation> {
        let to_space = self.skip(&["to"]);
        let shared = match self.pick(&[("shared", true), ("shared::cta", true), ("global", false)])
        {
            Some(shared) => shared,
            None => return Err(self.beyond()),
        };
        let kind = self.integer()?;
        let (to, from) = (self.register()?, self.value()?);
        Ok(match (shared, to_space) {
            (false, _) => Operation::Move { kind, to, from },
            (true, true) => Operation::GenericToShared { to, from },
            (true, false) => Operation::SharedToGeneric { to, from },
        })
    }

    fn comparison(&mut self) -> Result<Compared> {
        use Comparison::*;
        self.pick(&[
            ("eq", Compared(Equal, false)),
            ("ne", Compared(NotEqual, false)),
            ("lt", Compared(Less, false)),
            ("le", Compared(LessOrEqual, false)),
            ("gt", Compared(Greater, false)),
            ("ge", Compared(GreaterOrEqual, false)),
            ("lo", Compared(Less, true)),
            ("ls", Compared(LessOrEqual, true)),
            ("hi", Compared(Greater, true)),
            ("hs", Compared(GreaterOrEqual, true)),
        ])
        .ok_or_else(|| self.beyond())
    }

    fn predicates(&mut self) -> Result<(Register, Option<Register>)> {
        match self.argument()? {
            Argument::Value(Operand::Register(to)) => Ok((*to, None)),
            Argument::Pair(to, opposite) => Ok((*to, Some(*opposite))),
            _ => Err(self.wrong("a predicate is missing")),
        }
    }

    fn load(&mut self) -> Result<Operation> {
        let order = self.order(("acquire", Ordering::Acquire));
        let space = self.space(&[
            ("param", Space::Parameters),
            ("param::entry", Space::Parameters),
        ]);
        let len = self.vector();
        let kind = self.kind()?;
        let to = match self.argument()? {
            Argument::Value(operand) => self.registers(&[*operand])?,
            Argument::Vector(elements) => self.registers(elements)?,
            _ => return Err(self.wrong("a register is missing")),
        };
        if to.len() != len {
            return Err(self.wrong("as many registers as it loads"));
        }
        Ok(Operation::Load {
            kind,
            order,
            to,
            from: self.address(space)?,
        })
    }

    fn store(&mut self) -> Result<Operation> {
        let order = self.order(("release", Ordering::Release));
        let space = self.space(&[]);
        let len = self.vector();
        let width = self.kind()?.width;
        let to = self.address(space)?;
        let from = match self.argument()? {
            Argument::Value(operand) => vec![*operand],
            Argument::Vector(elements) => elements.clone(),
            argument => return Err(self.no_value(argument)),
        };
        if from.len() != len {
            return Err(self.wrong("as many values as it stores"));
        }
        Ok(Operation::Store {
            width,
            order,
            to,
            from,
        })
    }

    /// atom, and red, which leaves the old value.
    fn atomic(&mut self, wants_old: bool) -> Result<Operation> {
        let order = self
            .pick(&[
                ("relaxed", Ordering::Relaxed),
                ("acquire", Ordering::Acquire),
                ("release", Ordering::Release),
                ("acq_rel", Ordering::AcqRel),
            ])
            .unwrap_or(Ordering::Relaxed);
        self.skip(&SCOPES);
        let space = self.space(&[]);
        let what = self
            .pick(&[
                ("add", Atomic::Combine(Binary::Add)),
                ("and", Atomic::Combine(Binary::And)),
                ("or", Atomic::Combine(Binary::Or)),
                ("xor", Atomic::Combine(Binary::Xor)),
                ("min", Atomic::Combine(Binary::Minimum)),
                ("max", Atomic::Combine(Binary::Maximum)),
                ("exch", Atomic::Exchange),
                ("cas", Atomic::CompareAndSwap),
            ])
            .ok_or_else(|| self.beyond())?;
        let kind = self.integer()?;
        if kind.width < Width::W32 {
            return Err(self.beyond());
        }
        let to = if wants_old {
            Some(self.register()?)
        } else {
            None
        };
        let at = self.address(space)?;
        let a = self.value()?;
        let b = if what == Atomic::CompareAndSwap {
            self.value()?
        } else {
            a
        };
        Ok(Operation::Atomic {
            what,
            kind,
            order,
            to,
            at,
            a,
            b,
        })
    }

    fn barrier(&mut self) -> Result<Operation> {
        self.skip(&["cta"]);
        let wait = self
            .pick(&[("sync", true), ("arrive", false)])
            .ok_or_else(|| self.beyond())?;
        self.skip(&["aligned"]);
        let number = self.value()?;
        let threads = if self.used < self.arguments.len() {
            Some(self.value()?)
        } else {
            None
        };
        if !wait && threads.is_none() {
            return Err(self.wrong("how many threads take part is missing"));
        }
        Ok(Operation::Barrier {
            number,
            threads,
            wait,
        })
    }

    /// `.weak`, `.volatile`, …, with their scopes; `strong` is the one that only loads or stores
    /// have.
    fn order(&mut self, strong: (&str, Ordering)) -> Ordering {
        self.skip(&["mmio"]);
        let order = self.pick(&[
            ("weak", Ordering::Relaxed),
            ("volatile", Ordering::Relaxed),
            ("relaxed", Ordering::Relaxed),
            strong,
        ]);
        self.skip(&SCOPES);
        order.unwrap_or(Ordering::Relaxed)
    }

    fn space(&mut self, more: &[(&str, Space)]) -> Space {
        let space = self
            .pick(&[
                ("global", Space::Global),
                ("shared", Space::Shared),
                ("shared::cta", Space::Shared),
            ])
            .or_else(|| self.pick(more));
        // Caches make no difference.
        while self.suffixes.first().is_some_and(|suffix| {
            CACHES.contains(suffix) || suffix.starts_with("L1::") || suffix.starts_with("L2::")
        }) {
            self.suffixes.remove(0);
        }
        space.unwrap_or(Space::Generic)
    }

    fn vector(&mut self) -> usize {
        self.pick(&[("v2", 2), ("v4", 4)]).unwrap_or(1)
    }

    /// Takes the next suffix if it is one of these.
    fn pick<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        let next = *self.suffixes.first()?;
        let (_, chosen) = choices.iter().find(|(name, _)| *name == next)?;
        self.suffixes.remove(0);
        Some(*chosen)
    }

    /// Takes the next suffix if it is one of these, which make no difference.
    fn skip(&mut self, names: &[&str]) -> bool {
        let found = self
            .suffixes
            .first()
            .is_some_and(|suffix| names.contains(suffix));
        if found {
            self.suffixes.remove(0);
        }
        found
    }

    fn kind(&mut self) -> Result<Type> {
        let next = self.suffixes.first().copied();
        let kind = next.and_then(Type::named).ok_or_else(|| self.beyond())?;
        self.suffixes.remove(0);
        Ok(kind)
    }

    fn integer(&mut self) -> Result<Type> {
        let kind = self.kind()?;
        if kind.is_integer() {
            Ok(kind)
        } else {
            Err(self.beyond())
        }
    }

    /// Integers and predicates.
    fn computed(&mut self) -> Result<Type> {
        let kind = self.kind()?;
        if kind.kind == Kind::Float {
            Err(self.beyond())
        } else {
            Ok(kind)
        }
    }

    fn argument(&mut self) -> Result<&'a Argument> {
        let argument = self.arguments.get(self.used);
        self.used += 1;
        argument.ok_or_else(|| self.wrong("an operand is missing"))
    }

    fn value(&mut self) -> Result<Operand> {
        match self.argument()? {
            Argument::Value(operand) => Ok(*operand),
            argument => Err(self.no_value(argument)),
        }
    }

    fn no_value(&self, argument: &Argument) -> String {
        match argument {
            Argument::Name(name) => format!("nothing is called {name} here"),
            _ => self.wrong("a value is missing"),
        }
    }

    fn register(&mut self) -> Result<Register> {
        match self.argument()? {
            Argument::Value(Operand::Register(register)) => Ok(*register),
            _ => Err(self.wrong("a register is missing")),
        }
    }

    fn registers(&self, operands: &[Operand]) -> Result<Vec<Register>> {
        let register = |operand: &Operand| match operand {
            Operand::Register(register) => Ok(*register),
            _ => Err(self.wrong("a register is missing")),
        };
        operands.iter().map(register).collect()
    }

    fn address(&mut self, space: Space) -> Result<Address> {
        match self.argument()? {
            Argument::Address(base, offset) => Ok(Address {
                space,
                base: *base,
                offset: *offset,
            }),
            _ => Err(self.wrong("an address is missing")),
        }
    }

    fn label(&mut self) -> Result<String> {
        match self.argument()? {
            Argument::Name(name) => Ok(name.clone()),
            _ => Err(self.wrong("a label is missing")),
        }
    }

    fn finish(&self) -> Result<()> {
        if !self.suffixes.is_empty() {
            return Err(self.beyond());
        }
        if self.used < self.arguments.len() {
            return Err(self.wrong("too many operands"));
        }
        Ok(())
    }

    fn beyond(&self) -> String {
        format!(
            "{} is not among what the emulated GPU understands",
            self.opcode
        )
    }

    fn wrong(&self, why: &str) -> String {
        format!("{}: {why}", self.opcode)
    }
}

/// All of them are served as the widest.
const SCOPES: [&str; 4] = ["cta", "cluster", "gpu", "sys"];

const CACHES: [&str; 8] = ["ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"];

/// A comparison, and whether it is one of unsigned values whatever the type says.
#[derive(Clone, Copy)]
struct Compared(Comparison, bool);

impl Compared {
    fn of(self, kind: Type) -> (Comparison, Type) {
        let Compared(what, unsigned) = self;
        if unsigned {
            let width = kind.width;
            let kind = Kind::Unsigned;
            (what, Type { kind, width })
        } else {
            (what, kind)
        }
    }
}
