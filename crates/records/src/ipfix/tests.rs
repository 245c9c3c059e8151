use super::*;
use crate::tests::flow;
use linerate_burst::Nanos;
use linerate_burst::random::draw;
use linerate_meter::names::http::Request;
use linerate_meter::names::tls::{ClientHello, ServerHello};
use linerate_meter::names::value::{Dns, Http, Tls};
use linerate_meter::{Flow, Names};
use std::net::IpAddr;

const NOW: Nanos = Nanos(1_700_000_100_000_000_000);

/// Flows of all kinds of templates that need no more than counters.
fn flows() -> Vec<Flow> {
    let ipv6 = |flow: &mut Flow| {
        flow.ends.iter_mut().for_each(|end| end.address = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]))
    };
    let changes: [fn(&mut Flow); 4] = [
        |_| (),
        |flow| flow.sides[1] = Default::default(),
        |flow| (flow.protocol, flow.ends[0].port, flow.ends[1].port) = (1, 8, 0),
        |flow| flow.flows = 7,
    ];
    let mut flows: Vec<Flow> = changes
        .iter()
        .map(|change| {
            let mut flow = flow();
            change(&mut flow);
            flow
        })
        .collect();
    let mut wide = flow();
    ipv6(&mut wide);
    flows.push(wide);
    flows.extend(said().map(|names| Flow { names: Some(names.into()), ..flow() }));
    flows
}

/// What flows say of themselves, each in templates of its own.
fn said() -> [Names; 6] {
    let text = |text: &str| Some(text.into());
    let client =
        ClientHello { server_name: text("a.example"), ja4: "t13".into(), version: 0x0304, ech: true, alpn: text("h2") };
    let server = ServerHello { version: 0x7f1c, cipher: 0x1301, alpn: None };
    let tls = Tls { client: Some(client.clone()), server: Some(server) };
    let request =
        Request { method: "GET".into(), target: "/\\x5c".into(), host: text("b"), user_agent: text(&"x".repeat(254)) };
    [
        Names { tls: Some(tls), ..Names::default() },
        Names { tls: Some(Tls { client: Some(client), server: None }), quic: Some(0xff00_001d), ..Names::default() },
        Names { dns: Some(Dns { name: text("."), kind: 28, rcode: Some(3), answers: Some(1) }), ..Names::default() },
        Names { http: Some(Http { request: Some(request), status: Some(404) }), ..Names::default() },
        Names { ssh: Some([None, text("SSH-2.0-x")]), ..Names::default() },
        Names { resolved: [Some("c.example".into()), None], ..Names::default() },
    ]
}

#[test]
fn names_are_in_templates_of_their_own_and_fit() {
    let profile = Profile { full: true, ..Profile::default() };
    let mut templates: Vec<u16> =
        flows().iter().map(|flow| column::Kind::of(flow, &profile).template(&profile)).collect();
    templates.sort_unstable();
    templates.dedup();
    assert_eq!(templates.len(), 10, "four kinds of flows, and six of names: {templates:?}");
    let plain = Profile::default();
    assert!(
        flows().iter().all(|flow| column::Kind::of(flow, &plain).template(&plain) < 384),
        "plain records have none"
    );
    let mut long = said();
    long[3].http.as_mut().unwrap().request = Some(Request {
        method: "M".repeat(24).into(),
        target: "t".repeat(1020).into(),
        host: Some("h".repeat(1020).into()),
        user_agent: Some("u".repeat(1020).into()),
    });
    let flows = vec![Flow { names: Some(long[3].clone().into()), ..flow() }; 9];
    let small = Profile { most: 600, biflow: true, ..profile };
    let messages = packed(small, &flows);
    assert!(messages.iter().all(|message| message.bytes.len() <= 600), "texts are cut where they would not fit");
    let (back, found) = collected(&messages);
    assert_eq!((back.len(), found.malformed), (9, 0));
    assert_eq!(back[0].names.as_ref().unwrap().site(), Some(&*"h".repeat(48)));
}

fn packed(profile: Profile, flows: &[Flow]) -> Vec<Message> {
    let (mut packer, mut messages) = (Packer::new(profile), Vec::new());
    packer.pack(&flows.iter().collect::<Vec<_>>(), NOW, &mut messages);
    let mut sequence = 0;
    for message in &mut messages {
        message.number(profile.version, sequence);
        sequence += if profile.version == Version::V9 { 1 } else { message.records };
    }
    messages
}

fn collected(messages: &[Message]) -> (Vec<Flow>, Found) {
    let mut collector = Collector::new(Limits::default(), ENTERPRISE);
    let mut flows = Vec::new();
    messages.iter().for_each(|message| collector.take(1, true, &message.bytes, &mut |flow| flows.push(flow.clone())));
    (flows, collector.found())
}

#[test]
fn messages_are_no_longer_than_they_may_be_and_lose_nothing() {
    let many: Vec<Flow> = flows().into_iter().cycle().take(5_000).collect();
    for (text, version) in [
        ("biflow", Version::Ipfix),
        ("full", Version::Ipfix),
        ("biflow,full,mtu=1280", Version::Ipfix),
        ("mtu=512", Version::V9),
    ] {
        let profile = Profile { version, ..Profile::parse(text).unwrap() };
        let messages = packed(profile, &many);
        assert!(messages.iter().all(|message| message.bytes.len() <= profile.most), "{text}");
        assert_eq!(messages.iter().map(|message| message.flows).sum::<u64>(), many.len() as u64, "{text}");
        let (back, found) = collected(&messages);
        let records: u64 = messages.iter().map(|message| u64::from(message.records)).sum();
        assert_eq!(
            (found.records, found.malformed, found.unknown, found.lost, found.lost_messages),
            (records, 0, 0, 0, 0)
        );
        let packets = |flows: &[Flow]| flows.iter().map(Flow::packets).sum::<u64>();
        assert_eq!(packets(&back), packets(&many), "{text}");
    }
}

#[test]
fn all_comes_back_of_a_full_record() {
    let flows = flows();
    let (back, _) = collected(&packed(Profile { biflow: true, full: true, ..Profile::default() }, &flows));
    for (one, other) in flows.iter().zip(&back) {
        let mut one = one.clone();
        // What one direction has no packets of has no times either.
        one.quality = other.quality;
        assert_eq!(&one, other);
    }
    assert_eq!(flows.len(), back.len());
}

#[test]
fn sequence_gaps_and_unknown_templates_are_counted() {
    let many: Vec<Flow> = flows().into_iter().cycle().take(500).collect();
    let messages = packed(Profile::default(), &many);
    let data: Vec<usize> = (0..messages.len()).filter(|at| messages[*at].records > 20).collect();
    let gone = data[3];
    let mut without = messages.clone();
    without.remove(gone);
    let (_, found) = collected(&without);
    assert_eq!((found.lost, found.unknown), (messages[gone].records.into(), 0));
    let (_, found) = collected(&messages[data[0]..]);
    assert!(found.unknown > 0 && found.records == 0, "no template came");
}

#[test]
fn templates_are_of_a_session_and_bounded() {
    let messages = packed(Profile::default(), &flows());
    let mut collector = Collector::new(Limits { fields: 100, sequences: 10 }, ENTERPRISE);
    let mut none = |_: &Flow| ();
    for session in 0..1000 {
        messages
            .iter()
            .filter(|message| message.records == 0)
            .for_each(|message| collector.take(session, false, &message.bytes, &mut none));
    }
    assert!(collector.found().no_room > 900);
    let before = collector.found().unknown;
    messages
        .iter()
        .filter(|message| message.records > 0)
        .for_each(|message| collector.take(5, false, &message.bytes, &mut none));
    assert!(collector.found().unknown > before, "templates of other sessions are theirs");
}

#[test]
fn a_withdrawal_is_heard_in_a_stream_alone() {
    let messages = packed(Profile::default(), &flows()[..1]);
    let withdrawal = [0, 10, 0, 24, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 8, 0, 2, 0, 0];
    let mut withdrawal = withdrawal.to_vec();
    withdrawal[12..16].copy_from_slice(&Profile::default().domain.to_be_bytes());
    for (is_stream, records) in [(true, 2), (false, 4)] {
        let mut collector = Collector::new(Limits::default(), ENTERPRISE);
        let mut none = |_: &Flow| ();
        messages.iter().for_each(|message| collector.take(1, is_stream, &message.bytes, &mut none));
        collector.take(1, is_stream, &withdrawal, &mut none);
        collector.take(1, is_stream, &messages[1].bytes, &mut none);
        assert_eq!(collector.found().records, records, "{is_stream}");
    }
}

#[test]
fn no_bytes_harm_a_collector() {
    let profiles = ["full", "biflow,full", "biflow"].map(|text| Profile::parse(text).unwrap());
    let v9 = Profile { version: Version::V9, ..Profile::default() };
    let messages: Vec<Message> =
        profiles.into_iter().chain([v9]).flat_map(|profile| packed(profile, &flows())).collect();
    let mut collector = Collector::new(Limits { fields: 4000, sequences: 100 }, ENTERPRISE);
    let mut flows = 0_u64;
    for round in 0..20_000 {
        let chance = |n| draw(round, n);
        let mut bytes = messages[chance(0) as usize % messages.len()].bytes.clone();
        for change in 0..chance(1) % 6 {
            let at = chance(10 + change) as usize % bytes.len();
            bytes[at] = chance(20 + change) as u8;
        }
        if chance(2) % 4 == 0 {
            bytes.truncate(chance(3) as usize % bytes.len());
        }
        collector.take(chance(4) % 5, chance(5) % 2 == 0, &bytes, &mut |flow| flows += flow.packets() & 1);
    }
    let found = collector.found();
    assert!(found.records > 1000 && found.malformed > 1000 && found.unknown > 100, "{found:?}");
}

#[test]
fn every_field_is_told_or_left_out_for_a_reason() {
    // What follows from others, or is a list.
    let follows = ["community_id", "duration_ns", "dns.qtype_name", "dns.rcode_name"];
    let left_out = [&follows[..], &["*.stats.length_histogram", "*.stats.gap_histogram"]].concat();
    for field in crate::fields::fields() {
        let is_packets = field.path.starts_with("stats.packet_");
        let has_element = field.elements(0).count() > 0 || number(field.path).is_some();
        assert!(
            has_element || left_out.contains(&field.path) || is_packets,
            "{} has no element: append it to OWN",
            field.path
        );
    }
    assert!(OWN.iter().all(|path| crate::fields::fields().any(|field| field.path == *path)));
}

#[test]
fn words_of_a_profile_are_checked() {
    let profile = Profile::parse("biflow,full,enterprise=9,domain=3,mtu=1500,rate=5").unwrap();
    assert!(profile.biflow && profile.full);
    assert_eq!((profile.enterprise, profile.domain, profile.most, profile.rate), (9, 3, 1452, 5));
    for text in ["", "biflow=1", "domain", "domain=x", "rate=0", "mtu=9", "full,"] {
        Profile::parse(text).unwrap_err();
    }
}
