//! Start of HTTP/1 (RFC 9112): the first request, and the status of its answer.
//!
//! Lines end in CR LF or only LF; a line that starts with a space continues the one before. Anything else, such as the
//! preface of HTTP/2 (`PRI * HTTP/2.0`), is not recognised.

use crate::ParseResult;
use crate::cursor::count;
use crate::text::{trimmed, visible};
use crate::value::MOST_TEXT;

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// Method (RFC 9110, 9).
    pub method: Box<str>,
    /// Target, unchanged (RFC 9112, 3.2).
    pub target: Box<str>,
    /// Host header; without one, the host in the target.
    pub host: Option<Box<str>>,
    /// User-Agent header.
    pub user_agent: Option<Box<str>>,
}

/// Maximum length of the headers.
pub const MOST_HEADERS: usize = 8 << 10;
/// Maximum length of a method.
const MOST_METHOD: usize = 24;
/// Maximum number of header lines, each with its folded lines.
const MOST_LINES: usize = 256;

/// Parses the request at the start of a client's stream. `Part` while its headers are incomplete.
pub fn request(stream: &[u8]) -> ParseResult<Request> {
    let bytes = &stream[..stream.len().min(MOST_HEADERS)];
    // Most other protocols differ in the first byte.
    let method = bytes.iter().take_while(|byte| byte.is_ascii_uppercase() || b"-_".contains(byte)).count();
    match bytes.get(method) {
        _ if method > MOST_METHOD => return ParseResult::Never,
        None => return ParseResult::More,
        Some(b' ') if method > 0 => {}
        Some(_) => return ParseResult::Never,
    }
    let Some((first, rest)) = line(bytes) else {
        return if bytes.len() == MOST_HEADERS { ParseResult::Never } else { ParseResult::More };
    };
    let Some(space) = first.iter().rposition(|byte| *byte == b' ').filter(|space| *space > method) else {
        return ParseResult::Never;
    };
    let version = &first[space + 1..];
    if !version.starts_with(b"HTTP/1.") {
        return ParseResult::Never;
    }
    let target = trimmed(&first[method..space]);
    let mut request = Request {
        method: visible(&first[..method], MOST_METHOD),
        target: visible(target, MOST_TEXT),
        host: None,
        user_agent: None,
    };
    let is_whole = headers(rest, &mut request) || bytes.len() == MOST_HEADERS;
    if request.host.is_none() {
        request.host = authority(&first[..method], target).map(|host| visible(host, MOST_TEXT));
    }
    if is_whole { ParseResult::Done(request) } else { ParseResult::Part(request) }
}

/// Parses the status at the start of a server's stream; interim ones (1xx except 101) are skipped.
pub fn status(stream: &[u8]) -> ParseResult<u16> {
    let mut rest = &stream[..stream.len().min(MOST_HEADERS)];
    let mut found = ParseResult::More;
    loop {
        // Version, status: `HTTP/1.1 200`.
        let begin = b"HTTP/1.".get(..rest.len().min(7)).unwrap_or_default();
        if !rest.starts_with(begin) {
            return if found == ParseResult::More { ParseResult::Never } else { done(found) };
        }
        let Some(&[_, b' ', a, b, c, ..]) = rest.get(7..) else { return found };
        if ![a, b, c].iter().all(u8::is_ascii_digit) {
            return if found == ParseResult::More { ParseResult::Never } else { done(found) };
        }
        let status = [a, b, c].iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
        if !(100..200).contains(&status) || status == 101 {
            return ParseResult::Done(status);
        }
        found = ParseResult::Part(status);
        match end_of_headers(rest) {
            Some(behind) => rest = behind,
            None => return found,
        }
    }
}

fn done(found: ParseResult<u16>) -> ParseResult<u16> {
    if let ParseResult::Part(status) = found { ParseResult::Done(status) } else { found }
}

/// Splits off a line. Returns it without its end, and the rest.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    count(end.unwrap_or(bytes.len()));
    let end = end?;
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), &bytes[end + 1..]))
}

/// Returns the bytes after the blank line.
fn end_of_headers(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let (first, behind) = line(rest)?;
        if first.is_empty() {
            return Some(behind);
        }
        rest = behind;
    }
}

/// Extracts the headers of interest. Returns whether they are complete.
fn headers(mut rest: &[u8], request: &mut Request) -> bool {
    for _ in 0..MOST_LINES {
        let Some((first, behind)) = line(rest) else { return false };
        if first.is_empty() {
            return true;
        }
        rest = behind;
        let Some(colon) = first.iter().position(|byte| *byte == b':') else { continue };
        let place = match &first[..colon] {
            name if name.eq_ignore_ascii_case(b"host") => &mut request.host,
            name if name.eq_ignore_ascii_case(b"user-agent") => &mut request.user_agent,
            _ => continue,
        };
        if place.is_some() {
            continue;
        }
        let mut value = trimmed(&first[colon + 1..]).to_vec();
        while let Some((more, behind)) =
            line(rest).filter(|(more, _)| more.starts_with(b" ") || more.starts_with(b"\t"))
        {
            value.extend([b" ", trimmed(more)].concat());
            rest = behind;
        }
        *place = Some(visible(trimmed(&value), MOST_TEXT));
    }
    true
}

/// Returns the host in a target of the absolute form, or of CONNECT (RFC 9112, 3.2.2, 3.2.3).
fn authority<'a>(method: &[u8], target: &'a [u8]) -> Option<&'a [u8]> {
    if method == b"CONNECT" {
        return Some(target);
    }
    let scheme = target.windows(3).position(|three| three == b"://").filter(|place| *place < 16)?;
    let rest = &target[scheme + 3..];
    let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    let authority = &rest[..end];
    // Without user and password.
    Some(authority.iter().rposition(|byte| *byte == b'@').map_or(authority, |at| &authority[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &[u8]) -> [String; 4] {
        let (ParseResult::Done(found) | ParseResult::Part(found)) = request(text) else { panic!("none: {text:?}") };
        let text = |text: Option<Box<str>>| text.map_or("-".to_owned(), String::from);
        [found.method.into(), found.target.into(), text(found.host), text(found.user_agent)]
    }

    #[test]
    fn requests_are_parsed() {
        let whole = b"GET /a?b HTTP/1.1\r\nhost:  example.org \r\nX: y\r\nUser-Agent: curl\\1\r\n\r\nbody";
        assert_eq!(parsed(whole), ["GET", "/a?b", "example.org", "curl\\x5c1"]);
        assert!(matches!(request(whole), ParseResult::Done(_)));
        assert!(matches!(request(&whole[..40]), ParseResult::Part(_)) && request(&whole[..9]) == ParseResult::More);
        assert_eq!(parsed(b"GET http://u@a.b:8/c HTTP/1.0\n\n"), ["GET", "http://u@a.b:8/c", "a.b:8", "-"]);
        assert_eq!(parsed(b"CONNECT a.b:443 HTTP/1.1\r\n\r\n"), ["CONNECT", "a.b:443", "a.b:443", "-"]);
        assert_eq!(
            parsed(b"M-SEARCH * HTTP/1.1\r\nHost: a\r\n b\r\n\tc\r\nHost: d\r\n\r\n"),
            ["M-SEARCH", "*", "a b c", "-"]
        );
        assert_eq!(parsed(b"GET /a b HTTP/1.1\r\nHost:\r\n\r\n"), ["GET", "/a b", "", "-"]);
        for none in
            [&b"PRI * HTTP/2.0\r\n\r\n"[..], b"GET /\r\n", b" / HTTP/1.1\r\n", b"get / HTTP/1.1\r\n", b"\x16\x03\x01"]
        {
            assert_eq!(request(none), ParseResult::Never, "{none:?}");
        }
        assert_eq!(request(&[b"GET /".as_slice(), &[b'x'; MOST_HEADERS]].concat()), ParseResult::Never);
        let long = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'x'; MOST_HEADERS]].concat();
        assert!(matches!(request(&long), ParseResult::Done(_)), "headers end at the limit");
    }

    #[test]
    fn statuses_are_parsed() {
        assert_eq!(status(b"HTTP/1.1 200 OK\r\n"), ParseResult::Done(200));
        assert_eq!(status(b"HTTP/1.0 404"), ParseResult::Done(404));
        assert_eq!(status(b"HTTP/1.1 40"), ParseResult::More);
        assert_eq!(status(b"HTTP/1.1 100 Continue\r\n"), ParseResult::Part(100));
        assert_eq!(status(b"HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 302 Found\r\n"), ParseResult::Done(302));
        assert_eq!(status(b"HTTP/1.1 100 Continue\r\n\r\nxxx"), ParseResult::Done(100));
        assert_eq!(status(b"HTTP/1.1 101 Switching\r\n"), ParseResult::Done(101));
        for none in [&b"HTTP/2"[..], b"HTTP/1.1 abc", b"\x15\x03"] {
            assert_eq!(status(none), ParseResult::Never, "{none:?}");
        }
    }
}
