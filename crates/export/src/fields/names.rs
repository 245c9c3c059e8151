//! Fields found in payload.

use super::Getter::{Bool, Name, Text, U8, U16};
use super::Part::Names;
use super::{Field, maybe};
use linerate_meter::Flow;
use linerate_meter::names::http::Request;
use linerate_meter::names::tls::{ClientHello, ServerHello, version_name};
use linerate_meter::names::value::{Dns, Http};
use linerate_meter::names::{dns, quic};
use std::borrow::Cow;

/// Private enterprise numbers of CESNET and Flowmon.
const CESNET: u32 = 8057;
const FLOWMON: u32 = 39499;

pub(super) const FIELDS: &[Field] = &[
    maybe(
        Names,
        "service",
        Name(|flow, _| Some(flow.names.as_ref()?.protocol()?.name())),
        "application protocol: `tls`, `quic`, `dns`, `http`, `ssh`",
    )
    .zeek_like("service"),
    maybe(
        Names,
        "tls.server_name",
        Text(|flow, _| text(client(flow)?.server_name.as_deref())),
        "server name requested by the client (SNI); with ECH the name of the provider",
    )
    .elements_of(CESNET, &[808], &[])
    .zeek_like("ssl.log: server_name"),
    maybe(
        Names,
        "tls.alpn",
        Text(|flow, _| text(client(flow)?.alpn.as_deref())),
        "ALPN protocols offered by the client, comma-separated",
    )
    .elements_of(FLOWMON, &[337], &[]),
    maybe(
        Names,
        "tls.client_version",
        Text(|flow, _| Some(version_name(client(flow)?.version))),
        "highest TLS version offered by the client, such as `TLSv1.3`; in hexadecimal if unnamed, such as drafts",
    ),
    maybe(
        Names,
        "tls.ja4",
        Text(|flow, _| text(client(flow).map(|hello| &*hello.ja4))),
        "JA4 fingerprint of the ClientHello, as defined by FoxIO",
    )
    .elements_of(CESNET, &[809], &[]),
    maybe(
        Names,
        "tls.ech",
        Bool(|flow, _| client(flow).map(|hello| hello.ech)),
        "true if the ClientHello has an Encrypted Client Hello or ESNI extension; browsers also send it without encrypting a name",
    ),
    maybe(
        Names,
        "tls.version",
        Text(|flow, _| Some(version_name(server(flow)?.version))),
        "TLS version chosen by the server",
    )
    .zeek_like("ssl.log: version"),
    maybe(
        Names,
        "tls.cipher",
        U16(|flow, _| Some(server(flow)?.cipher)),
        "cipher suite chosen by the server, as a number",
    )
    .zeek_like("ssl.log: cipher"),
    maybe(
        Names,
        "tls.server_alpn",
        Text(|flow, _| text(server(flow)?.alpn.as_deref())),
        "ALPN protocol chosen by the server; encrypted since TLS 1.3",
    )
    .zeek_like("ssl.log: next_protocol"),
    maybe(
        Names,
        "quic.version",
        Text(|flow, _| Some(quic::version_name(flow.names.as_ref()?.quic?))),
        "QUIC version: `1`, `2`, `draft-29`",
    )
    .zeek_like("quic.log: version"),
    maybe(
        Names,
        "dns.query",
        Text(|flow, _| text(asked(flow)?.name.as_deref())),
        "query name of the first question, with `\\DDD` for unprintable bytes and `.` for the root",
    )
    .elements_of(CESNET, &[2], &[])
    .zeek_like("dns.log: query"),
    maybe(Names, "dns.qtype", U16(|flow, _| Some(asked(flow)?.kind)), "query type, as a number")
        .elements_of(CESNET, &[3], &[])
        .zeek_like("dns.log: qtype"),
    maybe(
        Names,
        "dns.qtype_name",
        Text(|flow, _| Some(asked(flow)?.kind_name())),
        "query type, as a name such as `AAAA`",
    )
    .zeek_like("dns.log: qtype_name"),
    maybe(Names, "dns.rcode", U8(|flow, _| asked(flow)?.rcode), "response code")
        .elements_of(CESNET, &[1], &[])
        .zeek_like("dns.log: rcode"),
    maybe(
        Names,
        "dns.rcode_name",
        Text(|flow, _| asked(flow)?.rcode.map(dns::rcode_name)),
        "response code, as a name such as `NXDOMAIN`",
    )
    .zeek_like("dns.log: rcode_name"),
    maybe(
        Names,
        "dns.answers",
        U16(|flow, _| asked(flow)?.answers),
        "number of answer records in the response header (ANCOUNT)",
    )
    .unit("records")
    .elements_of(CESNET, &[14], &[]),
    maybe(
        Names,
        "dns.addresses",
        Text(|flow, _| text(asked(flow)?.addresses.as_deref())),
        "addresses of the name, or of its alias target, in the response, comma-separated, up to 255 bytes",
    )
    .zeek_like("dns.log: answers"),
    maybe(
        Names,
        "http.method",
        Text(|flow, _| text(request(flow).map(|request| &*request.method))),
        "method of the first HTTP request",
    )
    .elements_of(0, &[459], &[])
    .zeek_like("http.log: method"),
    maybe(
        Names,
        "http.host",
        Text(|flow, _| text(request(flow)?.host.as_deref())),
        "Host header of that request; without one the host in its target",
    )
    .elements_of(0, &[460], &[])
    .zeek_like("http.log: host"),
    maybe(
        Names,
        "http.target",
        Text(|flow, _| text(request(flow).map(|request| &*request.target))),
        "request target, up to 255 bytes",
    )
    .elements_of(0, &[461], &[])
    .zeek_like("http.log: uri"),
    maybe(
        Names,
        "http.user_agent",
        Text(|flow, _| text(request(flow)?.user_agent.as_deref())),
        "User-Agent header of that request, up to 255 bytes",
    )
    .elements_of(0, &[468], &[])
    .zeek_like("http.log: user_agent"),
    maybe(
        Names,
        "http.status",
        U16(|flow, _| exchange(flow)?.status),
        "status code of its final response, after interim (1xx) responses",
    )
    .elements_of(0, &[457], &[])
    .zeek_like("http.log: status_code"),
    maybe(
        Names,
        "resp.resolved",
        Text(|flow, _| text(flow.names.as_ref()?.resolved[0].as_deref())),
        "name that the originator resolved to this address, from the latest DNS response before the flow; not from the conversation itself",
    ),
    maybe(Names, "ssh.client", Text(|flow, _| line(flow, 0)), "SSH version string of the originator")
        .zeek_like("ssh.log: client"),
    maybe(Names, "ssh.server", Text(|flow, _| line(flow, 1)), "SSH version string of the responder")
        .zeek_like("ssh.log: server"),
];

fn text(text: Option<&str>) -> Option<Cow<'_, str>> {
    text.map(Cow::Borrowed)
}

fn client(flow: &Flow) -> Option<&ClientHello> {
    flow.names.as_ref()?.tls.as_ref()?.client.as_ref()
}

fn server(flow: &Flow) -> Option<&ServerHello> {
    flow.names.as_ref()?.tls.as_ref()?.server.as_ref()
}

fn asked(flow: &Flow) -> Option<&Dns> {
    flow.names.as_ref()?.dns.as_ref()
}

fn exchange(flow: &Flow) -> Option<&Http> {
    flow.names.as_ref()?.http.as_ref()
}

fn request(flow: &Flow) -> Option<&Request> {
    exchange(flow)?.request.as_ref()
}

fn line(flow: &Flow, side: usize) -> Option<Cow<'_, str>> {
    text(flow.names.as_ref()?.ssh.as_ref()?[side].as_deref())
}
