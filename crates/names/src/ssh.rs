//! Identification line of each side of SSH (RFC 4253, 4.2).

use crate::Read;
use crate::cursor::count;
use crate::text;

/// Maximum length of a line, including its end.
const MOST_LINE: usize = 255;
/// Maximum number of lines that a server may send before it, and their total length.
const MOST_LINES: usize = 64;
const MOST_BEFORE: usize = 4096;

/// Returns the line that starts with `SSH-`, without its end; `may_greet`: others may precede it.
pub fn line(stream: &[u8], may_greet: bool) -> Read<Box<str>> {
    let mut rest = stream;
    for _ in 0..MOST_LINES {
        let begin = b"SSH-".get(..rest.len().min(4)).unwrap_or_default();
        let is_it = rest.starts_with(begin);
        let end = rest.iter().take(MOST_LINE).position(|byte| *byte == b'\n');
        count(end.unwrap_or(rest.len().min(MOST_LINE)));
        match (is_it, end) {
            (true, Some(end)) if rest.len() >= 4 => {
                return Read::Done(text::visible(rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]), MOST_LINE));
            }
            (true, None) if rest.len() < MOST_LINE => return Read::More,
            (false, Some(end)) if may_greet && stream.len() - rest.len() < MOST_BEFORE => rest = &rest[end + 1..],
            (false, None) if may_greet && rest.len() < MOST_LINE => return Read::More,
            _ => return Read::Never,
        }
    }
    Read::Never
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_they_are() {
        let done = |text: &str| Read::Done(text.into());
        assert_eq!(line(b"SSH-2.0-OpenSSH_9.2 Debian\r\nxyz", false), done("SSH-2.0-OpenSSH_9.2 Debian"));
        assert_eq!(line(b"SSH-1.99-x\n", false), done("SSH-1.99-x"));
        assert_eq!(line(b"SSH-2.0-x", false), Read::More);
        assert_eq!(line(b"", false), Read::More);
        assert_eq!(line(b"SS", false), Read::More);
        assert_eq!(line(b"SSX", false), Read::Never);
        assert_eq!(line(b"hello\r\nSSH-2.0-x\r\n", true), done("SSH-2.0-x"));
        assert_eq!(line(b"hello\r\nSSH-2.0-x\r\n", false), Read::Never);
        assert_eq!(line(b"hello\r\n", true), Read::More);
        assert_eq!(line(&[b'x'; 255], true), Read::Never);
        assert_eq!(line(&[b"SSH-".as_slice(), &[b'x'; 251]].concat(), false), Read::Never, "too long");
        assert_eq!(line(&b"\n".repeat(99), true), Read::Never);
    }
}
