//! TLS hellos (RFC 8446, 4.1; RFC 5246, 7.4.1) and SSL 3.
//!
//! A hello may span several records (RFC 8446, 5.1) and any number of segments. It is not encrypted, except for what
//! ECH hides: in that case the name is the outer one, of the provider.

use crate::ParseResult;
use crate::cursor::{Cursor, count};
use crate::ja4::{Offer, fingerprint, is_grease};
use crate::stream::Stream;
use crate::text;
use crate::value::MOST_TEXT;
use std::borrow::Cow;

/// Offer of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientHello {
    /// First host name of the extension server_name (RFC 6066, 3).
    pub server_name: Option<Box<str>>,
    /// Protocols (RFC 7301), separated by commas.
    pub alpn: Option<Box<str>>,
    /// Highest version offered.
    pub version: u16,
    /// JA4, 36 characters.
    pub ja4: Box<str>,
    /// True with the extension of Encrypted Client Hello, or of the older ESNI. Browsers send it also without using
    /// it.
    pub ech: bool,
}

/// Choice of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerHello {
    /// Version.
    pub version: u16,
    /// Cipher suite.
    pub cipher: u16,
    /// Protocol (RFC 7301); encrypted from TLS 1.3 on.
    pub alpn: Option<Box<str>>,
}

const HANDSHAKE: u8 = 22;
pub(crate) const CLIENT_HELLO: u8 = 1;
pub(crate) const SERVER_HELLO: u8 = 2;
/// Header lengths of a record, and of a message in it.
const RECORD: usize = 5;
const HEADER: usize = 4;
/// Maximum length of a record's content (RFC 5246, 6.2.3).
const MOST_RECORD: usize = (1 << 14) + 2048;
/// Maximum number of protocols listed.
const MOST_PROTOCOLS: usize = 16;

/// Extensions (IANA, "TLS ExtensionType Values").
const SERVER_NAME: u16 = 0;
const SIGNATURE_ALGORITHMS: u16 = 13;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;
const ECH: u16 = 0xfe0d;
const ESNI: u16 = 0xffce;

/// Parses the hello at the start of a client's stream.
pub fn client_hello(stream: &[u8]) -> ParseResult<ClientHello> {
    hello(stream, CLIENT_HELLO, |body| client_hello_body(body, 't'))
}

/// Parses the hello at the start of a server's stream.
pub fn server_hello(stream: &[u8]) -> ParseResult<ServerHello> {
    hello(stream, SERVER_HELLO, server_hello_body)
}

/// Parses a client's hello from CRYPTO frames of QUIC, without records (RFC 9001, 4).
pub fn quic_client_hello(stream: &[u8]) -> ParseResult<ClientHello> {
    match message(stream, CLIENT_HELLO) {
        ParseResult::Done(body) => client_hello_body(body, 'q').map_or(ParseResult::Never, ParseResult::Done),
        other => other.map(|_| ClientHello::default()),
    }
}

/// Returns the name of a version, such as `TLSv1.3`; its number in hexadecimal if unknown.
pub fn version_name(version: u16) -> Cow<'static, str> {
    Cow::Borrowed(match version {
        0x0304 => "TLSv1.3",
        0x0303 => "TLSv1.2",
        0x0302 => "TLSv1.1",
        0x0301 => "TLSv1.0",
        0x0300 => "SSLv3",
        other => return Cow::Owned(format!("{other:#06x}")),
    })
}

/// Returns the version of a name; 0 if unknown.
pub fn version_named(name: &str) -> u16 {
    let known = (0x0300..=0x0304).find(|version| version_name(*version) == name);
    known.or_else(|| u16::from_str_radix(name.strip_prefix("0x")?, 16).ok()).unwrap_or(0)
}

fn hello<T>(stream: &[u8], kind: u8, parse: impl FnOnce(&[u8]) -> Option<T>) -> ParseResult<T> {
    let whole = match fragment(stream) {
        ParseResult::Done((content, rest)) => match message(content, kind) {
            ParseResult::More => joined(content, rest, kind),
            other => other.map(Cow::Borrowed),
        },
        // The available part of the first record shows whether it may be one.
        ParseResult::Part(content) => match message(content.0, kind) {
            ParseResult::Never => ParseResult::Never,
            ParseResult::Done(body) => ParseResult::Done(Cow::Borrowed(body)),
            _ => ParseResult::More,
        },
        other => other.map(|(content, _)| Cow::Borrowed(content)),
    };
    match whole {
        ParseResult::Done(body) => parse(&body).map_or(ParseResult::Never, ParseResult::Done),
        ParseResult::Never => ParseResult::Never,
        _ => ParseResult::More,
    }
}

/// Splits off the content of the first record; `Part` if the record is incomplete.
fn fragment(stream: &[u8]) -> ParseResult<(&[u8], &[u8])> {
    let looks_right = |place: usize, is_right: fn(u8) -> bool| stream.get(place).is_none_or(|byte| is_right(*byte));
    if !looks_right(0, |kind| kind == HANDSHAKE)
        || !looks_right(1, |major| major == 3)
        || !looks_right(2, |minor| minor < 16)
    {
        return ParseResult::Never;
    }
    let Some((header, rest)) = stream.split_first_chunk::<RECORD>() else { return ParseResult::More };
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if length == 0 || length > MOST_RECORD {
        return ParseResult::Never;
    }
    match rest.split_at_checked(length) {
        Some((content, rest)) => ParseResult::Done((content, rest)),
        None => ParseResult::Part((rest, &[])),
    }
}

/// Reassembles a message of several records.
fn joined(first: &[u8], mut rest: &[u8], kind: u8) -> ParseResult<Cow<'static, [u8]>> {
    let mut content = first.to_vec();
    loop {
        let (next, whole) = match fragment(rest) {
            ParseResult::Done((next, behind)) => {
                rest = behind;
                (next, true)
            }
            ParseResult::Part((next, _)) => (next, false),
            ParseResult::More => (&[][..], false),
            ParseResult::Never => return ParseResult::Never,
        };
        content.extend_from_slice(next);
        count(1 + next.len());
        match message(&content, kind) {
            ParseResult::Done(body) => return ParseResult::Done(Cow::Owned(body.to_vec())),
            ParseResult::More if whole => {}
            ParseResult::Never => return ParseResult::Never,
            _ => return ParseResult::More,
        }
    }
}

/// Returns the body of the first message, if it is of this kind.
fn message(content: &[u8], kind: u8) -> ParseResult<&[u8]> {
    if content.first().is_some_and(|first| *first != kind) {
        return ParseResult::Never;
    }
    let Some((header, rest)) = content.split_first_chunk::<HEADER>() else { return ParseResult::More };
    let length = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
    if length > Stream::MOST {
        return ParseResult::Never;
    }
    rest.get(..length).map_or(ParseResult::More, ParseResult::Done)
}

/// Returns kind and content of each extension; `None` if the bytes are too short.
fn extensions<'a>(mut rest: Cursor<'a>) -> Option<Vec<(u16, Cursor<'a>)>> {
    // A hello of SSL 3 or TLS 1.0 may have none.
    if rest.is_empty() {
        return Some(Vec::new());
    }
    let mut list = rest.vector16()?;
    let mut found = Vec::with_capacity(16);
    while !list.is_empty() {
        found.push((list.u16()?, list.vector16()?));
    }
    Some(found)
}

fn client_hello_body(body: &[u8], over: char) -> Option<ClientHello> {
    let mut body = Cursor(body);
    let legacy = body.u16()?;
    // Random, session id.
    body.take(32)?;
    body.vector8()?;
    let ciphers = body.vector16()?;
    // Compression.
    body.vector8()?;
    let extensions = extensions(body)?;
    let find = |kind: u16| extensions.iter().find(|(found, _)| *found == kind).map(|(_, content)| *content);
    let name = find(SERVER_NAME).and_then(host_name);
    let versions = find(SUPPORTED_VERSIONS).and_then(|mut content| content.vector8());
    let highest = versions.and_then(|list| numbers(list).into_iter().max());
    let version = highest.unwrap_or(legacy);
    let protocols = protocols(find(ALPN));
    let algorithms = find(SIGNATURE_ALGORITHMS).and_then(|mut content| content.vector16());
    let has = |kind: u16| find(kind).is_some();
    let ja4 = fingerprint(&Offer {
        over,
        version,
        has_server_name: has(SERVER_NAME),
        ciphers: numbers(ciphers),
        extensions: extensions.iter().map(|(kind, _)| *kind).filter(|kind| !is_grease(*kind)).collect(),
        algorithms: algorithms.map(numbers).unwrap_or_default(),
        protocol: protocols.first().copied().unwrap_or_default(),
    });
    let server_name = name.map(|name| text::visible(name, MOST_TEXT));
    Some(ClientHello { server_name, alpn: listed(&protocols), version, ja4, ech: has(ECH) || has(ESNI) })
}

fn server_hello_body(body: &[u8]) -> Option<ServerHello> {
    let mut body = Cursor(body);
    let legacy = body.u16()?;
    body.take(32)?;
    body.vector8()?;
    let cipher = body.u16()?;
    body.u8()?;
    let extensions = extensions(body)?;
    let find = |kind: u16| extensions.iter().find(|(found, _)| *found == kind).map(|(_, content)| *content);
    let version = find(SUPPORTED_VERSIONS).and_then(|mut content| content.u16()).unwrap_or(legacy);
    Some(ServerHello { version, cipher, alpn: listed(&protocols(find(ALPN))) })
}

/// Returns 16-bit numbers, without GREASE.
fn numbers(list: Cursor<'_>) -> Vec<u16> {
    let numbers = list.0.chunks_exact(2).map(|two| u16::from_be_bytes([two[0], two[1]]));
    numbers.filter(|number| !is_grease(*number)).collect()
}

/// Returns the first name of type host_name (0) (RFC 6066, 3).
fn host_name(mut content: Cursor<'_>) -> Option<&[u8]> {
    let mut list = content.vector16()?;
    while !list.is_empty() {
        let (kind, name) = (list.u8()?, list.vector16()?);
        if kind == 0 {
            return Some(name.0);
        }
    }
    None
}

/// Returns the protocols of the extension, without GREASE.
fn protocols(content: Option<Cursor<'_>>) -> Vec<&[u8]> {
    let mut list = content.and_then(|mut content| content.vector16()).unwrap_or(Cursor(&[]));
    let mut found = Vec::new();
    while let Some(name) = list.vector8() {
        let is_grease = <[u8; 2]>::try_from(name.0).is_ok_and(|two| is_grease(u16::from_be_bytes(two)));
        if !is_grease && found.len() < MOST_PROTOCOLS {
            found.push(name.0);
        }
    }
    found
}

/// Joins protocols with commas; a comma in a name is escaped.
fn listed(protocols: &[&[u8]]) -> Option<Box<str>> {
    let mut text = String::new();
    for (place, protocol) in protocols.iter().enumerate() {
        if text.len() > MOST_TEXT {
            break;
        }
        if place > 0 {
            text.push(',');
        }
        for byte in *protocol {
            match *byte {
                b',' => text.push_str("\\x2c"),
                byte => text::push(&mut text, byte),
            }
        }
    }
    (!protocols.is_empty()).then(|| text.into_boxed_str())
}
