//! Options: a list of codes, lengths and values at the end of a body. They are untrusted hints: invalid ones are
//! skipped.
//! does not fit is passed over.

use super::block::Order;
use linerate_burst::text::is_unseen;

const END: u16 = 0;
/// Free text, in any block.
pub(super) const COMMENT: u16 = 1;

/// Maximum length of an option's text in bytes.
const LONGEST_TEXT: usize = 1024;

/// Iterates over the options in `bytes`, to the end mark or the first option that does not fit.
pub(super) fn options(bytes: &[u8], order: Order) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (head, behind) = rest.split_first_chunk::<4>()?;
        let code = order.u16([head[0], head[1]]);
        let length = usize::from(order.u16([head[2], head[3]]));
        let value = behind.get(..length)?;
        rest = behind.get(length.next_multiple_of(4)..).unwrap_or_default();
        (code != END).then_some((code, value))
    })
}

/// A known option: its code, and the size of the word that it holds; 1 for bytes.
pub(super) type KnownOption = (u16, usize);

/// Word size: the option is parsed here, and not copied.
pub(super) const READ: usize = usize::MAX;
/// Word size: two words of four bytes.
pub(super) const PAIR: usize = usize::MAX - 1;
/// Word size: a byte that gives the kind; for kinds 1 and 2, of eBPF, followed by a word of eight bytes.
pub(super) const VERDICT: usize = usize::MAX - 2;

/// Comments and custom options that may be copied: UTF-8 and binary, after an enterprise number.
const KEPT_ANYWHERE: [KnownOption; 3] = [(COMMENT, 1), (2988, ENTERPRISE), (2989, ENTERPRISE)];

/// Word size: a word of four bytes, then bytes.
const ENTERPRISE: usize = 0;

/// Appends the options in `bytes` that are kept everywhere or in `kept`, in native byte order, without an end mark.
/// Returns the number of options left out: unknown ones, and invalid ones (empty, wrong word size, or longer than
/// their block), since programs refuse files with those.
pub(super) fn copy(bytes: &[u8], order: Order, kept: &[KnownOption], to: &mut Vec<u8>) -> u64 {
    let mut left_out = u64::from(!are_complete(bytes, order));
    for (code, value) in options(bytes, order) {
        let known = kept.iter().chain(&KEPT_ANYWHERE).find(|(kept, _)| *kept == code);
        // Positions of words affected by the byte order.
        let words: Option<&[(usize, usize)]> = match known.map(|(_, word)| *word) {
            Some(READ) => continue,
            Some(ENTERPRISE) if value.len() >= 4 => Some(&[(0, 4)]),
            Some(PAIR) if value.len() == 8 => Some(&[(0, 4), (4, 8)]),
            Some(VERDICT) if matches!(value, [1 | 2, ..]) => (value.len() == 9).then_some(&[(1, 9)]),
            Some(1 | VERDICT) if !value.is_empty() => Some(&[]),
            Some(4) if value.len() == 4 => Some(&[(0, 4)]),
            Some(8) if value.len() == 8 => Some(&[(0, 8)]),
            _ => None,
        };
        let Some(words) = words else {
            left_out += 1;
            continue;
        };
        let start = to.len() + 4;
        push(to, code, value);
        if order.swapped {
            words.iter().for_each(|(first, end)| to[start + first..start + end].reverse());
        }
    }
    left_out
}

/// Returns the bytes after the end mark of a list; empty without one.
pub(super) fn after_fin(bytes: &[u8], order: Order) -> &[u8] {
    let mut at = 0;
    while let Some([a, b, c, d]) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let length = usize::from(order.u16([*c, *d]));
        at += 4 + length.next_multiple_of(4);
        if order.u16([*a, *b]) == END {
            return bytes.get(at..).unwrap_or_default();
        }
    }
    &[]
}

/// Returns whether each option is inside `bytes`, up to the end mark or the end.
pub(super) fn are_complete(bytes: &[u8], order: Order) -> bool {
    let mut at = 0;
    while let Some([a, b, c, d]) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        if order.u16([*a, *b]) == END {
            return true;
        }
        at += 4 + usize::from(order.u16([*c, *d]));
        if at > bytes.len() {
            return false;
        }
        at = at.next_multiple_of(4).min(bytes.len());
    }
    at == bytes.len()
}

/// Returns whether encoded options in native byte order include this code.
pub(super) fn has(bytes: &[u8], code: u16) -> bool {
    options(bytes, NATIVE).any(|(found, _)| found == code)
}

/// Native byte order.
pub(super) const NATIVE: Order = Order { swapped: false };

/// Returns the text of an option: at most 1,024 bytes, without characters that could manipulate a terminal.
pub(super) fn text(value: &[u8]) -> String {
    let value = &value[..value.len().min(LONGEST_TEXT)];
    let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
    let shown = String::from_utf8_lossy(value);
    let mut text: String = shown.chars().map(|c| if is_unseen(c) { char::REPLACEMENT_CHARACTER } else { c }).collect();
    // Replacement characters are longer than the bytes they replace.
    text.truncate(text.floor_char_boundary(LONGEST_TEXT));
    text.shrink_to_fit();
    text
}

/// Appends an option in native byte order; a value that is too long is truncated.
pub(crate) fn push(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    to.extend(code.to_ne_bytes());
    to.extend((value.len() as u16).to_ne_bytes());
    to.extend(value);
    to.resize(to.len() + value.len().next_multiple_of(4) - value.len(), 0);
}

/// Appends text as an option, truncated at a character boundary, unless it is empty.
pub(super) fn push_text(to: &mut Vec<u8>, code: u16, text: &str) {
    if !text.is_empty() {
        push(to, code, &text.as_bytes()[..text.floor_char_boundary(usize::from(u16::MAX))]);
    }
}

/// Appends the end mark of options.
pub(super) fn push_end(to: &mut Vec<u8>) {
    push(to, END, &[]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_round_trip() {
        let mut bytes = Vec::new();
        push(&mut bytes, 2, b"eth0x");
        push_text(&mut bytes, 3, "");
        push_text(&mut bytes, 4, "ü");
        push_end(&mut bytes);
        bytes.extend([1, 1, 1, 1]);
        let found: Vec<(u16, &[u8])> = options(&bytes, NATIVE).collect();
        assert_eq!(found, [(2, &b"eth0x"[..]), (4, "ü".as_bytes())]);
        assert_eq!(options(&bytes[..5], NATIVE).count(), 0, "an option that does not fit ends the list");
    }

    #[test]
    fn an_option_without_its_padding_is_still_read() {
        let mut bytes = Vec::new();
        push(&mut bytes, 9, &[6]);
        assert_eq!(options(&bytes[..5], NATIVE).collect::<Vec<_>>(), [(9, &[6u8][..])]);
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(text(b"eth0\0\0"), "eth0");
        assert_eq!(text(b"\x1b[2J\xff"), "\u{fffd}[2J\u{fffd}");
        assert_eq!(text("a\u{202e}b\u{2028}".as_bytes()), "a\u{fffd}b\u{fffd}");
        assert_eq!(text(&[b'x'; 5000]).len(), LONGEST_TEXT);
        assert_eq!((text(&[1; 5000]).len(), text(&[0xff; 5000]).len()), (1023, 1023));
    }

    #[test]
    fn long_text_is_truncated_at_a_character_boundary() {
        let mut bytes = Vec::new();
        push_text(&mut bytes, 1, &"ü".repeat(40_000));
        let (_, value) = options(&bytes, NATIVE).next().unwrap();
        assert_eq!((value.len(), std::str::from_utf8(value).is_ok()), (65_534, true));
    }
}
