//! Names that conversations say of themselves, in the clear: the site of a TLS or QUIC hello, the question of DNS, the host of
//! HTTP, the programs of SSH.
//!
//! Pure: bytes go in, values come out. In the order data takes:
//!
//! - [`stream`]: the first bytes of one direction, in whatever order they come;
//! - [`mod@first`]: which protocol these are, and who reads them;
//! - [`tls`], [`quic`], [`dns`], [`http`], [`ssh`]: the parsers; `ja4`: a fingerprint of what a client offers;
//! - [`value`]: what is told of a conversation ([`Names`]); `text`: bytes of strangers as visible ASCII.
//!
//! Whatever the bytes are, nothing panics, the work is bounded by their number (`bounds`), and no length that they claim makes memory
//! grow: a stream keeps [`Stream::MOST`] bytes, a text [`value::MOST_TEXT`].
//!
//! ```
//! use linerate_names::{Names, Protocols, Read, first};
//!
//! let bytes = b"GET /index.html HTTP/1.1\r\nHost: example.org\r\n\r\n";
//! let Read::Done(found) = first::read(bytes, None, Protocols::ALL) else { panic!() };
//! let mut names = Names::default();
//! names.add(found, 0);
//! assert_eq!(names.site(), Some("example.org"));
//! ```
//!
//! # Dependencies
//!
//! `aes`, `aes-gcm`, `hkdf` and `sha2` of RustCrypto open QUIC's Initial packets (RFC 9001, 5.2: the keys follow from the packet itself,
//! nothing is secret) and make JA4: all Rust, well kept, and of the same family as `sha1`, so half of what they need is here already.
//! `ring` would bring C and assembly, a TLS library far more than a parser of hellos needs.
#![forbid(unsafe_code)]

#[cfg(test)]
mod bounds;
mod cursor;
pub mod dns;
pub mod first;
pub mod http;
mod ja4;
pub mod quic;
pub mod ssh;
pub mod stream;
mod text;
pub mod tls;
pub mod value;

pub use first::{Found, Protocol, Protocols};
pub use stream::Stream;
pub use value::Names;

/// How far the beginning of a stream could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read<T> {
    /// All that is looked for.
    Done(T),
    /// Some of it; more bytes may say more.
    Part(T),
    /// Nothing yet: more bytes are needed.
    More,
    /// It is not there, and no more bytes will change that.
    Never,
}

impl<T> Read<T> {
    /// The same of something made of it.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Read<U> {
        match self {
            Read::Done(found) => Read::Done(make(found)),
            Read::Part(found) => Read::Part(make(found)),
            Read::More => Read::More,
            Read::Never => Read::Never,
        }
    }
}
