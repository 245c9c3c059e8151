//! Text of a packet, taken apart: layers between slashes, arguments between commas.

use crate::wrong::Wrong;
use std::ops::Range;

/// A layer: its name and what stands in parentheses behind it.
#[derive(Clone, Debug)]
pub(super) struct Layer<'a> {
    /// As it is written.
    pub name: &'a str,
    /// Its arguments.
    pub arguments: Vec<Argument<'a>>,
}

/// One argument: `name=value`, or a word or string alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Argument<'a> {
    /// What stands in front of the equals sign, or all of it.
    pub name: &'a str,
    /// What stands behind it.
    pub value: Option<&'a str>,
}

/// The layers of a packet.
pub(super) fn layers(text: &str) -> Result<Vec<Layer<'_>>, Wrong> {
    split(text, text, '/')?.into_iter().map(|part| layer(text, part)).collect()
}

fn layer<'a>(text: &'a str, part: &'a str) -> Result<Layer<'a>, Wrong> {
    let part = part.trim();
    let Some(open) = part.find('(') else { return named(text, part, Vec::new()) };
    let (name, rest) = part.split_at(open);
    let inside = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let inside = inside.ok_or_else(|| Wrong::at(text, part, "what follows the parenthesis belongs to no layer"))?;
    let mut arguments = Vec::new();
    for argument in split(text, inside, ',')? {
        let argument = argument.trim();
        match argument {
            "" if inside.trim().is_empty() => {}
            "" => return Err(Wrong::at(text, argument, "there is nothing between two commas")),
            _ => arguments.push(named_argument(argument)),
        }
    }
    named(text, name.trim(), arguments)
}

fn named<'a>(text: &'a str, name: &'a str, arguments: Vec<Argument<'a>>) -> Result<Layer<'a>, Wrong> {
    match name {
        "" => Err(Wrong::at(text, name, "a layer has a name, as in eth/ip/udp(dport=53)/payload(\"hello\")")),
        _ => Ok(Layer { name, arguments }),
    }
}

/// A string holds no name, whatever is in it.
fn named_argument(text: &str) -> Argument<'_> {
    match text.split_once('=') {
        Some((name, value)) if !text.starts_with('"') => Argument { name: name.trim(), value: Some(value.trim()) },
        _ => Argument { name: text, value: None },
    }
}

/// The parts of `part`, which is within `text`, between separators that are in no string and no brackets.
pub(super) fn split<'a>(text: &str, part: &'a str, separator: char) -> Result<Vec<&'a str>, Wrong> {
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
                end.ok_or_else(|| Wrong::at(text, &part[at..], "this string has no closing quotation mark"))?;
            }
            '(' => open.push((')', at)),
            '[' => open.push((']', at)),
            ')' | ']' => {
                let opened = open.pop().filter(|(closes, _)| *closes == character);
                opened.ok_or_else(|| Wrong::at(text, &part[at..=at], "this bracket was not opened"))?;
            }
            _ if character == separator && open.is_empty() => {
                parts.push(&part[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if let Some((_, at)) = open.pop() {
        return Err(Wrong::at(text, &part[at..=at], "this bracket is not closed"));
    }
    parts.push(&part[start..]);
    Ok(parts)
}

/// Where a part lies in the text that it is from.
pub(crate) fn place(text: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    if start <= text.len() && start + part.len() <= text.len() { start..start + part.len() } else { 0..text.len() }
}

/// The text of a string in quotation marks, its escapes replaced: `\n`, `\r`, `\t`, `\0`, `\\`, `\"`, `\xNN`.
pub(super) fn unquote(text: &str, quoted: &str) -> Result<Vec<u8>, Wrong> {
    let wrong = |what: &str| Wrong::at(text, quoted, what);
    let inside = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let inside = inside.ok_or_else(|| wrong("text stands in quotation marks"))?;
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
                    value.ok_or_else(|| wrong("behind \\x stand two hexadecimal digits"))?
                }
                _ => return Err(wrong("an escape is one of \\n \\r \\t \\0 \\\\ \\\" \\xNN")),
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
    fn what_is_not_whole_is_refused_where_it_is() {
        for (wrong, at) in
            [("", 0..0), ("eth//ip", 4..4), ("eth(", 3..4), ("eth)", 3..4), ("a(\"x)", 2..5), ("a(b,,c)", 4..4)]
        {
            assert_eq!(layers(wrong).unwrap_err().at, at, "{wrong}");
        }
    }
}
