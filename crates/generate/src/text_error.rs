//! Errors in texts that describe packets or streams.

use crate::packet::place;
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
    let meant = nearest(name, &names).map(|of| format!("did you mean {of}? ")).unwrap_or_default();
    format!("{meant}expected one of {}", names.join(", "))
}

/// Returns the name that may have been meant.
pub fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let name = name.to_lowercase();
    let nearest = names.iter().map(|of| (distance(&name, of), *of)).min();
    nearest.filter(|(steps, of)| *steps <= of.len().div_ceil(3)).map(|(_, of)| of)
}

/// Returns the edit distance: insertions, deletions, substitutions and swaps of adjacent letters.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().take(64).collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<usize>>()];
    for (index, letter) in one.iter().enumerate() {
        let mut row = vec![index + 1];
        for (at, of) in other.iter().enumerate() {
            let above = &rows[index];
            let exchanged = above[at] + usize::from(letter != of);
            let is_swapped = index > 0 && at > 0 && one[index - 1] == *of && *letter == other[at - 1];
            let swapped = if is_swapped { rows[index - 1][at - 1] + 1 } else { usize::MAX };
            row.push(exchanged.min(row[at] + 1).min(above[at + 1] + 1).min(swapped));
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered() {
        let names = ["sport", "dport", "len", "checksum"];
        assert_eq!(choices("dprt", names), "did you mean dport? expected one of sport, dport, len, checksum");
        assert_eq!(choices("xyzzy", names), "expected one of sport, dport, len, checksum");
        for (name, meant) in
            [("UDP", Some("udp")), ("dhcp", None), ("ipp", Some("ip")), ("tpc", Some("tcp")), ("dns", None)]
        {
            assert_eq!(nearest(name, &["ip", "udp", "tcp", "hip"]), meant, "{name}");
        }
        assert_eq!((distance("kitten", "sitting"), distance("", "ab"), distance("ab", "")), (3, 2, 2));
    }
}
