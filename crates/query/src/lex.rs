//! Tokens of filter text, each with its position.

use super::parse::ParseError;

/// A token of filter text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// A word, number, address.
    Word(String),
    /// A text in quotes.
    Quoted(String),
    /// `=`, `<`, `(`, ...
    Sign(&'static str),
}

/// The longest first.
const SIGNS: [&str; 17] = ["==", "!=", "<=", ">=", "&&", "||", "=", "<", ">", "~", "!", "(", ")", "[", "]", ",", ";"];

/// Returns all tokens, and the offset of each in bytes.
pub(crate) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ParseError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if c.is_whitespace() {
            at += c.len_utf8();
        } else if c == '"' || c == '\'' {
            let end = rest[1..]
                .find(c)
                .ok_or_else(|| ParseError::new(at, format!("unterminated string: closing {c} is missing")))?;
            tokens.push((at, Token::Quoted(rest[1..=end].to_owned())));
            at += end + 2;
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            tokens.push((at, Token::Sign(sign)));
            at += sign.len();
        } else if is_word_char(c) {
            let end = rest.find(|c: char| !is_word_char(c)).unwrap_or(rest.len());
            tokens.push((at, Token::Word(rest[..end].to_owned())));
            at += end;
        } else {
            return Err(ParseError::new(at, format!("unexpected character {c:?}; put strings in quotes")));
        }
    }
    Ok(tokens)
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || "_.:/-+%*^".contains(c)
}
