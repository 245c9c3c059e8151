//! Payloads: text, bytes, patterns, noise; and bytes in the formats of hex dumps.

use super::syntax::{Argument, Layer, unquote};
use crate::stream::Fill;
use crate::text_error::TextError;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Payload {
    /// Bytes that are always present, for any frame size.
    pub bytes: Vec<u8>,
    /// Filler of the rest of the frame.
    pub filler: Filler,
    /// Minimum length in bytes.
    pub least: usize,
    /// True if its length is given, by bytes, a length or its absence. Otherwise it fills up the smallest frame.
    pub has_length: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Filler {
    #[default]
    Zeros,
    /// These bytes, repeated.
    Pattern(Vec<u8>),
    /// Random bytes, the same in every frame.
    Random,
    /// Random bytes, different in every frame.
    Noise,
}

/// Maximum length of a payload.
const MOST: usize = 1 << 16;

impl Payload {
    pub(super) fn read(text: &str, layer: &Layer<'_>) -> Result<Payload, TextError> {
        let mut payload = Payload::default();
        for argument in &layer.arguments {
            let wrong = |what: &str| TextError::at(text, argument.value.unwrap_or(argument.name), what);
            match (argument.name, argument.value) {
                ("random", None) => payload.filler = Filler::Random,
                ("noise", None) => payload.filler = Filler::Noise,
                ("zeros", None) => payload.filler = Filler::Zeros,
                ("hex", Some(value)) => payload.bytes.extend(bytes(text, value)?),
                ("text", Some(value)) => payload.bytes.extend(unquote(text, value)?),
                ("pattern", Some(value)) => {
                    let pattern = bytes(text, value)?;
                    if pattern.is_empty() {
                        return Err(wrong("empty pattern; expected at least one byte"));
                    }
                    payload.filler = Filler::Pattern(pattern);
                }
                ("len", Some(value)) => {
                    let length = value.parse().ok().filter(|length| *length <= MOST);
                    payload.least =
                        length.ok_or_else(|| wrong("invalid length; expected a number of bytes up to 65536"))?;
                }
                // Changing bytes of the payload are parsed by the stack.
                (name, Some(_)) if name.starts_with('+') => {}
                (name, None) if name.starts_with('"') => payload.bytes.extend(unquote(text, name)?),
                _ => {
                    let legal = "expected payload(\"text\"), payload(hex=0a0b), payload(pattern=0a0b), payload(random) or \
                                 payload(noise), and len=100 for a length";
                    return Err(TextError::at(text, argument.name, legal));
                }
            }
        }
        let is_given =
            |argument: &Argument<'_>| matches!(argument.name, "hex" | "text" | "len") || argument.name.starts_with('"');
        payload.has_length = layer.arguments.iter().any(is_given);
        if payload.bytes.len() > MOST {
            return Err(TextError::at(text, layer.name, "too long; a payload may have at most 65536 bytes"));
        }
        Ok(payload)
    }

    /// Returns its length if the frame size is not given.
    pub(super) fn natural(&self) -> usize {
        self.least.max(self.bytes.len())
    }

    /// Returns its first `length` bytes; noise is left 0.
    pub(super) fn make(&self, length: usize, seed: u64) -> Vec<u8> {
        let mut made = self.bytes.clone();
        made.resize(length, 0);
        let from = self.bytes.len().min(length);
        match &self.filler {
            Filler::Zeros | Filler::Noise => {}
            Filler::Pattern(pattern) => {
                made[from..].iter_mut().zip(pattern.iter().cycle()).for_each(|(to, byte)| *to = *byte);
            }
            Filler::Random => Fill { offset: from, length: length - from, seed }.write(0, &mut made),
        }
        made
    }
}

/// Parses bytes in hexadecimal: a string or bare digits, plain or as a dump of `xxd` or `tcpdump -x`.
pub(super) fn bytes(text: &str, value: &str) -> Result<Vec<u8>, TextError> {
    let unquoted;
    let digits = if value.starts_with('"') {
        unquoted = String::from_utf8(unquote(text, value)?).unwrap_or_default();
        &unquoted
    } else {
        value
    };
    let lines = digits.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_dump = digits.lines().any(|line| offset(line).is_some());
    let mut bytes = Vec::new();
    for line in lines {
        let line = if is_dump { dumped(line) } else { line };
        let line: String =
            line.chars().filter(|letter| !letter.is_whitespace() && !matches!(letter, ':' | '-')).collect();
        let digits: Option<Vec<u8>> = line.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
        let digits = digits.filter(|digits| digits.len() % 2 == 0);
        let wrong = || {
            TextError::at(
                text,
                value,
                "invalid bytes; expected pairs of hexadecimal digits, or a dump of xxd or tcpdump -x",
            )
        };
        bytes.extend(digits.ok_or_else(wrong)?.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]));
    }
    Ok(bytes)
}

/// Returns the text after the offset at the start of a dump line: `0x0010:`, `00000010:`, `0010  `.
fn offset(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let (digits, prefixed) = line.strip_prefix("0x").map_or((line, false), |digits| (digits, true));
    let end = digits.find(|letter: char| !letter.is_ascii_hexdigit())?;
    let rest = &digits[end..];
    let is_offset =
        rest.starts_with(": ") || rest.starts_with(":\t") || !prefixed && end >= 4 && rest.starts_with("  ");
    (is_offset && end >= 4).then(|| rest.trim_start_matches(':'))
}

/// Returns the digits of a dump line, up to the two spaces before their letters; empty for other lines, such as
/// tcpdump's about the packet.
fn dumped(line: &str) -> &str {
    let digits = offset(line).unwrap_or_default().trim_start();
    digits.split("  ").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::syntax::layers;

    #[test]
    fn pasted_dumps_are_parsed() {
        let expected: Vec<u8> = (0x40..0x52).collect();
        for dump in [
            "404142434445464748494a4b4c4d4e4f5051",
            "40:41:42:43:44:45:46:47:48:49:4a:4b:4c:4d:4e:4f:50:51",
            "00000000: 4041 4243 4445 4647 4849 4a4b 4c4d 4e4f  @ABCDEFGHIJKLMNO\n00000010: 5051  PQ",
            "12:00:01.5 IP a > b: UDP, length 3\n\t0x0000:  4041 4243 4445 4647 4849 4a4b 4c4d 4e4f\n\t0x0010:  5051",
            "0000  40 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e 4f   @ABCDEFG HIJKLMNO\n0010  50 51   PQ",
        ] {
            let quoted = format!("\"{dump}\"");
            assert_eq!(bytes(&quoted, &quoted).unwrap_or_else(|wrong| panic!("{dump}: {wrong}")), expected, "{dump}");
        }
        for wrong in ["4", "4g", "\"4", "zz"] {
            assert!(bytes(wrong, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn payloads_fill_the_requested_length() {
        let made = |text: &str| Payload::read(text, &layers(text).unwrap()[0]).unwrap().make(8, 1);
        assert_eq!(made("payload(\"hi\\n\")"), *b"hi\n\0\0\0\0\0");
        assert_eq!(made("payload(text=\"hi\", pattern=010203)"), *b"hi\x01\x02\x03\x01\x02\x03");
        assert_eq!(made("payload(hex=0a0b0c, noise)"), [10, 11, 12, 0, 0, 0, 0, 0]);
        assert_eq!(made("payload(random)"), made("payload(random)"));
        assert_ne!(made("payload(random)"), [0; 8]);
        let text = "payload(randm)";
        assert!(Payload::read(text, &layers(text).unwrap()[0]).unwrap_err().what.contains("payload(random)"));
    }
}
