//! Parses PTX text to a module with variables and GPU kernels.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::declaration::{Declaration, Layout, Name, Names};
use super::entry::Entry;
use super::kernel::Kernel;
use super::tokens::{ParseError, Result, Tokens};

#[derive(Default)]
pub struct Module {
    /// The compute capability that the PTX text names as its target, times 10.
    pub target: u32,
    /// GPU kernels by their names, or the errors that say why they cannot run.
    pub kernels: BTreeMap<String, std::result::Result<Arc<Kernel>, ParseError>>,
    /// The place of each variable in `memory`, as offset and size.
    pub variables: BTreeMap<String, (usize, usize)>,
    /// The initial contents of the variables' memory.
    pub memory: Vec<u8>,
}

/// Parses PTX text. An error inside a GPU kernel makes only this GPU kernel unusable. Other errors are returned.
pub fn parse(text: &str) -> Result<Module> {
    let tokens = &mut Tokens::new(text);
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
                let meaning = match space {
                    ".shared" => Name::Shared(declaration),
                    _ if external => Name::Unsupported("it is not in this module"),
                    _ => module.variable(&declaration, tokens)?,
                };
                names.insert(declaration.name, meaning);
                while tokens.take()? != ";" {}
                external = false;
            }
            word => return Err(tokens.unsupported(word)),
        }
    }
    Ok(module)
}

/// Parses a target such as `sm_90a`, and returns its number.
fn target(tokens: &mut Tokens<'_>) -> Result<u32> {
    let word = tokens.take()?;
    let number = word.trim_start_matches("sm_").trim_end_matches(|c: char| c.is_ascii_lowercase());
    number.parse().map_err(|_| tokens.unsupported(word))
}

impl Module {
    /// Gives a variable its place in the module's memory, and parses its initial value.
    fn variable<'a>(&mut self, of: &Declaration<'a>, tokens: &mut Tokens<'a>) -> Result<Name<'a>> {
        let mut layout = Layout { len: self.memory.len() };
        let start = layout.place(of, tokens)?;
        if of.managed {
            return Ok(Name::Unsupported("managed memory is not supported"));
        }
        self.memory.resize(layout.len, 0);
        self.variables.insert(of.name.to_owned(), (start, layout.len - start));
        let element = of.element.bytes();
        let mut at = start;
        while tokens.peek() != Some(";") {
            if at > start && tokens.peek() == Some("{") {
                return Ok(Name::Unsupported("its first value has rows"));
            }
            if ["=", "{", "}", ","].iter().any(|mark| tokens.take_if(mark)) {
                continue;
            }
            let Ok(number) = tokens.number() else {
                return Ok(Name::Unsupported("its first value is not a number"));
            };
            let Some(place) = self.memory.get_mut(at..at + element) else {
                return Err(tokens.error(format!("{} has too many values", of.name)));
            };
            place.copy_from_slice(&number.to_le_bytes()[..element]);
            at += element;
        }
        Ok(Name::Variable(start))
    }
}
