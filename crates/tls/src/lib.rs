//! TLS (RFC 8446, RFC 5246) over connected sockets, from files that a user names; and SASL authentication.
//!
//! - [`Files`]: trusted CAs, and our own certificate;
//! - [`Client`] and [`Server`]: configurations of connections, and [`Stream`], a connection, which never blocks longer
//!   than its timeouts;
//! - [`sasl`]: client side of PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677).
//!
//! # Design
//!
//! `rustls` with `ring`: all Rust except `ring`'s assembly, no system library that a binary depends on, only TLS 1.2
//! and 1.3. Certificates and host names are always verified: no option disables that, since naming the right CA takes no
//! more work. Trusted are the system's CAs, or one file in their place. Everything here is optional, by the feature
//! `tls` of the crates that use it.
#![forbid(unsafe_code)]

mod errors;
mod files;
pub mod sasl;
mod stream;
#[cfg(test)]
mod tests;

pub use self::errors::explain;
pub use self::files::{Client, Files, Server};
pub use self::stream::{Session, Stream};
/// Configuration of a server with its own event loop.
pub use rustls::ServerConfig;
