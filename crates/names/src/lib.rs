//! Names that conversations carry in cleartext: the site of a TLS or QUIC hello, the question of DNS, the host of
//! HTTP, the programs of SSH.
//!
//! No I/O: bytes in, values out. In the order of the data path:
//!
//! - [`stream`]: the first bytes of one direction, in any order of arrival;
//! - [`mod@protocol`]: recognises the protocol, and calls its parser;
//! - [`tls`], [`quic`], [`dns`], [`http`], [`ssh`]: the parsers; `ja4`: a fingerprint of clients;
//! - [`value`]: the results for a conversation ([`Names`]); `text`: untrusted bytes as visible ASCII.
//!
//! With any input, nothing panics, the work is bounded by the number of bytes (`bounds`), and no length field makes
//! memory grow: a stream keeps [`Stream::MOST`] bytes, a text [`value::MOST_TEXT`].
//!
//! ```
//! use linerate_names::{Names, Protocols, ParseResult, protocol};
//!
//! let bytes = b"GET /index.html HTTP/1.1\r\nHost: example.org\r\n\r\n";
//! let ParseResult::Done(found) = protocol::read(bytes, None, Protocols::ALL) else { panic!() };
//! let mut names = Names::default();
//! names.add(found, 0);
//! assert_eq!(names.site(), Some("example.org"));
//! ```
//!
//! # Dependencies
//!
//! `ring` decrypts QUIC's Initial packets (RFC 9001, 5.2: the keys are derived from the packet itself, nothing is
//! secret) and computes JA4. It is the cryptography of the program's TLS too. It has C and assembly, where RustCrypto is
//! all Rust, but needs 3 packages instead of 21.
#![forbid(unsafe_code)]

#[cfg(test)]
mod bounds;
mod cursor;
pub mod dns;
pub mod http;
mod ja4;
pub mod protocol;
pub mod quic;
pub mod ssh;
pub mod stream;
mod text;
pub mod tls;
pub mod value;

pub use protocol::{FirstMessage, Protocol, Protocols};
pub use stream::Stream;
pub use value::Names;

/// Result of parsing the start of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseResult<T> {
    /// Complete.
    Done(T),
    /// Partial; more bytes may add to it.
    Part(T),
    /// More bytes are needed.
    More,
    /// Not present, whatever bytes follow.
    Never,
}

impl<T> ParseResult<T> {
    /// Converts the value.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> ParseResult<U> {
        match self {
            ParseResult::Done(found) => ParseResult::Done(make(found)),
            ParseResult::Part(found) => ParseResult::Part(make(found)),
            ParseResult::More => ParseResult::More,
            ParseResult::Never => ParseResult::Never,
        }
    }
}
