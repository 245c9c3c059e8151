//! Untrusted bytes as text: visible ASCII, so that terminals, files and databases get nothing else.

use std::fmt::Write;

/// Escapes bytes as Zeek does: visible ASCII and spaces unchanged, any other byte, and a backslash, as `\x` and two
/// digits. Uses at most `most` bytes.
pub(crate) fn visible(bytes: &[u8], most: usize) -> Box<str> {
    let mut text = String::with_capacity(bytes.len().min(most));
    bytes[..bytes.len().min(most)].iter().for_each(|byte| push(&mut text, *byte));
    text.into_boxed_str()
}

pub(crate) fn push(text: &mut String, byte: u8) {
    if (b' '..=b'~').contains(&byte) && byte != b'\\' {
        text.push(char::from(byte));
    } else {
        // Writing to memory cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// Strips spaces and tabs at both ends.
pub(crate) fn trimmed(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\r', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t' | b'\r'] = bytes {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_visible_ascii_is_left() {
        assert_eq!(&*visible(b"a b~\\\x00\xff\n\x7f", 99), "a b~\\x5c\\x00\\xff\\x0a\\x7f");
        assert_eq!(&*visible(b"abcdef", 3), "abc");
        assert_eq!(trimmed(b" \t a b \r"), b"a b");
        assert_eq!(trimmed(b"  "), b"");
    }
}
