//! Recognises the protocol of a direction by its first bytes.

use crate::dns::Message;
use crate::http::{self, Request};
use crate::tls::{self, ClientHello, ServerHello};
use crate::{ParseResult, ssh};
use std::fmt;
use std::str::FromStr;

/// Protocols that are parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// TLS and SSL 3 over TCP.
    Tls = 1,
    /// QUIC.
    Quic = 2,
    /// DNS over UDP and TCP.
    Dns = 4,
    /// HTTP/1 over TCP.
    Http = 8,
    /// SSH.
    Ssh = 16,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Protocol; 5] = [Protocol::Tls, Protocol::Quic, Protocol::Dns, Protocol::Http, Protocol::Ssh];

    /// Returns the name used in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tls => "tls",
            Protocol::Quic => "quic",
            Protocol::Dns => "dns",
            Protocol::Http => "http",
            Protocol::Ssh => "ssh",
        }
    }
}

/// A set of protocols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Protocols(u8);

impl Protocols {
    /// The empty set.
    pub const NONE: Protocols = Protocols(0);
    /// All protocols.
    pub const ALL: Protocols = Protocols(31);

    /// Returns whether this one is included.
    #[inline]
    pub fn has(self, protocol: Protocol) -> bool {
        self.0 & protocol as u8 != 0
    }

    /// Returns whether it is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the set without this protocol.
    pub fn without(self, protocol: Protocol) -> Protocols {
        Protocols(self.0 & !(protocol as u8))
    }

    /// Returns the set with this protocol.
    pub fn with(self, protocol: Protocol) -> Protocols {
        Protocols(self.0 | protocol as u8)
    }
}

/// Parses `none`, `all`, or names separated by commas.
impl FromStr for Protocols {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => return Ok(Protocols::NONE),
            "all" => return Ok(Protocols::ALL),
            _ => {}
        }
        text.split(',').try_fold(Protocols::NONE, |set, name| {
            let known = Protocol::ALL.into_iter().find(|protocol| protocol.name() == name);
            let known = known.ok_or_else(|| {
                format!("unknown protocol {name:?}; expected none, all, or names of tls, quic, dns, http, ssh")
            })?;
            Ok(set.with(known))
        })
    }
}

impl fmt::Display for Protocols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Protocol::ALL.into_iter().filter(|one| self.has(*one)).map(Protocol::name).collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(","))
    }
}

/// Result of parsing one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstMessage {
    /// TLS client.
    ClientHello(ClientHello),
    /// TLS server.
    ServerHello(ServerHello),
    /// DNS, either side.
    Dns(Message),
    /// HTTP client.
    Request(Request),
    /// HTTP server.
    Status(u16),
    /// SSH, either side.
    Line(Box<str>),
}

impl FirstMessage {
    /// Returns the protocol.
    pub fn protocol(&self) -> Protocol {
        match self {
            FirstMessage::ClientHello(_) | FirstMessage::ServerHello(_) => Protocol::Tls,
            FirstMessage::Dns(_) => Protocol::Dns,
            FirstMessage::Request(_) | FirstMessage::Status(_) => Protocol::Http,
            FirstMessage::Line(_) => Protocol::Ssh,
        }
    }
}

/// Parses the start of a direction of a TCP connection. `known` is the protocol according to the ports or the other
/// direction; `Never` if it is none of the `wanted`.
pub fn read(stream: &[u8], known: Option<Protocol>, wanted: Protocols) -> ParseResult<FirstMessage> {
    let Some(first) = stream.first() else { return ParseResult::More };
    let may_be = |protocol| wanted.has(protocol) && known.is_none_or(|known| known == protocol);
    match (known, first) {
        (Some(Protocol::Dns), _) if may_be(Protocol::Dns) => Message::in_stream(stream).map(FirstMessage::Dns),
        // A server may send other lines before.
        (Some(Protocol::Ssh), _) if may_be(Protocol::Ssh) => ssh::line(stream, true).map(FirstMessage::Line),
        (_, 22) if may_be(Protocol::Tls) => match stream.get(5) {
            Some(&tls::CLIENT_HELLO) => tls::client_hello(stream).map(FirstMessage::ClientHello),
            Some(&tls::SERVER_HELLO) => tls::server_hello(stream).map(FirstMessage::ServerHello),
            Some(_) => ParseResult::Never,
            // Either parser decides whether it may be one.
            None => tls::client_hello(stream).map(FirstMessage::ClientHello),
        },
        (_, b'S') if may_be(Protocol::Ssh) && matches_start(stream, b"SSH-") => {
            ssh::line(stream, false).map(FirstMessage::Line)
        }
        (_, b'H') if may_be(Protocol::Http) && matches_start(stream, b"HTTP/") => {
            http::status(stream).map(FirstMessage::Status)
        }
        _ if may_be(Protocol::Http) => http::request(stream).map(FirstMessage::Request),
        _ => ParseResult::Never,
    }
}

/// Decides when the growing start of a direction is parsed again. Each attempt starts at the first byte, so that all
/// of them together are bounded by the bytes of the stream, not by the number of its segments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reads {
    /// Length of the stream at the last attempt.
    seen: usize,
    /// Total length of all attempts.
    spent: usize,
}

/// Bytes of all attempts but the last one, per byte of the stream.
const READS_PER_BYTE: usize = 8;

impl Reads {
    /// Returns whether to parse these bytes now; if so, the attempt is counted. Without enough new bytes, or within a
    /// DNS message, an attempt is not worthwhile; once the stream has ended, [`Reads::is_unread`] decides.
    pub fn is_due(&mut self, stream: &[u8], known: Option<Protocol>) -> bool {
        let end = known.filter(|known| *known == Protocol::Dns).and_then(|_| Message::end_in_stream(stream));
        let is_worth = self.is_unread(stream) && (self.seen == 0 || end.is_none_or(|end| stream.len() >= end));
        let spent = self.spent + stream.len();
        let is_due = is_worth && spent <= stream.len().saturating_mul(READS_PER_BYTE);
        if is_due {
            *self = Reads { seen: stream.len(), spent };
        }
        is_due
    }

    /// Returns whether there are bytes that were not parsed.
    pub fn is_unread(&self, stream: &[u8]) -> bool {
        stream.len() > self.seen
    }
}

/// Returns whether the bytes available match the start `begin`.
fn matches_start(stream: &[u8], begin: &[u8]) -> bool {
    stream.iter().zip(begin).all(|(one, other)| one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_round_trip() {
        for text in ["none", "tls,quic,dns,http,ssh", "dns", "tls,ssh"] {
            assert_eq!(text.parse::<Protocols>().unwrap().to_string(), text);
        }
        assert_eq!("all".parse(), Ok(Protocols::ALL));
        assert!("tls,".parse::<Protocols>().is_err() && "TLS".parse::<Protocols>().unwrap_err().contains("TLS"));
    }

    #[test]
    fn a_stream_of_single_bytes_is_not_read_again_for_each() {
        let request = [b"GET / HTTP/1.1\r\n".as_slice(), &b"A: b\r\n".repeat(2000)].concat();
        let answer = [&b"\x3f\xff"[..], &[0; 0x3ffd]].concat();
        for (stream, known) in [(&request, None), (&answer, Some(Protocol::Dns))] {
            let (mut reads, mut bytes, mut times) = (Reads::default(), 0, 0);
            for end in (1..=stream.len()).flat_map(|end| [end, end]) {
                if reads.is_due(&stream[..end], known) {
                    (bytes, times) = (bytes + end, times + 1);
                }
            }
            assert!(bytes <= READS_PER_BYTE * stream.len() && times > 0, "{bytes} in {times}");
            assert!(known.is_none() || times <= 2, "a message is read at its start, then when complete: {times}");
        }
        // With segments of the usual length, each is read.
        let mut reads = Reads::default();
        assert!((1..=10).all(|count| reads.is_due(&request[..count * 1000], None)));
        assert!(!reads.is_due(&request[..10_000], None) && !reads.is_unread(&request[..10_000]), "nothing new");
    }

    #[test]
    fn first_bytes_determine_the_protocol() {
        let read = |bytes: &[u8]| read(bytes, None, Protocols::ALL);
        for begin in [&b"S"[..], b"SSH", b"HE", b"HTTP/1", b"G", b"\x16", b"\x16\x03\x01\x00\x10", b""] {
            assert_eq!(read(begin), ParseResult::More, "{begin:?}");
        }
        for none in
            [&b"\x16\x02"[..], b"\x17\x03\x03", b"220 mail", b"\x16\x03\x01\x00\x10\x03", b"Sx", b"\0\x10\x12\x34"]
        {
            assert_eq!(read(none), ParseResult::Never, "{none:?}");
        }
        assert!(matches!(read(b"SEARCH / HTTP/1.1\r\n\r\n"), ParseResult::Done(FirstMessage::Request(_))));
        assert!(matches!(read(b"HEAD / HTTP/1.1\r\n\r\n"), ParseResult::Done(FirstMessage::Request(_))));
        assert_eq!(
            super::read(b"GET / HTTP/1.1\r\n\r\n", None, Protocols::NONE.with(Protocol::Tls)),
            ParseResult::Never
        );
        assert_eq!(super::read(b"GET / HTTP/1.1\r\n\r\n", Some(Protocol::Tls), Protocols::ALL), ParseResult::Never);
        let greeted = super::read(b"hi\nSSH-2.0-x\n", Some(Protocol::Ssh), Protocols::ALL);
        assert_eq!(greeted, ParseResult::Done(FirstMessage::Line("SSH-2.0-x".into())));
    }
}
