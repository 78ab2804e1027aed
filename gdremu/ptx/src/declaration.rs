//! Parses declarations, which give names a meaning, and places variables in memory.

use std::collections::HashMap;

use super::kernel::{Register, Type};
use super::tokens::{Result, Tokens};

#[derive(Clone, Copy)]
pub(super) enum Name<'a> {
    /// A register of this type. With a count, this is the first of several registers, such as `%r0` to `%r9`.
    Register(Type, Register, Option<usize>),
    /// The offset of a parameter in the memory of parameters.
    Parameter(usize),
    /// The offset of a variable in the module's memory.
    Variable(usize),
    /// The offset of a variable in the thread's local memory.
    Local(usize),
    /// A shared variable, which gets its offset when a GPU kernel first uses it.
    Shared(Declaration<'a>),
    UsedShared(usize),
    /// The index of the instruction after the label.
    Label(usize),
    Unsupported(&'static str),
}

pub(super) type Names<'a> = HashMap<&'a str, Name<'a>>;

const MAX_BYTES: usize = 1 << 30;

/// Places variables in memory, one after the other. `len` is the number of bytes that they take so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Layout {
    pub(super) len: usize,
}

impl Layout {
    pub(super) fn place(&mut self, of: &Declaration<'_>, tokens: &Tokens<'_>) -> Result<usize> {
        if let Some(size) = of.size
            && let Some(start) = self.len.checked_next_multiple_of(of.align)
            && let Some(end) = start.checked_add(size)
            && end <= MAX_BYTES
        {
            self.len = end;
            return Ok(start);
        }
        Err(tokens.error(format!("the size of {} is not supported", of.name)))
    }
}

#[derive(Clone, Copy)]
pub(super) struct Declaration<'a> {
    pub(super) name: &'a str,
    pub(super) element: Type,
    /// The size in bytes, or `None` if the launch of the GPU kernel sets it.
    pub(super) size: Option<usize>,
    pub(super) align: usize,
    /// True for managed memory, which is not supported.
    pub(super) managed: bool,
}

impl<'a> Declaration<'a> {
    /// Parses a declaration such as `.align 4 .b8 name[16]`.
    pub(super) fn parse(tokens: &mut Tokens<'a>) -> Result<Self> {
        let mut element = None;
        let mut align = None;
        let mut count = 1;
        let mut managed = false;
        let mut pointer = false;
        let name = loop {
            match tokens.take()? {
                ".align" => {
                    let number = tokens.number()? as usize;
                    align = if pointer { align } else { Some(number) };
                }
                ".v2" => count = 2,
                ".v4" => count = 4,
                ".ptr" => pointer = true, // The next `.align` is that of the memory to which the parameter points.
                ".global" | ".const" | ".shared" | ".local" => {}
                ".attribute" => {
                    tokens.expect("(")?;
                    managed |= tokens.take()? == ".managed";
                    while tokens.take()? != ")" {}
                }
                word => match word.strip_prefix('.') {
                    None => break word,
                    Some(name) => match Type::named(name) {
                        Some(as_type) if as_type.bits >= 8 => element = Some(as_type),
                        _ => return Err(tokens.unsupported(word)),
                    },
                },
            }
        };
        let element = element.ok_or_else(|| tokens.error(format!("{name} has no type")))?;
        let mut size = Some(count * element.bytes());
        while tokens.take_if("[") {
            if tokens.take_if("]") {
                size = None;
                continue;
            }
            let elements = tokens.number()? as usize;
            tokens.expect("]")?;
            size = size.map(|size| size.saturating_mul(elements));
        }
        Ok(Declaration { name, element, size, align: align.unwrap_or(count * element.bytes()), managed })
    }
}
