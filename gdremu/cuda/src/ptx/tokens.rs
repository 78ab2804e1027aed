//! PTX text as a row of tokens, each with its line.

use std::fmt;

/// Why a text is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParseError {
    /// From 1.
    pub(crate) line: u32,
    /// What is wrong there.
    pub(crate) reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}: {}", self.line, self.reason)
    }
}

pub(super) type Result<T = ()> = std::result::Result<T, ParseError>;

/// The tokens of a text, and how many of them have been taken.
pub(super) struct Tokens<'a> {
    tokens: Vec<(&'a str, u32)>,
    taken: usize,
}

impl<'a> Tokens<'a> {
    /// Splits a text into words, numbers and punctuation marks. Drops what follows `//`.
    pub(super) fn new(text: &'a str) -> Self {
        let is_word = |c: char| c.is_ascii_alphanumeric() || "_$%.".contains(c);
        let mut tokens = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let code = line.split_once("//").map_or(line, |(code, _)| code);
            let mut rest = code.trim_start();
            while let Some(first) = rest.chars().next() {
                let len = if is_word(first) {
                    rest.find(|c| !is_word(c)).unwrap_or(rest.len())
                } else {
                    first.len_utf8()
                };
                let (token, after) = rest.split_at(len);
                tokens.push((token, number));
                rest = after.trim_start();
            }
        }
        Tokens { tokens, taken: 0 }
    }

    /// The next token, if there is one.
    pub(super) fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.taken).map(|(token, _)| *token)
    }

    pub(super) fn take(&mut self) -> Result<&'a str> {
        let token = self
            .peek()
            .ok_or_else(|| self.error("the text ends here, too early"))?;
        self.taken += 1;
        Ok(token)
    }

    /// Takes the next token if it is this one.
    pub(super) fn take_if(&mut self, token: &str) -> bool {
        let found = self.peek() == Some(token);
        self.taken += usize::from(found);
        found
    }

    /// Takes the next token, which must be this one.
    pub(super) fn expect(&mut self, token: &str) -> Result {
        let found = self.take()?;
        if found == token {
            Ok(())
        } else {
            Err(self.error(format!("'{token}' is missing before '{found}'")))
        }
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        let word = self.take()?;
        number(word).ok_or_else(|| self.error(format!("{word} is not a number")))
    }

    /// The line of the token taken last.
    pub(super) fn line(&self) -> u32 {
        let last = self.taken.checked_sub(1);
        last.map_or(1, |index| self.tokens[index].1)
    }

    /// An error in the line of the token taken last.
    pub(super) fn error(&self, reason: impl Into<String>) -> ParseError {
        ParseError {
            line: self.line(),
            reason: reason.into(),
        }
    }

    /// The error for a word that the interpreter does not know.
    pub(super) fn unsupported(&self, word: &str) -> ParseError {
        self.error(format!(
            "{word} is not supported: the emulated GPU interprets only what gdrcopy's own GPU \
             kernels use"
        ))
    }
}

/// The value of a decimal or hexadecimal number.
pub(super) fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        // Other numbers with a leading 0 are octal.
        None if word.len() > 1 && word.starts_with('0') => None,
        None => word.parse().ok(),
    }
}
