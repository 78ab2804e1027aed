//! Splits PTX text into tokens, each with the number of its line.

use std::fmt;

/// The reason why a text, or a GPU kernel in it, is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The number of the line, from 1 on.
    pub line: u32,
    pub reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}: {}", self.line, self.reason)
    }
}

pub(super) type Result<T = ()> = std::result::Result<T, ParseError>;

/// The tokens of a text, and the number of tokens that have been taken.
pub(super) struct Tokens<'a> {
    tokens: Vec<(&'a str, u32)>,
    taken: usize,
}

impl<'a> Tokens<'a> {
    /// Splits a text into words, numbers, strings and punctuation marks. Drops comments.
    pub(super) fn new(text: &'a str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text;
        let mut line = 1;
        while let Some(first) = rest.chars().next() {
            let is_comment = rest.starts_with("//") || rest.starts_with("/*");
            let len = if rest.starts_with("//") {
                rest.find('\n')
            } else if is_comment {
                rest.find("*/").map(|end| end + 2)
            } else if first == '"' {
                rest[1..].find('"').map(|end| end + 2)
            } else {
                Some(word(rest).max(first.len_utf8()))
            };
            let token = &rest[..len.unwrap_or(rest.len())];
            if !is_comment && !first.is_whitespace() {
                tokens.push((token, line));
            }
            line += token.matches('\n').count() as u32;
            rest = &rest[token.len()..];
        }
        Tokens { tokens, taken: 0 }
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.taken).map(|(token, _)| *token)
    }

    pub(super) fn take(&mut self) -> Result<&'a str> {
        let Some(token) = self.peek() else {
            return Err(self.error("the text ends here, too early"));
        };
        self.taken += 1;
        Ok(token)
    }

    pub(super) fn take_if(&mut self, token: &str) -> bool {
        let is_next = self.peek() == Some(token);
        self.taken += usize::from(is_next);
        is_next
    }

    pub(super) fn expect(&mut self, token: &str) -> Result {
        let next = self.take()?;
        if next != token {
            return Err(self.error(format!("'{token}' is missing before '{next}'")));
        }
        Ok(())
    }

    /// Takes a number with or without a sign, and returns it as 64 bits.
    pub(super) fn number(&mut self) -> Result<u64> {
        let negative = self.take_if("-");
        let word = self.take()?;
        let Some(number) = number(word) else {
            return Err(self.error(format!("{word} is not a number")));
        };
        Ok(if negative { number.wrapping_neg() } else { number })
    }

    /// Takes the rest of the line that the last taken token is in. This skips a directive such as `.target`, which ends
    /// with its line, not with a `;`.
    pub(super) fn skip_line(&mut self) -> Result {
        let line = self.line();
        while let Some((_, next)) = self.tokens.get(self.taken)
            && *next == line
        {
            if let ";" | ":" | "{" | "}" = self.take()? {
                return Err(self.error("more than one directive in a line is not supported"));
            }
        }
        Ok(())
    }

    /// Takes a declaration, which ends with `;` or with the `}` that matches its `{`. Returns the position after it.
    pub(super) fn skip_declaration(&mut self) -> Result<usize> {
        let mut depth = 0;
        loop {
            match self.take()? {
                "{" => depth += 1,
                "}" if depth <= 1 => return Ok(self.taken),
                "}" => depth -= 1,
                ";" if depth == 0 => return Ok(self.taken),
                _ => {}
            }
        }
    }

    /// Counts the elements in the braces that follow. Without braces, there is one element.
    pub(super) fn elements(&self) -> u32 {
        let mut count = 1;
        if self.peek() == Some("{") {
            for (token, _) in self.tokens[self.taken..].iter().take_while(|(token, _)| *token != "}") {
                count += u32::from(*token == ",");
            }
        }
        count
    }

    /// Searches for a `call` instruction from the last taken word on. Returns the name of the function that it calls.
    pub(super) fn callee(&mut self) -> Result<&'a str> {
        self.taken -= 1;
        while !self.take()?.starts_with("call") {}
        if self.take_if("(") {
            while self.take()? != ")" {}
            self.expect(",")?;
        }
        self.take()
    }

    pub(super) fn position(&self) -> usize {
        self.taken
    }

    pub(super) fn go_to(&mut self, position: usize) {
        self.taken = position;
    }

    /// Returns the number of the line that the last taken token is in.
    pub(super) fn line(&self) -> u32 {
        match self.taken {
            0 => 1,
            taken => self.tokens[taken - 1].1,
        }
    }

    pub(super) fn error(&self, reason: impl Into<String>) -> ParseError {
        ParseError { line: self.line(), reason: reason.into() }
    }

    pub(super) fn unsupported(&self, word: &str) -> ParseError {
        self.error(format!("{word} is not supported"))
    }
}

/// Returns the length of the word that a text begins with, or 0. `::` is part of a word, but a single `:`, which
/// follows a label, is not.
fn word(text: &str) -> usize {
    let mut len = 0;
    loop {
        let end = text[len..].find(|c: char| !c.is_ascii_alphanumeric() && !"_$%.".contains(c));
        len += end.unwrap_or(text.len() - len);
        if len == 0 || !text[len..].starts_with("::") {
            return len;
        }
        len += 2;
    }
}

/// Returns the value of a decimal, hexadecimal, octal or binary number, or the bits of a floating-point number.
pub(super) fn number(word: &str) -> Option<u64> {
    let word = word.to_ascii_lowercase();
    let word = word.strip_suffix('u').unwrap_or(&word);
    for (prefix, radix) in [("0x", 16), ("0f", 16), ("0d", 16), ("0b", 2), ("0", 8), ("", 10)] {
        match word.strip_prefix(prefix) {
            None | Some("") => {}
            Some(digits) => return u64::from_str_radix(digits, radix).ok(),
        }
    }
    None
}
