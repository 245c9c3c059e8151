//! Random application names of flows.

use linerate_meter::Names;
use linerate_meter::names::http::Request;
use linerate_meter::names::tls::{ClientHello, ServerHello};
use linerate_meter::names::value::{Dns, Http, Tls};
use proptest::option;
use proptest::prelude::*;
use std::sync::Arc;

/// Names of one protocol, as a meter reports them.
pub(super) fn names() -> impl Strategy<Value = Arc<Names>> {
    let tls = (option::of(client()), option::of(server())).prop_filter("empty", |(a, b)| a.is_some() || b.is_some());
    let tls = tls.prop_map(|(client, server)| Names { tls: Some(Tls { client, server }), ..Names::default() });
    let quic = (client(), any_version()).prop_map(|(client, version)| Names {
        tls: Some(Tls { client: Some(client), server: None }),
        quic: Some(version),
        ..Names::default()
    });
    let dns = (option::of(text()), any::<u16>(), option::of((0..16u8, any::<u16>(), option::of("[0-9.,:]{1,40}"))))
        .prop_map(|(name, kind, answer)| {
            let (rcode, answers) = (answer.as_ref().map(|answer| answer.0), answer.as_ref().map(|answer| answer.1));
            let addresses = answer.and_then(|answer| answer.2).map(Box::from);
            Names { dns: Some(Dns { name, kind, rcode, answers, addresses }), ..Names::default() }
        });
    let request = (text(), text(), option::of(text()), option::of(text()))
        .prop_map(|(method, target, host, user_agent)| Request { method, target, host, user_agent });
    let http = (option::of(request), option::of(100..600u16))
        .prop_filter("empty", |(a, b)| a.is_some() || b.is_some())
        .prop_map(|(request, status)| Names { http: Some(Http { request, status }), ..Names::default() });
    let ssh = [option::of(text()), option::of(text())].prop_filter("empty", |[a, b]| a.is_some() || b.is_some());
    let ssh = ssh.prop_map(|lines| Names { ssh: Some(lines), ..Names::default() });
    let resolved = option::of("[a-z.]{1,40}");
    (prop_oneof![tls, quic, dns, http, ssh], resolved)
        .prop_map(|(names, resolved)| Arc::new(Names { resolved: [resolved.map(Arc::from), None], ..names }))
}

/// Names of all protocols at once, so that every field is set.
pub(super) fn full() -> Arc<Names> {
    let text = || Some("example.org".into());
    let client = ClientHello { server_name: text(), alpn: text(), version: 0x0304, ja4: "t".into(), ech: true };
    let server = ServerHello { version: 0x0303, cipher: 0xc02f, alpn: text() };
    let request = Request { method: "GET".into(), target: "/".into(), host: text(), user_agent: text() };
    Arc::new(Names {
        tls: Some(Tls { client: Some(client), server: Some(server) }),
        quic: Some(1),
        dns: Some(Dns { name: text(), kind: 28, rcode: Some(3), answers: Some(1), addresses: text() }),
        http: Some(Http { request: Some(request), status: Some(200) }),
        ssh: Some([text(), text()]),
        resolved: [Some("example.org".into()), None],
    })
}

fn text() -> impl Strategy<Value = Box<str>> {
    "[ -~]{0,40}".prop_map(Box::from)
}

fn version() -> impl Strategy<Value = u16> {
    prop_oneof![0x0300..0x0305u16, any::<u16>()]
}

fn any_version() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1u32), Just(0x6b33_43cf), 0xff00_001du32..=0xff00_0020]
}

fn client() -> impl Strategy<Value = ClientHello> {
    (option::of(text()), option::of(text()), version(), text(), any::<bool>())
        .prop_map(|(server_name, alpn, version, ja4, ech)| ClientHello { server_name, alpn, version, ja4, ech })
}

fn server() -> impl Strategy<Value = ServerHello> {
    (version(), any::<u16>(), option::of(text())).prop_map(|(version, cipher, alpn)| ServerHello {
        version,
        cipher,
        alpn,
    })
}
