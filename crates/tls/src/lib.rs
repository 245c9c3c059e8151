//! TLS (RFC 8446, RFC 5246) over sockets that are open, from files that a user names; and signing in by SASL.
//!
//! - [`Files`]: which certificates are believed, and who we are;
//! - [`Client`] and [`Server`]: what connections are made with, and [`Stream`], one of them, which never waits longer than it is told;
//! - [`sasl`]: PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677), as far as they are sent.
//!
//! # Why it is so
//!
//! `rustls` with `ring`: all Rust but for `ring`'s assembly, no system library that a binary has to find, TLS 1.2 and 1.3 alone. Certificates are
//! always verified, and the name of the host with them: there is no way to leave that out, as a wrong CA is as quickly written as none. What is
//! believed is what the system believes, or one file in its place. Everything here is behind the feature `tls` of the crates that use it.
#![forbid(unsafe_code)]

mod files;
pub mod sasl;
mod stream;
#[cfg(test)]
mod tests;
mod words;

pub use self::files::{Client, Files, Server};
pub use self::stream::{Session, Stream};
pub use self::words::told;
/// What a server is set up with, for those who have an own loop.
pub use rustls::ServerConfig;
