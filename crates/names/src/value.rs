//! Results for a conversation.

use crate::dns::{Message, type_name};
use crate::http::Request;
use crate::protocol::{FirstMessage, Protocol};
use crate::text::visible;
use crate::tls::{ClientHello, ServerHello};
use std::borrow::Cow;
use std::sync::Arc;

/// Maximum length of a text, as in the packets; escaped bytes make it longer in the output.
pub const MOST_TEXT: usize = 255;

/// Names in a conversation; one part per protocol seen in it, usually one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Names {
    /// TLS, also in QUIC.
    pub tls: Option<Tls>,
    /// Version of QUIC (RFC 9000, 15).
    pub quic: Option<u32>,
    /// First exchange of DNS.
    pub dns: Option<Dns>,
    /// First exchange of HTTP.
    pub http: Option<Http>,
    /// SSH identification of the originator, and of the responder.
    pub ssh: Option<[Option<Box<str>>; 2]>,
    /// From other conversations: the name under which the originator resolved the responder's address, and the
    /// reverse.
    pub resolved: [Option<Arc<str>>; 2],
}

/// TLS hellos.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tls {
    /// Client hello.
    pub client: Option<ClientHello>,
    /// Server hello.
    pub server: Option<ServerHello>,
}

/// First question of DNS, and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dns {
    /// Requested name (RFC 1035, 5.1: dots between labels, `\DDD` for bytes that are not visible, `.` for the root).
    pub name: Option<Box<str>>,
    /// Type (RFC 1035, 3.2.2).
    pub kind: u16,
    /// Response code (RFC 1035, 4.1.1), once answered.
    pub rcode: Option<u8>,
    /// Number of records in the answer section, according to the header, once answered.
    pub answers: Option<u16>,
    /// Addresses of that name, or of its aliases, in the order of the answer and separated by commas, as many as fit
    /// [`MOST_TEXT`] bytes.
    pub addresses: Option<Box<str>>,
}

/// First request of HTTP/1, and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Http {
    /// Request.
    pub request: Option<Request>,
    /// First status that is not 1xx, except 101 (RFC 9110, 15).
    pub status: Option<u16>,
}

impl Names {
    /// Adds the result of a direction: 0 is that of the lower endpoint, or of the originator, as the caller numbers
    /// them.
    pub fn add(&mut self, found: FirstMessage, side: usize) {
        match found {
            FirstMessage::ClientHello(hello) => self.tls.get_or_insert_default().client = Some(hello),
            FirstMessage::ServerHello(hello) => self.tls.get_or_insert_default().server = Some(hello),
            FirstMessage::Request(request) => self.http.get_or_insert_default().request = Some(request),
            FirstMessage::Status(status) => self.http.get_or_insert_default().status = Some(status),
            FirstMessage::Line(line) => self.ssh.get_or_insert_default()[side & 1] = Some(line),
            FirstMessage::Dns(message) => self.add_dns(message),
        }
    }

    fn add_dns(&mut self, message: Message) {
        let dns = self.dns.get_or_insert_with(|| Dns { name: message.name, kind: message.kind, ..Dns::default() });
        if message.is_answer {
            (dns.rcode, dns.answers, dns.addresses) = (Some(message.rcode), Some(message.answers), message.addresses);
        }
    }

    /// Swaps the directions.
    pub fn turn(&mut self) {
        self.ssh.iter_mut().for_each(|ssh| ssh.swap(0, 1));
        self.resolved.swap(0, 1);
    }

    /// Returns whether a part of it depends on the direction.
    pub fn has_directions(&self) -> bool {
        self.ssh.is_some() || self.resolved.iter().any(Option::is_some)
    }

    /// Returns the protocol.
    pub fn protocol(&self) -> Option<Protocol> {
        [
            (self.quic.is_some(), Protocol::Quic),
            (self.tls.is_some(), Protocol::Tls),
            (self.dns.is_some(), Protocol::Dns),
            (self.http.is_some(), Protocol::Http),
            (self.ssh.is_some(), Protocol::Ssh),
        ]
        .into_iter()
        .find_map(|(is_it, protocol)| is_it.then_some(protocol))
    }

    /// Returns the site of the address: the server name of TLS, the host of HTTP, the name requested by DNS.
    pub fn site(&self) -> Option<&str> {
        let tls = || self.tls.as_ref()?.client.as_ref()?.server_name.as_deref();
        let http = || self.http.as_ref()?.request.as_ref()?.host.as_deref();
        let dns = || self.dns.as_ref()?.name.as_deref();
        tls().or_else(http).or_else(dns)
    }

    /// Returns the memory used, including texts.
    pub fn memory(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len() + ALLOCATED);
        let tls = self.tls.as_ref().map_or(0, |Tls { client, server }| {
            let client = client
                .as_ref()
                .map_or(0, |hello| text(&hello.server_name) + text(&hello.alpn) + hello.ja4.len() + ALLOCATED);
            client + server.as_ref().map_or(0, |hello| text(&hello.alpn))
        });
        let http = self.http.as_ref().and_then(|http| http.request.as_ref()).map_or(0, |request| {
            let Request { method, target, host, user_agent } = request;
            method.len() + target.len() + 2 * ALLOCATED + text(host) + text(user_agent)
        });
        let dns = self.dns.as_ref().map_or(0, |dns| text(&dns.name) + text(&dns.addresses));
        let ssh = self.ssh.as_ref().map_or(0, |[one, other]| text(one) + text(other));
        // Shared with others, but this may be the last reference.
        let resolved: usize = self.resolved.iter().flatten().map(|name| name.len() + ALLOCATED).sum();
        size_of::<Names>() + ALLOCATED + tls + http + dns + ssh + resolved
    }
}

/// Maximum overhead of an allocation.
const ALLOCATED: usize = 16;

/// Sanitises an untrusted text: unchanged if visible ASCII, else escaped like our own; at most 1,024 bytes of it.
pub fn sanitise(bytes: &[u8]) -> Box<str> {
    let bytes = &bytes[..bytes.len().min(4 * (MOST_TEXT + 1))];
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(|byte| (b' '..=b'~').contains(byte)) => text.into(),
        _ => visible(bytes, bytes.len()),
    }
}

impl Dns {
    /// Returns the name of the type, such as `AAAA`, or `TYPE65280` (RFC 3597, 5).
    pub fn kind_name(&self) -> Cow<'static, str> {
        type_name(self.kind)
    }
}
