//! The structure of PTX text: entries, variables, scopes, labels.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use super::decode::{self, Argument, Decoded};
use super::instruction::{Instruction, Operand, Operation, Register, Special};
use super::kernel::{Kernel, Module, Parameter};
use super::lex::{Lexed, Token, lex};
use super::types::Type;

/// Why a text is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// From 1.
    pub line: u32,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

type Result<T = ()> = std::result::Result<T, Refused>;

/// Reads PTX text.
///
/// # Errors
/// The first thing in it that is wrong or beyond what is understood.
pub fn parse(text: &str) -> Result<Module> {
    let tokens = lex(text).map_err(|line| Refused {
        line,
        why: "a comment or quotation has no end".into(),
    })?;
    let mut parser = Parser { tokens, next: 0 };
    parser.module()
}

struct Parser<'a> {
    tokens: Vec<Lexed<'a>>,
    next: usize,
}

/// Shared variables: what their names stand for, and the bytes they take.
#[derive(Clone, Default)]
struct Shared<'a> {
    places: HashMap<&'a str, Operand>,
    bytes: u32,
}

/// A kernel being read.
struct Body<'a> {
    parameters: HashMap<&'a str, Operand>,
    shared: Shared<'a>,
    /// Registers by name, innermost scope last.
    scopes: Vec<HashMap<String, Register>>,
    registers: u32,
    labels: HashMap<&'a str, usize>,
    /// Branches whose labels are not known yet: (instruction, label).
    branches: Vec<(usize, String)>,
    code: Vec<Instruction>,
}

impl<'a> Parser<'a> {
    fn module(&mut self) -> Result<Module> {
        let mut kernels = BTreeMap::new();
        let mut shared = Shared::default();
        while let Some(token) = self.take() {
            match token {
                Token::Word(".version" | ".target" | ".file") => self.skip_line(),
                Token::Word(".address_size") => {
                    if self.take() != Some(Token::Number(64)) {
                        return Err(self.refuse("addresses have 64 bits"));
                    }
                }
                Token::Word(".visible" | ".weak" | ".extern") => {}
                Token::Word(".shared") => self.shared_variable(&mut shared)?,
                Token::Word(".pragma") => self.skip_past(';'),
                Token::Word(".section") => self.skip_past('}'),
                Token::Word(".entry") => {
                    let kernel = self.entry(shared.clone())?;
                    kernels.insert(kernel.name.clone(), Arc::new(kernel));
                }
                token => return Err(self.beyond(token)),
            }
        }
        Ok(Module { kernels })
    }

    fn entry(&mut self, shared: Shared<'a>) -> Result<Kernel> {
        let name = self.word("a name")?.to_owned();
        let (names, parameters) = self.parameters()?;
        let max_threads = self.limits()?;
        let mut body = Body {
            parameters: names,
            shared,
            scopes: vec![HashMap::new()],
            registers: 0,
            labels: HashMap::new(),
            branches: Vec::new(),
            code: Vec::new(),
        };
        while !body.scopes.is_empty() {
            self.statement(&mut body)?;
        }
        body.code.push(Instruction {
            guard: None,
            operation: Operation::Exit,
            line: self.line(),
        });
        for (index, label) in body.branches {
            let line = body.code[index].line;
            let why = format!("there is no label {label}");
            let target = *body
                .labels
                .get(label.as_str())
                .ok_or(Refused { line, why })?;
            body.code[index].operation = Operation::Branch { target };
        }
        Ok(Kernel {
            name,
            parameters,
            registers: body.registers,
            shared_bytes: body.shared.bytes,
            max_threads,
            code: body.code,
        })
    }

    /// `(.param .u64 a, .param .align 8 .b8 b[16])`, or nothing.
    fn parameters(&mut self) -> Result<(HashMap<&'a str, Operand>, Vec<Parameter>)> {
        let (mut names, mut parameters) = (HashMap::new(), Vec::new());
        if self.peek() != Some(Token::Mark('(')) {
            return Ok((names, parameters));
        }
        self.take();
        let mut offset = 0;
        while self.peek() != Some(Token::Mark(')')) {
            self.expect(Token::Word(".param"))?;
            let (name, align, len) = self.variable()?;
            let len = len.ok_or_else(|| self.refuse("a parameter needs a size"))?;
            let start = u32::next_multiple_of(offset, align);
            names.insert(name, Operand::Constant(start.into()));
            parameters.push(Parameter {
                offset: start as usize,
                len: len as usize,
            });
            offset = start + len;
            if offset > MAX_PARAMETER_BYTES {
                return Err(self.refuse("too many bytes of parameters"));
            }
            if self.peek() == Some(Token::Mark(',')) {
                self.take();
            }
        }
        self.take();
        Ok((names, parameters))
    }

    /// What stands between an entry's parameters and its body. Returns the most threads of a block.
    fn limits(&mut self) -> Result<Option<u32>> {
        let mut max_threads = None;
        loop {
            match self.take() {
                Some(Token::Mark('{')) => return Ok(max_threads),
                Some(Token::Word(".maxntid" | ".reqntid")) => {
                    let mut product = 1u32;
                    while let Some(Token::Number(size)) = self.peek() {
                        product = product.saturating_mul(u32::try_from(size).unwrap_or(u32::MAX));
                        self.take();
                        if self.peek() == Some(Token::Mark(',')) {
                            self.take();
                        }
                    }
                    max_threads = Some(product);
                }
                Some(Token::Word(".minnctapersm" | ".maxnreg")) => {
                    self.number()?;
                }
                Some(Token::Word(".pragma")) => self.skip_past(';'),
                Some(token) => return Err(self.beyond(token)),
                None => return Err(self.refuse("the text ends before the body of the entry")),
            }
        }
    }

    fn statement(&mut self, body: &mut Body<'a>) -> Result {
        let Some(token) = self.take() else {
            return Err(self.refuse("the text ends before the body of the entry does"));
        };
        match token {
            Token::Mark('{') => body.scopes.push(HashMap::new()),
            Token::Mark('}') => drop(body.scopes.pop()),
            Token::Mark(';') => {}
            Token::Word(".reg") => self.registers(body)?,
            Token::Word(".shared") => self.shared_variable(&mut body.shared)?,
            Token::Word(".loc") => self.skip_line(),
            Token::Word(".pragma") => self.skip_past(';'),
            Token::Mark('@') => {
                let wanted = self.peek() != Some(Token::Mark('!'));
                if !wanted {
                    self.take();
                }
                let name = self.word("a predicate")?;
                let predicate = self.register(body, name)?;
                let opcode = self.word("an instruction")?;
                self.instruction(body, Some((predicate, wanted)), opcode)?;
            }
            Token::Word(word) if self.peek() == Some(Token::Mark(':')) => {
                self.take();
                if body.labels.insert(word, body.code.len()).is_some() {
                    return Err(self.refuse(&format!("label {word} is there already")));
                }
            }
            Token::Word(word) if !word.starts_with('.') => self.instruction(body, None, word)?,
            token => return Err(self.beyond(token)),
        }
        Ok(())
    }

    /// `.reg .u32 %a, %b<4>;`
    fn registers(&mut self, body: &mut Body<'a>) -> Result {
        let kind = self.word("a type")?;
        if Type::named(kind.trim_start_matches('.')).is_none() {
            return Err(self.beyond(Token::Word(kind)));
        }
        loop {
            let name = self.word("a register")?;
            if self.peek() == Some(Token::Mark('<')) {
                self.take();
                let count = self.number()?;
                self.expect(Token::Mark('>'))?;
                if count > MAX_REGISTERS {
                    return Err(self.refuse("too many registers"));
                }
                for index in 0..count {
                    body.declare(format!("{name}{index}"));
                }
            } else {
                body.declare(name.to_owned());
            }
            match self.take() {
                Some(Token::Mark(',')) => {}
                Some(Token::Mark(';')) => return Ok(()),
                _ => return Err(self.refuse("registers are separated by commas")),
            }
        }
    }

    fn shared_variable(&mut self, shared: &mut Shared<'a>) -> Result {
        let (name, align, len) = self.variable()?;
        self.expect(Token::Mark(';'))?;
        let place = match len {
            None => Operand::DynamicShared,
            Some(len) => {
                let start = shared.bytes.next_multiple_of(align);
                let end = start
                    .checked_add(len)
                    .filter(|&end| end <= MAX_SHARED_BYTES);
                shared.bytes = end.ok_or_else(|| self.refuse("too much shared memory"))?;
                Operand::Constant(start.into())
            }
        };
        shared.places.insert(name, place);
        Ok(())
    }

    /// `.align 8 .b8 name[16]`: the name, the alignment and the bytes; none for `name[]`.
    fn variable(&mut self) -> Result<(&'a str, u32, Option<u32>)> {
        let mut align = None;
        let kind = loop {
            let word = self.word("a type")?;
            match word {
                ".align" => {
                    let number = self.number()?;
                    let power = u32::try_from(number).ok().filter(|n| n.is_power_of_two());
                    align = Some(power.ok_or_else(|| self.refuse("alignments are powers of two"))?);
                }
                _ => match word.strip_prefix('.').and_then(Type::named) {
                    Some(kind) => break kind,
                    None => return Err(self.beyond(Token::Word(word))),
                },
            }
        };
        let align = align.unwrap_or(kind.width.bytes()).max(1);
        // `.param .u64 .ptr .global .align 4 name` also tells what is pointed to.
        let mut name = self.word("a name")?;
        while matches!(name, ".ptr" | ".global" | ".shared" | ".const" | ".align") {
            if name == ".align" {
                self.number()?;
            }
            name = self.word("a name")?;
        }
        let mut len = Some(kind.width.bytes());
        while self.peek() == Some(Token::Mark('[')) {
            self.take();
            if self.peek() == Some(Token::Mark(']')) {
                len = None;
            } else {
                let count = self.number()?;
                len = len
                    .and_then(|len| u64::from(len).checked_mul(count))
                    .and_then(|len| u32::try_from(len).ok());
                if len.is_none() {
                    return Err(self.refuse("a variable of this size"));
                }
            }
            self.expect(Token::Mark(']'))?;
        }
        Ok((name, align, len))
    }

    fn instruction(
        &mut self,
        body: &mut Body<'a>,
        guard: Option<(Register, bool)>,
        opcode: &str,
    ) -> Result {
        let line = self.line();
        let mut arguments = Vec::new();
        while self.peek() != Some(Token::Mark(';')) {
            arguments.push(self.argument(body)?);
            if self.peek() == Some(Token::Mark(',')) {
                self.take();
            }
        }
        self.take();
        let decoded = decode::decode(opcode, &arguments).map_err(|why| Refused { line, why })?;
        let operation = match decoded {
            Decoded::Operation(operation) => operation,
            Decoded::Branch(label) => {
                body.branches.push((body.code.len(), label));
                Operation::Exit // Until the labels are known.
            }
        };
        body.code.push(Instruction {
            guard,
            operation,
            line,
        });
        Ok(())
    }

    fn argument(&mut self, body: &mut Body<'a>) -> Result<Argument> {
        match self.peek() {
            Some(Token::Mark('[')) => {
                self.take();
                let name = self.value(body)?;
                let mut offset = 0u64;
                if self.peek() == Some(Token::Mark('+')) {
                    self.take();
                    offset = self.signed()?;
                } else if self.peek() == Some(Token::Mark('-')) {
                    offset = self.signed()?;
                }
                self.expect(Token::Mark(']'))?;
                match name {
                    Argument::Value(base) => Ok(Argument::Address(base, offset)),
                    _ => Err(self.refuse("this is no address")),
                }
            }
            Some(Token::Mark('{')) => {
                self.take();
                let mut elements = Vec::new();
                while self.peek() != Some(Token::Mark('}')) {
                    match self.value(body)? {
                        Argument::Value(element) => elements.push(element),
                        _ => return Err(self.refuse("this is no element of a vector")),
                    }
                    if self.peek() == Some(Token::Mark(',')) {
                        self.take();
                    }
                }
                self.take();
                Ok(Argument::Vector(elements))
            }
            _ => {
                let value = self.value(body)?;
                if self.peek() != Some(Token::Mark('|')) {
                    return Ok(value);
                }
                self.take();
                match (value, self.value(body)?) {
                    (
                        Argument::Value(Operand::Register(first)),
                        Argument::Value(Operand::Register(second)),
                    ) => Ok(Argument::Pair(first, second)),
                    _ => Err(self.refuse("only registers make a pair")),
                }
            }
        }
    }

    /// A register, a number, or the name of a place.
    fn value(&mut self, body: &mut Body<'a>) -> Result<Argument> {
        match self.peek() {
            Some(Token::Mark('-') | Token::Number(_)) => {
                Ok(Argument::Value(Operand::Constant(self.signed()?)))
            }
            Some(Token::Word(word)) => {
                self.take();
                if let Some(operand) = body.operand(word) {
                    Ok(Argument::Value(operand))
                } else if word.starts_with('%') {
                    Err(self.refuse(&format!("there is no register {word} here")))
                } else {
                    Ok(Argument::Name(word.to_owned()))
                }
            }
            _ => Err(self.refuse("this is no operand")),
        }
    }

    fn register(&mut self, body: &mut Body<'a>, name: &str) -> Result<Register> {
        match body.operand(name) {
            Some(Operand::Register(register)) => Ok(register),
            _ => Err(self.refuse(&format!("there is no register {name} here"))),
        }
    }

    fn signed(&mut self) -> Result<u64> {
        if self.peek() == Some(Token::Mark('-')) {
            self.take();
            Ok(self.number()?.wrapping_neg())
        } else {
            self.number()
        }
    }

    fn number(&mut self) -> Result<u64> {
        match self.take() {
            Some(Token::Number(number)) => Ok(number),
            _ => Err(self.refuse("a number is missing")),
        }
    }

    fn word(&mut self, what: &str) -> Result<&'a str> {
        match self.take() {
            Some(Token::Word(word)) => Ok(word),
            _ => Err(self.refuse(&format!("{what} is missing"))),
        }
    }

    fn expect(&mut self, token: Token<'_>) -> Result {
        match self.take() {
            Some(found) if found == token => Ok(()),
            _ => Err(self.refuse(&match token {
                Token::Word(word) => format!("{word} is missing"),
                Token::Mark(mark) => format!("'{mark}' is missing"),
                Token::Number(number) => format!("{number} is missing"),
                Token::Text => "a quotation is missing".into(),
            })),
        }
    }

    /// Directives without a semicolon end with their line.
    fn skip_line(&mut self) {
        let line = self.line();
        while self
            .tokens
            .get(self.next)
            .is_some_and(|token| token.line == line)
        {
            self.next += 1;
        }
    }

    fn skip_past(&mut self, mark: char) {
        while self.take().is_some_and(|token| token != Token::Mark(mark)) {}
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.next).map(|lexed| lexed.token)
    }

    fn take(&mut self) -> Option<Token<'a>> {
        let token = self.peek()?;
        self.next += 1;
        Some(token)
    }

    /// The line of the token taken last.
    fn line(&self) -> u32 {
        self.tokens
            .get(self.next.saturating_sub(1))
            .or(self.tokens.last())
            .map_or(1, |lexed| lexed.line)
    }

    fn refuse(&self, why: &str) -> Refused {
        Refused {
            line: self.line(),
            why: why.to_owned(),
        }
    }

    fn beyond(&self, token: Token<'_>) -> Refused {
        self.refuse(&match token {
            Token::Word(word) => format!("{word} is not among what the emulated GPU understands"),
            Token::Mark(mark) => format!("'{mark}' does not belong here"),
            Token::Number(number) => format!("{number} does not belong here"),
            Token::Text => "a quotation does not belong here".into(),
        })
    }
}

impl Body<'_> {
    fn declare(&mut self, name: String) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, self.registers);
            self.registers += 1;
        }
    }

    fn operand(&mut self, name: &str) -> Option<Operand> {
        let registers = self.scopes.iter().rev();
        if let Some(register) = registers.filter_map(|scope| scope.get(name)).next() {
            return Some(Operand::Register(*register));
        }
        if name == "_" {
            self.registers += 1; // A register that nobody reads.
            return Some(Operand::Register(self.registers - 1));
        }
        special(name)
            .map(Operand::Special)
            .or_else(|| (name == "WARP_SZ").then_some(Operand::Constant(WARP_SIZE)))
            .or_else(|| self.parameters.get(name).copied())
            .or_else(|| self.shared.places.get(name).copied())
    }
}

/// Threads of a warp.
pub(super) const WARP_SIZE: u64 = 32;

/// As the GPU attribute MAX_SHARED_MEMORY_PER_BLOCK says.
const MAX_SHARED_BYTES: u32 = 48 << 10;

/// As for GPUs of compute capability 7.0 and later.
const MAX_PARAMETER_BYTES: u32 = 32764;

/// Of one name.
const MAX_REGISTERS: u64 = 1 << 16;

fn special(name: &str) -> Option<Special> {
    let (register, dimension) = match name.rsplit_once('.') {
        Some((register, "x")) => (register, Some(0)),
        Some((register, "y")) => (register, Some(1)),
        Some((register, "z")) => (register, Some(2)),
        _ => (name, None),
    };
    match (register, dimension) {
        ("%tid", Some(dimension)) => Some(Special::Thread(dimension)),
        ("%ntid", Some(dimension)) => Some(Special::BlockSize(dimension)),
        ("%ctaid", Some(dimension)) => Some(Special::Block(dimension)),
        ("%nctaid", Some(dimension)) => Some(Special::GridSize(dimension)),
        ("%laneid", None) => Some(Special::Lane),
        ("%warpid", None) => Some(Special::Warp),
        ("%clock" | "%clock64" | "%globaltimer", None) => Some(Special::Nanoseconds),
        _ => None,
    }
}
