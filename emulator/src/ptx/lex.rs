//! PTX text in tokens.

/// A token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// Names, registers, directives and opcodes with all their suffixes.
    Word(&'a str),
    /// An integer, or the bits of a float.
    Number(u64),
    /// What stands between quotes.
    Text,
    /// Punctuation.
    Mark(char),
}

/// A token and where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lexed<'a> {
    pub(super) token: Token<'a>,
    pub(super) line: u32,
}

/// The tokens of a text, without its comments.
///
/// # Errors
/// The line of a comment or a quotation that does not end.
pub(super) fn lex(text: &str) -> Result<Vec<Lexed<'_>>, u32> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (token, len) = if first.is_whitespace() {
            (None, first.len_utf8())
        } else if rest.starts_with("//") {
            (None, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (None, rest.find("*/").ok_or(line)? + 2)
        } else if first == '"' {
            (Some(Token::Text), rest[1..].find('"').ok_or(line)? + 2)
        } else if is_word(first) {
            let len = word_len(rest);
            (Some(word(&rest[..len])), len)
        } else {
            (Some(Token::Mark(first)), first.len_utf8())
        };
        tokens.extend(token.map(|token| Lexed { token, line }));
        line += rest[..len].matches('\n').count() as u32;
        rest = &rest[len..];
    }
    Ok(tokens)
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || "_$%.".contains(character)
}

/// Bytes of the word that the text starts with; `::` belongs to suffixes such as `.L1::no_allocate`.
fn word_len(text: &str) -> usize {
    let mut len = 0;
    loop {
        len += text[len..]
            .find(|character| !is_word(character))
            .unwrap_or(text.len() - len);
        if !text[len..].starts_with("::") {
            return len;
        }
        len += 2;
    }
}

/// A number if it is one. `.version 7.0` and decimal floats stay words.
fn word(word: &str) -> Token<'_> {
    let bits = |digits: &str, radix| u64::from_str_radix(digits, radix).ok();
    let number = if !word.starts_with(|first: char| first.is_ascii_digit()) {
        None
    } else if let Some(hex) = word.strip_prefix("0x").or(word.strip_prefix("0X")) {
        bits(hex.trim_end_matches('U'), 16)
    } else if let Some(float) = word.strip_prefix("0f").or(word.strip_prefix("0F")) {
        bits(float, 16)
    } else if let Some(float) = word.strip_prefix("0d").or(word.strip_prefix("0D")) {
        bits(float, 16)
    } else if let Some(binary) = word.strip_prefix("0b").or(word.strip_prefix("0B")) {
        bits(binary.trim_end_matches('U'), 2)
    } else {
        let digits = word.trim_end_matches('U');
        bits(digits, if digits.starts_with('0') { 8 } else { 10 })
    };
    number.map_or(Token::Word(word), Token::Number)
}
