//! Fields of what a conversation said of itself.

use super::Get::{Bool, Name, Text, U8, U16};
use super::Part::Names;
use super::{Field, maybe};
use linerate_meter::Flow;
use linerate_meter::names::http::Request;
use linerate_meter::names::tls::{ClientHello, ServerHello, version_name};
use linerate_meter::names::value::{Dns, Http};
use linerate_meter::names::{dns, quic};
use std::borrow::Cow;

/// The enterprises of CESNET and of Flowmon, whose elements these are.
const CESNET: u32 = 8057;
const FLOWMON: u32 = 39499;

pub(super) const FIELDS: &[Field] = &[
    maybe(
        Names,
        "service",
        Name(|flow, _| Some(flow.names.as_ref()?.protocol()?.name())),
        "the protocol that was read: `tls`, `quic`, `dns`, `http`, `ssh`",
    )
    .zeek_like("service"),
    maybe(
        Names,
        "tls.server_name",
        Text(|flow, _| text(client(flow)?.server_name.as_deref())),
        "name of the server that the client asks for (SNI); where ECH hides that, the name of the provider",
    )
    .elements_of(CESNET, &[808], &[])
    .zeek_like("ssl.log: server_name"),
    maybe(
        Names,
        "tls.alpn",
        Text(|flow, _| text(client(flow)?.alpn.as_deref())),
        "protocols that the client offers, with commas between",
    )
    .elements_of(FLOWMON, &[337], &[]),
    maybe(
        Names,
        "tls.client_version",
        Text(|flow, _| Some(version_name(client(flow)?.version))),
        "the highest version that the client offers, such as `TLSv1.3`; a number in hexadecimal where it has no name, as drafts",
    ),
    maybe(
        Names,
        "tls.ja4",
        Text(|flow, _| text(client(flow).map(|hello| &*hello.ja4))),
        "JA4 of the client's hello, by FoxIO's definition",
    )
    .elements_of(CESNET, &[809], &[]),
    maybe(
        Names,
        "tls.ech",
        Bool(|flow, _| client(flow).map(|hello| hello.ech)),
        "whether the hello has an extension of Encrypted Client Hello, or of the older ESNI; browsers send it also where it hides nothing",
    ),
    maybe(
        Names,
        "tls.version",
        Text(|flow, _| Some(version_name(server(flow)?.version))),
        "the version that the server chose",
    )
    .zeek_like("ssl.log: version"),
    maybe(
        Names,
        "tls.cipher",
        U16(|flow, _| Some(server(flow)?.cipher)),
        "number of the cipher suite that the server chose",
    )
    .zeek_like("ssl.log: cipher"),
    maybe(
        Names,
        "tls.server_alpn",
        Text(|flow, _| text(server(flow)?.alpn.as_deref())),
        "the protocol that the server chose; from TLS 1.3 on it is encrypted",
    )
    .zeek_like("ssl.log: next_protocol"),
    maybe(
        Names,
        "quic.version",
        Text(|flow, _| Some(quic::version_name(flow.names.as_ref()?.quic?))),
        "version of QUIC: `1`, `2`, `draft-29`",
    )
    .zeek_like("quic.log: version"),
    maybe(
        Names,
        "dns.query",
        Text(|flow, _| text(asked(flow)?.name.as_deref())),
        "name of the first question, with `\\DDD` for bytes that are not visible, and `.` for the root",
    )
    .elements_of(CESNET, &[2], &[])
    .zeek_like("dns.log: query"),
    maybe(Names, "dns.qtype", U16(|flow, _| Some(asked(flow)?.kind)), "number of its type")
        .elements_of(CESNET, &[3], &[])
        .zeek_like("dns.log: qtype"),
    maybe(Names, "dns.qtype_name", Text(|flow, _| Some(asked(flow)?.kind_name())), "name of its type, such as `AAAA`")
        .zeek_like("dns.log: qtype_name"),
    maybe(Names, "dns.rcode", U8(|flow, _| asked(flow)?.rcode), "response code of its answer")
        .elements_of(CESNET, &[1], &[])
        .zeek_like("dns.log: rcode"),
    maybe(
        Names,
        "dns.rcode_name",
        Text(|flow, _| asked(flow)?.rcode.map(dns::rcode_name)),
        "name of that code, such as `NXDOMAIN`",
    )
    .zeek_like("dns.log: rcode_name"),
    maybe(
        Names,
        "dns.answers",
        U16(|flow, _| asked(flow)?.answers),
        "records in the section of answers, as its header says",
    )
    .unit("records")
    .elements_of(CESNET, &[14], &[]),
    maybe(
        Names,
        "dns.addresses",
        Text(|flow, _| text(asked(flow)?.addresses.as_deref())),
        "addresses of that name, or of what it is an alias of, in the answer, with commas between: as many as 255 bytes hold",
    )
    .zeek_like("dns.log: answers"),
    maybe(
        Names,
        "http.method",
        Text(|flow, _| text(request(flow).map(|request| &*request.method))),
        "method of the first request",
    )
    .elements_of(0, &[459], &[])
    .zeek_like("http.log: method"),
    maybe(
        Names,
        "http.host",
        Text(|flow, _| text(request(flow)?.host.as_deref())),
        "its header Host; without one, the host in its target",
    )
    .elements_of(0, &[460], &[])
    .zeek_like("http.log: host"),
    maybe(
        Names,
        "http.target",
        Text(|flow, _| text(request(flow).map(|request| &*request.target))),
        "what it is about, as it stands there: 255 bytes of it",
    )
    .elements_of(0, &[461], &[])
    .zeek_like("http.log: uri"),
    maybe(
        Names,
        "http.user_agent",
        Text(|flow, _| text(request(flow)?.user_agent.as_deref())),
        "its header User-Agent: 255 bytes of it",
    )
    .elements_of(0, &[468], &[])
    .zeek_like("http.log: user_agent"),
    maybe(
        Names,
        "http.status",
        U16(|flow, _| exchange(flow)?.status),
        "status of its answer, behind those that only announce it",
    )
    .elements_of(0, &[457], &[])
    .zeek_like("http.log: status_code"),
    maybe(
        Names,
        "resp.resolved",
        Text(|flow, _| text(flow.names.as_ref()?.resolved[0].as_deref())),
        "the name that the originator had asked DNS for when it was told this address, by the newest answer before the flow; not what the conversation says",
    ),
    maybe(Names, "ssh.client", Text(|flow, _| line(flow, 0)), "the line with which the originator begins")
        .zeek_like("ssh.log: client"),
    maybe(Names, "ssh.server", Text(|flow, _| line(flow, 1)), "the line with which the responder begins")
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
