//! Compiles the PTX text of a GPU kernel to instructions.

use super::declaration::{Declaration, Layout, Name, Names};
use super::kernel::{
    Access, DYNAMIC_SHARED, FIRST_OWN, Instruction, Kernel, Operand, Operation, Register, SCRATCH, Space, Type,
    VARIABLES, WARP, ZERO,
};
use super::opcodes::{COMPUTATIONS, Computation, NO_EFFECT, SPECIALS, UPDATES, find};
use super::tokens::{ParseError, Result, Tokens, number};

/// The most bytes of local memory that a thread of a GPU has.
const MAX_LOCAL: usize = 512 << 10;

/// The most registers of a thread. A GPU has far fewer.
const MAX_REGISTERS: usize = 1 << 16;

/// The guard (condition) of instructions that always run: "the register `ZERO` holds 0", which is always true.
const ALWAYS: (Register, u64) = (ZERO, 0);

/// The names that are declared in the module, in the GPU kernel, or in a block of braces in it.
#[derive(Default)]
struct Scope<'a> {
    names: Names<'a>,
    /// The branches whose target is not known yet: their indices in the code, and their labels.
    branches: Vec<(usize, &'a str)>,
}

pub(super) struct Entry<'t, 'a> {
    tokens: &'t mut Tokens<'a>,
    kernel: Kernel,
    /// The open scopes. The innermost scope is the last.
    scopes: Vec<Scope<'a>>,
    parameters: Layout,
    shared: Layout,
    local: Layout,
    guard: (Register, u64),
}

impl<'t, 'a> Entry<'t, 'a> {
    /// Parses the text after the GPU kernel's name. Fails at the first error or unsupported instruction.
    pub(super) fn parse(name: &str, tokens: &'t mut Tokens<'a>, names: &Names<'a>) -> Result<Kernel> {
        let module = Scope { names: names.clone(), branches: Vec::new() };
        let mut entry = Entry {
            tokens,
            kernel: Kernel { name: name.to_owned(), registers: FIRST_OWN, ..Kernel::default() },
            scopes: vec![module, Scope::default()],
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

    /// Parses parameters such as `(.param .u64 a, .param .align 8 .b8 b[24])`.
    fn parameters(&mut self) -> Result {
        if !self.tokens.take_if("(") || self.tokens.take_if(")") {
            return Ok(());
        }
        loop {
            self.tokens.expect(".param")?;
            let declaration = Declaration::parse(self.tokens)?;
            let start = self.parameters.place(&declaration, self.tokens)?;
            self.kernel.parameters.push((start, self.parameters.len - start));
            self.declare(declaration.name, Name::Parameter(start))?;
            if !self.tokens.take_if(",") {
                return self.tokens.expect(")");
            }
        }
    }

    /// Parses limits such as `.maxntid 256, 1, 1`.
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

    fn body(&mut self) -> Result {
        while self.scopes.len() > 1 {
            match self.tokens.take()? {
                "{" => self.scopes.push(Scope::default()),
                "}" => self.close_scope()?,
                ".reg" => self.declare_registers()?,
                space @ (".shared" | ".local") => {
                    let declaration = Declaration::parse(self.tokens)?;
                    let meaning = match space {
                        ".shared" => Name::Shared(declaration),
                        _ => Name::Local(self.local.place(&declaration, self.tokens)?),
                    };
                    self.declare(declaration.name, meaning)?;
                    self.tokens.expect(";")?;
                }
                ".loc" => self.tokens.skip_line()?,
                ".pragma" => {
                    self.tokens.skip_declaration()?;
                }
                label if self.tokens.take_if(":") => self.declare(label, Name::Label(self.kernel.code.len()))?,
                ".param" | "call" | "call.uni" => {
                    let callee = self.tokens.callee()?;
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

    fn scope(&mut self) -> &mut Scope<'a> {
        self.scopes.last_mut().expect("the module's scope is never closed")
    }

    /// Closes the innermost scope. A branch whose label is not in this scope becomes a branch of the scope around it.
    fn close_scope(&mut self) -> Result {
        let Some(Scope { names, branches }) = self.scopes.pop() else { return Ok(()) };
        for (at, label) in branches {
            let branch = &mut self.kernel.code[at];
            if let Some(Name::Label(target)) = names.get(label) {
                branch.operation = Operation::Branch(*target);
            } else if self.scopes.len() == 1 {
                return Err(ParseError { line: branch.line, reason: format!("there is no label {label}") });
            } else {
                self.scope().branches.push((at, label));
            }
        }
        Ok(())
    }

    /// Parses a declaration such as `.reg .b32 %a, %b, %r<10>;`.
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
                // Two declarations could make the same name: `%r11` would be in `%r1<9>` and in `%r<20>`.
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

    fn declare(&mut self, name: &'a str, meaning: Name<'a>) -> Result {
        match self.scope().names.insert(name, meaning) {
            None => Ok(()),
            Some(_) => Err(self.tokens.error(format!("{name} is declared already"))),
        }
    }

    /// Returns the meaning of a name. For example, `%r7` is one of the ten registers that `%r<10>` declares.
    fn look_up(&self, word: &'a str) -> Option<Name<'a>> {
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

    /// Parses an instruction after its opcode. Errors begin with the opcode.
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
        match opcode {
            "bra" | "bra.uni" => {
                let label = self.tokens.take()?;
                let at = self.kernel.code.len();
                self.scope().branches.push((at, label));
                self.push(Operation::Branch(0)); // The target is set when all labels of the scope are known.
            }
            "bar.sync"
            | "bar.cta.sync"
            | "barrier.sync"
            | "barrier.cta.sync"
            | "barrier.sync.aligned"
            | "barrier.cta.sync.aligned" => {
                self.tokens.expect("0")?;
                self.push(Operation::Barrier);
            }
            "bar.warp.sync" => {
                let mask = self.operand(Type::U32)?;
                self.push(Operation::WarpBarrier(mask));
            }
            "nanosleep.u32" => {
                self.operand(Type::U32)?;
                self.push(Operation::Sleep);
            }
            // The GPU kernels of a stream run one after the other, so there is nothing to wait for.
            "griddepcontrol.wait" | "griddepcontrol.launch_dependents" => {}
            "trap" => self.push(Operation::Trap),
            "exit" | "ret" | "ret.uni" => self.push(Operation::Exit),
            _ => match opcode.split('.').next() {
                Some("fence" | "membar") => self.push(Operation::Fence),
                Some(mnemonic @ ("ld" | "st" | "atom" | "red")) => self.access(opcode, mnemonic)?,
                _ => self.computation(opcode)?,
            },
        }
        self.tokens.expect(";")
    }

    fn computation(&mut self, opcode: &'a str) -> Result {
        if let Some(computation) = find(COMPUTATIONS, opcode) {
            return self.compute(opcode, computation, Type::U64);
        }
        if let Some((stem, name)) = opcode.rsplit_once('.')
            && let Some(of) = Type::named(name)
        {
            if stem == "mov" {
                return self.mov(of);
            }
            if stem == "bfi" && of.is_integer() {
                return self.bfi(of);
            }
            if let Some(computation) = find(COMPUTATIONS, stem) {
                return self.compute(opcode, computation, of);
            }
        }
        Err(self.tokens.unsupported(opcode))
    }

    /// Parses `register, value, …` after an opcode that computes.
    fn compute(&mut self, opcode: &str, computation: &Computation, of: Type) -> Result {
        let result = computation.result.resolve(of).ok_or_else(|| self.tokens.unsupported(opcode))?;
        let to = self.register(result)?;
        let mut operands = [Operand::constant(0); 3];
        for (index, kind) in computation.operands.iter().enumerate() {
            let as_type = kind.resolve(of).ok_or_else(|| self.tokens.unsupported(opcode))?;
            operands[index] = self.next_operand(as_type)?;
        }
        self.push(Operation::Compute { to, function: computation.functions[of.index()], operands });
        Ok(())
    }

    fn push_step(&mut self, name: &str, of: Type, to: Register, operands: [Operand; 3]) {
        let computation = find(COMPUTATIONS, name).expect("the steps are in the table");
        self.push(Operation::Compute { to, function: computation.functions[of.index()], operands });
    }

    /// Parses `mov.u32 a, value`, `mov.b64 a, {low, high}` or `mov.b64 {low, high}, a`. Elements in
    /// braces make several instructions.
    fn mov(&mut self, of: Type) -> Result {
        let to_part = self.part(of)?;
        let to = self.elements(|entry| entry.target(to_part))?;
        self.tokens.expect(",")?;
        let from_part = self.part(of)?;
        let from = self.elements(|entry| entry.operand(from_part))?;
        let mut whole = from[0];
        if from.len() > 1 {
            whole = Operand::constant(0);
            for (index, element) in from.into_iter().enumerate() {
                let bit = Operand::constant(index as u64 * u64::from(from_part.bits));
                self.push_step("{}", from_part, SCRATCH, [whole, element, bit]);
                whole = Operand::register(SCRATCH);
            }
        }
        for (index, register) in to.into_iter().enumerate() {
            let bit = Operand::constant(index as u64 * u64::from(to_part.bits));
            self.push_step("shr", Type::unsigned(of.bits), register, [whole, bit, Operand::constant(0)]);
        }
        Ok(())
    }

    /// Parses `bfi.b64 register, field, value, position, length`.
    fn bfi(&mut self, of: Type) -> Result {
        let to = self.register(of)?;
        let field = self.next_operand(of)?;
        let value = self.next_operand(of)?;
        let at = self.next_operand(Type::U32)?;
        let len = self.next_operand(Type::U32)?;
        self.push_step("bits", of, SCRATCH, [at, len, Operand::constant(0)]);
        self.push_step("field", of, to, [field, value, Operand::register(SCRATCH)]);
        Ok(())
    }

    /// Returns the type of each element of the next operand, which is a list in braces or a single element.
    fn part(&self, of: Type) -> Result<Type> {
        match self.tokens.elements() {
            1 => Ok(of),
            count @ (2 | 4) if of.bits / count >= 8 => Ok(Type::unsigned(of.bits / count)),
            _ => Err(self.tokens.error("this number of elements is not supported")),
        }
    }

    /// Parses `{a, b}`, or one element without braces.
    fn elements<T>(&mut self, mut element: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let in_braces = self.tokens.take_if("{");
        let mut elements = vec![element(self)?];
        if in_braces {
            while self.tokens.take_if(",") {
                elements.push(element(self)?);
            }
            self.tokens.expect("}")?;
        }
        Ok(elements)
    }

    fn access(&mut self, opcode: &'a str, mnemonic: &str) -> Result {
        let form = AccessForm::parse(opcode, mnemonic).ok_or_else(|| self.tokens.unsupported(opcode))?;
        let operation = match (mnemonic, form.update) {
            (_, Some(update)) => {
                let mut old = SCRATCH;
                if mnemonic == "atom" {
                    old = self.target(form.element)?;
                    self.tokens.expect(",")?;
                }
                let at = self.accessed(&form)?;
                let mut operands = [Operand::constant(0); 2];
                for operand in &mut operands[..update.operands.len() - 1] {
                    *operand = self.next_operand(form.element)?;
                }
                Operation::Update { old, at, update: update.functions[form.element.index()], operands }
            }
            ("ld", None) => {
                let to = self.elements(|entry| entry.target(form.element))?;
                self.check_count(opcode, to.len(), form.count)?;
                self.tokens.expect(",")?;
                Operation::Load { to, from: self.accessed(&form)? }
            }
            (_, None) => {
                let to = self.accessed(&form)?;
                self.tokens.expect(",")?;
                let values = self.elements(|entry| entry.operand(form.element))?;
                self.check_count(opcode, values.len(), form.count)?;
                Operation::Store { to, values }
            }
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

    /// Parses the name of a register, which must not have fewer bits than the type `at_least`.
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

    /// Parses the register for a result, which is `_` if nothing reads it.
    fn target(&mut self, at_least: Type) -> Result<Register> {
        if self.tokens.take_if("_") { Ok(SCRATCH) } else { self.register(at_least) }
    }

    /// Parses a comma and an operand, such as `, %r1`.
    fn next_operand(&mut self, as_type: Type) -> Result<Operand> {
        self.tokens.expect(",")?;
        self.operand(as_type)
    }

    fn operand(&mut self, as_type: Type) -> Result<Operand> {
        let start = self.tokens.position();
        if self.tokens.peek() == Some("-") {
            return Ok(Operand::constant(self.tokens.number()?));
        }
        let word = self.tokens.take()?;
        let offset = match self.look_up(word) {
            Some(Name::Register(..)) => {
                self.tokens.go_to(start);
                return Ok(Operand::register(self.register(as_type)?));
            }
            Some(Name::Variable(offset)) => return Ok(Operand { register: VARIABLES, plus: offset as u64 }),
            Some(Name::Unsupported(why)) => return Err(self.tokens.error(format!("{word}: {why}"))),
            Some(Name::Parameter(offset) | Name::Local(offset) | Name::UsedShared(offset)) => offset as u64,
            Some(Name::Shared(declaration)) => self.use_shared(&declaration)? as u64,
            Some(Name::Label(_)) | None => return self.known_operand(word),
        };
        Ok(Operand::constant(offset))
    }

    /// Parses a constant or a special register.
    fn known_operand(&mut self, word: &'a str) -> Result<Operand> {
        if let Some(constant) = if word == "WARP_SZ" { Some(WARP) } else { number(word) } {
            return Ok(Operand::constant(constant));
        }
        let Some(special) = find(SPECIALS, word) else {
            return Err(self.tokens.error(format!("{word} is not a value")));
        };
        let register = self.kernel.registers;
        self.kernel.specials.push((register, *special));
        self.scopes[0].names.insert(word, Name::Register(Type::U64, register, None));
        self.kernel.registers += 1;
        Ok(Operand::register(register))
    }

    /// Gives a shared variable a place in shared memory at its first use. Returns its offset in compiled code.
    fn use_shared(&mut self, declaration: &Declaration<'a>) -> Result<usize> {
        let offset = match declaration.size {
            Some(_) => self.shared.place(declaration, self.tokens)?,
            None => DYNAMIC_SHARED,
        };
        for scope in self.scopes.iter_mut().rev() {
            if let Some(meaning) = scope.names.get_mut(declaration.name) {
                *meaning = Name::UsedShared(offset);
                break;
            }
        }
        Ok(offset)
    }

    /// Parses an address such as `[%register]`, `[variable+4]` or `[%register+-4]`.
    fn accessed(&mut self, form: &AccessForm) -> Result<Access> {
        let AccessForm { space, element, .. } = *form;
        self.tokens.expect("[")?;
        let word = self.tokens.peek().unwrap_or_default();
        let mut register = Type::U64;
        // The name of a variable stands for its address in the memory space in which it is declared.
        let own_space = match self.look_up(word) {
            Some(Name::Variable(_)) => Space::Generic,
            Some(Name::Shared(_) | Name::UsedShared(_)) => Space::Shared,
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
        Ok(Access { space, element, address, mask: u64::MAX >> (64 - register.bits) })
    }
}

struct AccessForm {
    space: Space,
    element: Type,
    count: usize,
    /// The computation of the new value, if the instruction is an `atom` or `red`.
    update: Option<&'static Computation>,
}

impl AccessForm {
    fn parse(opcode: &str, mnemonic: &str) -> Option<AccessForm> {
        let mut form = AccessForm { space: Space::Generic, element: Type::PREDICATE, count: 1, update: None };
        for name in opcode.split('.').skip(1) {
            match name {
                "shared" | "shared::cta" => form.space = Space::Shared,
                "local" => form.space = Space::Local,
                "param" | "param::entry" if mnemonic == "ld" => form.space = Space::Parameters,
                "v2" => form.count = 2,
                "v4" => form.count = 4,
                "v8" => form.count = 8,
                _ if NO_EFFECT.split(' ').any(|part| part == name) => {}
                _ if UPDATES.contains(&name) => form.update = find(COMPUTATIONS, name),
                _ if form.element == Type::PREDICATE => form.element = Type::named(name)?,
                _ => return None,
            }
        }
        let is_update = matches!(mnemonic, "atom" | "red");
        let has_type = form.element.bits >= 8 && (!is_update || form.element.is_integer());
        if has_type && is_update == form.update.is_some() { Some(form) } else { None }
    }
}
