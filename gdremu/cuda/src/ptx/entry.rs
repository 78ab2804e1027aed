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

/// The most registers of a thread, many times those of a GPU.
const MAX_REGISTERS: usize = 1 << 16;

/// The guard of instructions without one. Register 0 is no predicate.
const ALWAYS: (Register, u64) = (0, 0);

/// The module, the GPU kernel, or a block of braces in it.
#[derive(Default)]
struct Scope<'a> {
    names: Names<'a>,
    /// Where each label stands in the code.
    labels: HashMap<&'a str, usize>,
    /// Branches that need their target, with index in the code and label.
    branches: Vec<(usize, &'a str)>,
}

/// A GPU kernel that is being read.
pub(super) struct Entry<'t, 'a> {
    tokens: &'t mut Tokens<'a>,
    kernel: Kernel,
    /// The innermost last.
    scopes: Vec<Scope<'a>>,
    /// The registers of names that PTX knows by itself.
    specials: HashMap<&'a str, Register>,
    parameters: Layout,
    shared: Layout,
    local: Layout,
    guard: (Register, u64),
}

impl<'t, 'a> Entry<'t, 'a> {
    /// Reads what follows the name, up to the first thing that is wrong or not supported.
    pub(super) fn parse(name: &str, tokens: &'t mut Tokens<'a>, names: &Names<'a>) -> Result<Kernel> {
        let module = Scope { names: names.clone(), ..Scope::default() };
        let mut entry = Entry {
            tokens,
            kernel: Kernel { name: name.to_owned(), registers: 1, ..Kernel::default() },
            scopes: vec![module, Scope::default()],
            specials: HashMap::new(),
            parameters: Layout::default(),
            shared: Layout::default(),
            local: Layout::default(),
            guard: ALWAYS,
        };
        entry.parameters()?;
        entry.limits()?;
        entry.body()?;
        entry.kernel.shared = entry.shared.len;
        entry.kernel.local = entry.local.len;
        if entry.kernel.local > MAX_LOCAL {
            return Err(entry.tokens.error("it needs too much local memory"));
        }
        Ok(entry.kernel)
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
            if word == "{" {
                return Ok(());
            }
            if !matches!(word, ".maxntid" | ".reqntid" | ".minnctapersm" | ".maxnctapersm" | ".maxnreg") {
                return Err(self.tokens.unsupported(word));
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

    /// The innermost scope.
    fn scope(&mut self) -> &mut Scope<'a> {
        self.scopes.last_mut().expect("the module's scope is never closed")
    }

    fn body(&mut self) -> Result {
        while self.scopes.len() > 1 {
            match self.tokens.take()? {
                "{" => self.scopes.push(Scope::default()),
                "}" => self.close_scope()?,
                ".reg" => self.declare_registers()?,
                space @ (".shared" | ".local") => {
                    let declaration = Declaration::parse(self.tokens)?;
                    let mut meaning = declaration.shared();
                    if space == ".local" {
                        let start = self.local.place(declaration.size.unwrap_or(0), declaration.align);
                        meaning = Name::Local(self.sized(declaration.name, start)?);
                    }
                    self.declare(declaration.name, meaning)?;
                    self.tokens.expect(";")?;
                }
                ".loc" => self.tokens.skip_line()?,
                ".pragma" => {
                    self.tokens.skip_declaration()?;
                }
                label if self.tokens.take_if(":") => {
                    let at = self.kernel.code.len();
                    if self.scope().labels.insert(label, at).is_some() {
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
        self.push(Operation::Exit);
        Ok(())
    }

    /// Resolves the branches of the innermost scope. Those to labels outside of it are its parent's.
    fn close_scope(&mut self) -> Result {
        let Some(Scope { labels, branches, .. }) = self.scopes.pop() else { return Ok(()) };
        for (at, label) in branches {
            let branch = &mut self.kernel.code[at];
            if let Some(target) = labels.get(label) {
                branch.operation = Operation::Branch(*target);
            } else if self.scopes.len() == 1 {
                return Err(ParseError { line: branch.line, reason: format!("there is no label {label}") });
            } else {
                self.scope().branches.push((at, label));
            }
        }
        Ok(())
    }

    fn sized<T>(&self, name: &str, place: Option<T>) -> Result<T> {
        place.ok_or_else(|| self.tokens.error(format!("the size of {name} is not supported")))
    }

    /// `.reg .b32 %a, %b, %r<10>;`
    fn declare_registers(&mut self) -> Result {
        let word = self.tokens.take()?;
        let Some(as_type) = Type::named(word.trim_start_matches('.')) else {
            return Err(self.tokens.unsupported(&format!(".reg {word}")));
        };
        loop {
            let name = self.tokens.take()?;
            let first = self.kernel.registers;
            let mut count = None;
            if self.tokens.take_if("<") {
                // Which registers are of this family could depend on others.
                if name.ends_with(|c: char| c.is_ascii_digit()) {
                    return Err(self.tokens.unsupported(&format!(".reg {name}<")));
                }
                count = Some(self.tokens.number()? as usize);
                self.tokens.expect(">")?;
            }
            self.kernel.registers = first.saturating_add(count.unwrap_or(1));
            if self.kernel.registers > MAX_REGISTERS {
                return Err(self.tokens.error("it has too many registers"));
            }
            self.declare(name, Name::Register(as_type, first, count))?;
            if !self.tokens.take_if(",") {
                return self.tokens.expect(";");
            }
        }
    }

    fn declare(&mut self, name: &'a str, meaning: Name) -> Result {
        match self.scope().names.insert(name, meaning) {
            None => Ok(()),
            Some(_) => Err(self.tokens.error(format!("{name} is declared already"))),
        }
    }

    /// The meaning of a name. A register of a family is one by itself.
    fn look_up(&self, word: &'a str) -> Option<Name> {
        let family = word.trim_end_matches(|c: char| c.is_ascii_digit());
        for scope in self.scopes.iter().rev() {
            if let Some(name) = scope.names.get(word) {
                return Some(*name);
            }
            if let Some(Name::Register(as_type, first, Some(count))) = scope.names.get(family)
                && let Ok(number) = word[family.len()..].parse::<usize>()
                && number < *count
            {
                return Some(Name::Register(*as_type, first + number, None));
            }
        }
        None
    }

    fn push(&mut self, operation: Operation) {
        self.kernel.code.push(Instruction { line: self.tokens.line(), guard: self.guard, operation });
    }

    /// Reads an instruction after its opcode. Errors name the opcode.
    fn instruction(&mut self, opcode: &'a str) -> Result {
        let result = self.operation(opcode);
        result.map_err(|mut error| {
            if !error.reason.starts_with(opcode) {
                error.reason = format!("{opcode}: {}", error.reason);
            }
            error
        })
    }

    fn operation(&mut self, opcode: &'a str) -> Result {
        let typed = typed(opcode);
        let mnemonic = opcode.split('.').next().unwrap_or_default();
        if let Some(control) = find(CONTROLS, opcode) {
            self.control(control)?;
        } else if let "fence" | "membar" = mnemonic {
            let is_weaker = opcode.contains(".acq_rel");
            self.push(Operation::Fence(if is_weaker { Ordering::AcqRel } else { Ordering::SeqCst }));
        } else if let "ld" | "st" | "atom" | "red" = mnemonic {
            self.access(opcode, mnemonic)?;
        } else if let Some(("mov", of)) = typed {
            self.mov(of)?;
        } else if let Some(("bfi", of)) = typed {
            self.bfi(of)?;
        } else if let Some(computation) = find(COMPUTATIONS, opcode) {
            self.compute(opcode, &computation, Type::U64)?;
        } else if let Some((stem, of)) = typed
            && let Some(computation) = find(COMPUTATIONS, stem)
        {
            self.compute(opcode, &computation, of)?;
        } else {
            return Err(self.tokens.unsupported(opcode));
        }
        self.tokens.expect(";")
    }

    fn control(&mut self, control: Control) -> Result {
        let operation = match control {
            Control::Branch => {
                let label = self.tokens.take()?;
                let at = self.kernel.code.len();
                self.scope().branches.push((at, label));
                Operation::Branch(0) // Until all labels of the scope are known.
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

    /// `, value, …`, of these types.
    fn operands<const N: usize>(&mut self, types: &[Type]) -> Result<[Operand; N]> {
        let mut operands = [Operand::constant(0); N];
        for (index, as_type) in types.iter().enumerate() {
            self.tokens.expect(",")?;
            operands[index] = self.operand(*as_type)?;
        }
        Ok(operands)
    }

    /// `register, value, …`
    fn compute(&mut self, opcode: &str, computation: &Computation, of: Type) -> Result {
        let mut types = Vec::new();
        for kind in computation.operands {
            types.extend(kind.resolve(of));
        }
        let result = computation.result.resolve(of);
        let Some(result) = result.filter(|_| types.len() == computation.operands.len()) else {
            return Err(self.tokens.unsupported(opcode));
        };
        let to = self.register(result)?;
        let operands = self.operands(&types)?;
        self.push_computation(computation, of, to, operands);
        Ok(())
    }

    fn push_computation(&mut self, computation: &Computation, of: Type, to: Register, operands: [Operand; 3]) {
        self.push(Operation::Compute { to, function: computation.functions[of.index()], operands });
    }

    /// Appends a step of an instruction.
    fn push_step(&mut self, name: &str, of: Type, to: Register, operands: [Operand; 3]) {
        let computation = find(COMPUTATIONS, name).expect("the steps are in the table");
        self.push_computation(&computation, of, to, operands);
    }

    /// `mov.u32 register, value`, `mov.b64 register, {low, high}` or `mov.b64 {low, high}, register`, as an
    /// instruction per element.
    fn mov(&mut self, of: Type) -> Result {
        let to_part = self.part(of)?;
        let to = self.elements(|entry| entry.target(to_part))?;
        self.tokens.expect(",")?;
        let from_part = self.part(of)?;
        let from = self.elements(|entry| entry.operand(from_part))?;
        let bit_of = |index: usize, part: Type| Operand::constant(index as u64 * u64::from(part.bits));
        if let [from] = from[..] {
            for (index, to) in to.into_iter().enumerate() {
                let operands = [from, bit_of(index, to_part), Operand::constant(0)];
                self.push_step("shr", Type::unsigned(of.bits), to, operands);
            }
            return Ok(());
        }
        let [to] = to[..] else {
            return Err(self.tokens.error("both sides have elements"));
        };
        for (index, from) in from.into_iter().enumerate() {
            let before = if index == 0 { 0 } else { to };
            self.push_step("{}", from_part, to, [Operand::register(before), from, bit_of(index, from_part)]);
        }
        Ok(())
    }

    /// `bfi.b64 register, field, value, position, length`
    fn bfi(&mut self, of: Type) -> Result {
        let to = self.register(of)?;
        let [field, value, at, len] = self.operands(&[of, of, Type::U32, Type::U32])?;
        let part = self.special("bfi", None);
        let rest = self.special("bfi.rest", None);
        self.push_step("bfi.field", of, part, [field, at, len]);
        self.push_step("bfi.rest", of, rest, [value, at, len]);
        self.push_step("or", of, to, [Operand::register(part), Operand::register(rest), Operand::constant(0)]);
        Ok(())
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
        let operation = match (mnemonic, &form.update) {
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
                let mut old = self.special("_", None);
                if mnemonic == "atom" {
                    old = self.target(form.element)?;
                    self.tokens.expect(",")?;
                }
                let at = self.accessed(&form)?;
                let operands = self.operands(&vec![form.element; update.operands.len() - 1])?;
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

    /// A register that has at least the bits of a type.
    fn register(&mut self, at_least: Type) -> Result<Register> {
        let word = self.tokens.take()?;
        let Some(Name::Register(declared, register, _)) = self.look_up(word) else {
            return Err(self.tokens.error(format!("{word} is not a register")));
        };
        if declared.bits < at_least.bits || (declared.bits == 1) != (at_least.bits == 1) {
            return Err(self.tokens.error(format!("{word} has another size")));
        }
        Ok(register)
    }

    /// The same, or `_` for a result that nothing reads.
    fn target(&mut self, at_least: Type) -> Result<Register> {
        if self.tokens.take_if("_") { Ok(self.special("_", None)) } else { self.register(at_least) }
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
        let offset = match self.look_up(word) {
            Some(Name::Register(..)) => {
                self.tokens.go_to(start);
                return Ok(Operand::register(self.register(as_type)?));
            }
            Some(Name::Variable(offset)) => {
                let register = self.special("variables", Some(Special::Variables));
                return Ok(Operand { register, plus: offset as u64 });
            }
            Some(Name::Unsupported(why)) => return Err(self.tokens.error(format!("{word}: {why}"))),
            Some(Name::Parameter(offset) | Name::Local(offset) | Name::UsedShared(offset)) => offset as u64,
            Some(Name::Shared(size, align)) => self.use_shared(word, size, align)? as u64,
            None => match number(word) {
                Some(number) => number,
                None => return Err(self.tokens.error(format!("{word} is not a value"))),
            },
        };
        Ok(Operand::constant(offset))
    }

    /// Places a shared variable that is used the first time.
    fn use_shared(&mut self, name: &'a str, size: Option<usize>, align: usize) -> Result<usize> {
        let offset = match size {
            Some(size) => self.shared.place(size, align),
            None => Some(DYNAMIC_SHARED),
        };
        let offset = self.sized(name, offset)?;
        for scope in self.scopes.iter_mut().rev() {
            if let Some(meaning) = scope.names.get_mut(name) {
                *meaning = Name::UsedShared(offset);
                break;
            }
        }
        Ok(offset)
    }

    /// The register for a special one.
    fn special(&mut self, word: &'a str, special: Option<Special>) -> Register {
        if let Some(register) = self.specials.get(word) {
            return *register;
        }
        let register = self.kernel.registers;
        self.kernel.registers += 1;
        self.specials.insert(word, register);
        self.kernel.specials.extend(special.map(|special| (register, special)));
        register
    }

    /// The memory at the address that follows, `[%register]`, `[variable+4]` or `[%register+-4]`.
    fn accessed(&mut self, form: &AccessForm) -> Result<Access> {
        let AccessForm { space, element, order, .. } = *form;
        self.tokens.expect("[")?;
        let word = self.tokens.peek().unwrap_or_default();
        let mut register = Type::U64;
        // By its name, a variable has the address that it has in its own space.
        let own_space = match self.look_up(word) {
            Some(Name::Variable(_)) => Space::Generic,
            Some(Name::Shared(..) | Name::UsedShared(_)) => Space::Shared,
            Some(Name::Local(_)) => Space::Local,
            Some(Name::Parameter(_)) => Space::Parameters,
            Some(Name::Register(declared, ..)) if declared.bits >= 32 => {
                register = declared;
                space
            }
            _ => space,
        };
        if own_space != space {
            return Err(self.tokens.error(format!("{word} is in another space")));
        }
        let mut address = self.operand(register)?;
        if self.tokens.take_if("+") || self.tokens.peek() == Some("-") {
            address.plus = address.plus.wrapping_add(self.tokens.number()?);
        }
        self.tokens.expect("]")?;
        Ok(Access { space, element, order, address, mask: u64::MAX >> (64 - register.bits) })
    }
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
                None => match find_update(name) {
                    Some(computation) => update = Some(computation),
                    None if element.is_none() => element = Some(Type::named(name)?),
                    None => return None,
                },
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
        if !has_order || !has_space || !has_type || is_update != update.is_some() {
            return None;
        }
        Some(AccessForm { space, element, order, count, update })
    }
}

/// The computation of an atomic access.
fn find_update(name: &str) -> Option<Computation> {
    if UPDATES.contains(&name) { find(COMPUTATIONS, name) } else { find(COMPUTATIONS, &format!("atom.{name}")) }
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
