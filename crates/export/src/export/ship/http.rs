//! Minimal HTTP/1.1 client (RFC 9112) for POST: one persistent connection; answers with a length, chunked, or until end
//! of stream.

use super::super::secure::Secure;
use super::link::{Link, RunDeadline};
use std::io::{Error, ErrorKind, Result};

/// Limits in bytes of the head of an answer, of its body, and of lines between chunks.
const MOST_HEAD: usize = 32 << 10;
const MOST_BODY: usize = 64 << 10;

pub(super) struct Http {
    host: String,
    port: u16,
    over: RunDeadline,
    secure: Secure,
    link: Option<Link>,
    /// Send error of the last request.
    failed: Option<Error>,
}

/// Response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HttpResponse {
    pub status: u16,
    /// Header fields, with lower case names.
    pub head: Vec<(String, String)>,
    /// Body, truncated if it is long.
    pub body: String,
}

impl Http {
    pub(super) fn new(host: &str, port: u16, over: RunDeadline, secure: Secure) -> Self {
        Http { host: host.to_owned(), port, over, secure, link: None, failed: None }
    }

    /// Connects, unless connected.
    ///
    /// # Errors
    /// The connection failed.
    pub(super) fn connect(&mut self) -> Result<()> {
        if self.link.as_mut().is_none_or(|link| !link.is_idle()) {
            self.link = None;
            self.link = Some(Link::open(&self.host, self.port, &self.over, &self.secure)?);
        }
        Ok(())
    }

    /// Posts a body; [`answer`](Http::answer) waits for the response. `head` has additional header lines, each with its
    /// line end.
    pub(super) fn post(&mut self, target: &str, head: &str, body: &[u8]) {
        let Some(link) = &mut self.link else { return };
        let bracketed = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let (port, length) = (self.port, body.len());
        let text =
            format!("POST {target} HTTP/1.1\r\nHost: {bracketed}:{port}\r\n{head}Content-Length: {length}\r\n\r\n");
        self.failed = link.send(text.as_bytes()).and_then(|()| link.send(body)).err();
    }

    /// Returns the response to the last request.
    ///
    /// # Errors
    /// No response: it is unknown whether the body was accepted.
    pub(super) fn answer(&mut self) -> Result<HttpResponse> {
        let none = || Error::new(ErrorKind::NotConnected, "no request is pending");
        let mut link = self.link.take().ok_or_else(none)?;
        let (answer, stays) = match (self.failed.take(), answer(|| link.byte())) {
            (_, Ok(answer)) => answer,
            // The first error is the cause.
            (Some(error), _) | (None, Err(error)) => return Err(error),
        };
        if stays && sent_all(&answer) {
            self.link = Some(link);
        }
        Ok(answer)
    }
}

/// Returns whether the server has read the entire request: an error response may precede that.
fn sent_all(answer: &HttpResponse) -> bool {
    answer.status < 300
}

/// Parses a response, and whether the connection stays open.
fn answer(mut byte: impl FnMut() -> Result<u8>) -> Result<(HttpResponse, bool)> {
    let wrong = |what: &str| Error::new(ErrorKind::InvalidData, format!("invalid HTTP response: {what}"));
    let mut room = MOST_HEAD;
    let mut line = |byte: &mut dyn FnMut() -> Result<u8>| {
        let mut text = Vec::new();
        loop {
            room = room.checked_sub(1).ok_or_else(|| wrong("head is too long"))?;
            match byte()? {
                b'\n' => break,
                other => text.push(other),
            }
        }
        text.pop_if(|last| *last == b'\r');
        Ok::<String, Error>(String::from_utf8_lossy(&text).into_owned())
    };
    let first = line(&mut byte)?;
    let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse::<u16>().ok());
    let mut answer =
        HttpResponse { status: status.ok_or_else(|| wrong("invalid status line"))?, ..HttpResponse::default() };
    loop {
        let text = line(&mut byte)?;
        if text.is_empty() && answer.status == 100 {
            // The final response follows.
            let first = line(&mut byte)?;
            let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse::<u16>().ok());
            answer.status = status.ok_or_else(|| wrong("no response after status 100"))?;
            continue;
        }
        if text.is_empty() {
            break;
        }
        let (name, value) = text.split_once(':').ok_or_else(|| wrong("header line without a colon"))?;
        answer.head.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
    let named =
        |name: &str| answer.head.iter().find(|(own, _)| own == name).map(|(_, value)| value.to_ascii_lowercase());
    let mut stays = first.starts_with("HTTP/1.1") && named("connection").is_none_or(|value| value != "close");
    let length =
        named("content-length").map(|length| length.parse::<u64>().map_err(|_| wrong("invalid content length")));
    let length = length.transpose()?;
    let mut body = Vec::new();
    // Returns false at the limit: the rest is not read.
    let mut keep = |next: u8| {
        body.push(next);
        body.len() < MOST_BODY
    };
    if named("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
        'all: loop {
            let size = line(&mut byte)?;
            let size = u64::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16);
            let size = size.map_err(|_| wrong("invalid chunk size"))?;
            for _ in 0..size {
                if !keep(byte()?) {
                    stays = false;
                    break 'all;
                }
            }
            let end = line(&mut byte)?;
            match (size, end.is_empty()) {
                (0, true) => break,
                (_, false) => return Err(wrong("chunk exceeds its size")),
                _ => {}
            }
        }
    } else if let Some(length) = length {
        for _ in 0..length {
            if !keep(byte()?) {
                stays = false;
                break;
            }
        }
    } else if answer.status != 204 {
        stays = false;
        loop {
            match byte() {
                Ok(next) if keep(next) => {}
                Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(error),
                _ => break,
            }
        }
    }
    answer.body = String::from_utf8_lossy(&body).into_owned();
    Ok((answer, stays))
}

/// Parses bytes as a response, and as the rest of responses with given heads.
pub(super) fn read_anything(bytes: &[u8]) {
    for head in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] {
        let mut all = head.bytes().chain(bytes.iter().copied());
        if let Ok((answer, _)) = answer(|| all.next().ok_or_else(|| ErrorKind::UnexpectedEof.into())) {
            // Invalid UTF-8 grows when replaced.
            assert!(answer.body.len() <= 3 * MOST_BODY && answer.body.len() <= 3 * bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &[u8]) -> Result<(HttpResponse, bool)> {
        let mut bytes = text.iter().copied();
        answer(move || bytes.next().ok_or_else(|| ErrorKind::UnexpectedEof.into()))
    }

    #[test]
    fn bodies_end_by_length_by_chunks_or_with_the_connection() {
        for (text, status, body, stays) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabc"[..], 200, "ab", true),
            (b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2;x=1\r\nab\r\n1\r\nc\r\n0\r\n\r\n", 200, "abc", true),
            (b"HTTP/1.1 500 No\r\nConnection: Close\r\nContent-Length: 1\r\n\r\nx", 500, "x", false),
            (b"HTTP/1.0 404 No\r\nContent-Length: 1\r\n\r\nx", 404, "x", false),
            (b"HTTP/1.1 200 OK\r\n\r\nall", 200, "all", false),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 Fine\r\n\r\n", 204, "", true),
        ] {
            let (answer, own) = read(text).unwrap();
            assert_eq!((answer.status, answer.body.as_str(), own), (status, body, stays));
        }
        for wrong in [
            &b"SSH-2.0-x\r\n\r\n"[..],
            b"HTTP/1.1 x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
            b"HTTP/1.1 200",
        ] {
            read(wrong).unwrap_err();
        }
        let long = [b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'a'; MOST_HEAD]].concat();
        assert!(read(&long).unwrap_err().to_string().contains("too long"));
        let claim =
            [b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n".to_vec(), vec![b'a'; MOST_BODY]]
                .concat();
        assert_eq!(read(&claim).unwrap().0.body.len(), MOST_BODY);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_safely(bytes: Vec<u8>) {
            read_anything(&bytes);
        }
    }
}
