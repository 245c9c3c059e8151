//! Parser of packet text: layers between slashes, arguments between commas.

use crate::text_error::TextError;
use std::ops::Range;

/// Layer: its name and the arguments in parentheses.
#[derive(Clone, Debug)]
pub(super) struct Layer<'a> {
    /// Name in the text.
    pub name: &'a str,
    pub arguments: Vec<Argument<'a>>,
}

/// Argument: `name=value`, or only a word or string.
#[derive(Clone, Copy, Debug)]
pub(super) struct Argument<'a> {
    /// Text before the equals sign, or all of it.
    pub name: &'a str,
    /// Text after the equals sign.
    pub value: Option<&'a str>,
}

/// Parses the layers of a packet.
pub(super) fn layers(text: &str) -> Result<Vec<Layer<'_>>, TextError> {
    split(text, text, '/')?.into_iter().map(|part| layer(text, part)).collect()
}

fn layer<'a>(text: &'a str, part: &'a str) -> Result<Layer<'a>, TextError> {
    let part = part.trim();
    let Some(open) = part.find('(') else { return named(text, part, Vec::new()) };
    let (name, rest) = part.split_at(open);
    let inside = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let inside = inside.ok_or_else(|| TextError::at(text, part, "unexpected text after the closing parenthesis"))?;
    let mut arguments = Vec::new();
    for argument in split(text, inside, ',')? {
        let argument = argument.trim();
        match argument {
            "" if inside.trim().is_empty() => {}
            "" => return Err(TextError::at(text, argument, "missing argument between commas")),
            _ => arguments.push(named_argument(argument)),
        }
    }
    named(text, name.trim(), arguments)
}

fn named<'a>(text: &'a str, name: &'a str, arguments: Vec<Argument<'a>>) -> Result<Layer<'a>, TextError> {
    match name {
        "" => Err(TextError::at(
            text,
            name,
            "missing layer name; expected layers such as eth/ip/udp(dport=53)/payload(\"hello\")",
        )),
        _ => Ok(Layer { name, arguments }),
    }
}

/// A quoted string never has a name.
fn named_argument(text: &str) -> Argument<'_> {
    match text.split_once('=') {
        Some((name, value)) if !text.starts_with('"') => Argument { name: name.trim(), value: Some(value.trim()) },
        _ => Argument { name: text, value: None },
    }
}

/// Splits `part`, which is within `text`, at separators outside of strings and brackets.
pub(super) fn split<'a>(text: &str, part: &'a str, separator: char) -> Result<Vec<&'a str>, TextError> {
    let (mut parts, mut start, mut open, mut characters) = (Vec::new(), 0, Vec::new(), part.char_indices());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => {
                let mut escaped = false;
                let end = characters.find(|(_, inside)| {
                    let ends = *inside == '"' && !escaped;
                    escaped = *inside == '\\' && !escaped;
                    ends
                });
                end.ok_or_else(|| TextError::at(text, &part[at..], "missing closing quotation mark"))?;
            }
            '(' => open.push((')', at)),
            '[' => open.push((']', at)),
            ')' | ']' => {
                let opened = open.pop().filter(|(closes, _)| *closes == character);
                opened.ok_or_else(|| TextError::at(text, &part[at..=at], "missing opening bracket"))?;
            }
            _ if character == separator && open.is_empty() => {
                parts.push(&part[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if let Some((_, at)) = open.pop() {
        return Err(TextError::at(text, &part[at..=at], "missing closing bracket"));
    }
    parts.push(&part[start..]);
    Ok(parts)
}

/// Returns the position of a part in its text.
pub(crate) fn place(text: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    if start <= text.len() && start + part.len() <= text.len() { start..start + part.len() } else { 0..text.len() }
}

/// Returns the text of a quoted string with escapes replaced: `\n`, `\r`, `\t`, `\0`, `\\`, `\"`, `\xNN`.
pub(super) fn unquote(text: &str, quoted: &str) -> Result<Vec<u8>, TextError> {
    let wrong = |what: &str| TextError::at(text, quoted, what);
    let inside = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let inside = inside.ok_or_else(|| wrong("missing quotation marks around text"))?;
    let (mut bytes, mut rest) = (Vec::new(), inside.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(b'0') => 0,
                Some(same @ (b'\\' | b'"')) => same,
                Some(b'x') => {
                    let digit = |byte: Option<u8>| Some((byte? as char).to_digit(16)? as u8);
                    let value = digit(rest.next()).and_then(|high| Some(high << 4 | digit(rest.next())?));
                    value.ok_or_else(|| wrong("invalid escape; expected two hexadecimal digits after \\x"))?
                }
                _ => return Err(wrong("invalid escape; expected one of \\n \\r \\t \\0 \\\\ \\\" \\xNN")),
            },
            byte => byte,
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_and_commas_in_brackets_and_strings_are_text() {
        let text = r#"eth / ip(src=10.0.0.0/24, dst=[1, 2:3])/payload("a/b,\")=")"#;
        let layers = layers(text).unwrap();
        let names: Vec<_> = layers.iter().map(|layer| (layer.name, layer.arguments.len())).collect();
        assert_eq!(names, [("eth", 0), ("ip", 2), ("payload", 1)]);
        assert_eq!(layers[1].arguments[1].value, Some("[1, 2:3]"));
        assert_eq!(unquote(text, layers[2].arguments[0].name).unwrap(), b"a/b,\")=");
        assert_eq!(place(text, layers[1].name), 6..8);
    }

    #[test]
    fn incomplete_text_is_rejected_at_its_position() {
        for (wrong, at) in
            [("", 0..0), ("eth//ip", 4..4), ("eth(", 3..4), ("eth)", 3..4), ("a(\"x)", 2..5), ("a(b,,c)", 4..4)]
        {
            assert_eq!(layers(wrong).unwrap_err().at, at, "{wrong}");
        }
    }
}
