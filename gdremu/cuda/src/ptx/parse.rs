//! PTX text to GPU kernels.

use std::collections::HashMap;

use super::kernel::{Address, Instruction, Kernel, Operand, Operation, Register, Width};
use super::opcodes::{Form, OPCODES};
use super::tokens::{ParseError, Result, Tokens, number};

/// Reads the GPU kernels of a PTX text.
///
/// # Errors
/// The first thing that is wrong or not supported.
pub(crate) fn parse(text: &str) -> Result<Vec<Kernel>> {
    let mut tokens = Tokens::new(text);
    let mut kernels = Vec::new();
    while tokens.peek().is_some() {
        match tokens.take()? {
            ".version" | ".target" => {
                tokens.take()?;
            }
            ".address_size" => tokens.expect("64")?,
            ".visible" => {
                tokens.expect(".entry")?;
                kernels.push(Entry::new(&mut tokens)?.parse()?);
            }
            word => return Err(tokens.unsupported(word)),
        }
    }
    Ok(kernels)
}

/// What a declared name stands for.
#[derive(Clone, Copy)]
enum Name {
    Parameter(usize, Width),
    Register(Register),
    Shared(usize),
}

/// A GPU kernel that is being read.
struct Entry<'t, 'a> {
    tokens: &'t mut Tokens<'a>,
    kernel: Kernel,
    names: HashMap<&'a str, Name>,
    /// Where each label stands in the code.
    labels: HashMap<&'a str, usize>,
    /// Branches that need their target: index in the code, label.
    branches: Vec<(usize, &'a str)>,
}

impl<'t, 'a> Entry<'t, 'a> {
    fn new(tokens: &'t mut Tokens<'a>) -> Result<Self> {
        let name = tokens.take()?.to_owned();
        Ok(Entry {
            tokens,
            kernel: Kernel {
                name,
                parameters: Vec::new(),
                registers: 0,
                shared: 0,
                code: Vec::new(),
            },
            names: HashMap::new(),
            labels: HashMap::new(),
            branches: Vec::new(),
        })
    }

    fn parse(mut self) -> Result<Kernel> {
        self.parameters()?;
        self.tokens.expect("{")?;
        loop {
            match self.tokens.take()? {
                "}" => break,
                ".reg" => self.registers()?,
                ".shared" => self.shared_variable()?,
                "@" => {
                    let wanted = !self.tokens.take_if("!");
                    let predicate = self.register()?;
                    let opcode = self.tokens.take()?;
                    self.instruction(Some((predicate, wanted)), opcode)?;
                }
                label if self.tokens.take_if(":") => {
                    if self.labels.insert(label, self.kernel.code.len()).is_some() {
                        return Err(self.tokens.error(format!("label {label} exists already")));
                    }
                }
                opcode => self.instruction(None, opcode)?,
            }
        }
        self.push(None, Operation::Exit);
        for (index, label) in self.branches {
            let branch = &mut self.kernel.code[index];
            let target = self.labels.get(label).ok_or_else(|| ParseError {
                line: branch.line,
                reason: format!("there is no label {label}"),
            })?;
            branch.operation = Operation::Branch(*target);
        }
        Ok(self.kernel)
    }

    /// `(.param .u64 a, .param .u32 b)`
    fn parameters(&mut self) -> Result {
        self.tokens.expect("(")?;
        if self.tokens.take_if(")") {
            return Ok(());
        }
        loop {
            self.tokens.expect(".param")?;
            let width = match self.tokens.take()? {
                ".u32" => Width::U32,
                ".u64" => Width::U64,
                word => return Err(self.tokens.unsupported(word)),
            };
            self.declare(Name::Parameter(self.kernel.parameters.len(), width))?;
            self.kernel.parameters.push(width);
            if !self.tokens.take_if(",") {
                return self.tokens.expect(")");
            }
        }
    }

    /// `.reg .u32 %a, %b;`
    fn registers(&mut self) -> Result {
        let word = self.tokens.take()?;
        if ![".pred", ".u32", ".u64"].contains(&word) {
            return Err(self.tokens.unsupported(word));
        }
        loop {
            self.declare(Name::Register(self.kernel.registers))?;
            self.kernel.registers += 1;
            if !self.tokens.take_if(",") {
                return self.tokens.expect(";");
            }
        }
    }

    /// `.shared .u32 a;`
    fn shared_variable(&mut self) -> Result {
        self.tokens.expect(".u32")?;
        self.declare(Name::Shared(self.kernel.shared))?;
        self.kernel.shared += 1;
        self.tokens.expect(";")
    }

    fn declare(&mut self, meaning: Name) -> Result {
        let name = self.tokens.take()?;
        match self.names.insert(name, meaning) {
            None => Ok(()),
            Some(_) => Err(self.tokens.error(format!("{name} is declared already"))),
        }
    }

    fn instruction(&mut self, guard: Option<(Register, bool)>, opcode: &str) -> Result {
        let (_, form) = OPCODES
            .iter()
            .find(|(name, _)| *name == opcode)
            .ok_or_else(|| self.tokens.unsupported(opcode))?;
        let operation = self.operation(*form)?;
        self.push(guard, operation);
        self.tokens.expect(";")
    }

    fn push(&mut self, guard: Option<(Register, bool)>, operation: Operation) {
        self.kernel.code.push(Instruction {
            line: self.tokens.line(),
            guard,
            operation,
        });
    }

    fn operation(&mut self, form: Form) -> Result<Operation> {
        Ok(match form {
            Form::Compute(count, function) => {
                let to = self.register()?;
                let mut operands = [Operand::Constant(0); 3];
                for operand in &mut operands[..count] {
                    self.tokens.expect(",")?;
                    *operand = self.value()?;
                }
                Operation::Compute {
                    to,
                    function,
                    operands,
                }
            }
            Form::LoadParameter(width) => Operation::LoadParameter {
                to: self.target()?,
                parameter: self.variable("a parameter of this width", |name| match name {
                    Name::Parameter(index, declared) if declared == width => Some(index),
                    _ => None,
                })?,
            },
            Form::LoadShared => Operation::LoadShared {
                to: self.target()?,
                from: self.shared()?,
            },
            Form::StoreShared => Operation::StoreShared {
                to: self.shared()?,
                value: self.next_value()?,
            },
            Form::Load(order) => Operation::Load {
                to: self.target()?,
                from: self.address()?,
                order,
            },
            Form::Store(order) => Operation::Store {
                to: self.address()?,
                value: self.next_value()?,
                order,
            },
            Form::AtomicAdd(order) => Operation::Add {
                old_value: Some(self.target()?),
                to: self.address()?,
                value: self.next_value()?,
                order,
            },
            Form::ReductionAdd(order) => Operation::Add {
                old_value: None,
                to: self.address()?,
                value: self.next_value()?,
                order,
            },
            Form::Branch => {
                let label = self.tokens.take()?;
                self.branches.push((self.kernel.code.len(), label));
                Operation::Branch(0) // Until all labels are known.
            }
            Form::Barrier => {
                self.tokens.expect("0")?;
                Operation::Barrier
            }
            Form::Fence => Operation::Fence,
            Form::Exit => Operation::Exit,
        })
    }

    fn register(&mut self) -> Result<Register> {
        let word = self.tokens.take()?;
        match self.names.get(word) {
            Some(Name::Register(register)) => Ok(*register),
            _ => Err(self.tokens.error(format!("{word} is not a register"))),
        }
    }

    /// A register that gets a result, in front of other operands.
    fn target(&mut self) -> Result<Register> {
        let register = self.register()?;
        self.tokens.expect(",")?;
        Ok(register)
    }

    fn value(&mut self) -> Result<Operand> {
        let word = self.tokens.take()?;
        Ok(match (word, self.names.get(word)) {
            ("%tid.x", _) => Operand::ThreadIndex,
            ("%ntid.x", _) => Operand::BlockSize,
            ("%ctaid.x", _) => Operand::BlockIndex,
            ("%nctaid.x", _) => Operand::GridSize,
            (_, Some(Name::Register(register))) => Operand::Register(*register),
            _ => match number(word) {
                Some(number) => Operand::Constant(number),
                None => return Err(self.tokens.error(format!("{word} is not a value"))),
            },
        })
    }

    /// A value behind other operands.
    fn next_value(&mut self) -> Result<Operand> {
        self.tokens.expect(",")?;
        self.value()
    }

    /// `[%register]` or `[%register+4]`
    fn address(&mut self) -> Result<Address> {
        self.tokens.expect("[")?;
        let base = self.register()?;
        let offset = if self.tokens.take_if("+") {
            self.tokens.number()?
        } else {
            0
        };
        self.tokens.expect("]")?;
        Ok(Address { base, offset })
    }

    fn shared(&mut self) -> Result<usize> {
        self.variable("a shared variable", |name| match name {
            Name::Shared(index) => Some(index),
            _ => None,
        })
    }

    /// `[name]`, where `pick` finds what is wanted behind the name.
    fn variable<T>(&mut self, wanted: &str, pick: impl Fn(Name) -> Option<T>) -> Result<T> {
        self.tokens.expect("[")?;
        let name = self.tokens.take()?;
        let found = self.names.get(name).copied().and_then(pick);
        let found = found.ok_or_else(|| self.tokens.error(format!("{name} is not {wanted}")))?;
        self.tokens.expect("]")?;
        Ok(found)
    }
}
