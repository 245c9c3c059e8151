//! Parsing of keys as sent by terminals (ECMA-48, xterm).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Maximum delay of the rest of an escape sequence.
const REST_COMES: Duration = Duration::from_millis(25);
/// Maximum bytes of a key; longer sequences are ignored.
const LONGEST: usize = 32;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// Ends the input.
    Enter,
    /// Deletes the last character.
    Back,
    /// Cancels.
    Escape,
    /// One line up.
    Up,
    /// One line down.
    Down,
    /// One page up.
    PageUp,
    /// One page down.
    PageDown,
    /// To the first line.
    Home,
    /// To the last line.
    End,
}

/// Result of waiting for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A key.
    Key(Key),
    /// No key, or an unknown one.
    Nothing,
    /// The terminal was closed.
    Gone,
}

/// The keyboard of a terminal.
pub struct Keys {
    keyboard: OwnedFd,
    bytes: Vec<u8>,
}

impl Keys {
    /// Creates a reader.
    pub fn new(keyboard: OwnedFd) -> Self {
        Keys { keyboard, bytes: Vec::new() }
    }

    /// Waits for the next key.
    pub fn next(&mut self, within: Duration) -> Input {
        if self.bytes.is_empty() && !self.fill(within) {
            return Input::Gone;
        }
        let mut read = parse(&self.bytes);
        if read == ParsedKey::More && !self.bytes.is_empty() {
            let before = self.bytes.len();
            if !self.fill(REST_COMES) {
                return Input::Gone;
            }
            read = parse(&self.bytes);
            if self.bytes.len() == before {
                // No more bytes: a lone escape is the Escape key, anything else is incomplete.
                let is_escape = self.bytes == [ESC];
                self.bytes.clear();
                return if is_escape { Input::Key(Key::Escape) } else { Input::Nothing };
            }
        }
        match read {
            ParsedKey::More => Input::Nothing,
            ParsedKey::Key(key, length) => {
                self.bytes.drain(..length);
                key.map_or(Input::Nothing, Input::Key)
            }
        }
    }

    /// Reads available bytes; returns false if the terminal was closed.
    fn fill(&mut self, within: Duration) -> bool {
        let mut polled = [PollFd::new(&self.keyboard, PollFlags::IN)];
        let span = Timespec { tv_sec: 0, tv_nsec: i64::from(within.subsec_nanos()) as _ };
        match poll(&mut polled, Some(&span)) {
            Ok(0) | Err(Errno::INTR) => return true,
            Ok(_) if polled[0].revents().contains(PollFlags::IN) => {}
            _ => return false,
        }
        let mut buffer = [0; 256];
        match read(&self.keyboard, &mut buffer) {
            Ok(0) => false,
            Ok(bytes) => {
                self.bytes.extend_from_slice(&buffer[..bytes]);
                true
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) => false,
        }
    }
}

/// First key of a sequence of bytes.
#[derive(Debug, PartialEq)]
enum ParsedKey {
    /// A key, or `None` if unknown, with its number of bytes.
    Key(Option<Key>, usize),
    /// Incomplete.
    More,
}

const ESC: u8 = 0x1b;

fn parse(bytes: &[u8]) -> ParsedKey {
    match bytes {
        [] | [ESC] => ParsedKey::More,
        [ESC, b'[', rest @ ..] => match rest.iter().position(|byte| (0x40..=0x7e).contains(byte)) {
            Some(end) => ParsedKey::Key(of_sequence(&rest[..end], rest[end]), 3 + end),
            None if bytes.len() >= LONGEST => ParsedKey::Key(None, bytes.len()),
            None => ParsedKey::More,
        },
        [ESC, b'O'] => ParsedKey::More,
        [ESC, b'O', last, ..] => ParsedKey::Key(of_sequence(&[], *last), 3),
        // Keys with Alt are ignored.
        [ESC, ESC, ..] => ParsedKey::Key(Some(Key::Escape), 1),
        [ESC, _, ..] => ParsedKey::Key(None, 2),
        [b'\r' | b'\n', ..] => ParsedKey::Key(Some(Key::Enter), 1),
        [8 | 0x7f, ..] => ParsedKey::Key(Some(Key::Back), 1),
        [0..0x20, ..] => ParsedKey::Key(None, 1),
        [first, ..] => {
            let length = match first {
                0..0x80 => 1,
                0xc0..0xe0 => 2,
                0xe0..0xf0 => 3,
                0xf0..0xf8 => 4,
                _ => return ParsedKey::Key(None, 1),
            };
            match bytes.get(..length).map(std::str::from_utf8) {
                Some(Ok(text)) => ParsedKey::Key(text.chars().next().map(Key::Char), length),
                Some(Err(_)) => ParsedKey::Key(None, 1),
                None => ParsedKey::More,
            }
        }
    }
}

/// Returns the key of a control sequence.
fn of_sequence(parameters: &[u8], last: u8) -> Option<Key> {
    Some(match (parameters, last) {
        (_, b'A') => Key::Up,
        (_, b'B') => Key::Down,
        (_, b'H') | (b"1" | b"7", b'~') => Key::Home,
        (_, b'F') | (b"4" | b"8", b'~') => Key::End,
        (b"5", b'~') => Key::PageUp,
        (b"6", b'~') => Key::PageDown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed() {
        let key = |key, length| ParsedKey::Key(Some(key), length);
        for (bytes, read) in [
            (&b"q"[..], key(Key::Char('q'), 1)),
            ("\u{e9}x".as_bytes(), key(Key::Char('\u{e9}'), 2)),
            (b"\r", key(Key::Enter, 1)),
            (b"\x7f", key(Key::Back, 1)),
            (b"\x1b[A", key(Key::Up, 3)),
            (b"\x1bOB", key(Key::Down, 3)),
            (b"\x1b[5~", key(Key::PageUp, 4)),
            (b"\x1b[1;5Bq", key(Key::Down, 6)),
            (b"\x1b[200~", ParsedKey::Key(None, 6)),
            (b"\x1b", ParsedKey::More),
            (b"\x1b[1", ParsedKey::More),
            (b"\xc3", ParsedKey::More),
            (b"\xc3q", ParsedKey::Key(None, 1)),
            (b"\x01", ParsedKey::Key(None, 1)),
        ] {
            assert_eq!(parse(bytes), read, "{bytes:?}");
        }
    }

    #[test]
    fn any_bytes_are_consumed() {
        let mut dice: u64 = 7;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..40)
                .map(|_| {
                    dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let byte = (dice >> 56) as u8;
                    if byte < 90 {
                        ESC
                    } else if byte < 150 {
                        b'['
                    } else {
                        byte
                    }
                })
                .collect();
            let mut rest = &bytes[..];
            while let ParsedKey::Key(_, length) = parse(rest) {
                assert!(length > 0);
                rest = &rest[length..];
            }
            assert!(rest.len() < LONGEST, "{rest:?}");
        }
    }
}
