//! PTX text to a module: its variables, and its GPU kernels.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::entry::Entry;
use super::kernel::{Kernel, Type};
use super::tokens::{ParseError, Result, Tokens};

/// The GPU kernels and variables of a PTX text.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// By name; or why it cannot run.
    pub(crate) kernels: BTreeMap<String, std::result::Result<Arc<Kernel>, ParseError>>,
    /// Where each variable is in `memory`: offset and size.
    pub(crate) variables: BTreeMap<String, (usize, usize)>,
    /// What the variables' memory holds at first.
    pub(crate) memory: Vec<u8>,
}

/// What a name stands for.
#[derive(Clone, Copy)]
pub(super) enum Name {
    /// Registers of this type. With a number behind their name, below this limit.
    Register(Type, Option<u32>),
    /// A parameter at this offset of their memory.
    Parameter(usize),
    /// Offsets in the memory of their kind.
    Variable(usize),
    Local(usize),
    /// Shared memory of this size and alignment, which gets its place when a GPU kernel uses it.
    Shared(Option<usize>, usize),
    /// A variable that cannot be used, and why.
    Unsupported(&'static str),
}

pub(super) type Names<'a> = HashMap<&'a str, Name>;

/// Memory larger than this is refused.
const MAX_BYTES: usize = 1 << 30;

/// Memory for things one after the other.
#[derive(Clone, Copy, Default)]
pub(super) struct Layout {
    pub(super) len: usize,
}

impl Layout {
    pub(super) fn place(&mut self, size: usize, align: usize) -> Option<usize> {
        let start = self.len.checked_next_multiple_of(align)?;
        self.len = start.checked_add(size).filter(|len| *len <= MAX_BYTES)?;
        Some(start)
    }
}

/// A declared variable or parameter.
pub(super) struct Declaration<'a> {
    pub(super) name: &'a str,
    pub(super) element: Type,
    /// `None`: as large as the launch says.
    pub(super) size: Option<usize>,
    pub(super) align: usize,
    /// Managed memory cannot be emulated.
    managed: bool,
}

/// Reads a text.
///
/// # Errors
/// The text is not PTX, or has a declaration outside of GPU kernels that is not known. GPU kernels that
/// cannot run are no error here.
pub(crate) fn parse(text: &str) -> Result<Module> {
    let mut tokens = Tokens::new(text);
    let tokens = &mut tokens;
    let (mut module, mut names) = (Module::default(), Names::new());
    tokens.expect(".version")?;
    tokens.take()?;
    let mut external = false;
    while tokens.peek().is_some() {
        match tokens.take()? {
            ".target" | ".file" | ".loc" => tokens.skip_line()?,
            ".address_size" => tokens.expect("64")?,
            ".pragma" | ".section" | ".func" | ".alias" => {
                tokens.skip_declaration()?;
                external = false;
            }
            ".visible" | ".weak" | ".common" => {}
            ".extern" => external = true,
            ".entry" => {
                let start = tokens.position();
                let end = tokens.skip_declaration()?;
                tokens.go_to(start);
                let name = tokens.take()?.to_owned();
                let kernel = Entry::parse(&name, tokens, &names).map(Arc::new);
                module.kernels.insert(name, kernel);
                tokens.go_to(end);
            }
            space @ (".global" | ".const" | ".shared") => {
                let declaration = Declaration::parse(tokens)?;
                let name = declaration.name;
                let meaning = if space == ".shared" {
                    Some(declaration.shared())
                } else if external {
                    Some(Name::Unsupported("it is not in this module"))
                } else {
                    module.variable(&declaration, tokens)?
                };
                let meaning = meaning
                    .ok_or_else(|| tokens.error(format!("the size of {name} is invalid")))?;
                names.insert(name, meaning);
                while tokens.take()? != ";" {}
                external = false;
            }
            word => return Err(tokens.unsupported(word)),
        }
    }
    Ok(module)
}

impl Module {
    /// Places a variable and reads what it holds at first.
    fn variable(&mut self, of: &Declaration<'_>, tokens: &mut Tokens<'_>) -> Result<Option<Name>> {
        let mut layout = Layout { len: self.memory.len() };
        let Some(size) = of.size else {
            return Ok(None);
        };
        let Some(start) = layout.place(size, of.align) else {
            return Ok(None);
        };
        if of.managed {
            return Ok(Some(Name::Unsupported("managed memory is not supported")));
        }
        self.memory.resize(layout.len, 0);
        self.variables.insert(of.name.to_owned(), (start, size));
        let mut at = start;
        while tokens.peek() != Some(";") {
            if at > start && tokens.peek() == Some("{") {
                return Ok(Some(Name::Unsupported("its first value has rows")));
            }
            if ["=", "{", "}", ","].iter().any(|mark| tokens.take_if(mark)) {
                continue;
            }
            let Ok(number) = tokens.number() else {
                return Ok(Some(Name::Unsupported("its first value is not a number")));
            };
            let Some(place) = self.memory.get_mut(at..at + of.element.bytes()) else {
                return Err(tokens.error(format!("{} has too many values", of.name)));
            };
            place.copy_from_slice(&number.to_le_bytes()[..of.element.bytes()]);
            at += of.element.bytes();
        }
        Ok(Some(Name::Variable(start)))
    }
}

impl<'a> Declaration<'a> {
    /// `.align 4 .b8 name[16]`, without what comes before and after it.
    pub(super) fn parse(tokens: &mut Tokens<'a>) -> Result<Self> {
        let (mut element, mut align, mut count) = (None, None, 1);
        let (mut managed, mut pointer) = (false, false);
        let name = loop {
            match tokens.take()? {
                ".align" => {
                    let number = tokens.number()? as usize;
                    align = if pointer { align } else { Some(number) };
                }
                ".v2" => count = 2,
                ".v4" => count = 4,
                ".ptr" => pointer = true, // What follows is about the memory that it points to.
                ".global" | ".const" | ".shared" | ".local" => {}
                ".attribute" => {
                    tokens.expect("(")?;
                    managed |= tokens.take()? == ".managed";
                    while tokens.take()? != ")" {}
                }
                word => match word.strip_prefix('.') {
                    None => break word,
                    Some(name) => match Type::named(name) {
                        Some(found) if found.bits >= 8 => element = Some(found),
                        _ => return Err(tokens.unsupported(word)),
                    },
                },
            }
        };
        let element = element.ok_or_else(|| tokens.error(format!("{name} has no type")))?;
        let mut size = Some(count * element.bytes());
        while tokens.take_if("[") {
            size = match tokens.take_if("]") {
                true => None,
                false => {
                    let elements = tokens.number()? as usize;
                    tokens.expect("]")?;
                    size.map(|size| size.saturating_mul(elements))
                }
            };
        }
        Ok(Declaration {
            name,
            element,
            size,
            align: align.unwrap_or(count * element.bytes()),
            managed,
        })
    }

    pub(super) fn shared(&self) -> Name {
        Name::Shared(self.size, self.align)
    }
}
