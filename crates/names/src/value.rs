//! What is told of a conversation.

use crate::dns::{Message, type_name};
use crate::first::{Found, Protocol};
use crate::http::Request;
use crate::text::visible;
use crate::tls::{ClientHello, ServerHello};
use std::borrow::Cow;
use std::sync::Arc;

/// The most bytes that are kept of one text as it stood in the packets; what is no visible ASCII is longer when it is written.
pub const MOST_TEXT: usize = 255;

/// What a conversation said of itself; the parts are those of the protocols that were seen in it, mostly one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Names {
    /// Of TLS, also that in QUIC.
    pub tls: Option<Tls>,
    /// The version of QUIC (RFC 9000, 15).
    pub quic: Option<u32>,
    /// Of the first exchange of DNS.
    pub dns: Option<Dns>,
    /// Of the first exchange of HTTP.
    pub http: Option<Http>,
    /// Of SSH: what the originator calls itself, and the responder.
    pub ssh: Option<[Option<Box<str>>; 2]>,
    /// Not of the conversation: by which name the originator was told the responder's address, and the other way round.
    pub resolved: [Option<Arc<str>>; 2],
}

/// The hellos of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tls {
    /// The client's.
    pub client: Option<ClientHello>,
    /// The server's.
    pub server: Option<ServerHello>,
}

/// The first question of DNS, and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dns {
    /// The name that was asked for (RFC 1035, 5.1: dots between labels, `\DDD` for bytes that are not visible, `.` for the root).
    pub name: Option<Box<str>>,
    /// Its type (RFC 1035, 3.2.2).
    pub kind: u16,
    /// The response code (RFC 1035, 4.1.1), once there is an answer.
    pub rcode: Option<u8>,
    /// Records in the section of answers, as the header says, once there is an answer.
    pub answers: Option<u16>,
    /// The addresses of that name, or of names that it is an alias of, which the answer gives: in its order and with commas between, as
    /// many as [`MOST_TEXT`] bytes hold.
    pub addresses: Option<Box<str>>,
}

/// The first request of HTTP/1, and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Http {
    /// What was asked.
    pub request: Option<Request>,
    /// The first status that is not 1xx, 101 apart (RFC 9110, 15).
    pub status: Option<u16>,
}

impl Names {
    /// Takes what was found in a direction: 0 that of the lower end, or of the originator, as the caller counts them.
    pub fn add(&mut self, found: Found, side: usize) {
        match found {
            Found::ClientHello(hello) => self.tls.get_or_insert_default().client = Some(hello),
            Found::ServerHello(hello) => self.tls.get_or_insert_default().server = Some(hello),
            Found::Request(request) => self.http.get_or_insert_default().request = Some(request),
            Found::Status(status) => self.http.get_or_insert_default().status = Some(status),
            Found::Line(line) => self.ssh.get_or_insert_default()[side & 1] = Some(line),
            Found::Dns(message) => self.add_dns(message),
        }
    }

    fn add_dns(&mut self, message: Message) {
        let dns = self.dns.get_or_insert_with(|| Dns { name: message.name, kind: message.kind, ..Dns::default() });
        if message.is_answer {
            (dns.rcode, dns.answers, dns.addresses) = (Some(message.rcode), Some(message.answers), message.addresses);
        }
    }

    /// The same with the directions turned round.
    pub fn turn(&mut self) {
        self.ssh.iter_mut().for_each(|ssh| ssh.swap(0, 1));
        self.resolved.swap(0, 1);
    }

    /// Whether something of it is of one direction.
    pub fn has_directions(&self) -> bool {
        self.ssh.is_some() || self.resolved.iter().any(Option::is_some)
    }

    /// Which protocol it is.
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

    /// The site behind the address: the server name of TLS, the host of HTTP, the name that DNS was asked for.
    pub fn site(&self) -> Option<&str> {
        let tls = || self.tls.as_ref()?.client.as_ref()?.server_name.as_deref();
        let http = || self.http.as_ref()?.request.as_ref()?.host.as_deref();
        let dns = || self.dns.as_ref()?.name.as_deref();
        tls().or_else(http).or_else(dns)
    }

    /// Bytes of memory that it takes, texts and all.
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
        // That is kept elsewhere too, but maybe no longer than here.
        let resolved: usize = self.resolved.iter().flatten().map(|name| name.len() + ALLOCATED).sum();
        size_of::<Names>() + ALLOCATED + tls + http + dns + ssh + resolved
    }
}

/// What the allocator adds to a piece of memory, at the most.
const ALLOCATED: usize = 16;

/// A text that somebody told: as it is where it is visible ASCII, else escaped as our own are; at most 1,024 bytes of it.
pub fn told(bytes: &[u8]) -> Box<str> {
    let bytes = &bytes[..bytes.len().min(4 * (MOST_TEXT + 1))];
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(|byte| (b' '..=b'~').contains(byte)) => text.into(),
        _ => visible(bytes, bytes.len()),
    }
}

impl Dns {
    /// The name of the type, such as `AAAA`, or `TYPE65280` (RFC 3597, 5).
    pub fn kind_name(&self) -> Cow<'static, str> {
        type_name(self.kind)
    }
}
