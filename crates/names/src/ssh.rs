//! Identification line of each side of SSH (RFC 4253, 4.2).

use crate::ParseResult;
use crate::cursor::count;
use crate::text;

/// Maximum length of a line, including its end.
const MOST_LINE: usize = 255;
/// Maximum number of lines that a server may send before it, and their total length.
const MOST_LINES: usize = 64;
const MOST_BEFORE: usize = 4096;

/// Returns the line that starts with `SSH-`, without its end; `may_greet`: others may precede it.
pub fn line(stream: &[u8], may_greet: bool) -> ParseResult<Box<str>> {
    let mut rest = stream;
    for _ in 0..MOST_LINES {
        let begin = b"SSH-".get(..rest.len().min(4)).unwrap_or_default();
        let is_it = rest.starts_with(begin);
        let end = rest.iter().take(MOST_LINE).position(|byte| *byte == b'\n');
        count(end.unwrap_or(rest.len().min(MOST_LINE)));
        match (is_it, end) {
            (true, Some(end)) if rest.len() >= 4 => {
                return ParseResult::Done(text::visible(
                    rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]),
                    MOST_LINE,
                ));
            }
            (true, None) if rest.len() < MOST_LINE => return ParseResult::More,
            (false, Some(end)) if may_greet && stream.len() - rest.len() < MOST_BEFORE => rest = &rest[end + 1..],
            (false, None) if may_greet && rest.len() < MOST_LINE => return ParseResult::More,
            _ => return ParseResult::Never,
        }
    }
    ParseResult::Never
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banners_are_unchanged() {
        let done = |text: &str| ParseResult::Done(text.into());
        assert_eq!(line(b"SSH-2.0-OpenSSH_9.2 Debian\r\nxyz", false), done("SSH-2.0-OpenSSH_9.2 Debian"));
        assert_eq!(line(b"SSH-1.99-x\n", false), done("SSH-1.99-x"));
        assert_eq!(line(b"SSH-2.0-x", false), ParseResult::More);
        assert_eq!(line(b"", false), ParseResult::More);
        assert_eq!(line(b"SS", false), ParseResult::More);
        assert_eq!(line(b"SSX", false), ParseResult::Never);
        assert_eq!(line(b"hello\r\nSSH-2.0-x\r\n", true), done("SSH-2.0-x"));
        assert_eq!(line(b"hello\r\nSSH-2.0-x\r\n", false), ParseResult::Never);
        assert_eq!(line(b"hello\r\n", true), ParseResult::More);
        assert_eq!(line(&[b'x'; 255], true), ParseResult::Never);
        assert_eq!(line(&[b"SSH-".as_slice(), &[b'x'; 251]].concat(), false), ParseResult::Never, "too long");
        assert_eq!(line(&b"\n".repeat(99), true), ParseResult::Never);
    }
}
