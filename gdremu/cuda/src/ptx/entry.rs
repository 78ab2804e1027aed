//! The PTX text of a GPU kernel to instructions.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use super::declaration::{Declaration, Layout, Name, Names};
use super::kernel::{
    Access, DYNAMIC_SHARED, Instruction, Kernel, Operand, Operation, Register, Space, Special, Type, WARP,
};
use super::opcodes::{COMPUTATIONS, CONTROLS, Computation, Control, NO_EFFECT, PARTS, Part, UPDATES, find};
use super::tokens::{ParseError, Result, Tokens, number};

/// The most bytes of local memory that a thread of a GPU has.
const MAX_LOCAL: usize = 512 << 10;

/// The guard of instructions without one. Register 0 is no predicate.
const ALWAYS: (Register, u64) = (0, 0);

/// A GPU kernel that is being read.
pub(super) struct Entry<'t, 'a> {
    tokens: &'t mut Tokens<'a>,
    kernel: Kernel,
    /// The meanings of names in the module, in the GPU kernel, in each block of braces.
    scopes: Vec<Names<'a>>,
    /// The open blocks of braces, as numbers that are not used twice.
    open: Vec<usize>,
    braces: usize,
    registers: HashMap<(usize, &'a str), Register>,
    /// Where each label stands in the code, by its block of braces.
    labels: HashMap<(usize, &'a str), usize>,
    /// Branches that need their target, with index in the code, label, and the blocks where it can be.
    branches: Vec<(usize, &'a str, Vec<usize>)>,
    parameters: Layout,
    shared: Layout,
    /// Where each shared variable is that has been used.
    shared_variables: HashMap<(usize, &'a str), usize>,
    local: Layout,
    guard: (Register, u64),
}

impl<'t, 'a> Entry<'t, 'a> {
    /// Reads what follows the name, up to the first thing that is wrong or not supported.
    pub(super) fn parse(name: &str, tokens: &'t mut Tokens<'a>, names: &Names<'a>) -> Result<Kernel> {
        let mut entry = Entry {
            tokens,
            kernel: Kernel { name: name.to_owned(), ..Kernel::default() },
            scopes: vec![names.clone(), Names::new()],
            open: vec![0],
            braces: 0,
            registers: HashMap::from([((usize::MAX, ""), 0)]),
            labels: HashMap::new(),
            branches: Vec::new(),
            parameters: Layout::default(),
            shared: Layout::default(),
            shared_variables: HashMap::new(),
            local: Layout::default(),
            guard: ALWAYS,
        };
        entry.parameters()?;
        entry.limits()?;
        entry.body()?;
        entry.resolve_branches()?;
        let mut kernel = entry.kernel;
        kernel.registers = entry.registers.len();
        kernel.shared = entry.shared.len;
        kernel.local = entry.local.len;
        if kernel.local > MAX_LOCAL {
            return Err(entry.tokens.error("it needs too much local memory"));
        }
        Ok(kernel)
    }

    /// `(.param .u64 a, .param .align 8 .b8 b[24])`
    fn parameters(&mut self) -> Result {
        if !self.tokens.take_if("(") || self.tokens.take_if(")") {
            return Ok(());
        }
        loop {
            self.tokens.expect(".param")?;
            let declaration = Declaration::parse(self.tokens)?;
            let size = self.sized(declaration.name, declaration.size)?;
            let start = self.parameters.place(size, declaration.align);
            let start = self.sized(declaration.name, start)?;
            self.kernel.parameters.push((start, size));
            self.declare(declaration.name, Name::Parameter(start))?;
            if !self.tokens.take_if(",") {
                return self.tokens.expect(")");
            }
        }
    }

    /// `.maxntid 256, 1, 1`
    fn limits(&mut self) -> Result {
        loop {
            let word = self.tokens.take()?;
            if !matches!(word, ".maxntid" | ".reqntid" | ".minnctapersm" | ".maxnctapersm" | ".maxnreg") {
                return match word {
                    "{" => Ok(()),
                    _ => Err(self.tokens.unsupported(word)),
                };
            }
            let mut product = self.tokens.number()?;
            while self.tokens.take_if(",") {
                product = product.saturating_mul(self.tokens.number()?);
            }
            if word.ends_with("ntid") {
                self.kernel.max_threads = Some(product);
            }
        }
    }

    fn body(&mut self) -> Result {
        loop {
            match self.tokens.take()? {
                "{" => {
                    self.braces += 1;
                    self.open.push(self.braces);
                    self.scopes.push(Names::new());
                }
                "}" => {
                    self.scopes.pop();
                    self.open.pop();
                    if self.open.is_empty() {
                        self.push(Operation::Exit);
                        return Ok(());
                    }
                }
                ".reg" => self.declare_registers()?,
                space @ (".shared" | ".local") => {
                    let declaration = Declaration::parse(self.tokens)?;
                    let name = if space == ".shared" {
                        declaration.shared()
                    } else {
                        let size = declaration.size.unwrap_or(0);
                        let start = self.local.place(size, declaration.align);
                        Name::Local(self.sized(declaration.name, start)?)
                    };
                    self.declare(declaration.name, name)?;
                    self.tokens.expect(";")?;
                }
                ".loc" => self.tokens.skip_line()?,
                ".pragma" => {
                    self.tokens.skip_declaration()?;
                }
                label if self.tokens.take_if(":") => {
                    let scope = *self.open.last().unwrap_or(&0);
                    let at = self.kernel.code.len();
                    if self.labels.insert((scope, label), at).is_some() {
                        return Err(self.tokens.error(format!("label {label} exists already")));
                    }
                }
                ".param" | "call" | "call.uni" => {
                    let callee = self.tokens.callee().unwrap_or("another function");
                    return Err(self.tokens.unsupported(&format!("call of {callee}")));
                }
                "@" => {
                    let value = u64::from(!self.tokens.take_if("!"));
                    self.guard = (self.register(Type::PREDICATE)?, value);
                    let opcode = self.tokens.take()?;
                    self.instruction(opcode)?;
                    self.guard = ALWAYS;
                }
                opcode => self.instruction(opcode)?,
            }
        }
    }

    fn sized<T>(&self, name: &str, place: Option<T>) -> Result<T> {
        place.ok_or_else(|| self.tokens.error(format!("the size of {name} is not supported")))
    }

    /// `.reg .b32 %a, %b, %r<10>;`
    fn declare_registers(&mut self) -> Result {
        let word = self.tokens.take()?;
        let named = Type::named(word.trim_start_matches('.'));
        let Some(as_type) = named else {
            return Err(self.tokens.unsupported(&format!(".reg {word}")));
        };
        loop {
            let name = self.tokens.take()?;
            let mut limit = None;
            if self.tokens.take_if("<") {
                // Which registers are of this family could depend on others.
                if name.ends_with(|c: char| c.is_ascii_digit()) {
                    return Err(self.tokens.unsupported(&format!(".reg {name}<")));
                }
                limit = Some(self.tokens.number()? as u32);
                self.tokens.expect(">")?;
            }
            self.declare(name, Name::Register(as_type, limit))?;
            if !self.tokens.take_if(",") {
                return self.tokens.expect(";");
            }
        }
    }

    fn declare(&mut self, name: &'a str, meaning: Name) -> Result {
        let scope = self.scopes.last_mut();
        match scope.and_then(|names| names.insert(name, meaning)) {
            None => Ok(()),
            Some(_) => Err(self.tokens.error(format!("{name} is declared already"))),
        }
    }

    /// The meaning of a name, the index of its scope, and the name that was declared.
    fn look_up(&self, word: &'a str) -> Option<(Name, usize, &'a str)> {
        let family = word.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = word[family.len()..].parse::<u32>().ok();
        self.scopes.iter().enumerate().rev().find_map(|(scope, names)| {
            let exact = names.get(word).map(|name| (*name, scope, word));
            exact.or_else(|| match names.get(family)? {
                name @ Name::Register(_, Some(limit)) if number? < *limit => Some((*name, scope, word)),
                _ => None,
            })
        })
    }

    fn push(&mut self, operation: Operation) {
        self.kernel.code.push(Instruction { line: self.tokens.line(), guard: self.guard, operation });
    }

    /// Reads an instruction after its opcode. Errors name the opcode.
    fn instruction(&mut self, opcode: &'a str) -> Result {
        self.operation(opcode).map_err(|error| ParseError {
            reason: match error.reason.starts_with(opcode) {
                true => error.reason,
                false => format!("{opcode}: {}", error.reason),
            },
            ..error
        })
    }

    fn operation(&mut self, opcode: &'a str) -> Result {
        let of = typed(opcode);
        let mnemonic = opcode.split('.').next().unwrap_or_default();
        if let Some(control) = find(CONTROLS, opcode) {
            self.control(control)?;
        } else if matches!(mnemonic, "fence" | "membar") {
            self.push(Operation::Fence(match opcode.contains(".acq_rel") {
                true => Ordering::AcqRel,
                false => Ordering::SeqCst,
            }));
        } else if matches!(mnemonic, "ld" | "st" | "atom" | "red") {
            self.access(opcode, mnemonic)?;
        } else if let Some(("mov", of)) = of {
            self.mov(of)?;
        } else if let Some(("bfi", of)) = of {
            self.bfi(of)?;
        } else {
            let (stem, of) = match find(COMPUTATIONS, opcode) {
                Some(_) => (opcode, Type::U64),
                None => of.unwrap_or((opcode, Type::U64)),
            };
            let Some(computation) = find(COMPUTATIONS, stem) else {
                return Err(self.tokens.unsupported(opcode));
            };
            self.compute(opcode, &computation, of)?;
        }
        self.tokens.expect(";")
    }

    fn control(&mut self, control: Control) -> Result {
        let operation = match control {
            Control::Branch => {
                let label = self.tokens.take()?;
                let at = self.kernel.code.len();
                self.branches.push((at, label, self.open.clone()));
                Operation::Branch(0) // Until all labels are known.
            }
            Control::Barrier => {
                self.tokens.expect("0")?;
                Operation::Barrier
            }
            Control::WarpBarrier => Operation::WarpBarrier(self.operand(Type::U32)?),
            Control::Sleep => {
                self.operand(Type::U32)?;
                Operation::Sleep
            }
            Control::OtherGrids => return Ok(()),
            Control::Trap => Operation::Trap,
            Control::Exit => Operation::Exit,
        };
        self.push(operation);
        Ok(())
    }

    /// `register, value, …`
    fn compute(&mut self, opcode: &str, computation: &Computation, of: Type) -> Result {
        let types = computation.operands.iter().map(|kind| kind.resolve(of));
        let types = types.collect::<Option<Vec<_>>>();
        let (Some(result), Some(types)) = (computation.result.resolve(of), types) else {
            return Err(self.tokens.unsupported(opcode));
        };
        let to = self.register(result)?;
        let mut operands = [Operand::constant(0); 3];
        for (operand, as_type) in operands.iter_mut().zip(types) {
            self.tokens.expect(",")?;
            *operand = self.operand(as_type)?;
        }
        self.push_computation(computation, of, to, operands);
        Ok(())
    }

    /// `mov.u32 register, value`, `mov.b64 register, {low, high}` or `mov.b64 {low, high}, register`, as an
    /// instruction per element.
    fn mov(&mut self, of: Type) -> Result {
        let to_part = self.part(of)?;
        let to = self.elements(|entry| entry.target(to_part))?;
        self.tokens.expect(",")?;
        let from_part = self.part(of)?;
        let from = self.elements(|entry| entry.operand(from_part))?;
        if to.len() > 1 && from.len() > 1 {
            return Err(self.tokens.error("both sides have elements"));
        }
        for index in 0..to.len().max(from.len()) {
            let (name, of, to, operands) = match from[..] {
                [from] => {
                    let operands = [from, bit_of(index, to_part), Operand::constant(0)];
                    ("shr", Type::unsigned(of.bits), to[index], operands)
                }
                _ => {
                    let before = if index == 0 { 0 } else { to[0] };
                    let operands = [Operand::register(before), from[index], bit_of(index, from_part)];
                    ("{}", from_part, to[0], operands)
                }
            };
            if let Some(computation) = find(COMPUTATIONS, name) {
                self.push_computation(&computation, of, to, operands);
            }
        }
        Ok(())
    }

    /// `bfi.b64 register, field, value, position, length`
    fn bfi(&mut self, of: Type) -> Result {
        let to = self.register(of)?;
        let mut operands = [Operand::constant(0); 4];
        for (operand, as_type) in operands.iter_mut().zip([of, of, Type::U32, Type::U32]) {
            self.tokens.expect(",")?;
            *operand = self.operand(as_type)?;
        }
        let [field, value, at, len] = operands;
        let part = self.special("bfi", None);
        let rest = self.special("bfi.rest", None);
        let either = [Operand::register(part), Operand::register(rest), Operand::constant(0)];
        for (name, to, operands) in
            [("bfi.field", part, [field, at, len]), ("bfi.rest", rest, [value, at, len]), ("or", to, either)]
        {
            if let Some(computation) = find(COMPUTATIONS, name) {
                self.push_computation(&computation, of, to, operands);
            }
        }
        Ok(())
    }

    fn push_computation(&mut self, computation: &Computation, of: Type, to: Register, operands: [Operand; 3]) {
        self.push(Operation::Compute { to, function: computation.functions[of.index()], operands });
    }

    /// The type of each of the elements in braces that follow.
    fn part(&self, of: Type) -> Result<Type> {
        match self.tokens.elements() {
            1 => Ok(of),
            count @ (2 | 4) if of.bits / count >= 8 => Ok(Type::unsigned(of.bits / count)),
            _ => Err(self.tokens.error("this number of elements is not supported")),
        }
    }

    /// `{a, b}`, or one without braces.
    fn elements<T>(&mut self, mut element: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        if !self.tokens.take_if("{") {
            return Ok(vec![element(self)?]);
        }
        let mut elements = vec![element(self)?];
        while self.tokens.take_if(",") {
            elements.push(element(self)?);
        }
        self.tokens.expect("}")?;
        Ok(elements)
    }

    fn access(&mut self, opcode: &'a str, mnemonic: &str) -> Result {
        let Some(form) = AccessForm::parse(opcode, mnemonic) else {
            return Err(self.tokens.unsupported(opcode));
        };
        let operation = match (mnemonic, form.update) {
            ("ld", _) => {
                let to = self.elements(|entry| entry.target(form.element))?;
                self.check_count(opcode, to.len(), form.count)?;
                self.tokens.expect(",")?;
                Operation::Load { to, from: self.accessed(&form)? }
            }
            ("st", _) => {
                let to = self.accessed(&form)?;
                self.tokens.expect(",")?;
                let values = self.elements(|entry| entry.operand(form.element))?;
                self.check_count(opcode, values.len(), form.count)?;
                Operation::Store { to, values }
            }
            (_, Some(update)) => {
                let mut old = self.unused();
                if mnemonic == "atom" {
                    old = self.target(form.element)?;
                    self.tokens.expect(",")?;
                }
                let at = self.accessed(&form)?;
                let mut operands = [Operand::constant(0); 2];
                for operand in &mut operands[..update.operands.len() - 1] {
                    self.tokens.expect(",")?;
                    *operand = self.operand(form.element)?;
                }
                Operation::Update { old, at, update: update.functions[form.element.index()], operands }
            }
            _ => return Err(self.tokens.unsupported(opcode)),
        };
        self.push(operation);
        Ok(())
    }

    fn check_count(&self, opcode: &str, elements: usize, of_opcode: usize) -> Result {
        if elements != of_opcode {
            return Err(self.tokens.error(format!("{opcode} has {of_opcode} elements")));
        }
        Ok(())
    }

    /// The memory at the address that follows.
    fn accessed(&mut self, form: &AccessForm) -> Result<Access> {
        let AccessForm { space, element, order, .. } = *form;
        let (address, mask) = self.address(space)?;
        Ok(Access { space, element, order, address, mask })
    }

    /// A register that has at least the bits of a type.
    fn register(&mut self, at_least: Type) -> Result<Register> {
        let word = self.tokens.take()?;
        let Some((Name::Register(declared, _), scope, name)) = self.look_up(word) else {
            return Err(self.tokens.error(format!("{word} is not a register")));
        };
        if declared.bits < at_least.bits || (declared.bits == 1) != (at_least.bits == 1) {
            return Err(self.tokens.error(format!("{word} has another size")));
        }
        let next = self.registers.len();
        Ok(*self.registers.entry((self.scope_number(scope), name)).or_insert(next))
    }

    /// The number of a scope, whose index is used again by the next braces.
    fn scope_number(&self, scope: usize) -> usize {
        scope.checked_sub(1).map_or(usize::MAX, |index| self.open[index])
    }

    fn unused(&mut self) -> Register {
        self.special("_", None)
    }

    /// The same, or `_` for a result that nothing reads.
    fn target(&mut self, at_least: Type) -> Result<Register> {
        match self.tokens.take_if("_") {
            true => Ok(self.unused()),
            false => self.register(at_least),
        }
    }

    fn operand(&mut self, as_type: Type) -> Result<Operand> {
        let start = self.tokens.position();
        if self.tokens.peek() == Some("-") {
            return Ok(Operand::constant(self.tokens.number()?));
        }
        let word = self.tokens.take()?;
        if let "%clock" | "%clock64" | "%globaltimer" = word {
            let register = self.special(word, None);
            self.push(Operation::Time(register));
            return Ok(Operand::register(register));
        }
        if word == "WARP_SZ" {
            return Ok(Operand::constant(WARP));
        }
        if let Some(special) = special(word) {
            return Ok(Operand::register(self.special(word, Some(special))));
        }
        Ok(match self.look_up(word) {
            Some((Name::Register(..), ..)) => {
                self.tokens.go_to(start);
                Operand::register(self.register(as_type)?)
            }
            Some((Name::Variable(offset), ..)) => {
                let register = self.special("variables", Some(Special::Variables));
                Operand { register, plus: offset as u64 }
            }
            Some((Name::Parameter(offset) | Name::Local(offset), ..)) => Operand::constant(offset as u64),
            Some((Name::Shared(size, align), scope, name)) => {
                let variable = (self.scope_number(scope), name);
                let used = self.shared_variables.get(&variable).copied();
                let offset = match (used, size) {
                    (None, Some(size)) => self.shared.place(size, align),
                    (None, None) => Some(DYNAMIC_SHARED),
                    (used, _) => used,
                };
                let offset = self.sized(name, offset)?;
                self.shared_variables.insert(variable, offset);
                Operand::constant(offset as u64)
            }
            Some((Name::Unsupported(why), ..)) => {
                return Err(self.tokens.error(format!("{word}: {why}")));
            }
            None => match number(word) {
                Some(number) => Operand::constant(number),
                None => return Err(self.tokens.error(format!("{word} is not a value"))),
            },
        })
    }

    /// The register for a special one.
    fn special(&mut self, word: &'a str, special: Option<Special>) -> Register {
        let next = self.registers.len();
        let register = *self.registers.entry((usize::MAX, word)).or_insert(next);
        if register == next {
            self.kernel.specials.extend(special.map(|special| (register, special)));
        }
        register
    }

    /// The sum of what `[%register]`, `[variable+4]` or `[%register+-4]` has, and its bits.
    fn address(&mut self, space: Space) -> Result<(Operand, u64)> {
        self.tokens.expect("[")?;
        let word = self.tokens.peek().unwrap_or_default();
        let named = self.look_up(word).map(|(name, ..)| name);
        // By its name, a variable has the address that it has in its own space.
        let (own_space, register) = match named {
            Some(Name::Register(declared, _)) if declared.bits >= 32 => (space, declared),
            Some(Name::Variable(_)) => (Space::Generic, Type::U64),
            Some(Name::Shared(..)) => (Space::Shared, Type::U64),
            Some(Name::Local(_)) => (Space::Local, Type::U64),
            Some(Name::Parameter(_)) => (Space::Parameters, Type::U64),
            _ => (space, Type::U64),
        };
        if own_space != space {
            return Err(self.tokens.error(format!("{word} is in another space")));
        }
        let mut address = self.operand(register)?;
        if self.tokens.take_if("+") || self.tokens.peek() == Some("-") {
            address.plus = address.plus.wrapping_add(self.tokens.number()?);
        }
        self.tokens.expect("]")?;
        Ok((address, u64::MAX >> (64 - register.bits)))
    }

    fn resolve_branches(&mut self) -> Result {
        for (at, label, open) in &self.branches {
            let branch = &mut self.kernel.code[*at];
            let mut scopes = open.iter().rev();
            let target = scopes.find_map(|scope| self.labels.get(&(*scope, *label)));
            let target =
                target.ok_or_else(|| ParseError { line: branch.line, reason: format!("there is no label {label}") })?;
            branch.operation = Operation::Branch(*target);
        }
        Ok(())
    }
}

/// The first bit of an element.
fn bit_of(index: usize, element: Type) -> Operand {
    Operand::constant(index as u64 * u64::from(element.bits))
}

/// An opcode that ends with a type, as what comes before and the type.
fn typed(opcode: &str) -> Option<(&str, Type)> {
    let (stem, name) = opcode.rsplit_once('.')?;
    Some((stem, Type::named(name)?))
}

/// The parts of an opcode that accesses memory.
struct AccessForm {
    space: Space,
    element: Type,
    order: Ordering,
    /// The number of elements.
    count: usize,
    /// The computation of `atom` and `red`.
    update: Option<Computation>,
}

impl AccessForm {
    fn parse(opcode: &str, mnemonic: &str) -> Option<AccessForm> {
        let mut space = Space::Generic;
        let mut order = Ordering::Relaxed;
        let mut count = 1;
        let mut update = None;
        let mut element = None;
        for name in opcode.split('.').skip(1) {
            match find(PARTS, name) {
                Some(Part::In(named)) => space = named,
                Some(Part::Ordered(named)) => order = named,
                Some(Part::Elements(number)) => count = number,
                None if NO_EFFECT.split(' ').any(|part| part == name) => {}
                None => {
                    let atomic = find_update(name);
                    if atomic.is_some() {
                        update = atomic;
                    } else if element.is_none() {
                        element = Some(Type::named(name)?);
                    } else {
                        return None;
                    }
                }
            }
        }
        let element = element?;
        let is_update = matches!(mnemonic, "atom" | "red");
        let has_order = match mnemonic {
            "ld" => !matches!(order, Ordering::Release | Ordering::AcqRel),
            "st" => !matches!(order, Ordering::Acquire | Ordering::AcqRel),
            _ => true,
        };
        let has_space = space != Space::Parameters || mnemonic == "ld";
        let has_type = element.bits >= 8 && (!is_update || element.is_integer());
        let valid = has_order && has_space && has_type && is_update == update.is_some();
        valid.then_some(AccessForm { space, element, order, count, update })
    }
}

/// The computation of an atomic access.
fn find_update(name: &str) -> Option<Computation> {
    match UPDATES.contains(&name) {
        true => find(COMPUTATIONS, name),
        false => find(COMPUTATIONS, &format!("atom.{name}")),
    }
}

/// The special register of a name.
fn special(word: &str) -> Option<Special> {
    let (name, axis) = word.split_once('.').unwrap_or((word, ""));
    let axis = ["x", "y", "z"].iter().position(|known| *known == axis);
    Some(match (name, axis) {
        ("%tid", Some(axis)) => Special::Thread(axis),
        ("%ntid", Some(axis)) => Special::BlockSize(axis),
        ("%ctaid", Some(axis)) => Special::Block(axis),
        ("%nctaid", Some(axis)) => Special::GridSize(axis),
        ("%laneid", None) => Special::Lane,
        ("%lanemask_eq", None) => Special::LaneMask(|lane| 1 << lane),
        ("%lanemask_lt", None) => Special::LaneMask(|lane| (1 << lane) - 1),
        ("%lanemask_le", None) => Special::LaneMask(|lane| u32::MAX >> (31 - lane)),
        ("%lanemask_gt", None) => Special::LaneMask(|lane| !(u32::MAX >> (31 - lane))),
        ("%lanemask_ge", None) => Special::LaneMask(|lane| u32::MAX << lane),
        ("%warpid", None) => Special::Warp,
        // In these, a launch passes the address of the memory for `grid.sync()`.
        ("%envreg1", None) => Special::GridMemory(32),
        ("%envreg2", None) => Special::GridMemory(0),
        _ => return None,
    })
}
