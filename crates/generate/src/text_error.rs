//! Errors in texts that describe packets or streams.

use crate::packet::place;
use linerate_burst::text::nearest;
use std::fmt;
use std::ops::Range;

/// Error with its position in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// Byte range of the text.
    pub at: Range<usize>,
    /// Problem and remedy.
    pub what: String,
    /// True if the requested size is wrong, and not the text.
    pub of_size: bool,
}

impl TextError {
    /// Creates an error about `part`, which is a part of `text`.
    pub fn at(text: &str, part: &str, what: impl Into<String>) -> Self {
        TextError::new(place(text, part), what.into())
    }

    /// Creates an error about these bytes of a text.
    pub fn new(at: Range<usize>, what: String) -> Self {
        TextError { at, what, of_size: false }
    }

    /// Prefixes the message with the words that it is about.
    pub fn within(self, text: &str) -> Self {
        let part = text.get(self.at.clone()).unwrap_or_default();
        if part.is_empty() || part == text {
            return self;
        }
        let what = format!("{part:?}: {}", self.what);
        TextError { what, ..self }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for TextError {}

/// Lists the valid names, with the one that may have been meant first.
pub(crate) fn choices<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let meant = nearest(name, names.iter().copied()).map(|of| format!("did you mean {of}? ")).unwrap_or_default();
    format!("{meant}expected one of {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered() {
        let names = ["sport", "dport", "len", "checksum"];
        assert_eq!(choices("dprt", names), "did you mean dport? expected one of sport, dport, len, checksum");
        assert_eq!(choices("xyzzy", names), "expected one of sport, dport, len, checksum");
    }
}
