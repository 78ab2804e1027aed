//! PTX text to a module, with its variables and its GPU kernels.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::declaration::{Declaration, Layout, Name, Names};
use super::entry::Entry;
use super::kernel::Kernel;
use super::tokens::{ParseError, Result, Tokens};

#[derive(Default)]
pub(crate) struct Module {
    /// The compute capability that the text is for, times 10.
    pub(crate) target: u32,
    /// By name; or why it cannot run.
    pub(crate) kernels: BTreeMap<String, std::result::Result<Arc<Kernel>, ParseError>>,
    /// The place of each variable in `memory`, as offset and size.
    pub(crate) variables: BTreeMap<String, (usize, usize)>,
    /// The first contents of the variables' memory.
    pub(crate) memory: Vec<u8>,
}

/// Reads a text. GPU kernels that cannot run are no error here, but unknown declarations outside of them are.
pub(crate) fn parse(text: &str) -> Result<Module> {
    let mut tokens = Tokens::new(text);
    let tokens = &mut tokens;
    let mut module = Module::default();
    let mut names = Names::new();
    tokens.expect(".version")?;
    tokens.take()?;
    let mut external = false;
    while tokens.peek().is_some() {
        match tokens.take()? {
            ".target" => {
                module.target = target(tokens)?;
                tokens.skip_line()?;
            }
            ".file" | ".loc" => tokens.skip_line()?,
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
                let meaning = meaning.ok_or_else(|| tokens.error(format!("the size of {name} is invalid")))?;
                names.insert(name, meaning);
                while tokens.take()? != ";" {}
                external = false;
            }
            word => return Err(tokens.unsupported(word)),
        }
    }
    Ok(module)
}

/// `sm_90a`
fn target(tokens: &mut Tokens<'_>) -> Result<u32> {
    let word = tokens.take()?;
    let number = word.trim_start_matches("sm_").trim_end_matches(|c: char| c.is_ascii_lowercase());
    number.parse().map_err(|_| tokens.unsupported(word))
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
