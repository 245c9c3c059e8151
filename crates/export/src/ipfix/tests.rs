mod foreign;
mod v9;

use super::*;
use crate::tests::flow;
use linerate_burst::Nanos;
use linerate_burst::random::draw;
use linerate_meter::names::http::Request;
use linerate_meter::names::tls::{ClientHello, ServerHello};
use linerate_meter::names::value::{Dns, Http, Tls};
use linerate_meter::{ExportedBy, Flow, Names};
use std::net::IpAddr;

const NOW: Nanos = Nanos(1_700_000_100_000_000_000);

/// Flows of all kinds of templates that need only counters.
fn flows() -> Vec<Flow> {
    let ipv6 = |flow: &mut Flow| {
        flow.ends.iter_mut().for_each(|end| end.address = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]))
    };
    let changes: [fn(&mut Flow); 6] = [
        |flow| {
            let address = Some([192, 0, 2, 7].into());
            flow.exporter = Some(ExportedBy { address, domain: 77, interfaces: [3, 0] }.into());
        },
        |flow| {
            let address = Some([0x2001, 0xdb8, 0, 0, 0, 0, 0, 9].into());
            flow.exporter = Some(ExportedBy { address, domain: 0, interfaces: [0, 1 << 30] }.into());
        },
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

/// Names that each need a separate template.
fn said() -> [Names; 6] {
    let text = |text: &str| Some(text.into());
    let client =
        ClientHello { server_name: text("a.example"), ja4: "t13".into(), version: 0x0304, ech: true, alpn: text("h2") };
    let server = ServerHello { version: 0x7f1c, cipher: 0x1301, alpn: None };
    let tls = Tls { client: Some(client.clone()), server: Some(server) };
    let answered =
        Dns { name: text("."), kind: 28, rcode: Some(3), answers: Some(1), addresses: text("192.0.2.1,2001:db8::1") };
    let request =
        Request { method: "GET".into(), target: "/\\x5c".into(), host: text("b"), user_agent: text(&"x".repeat(254)) };
    [
        Names { tls: Some(tls), ..Names::default() },
        Names { tls: Some(Tls { client: Some(client), server: None }), quic: Some(0xff00_001d), ..Names::default() },
        Names { dns: Some(answered), ..Names::default() },
        Names { http: Some(Http { request: Some(request), status: Some(404) }), ..Names::default() },
        Names { ssh: Some([None, text("SSH-2.0-x")]), ..Names::default() },
        Names { resolved: [Some("c.example".into()), None], ..Names::default() },
    ]
}

#[test]
fn names_have_their_own_templates_and_fit() {
    let profile = Profile { full: true, ..Profile::default() };
    let mut templates: Vec<u16> =
        flows().iter().map(|flow| column::Kind::of(flow, &profile).template(&profile)).collect();
    templates.sort_unstable();
    templates.dedup();
    assert_eq!(templates.len(), 11, "five kinds of flows and six of names: {templates:?}");
    let plain = Profile::default();
    assert!(
        flows().iter().all(|flow| column::Kind::of(flow, &plain).template(&plain) < 384),
        "plain records have no names"
    );
    let mut long = said();
    long[3].http.as_mut().unwrap().request = Some(Request {
        method: "M".repeat(24).into(),
        target: "t".repeat(1020).into(),
        host: Some("h".repeat(1020).into()),
        user_agent: Some("u".repeat(1020).into()),
    });
    long[2].dns = Some(Dns {
        name: Some("n".repeat(1020).into()),
        addresses: Some(["2001:db8:1111:1111:1111:1111:1111:1111"; 6].join(",").into()),
        ..Dns::default()
    });
    let flows = vec![Flow { names: Some(long[3].clone().into()), ..flow() }; 9];
    let answered = Flow { names: Some(long[2].clone().into()), ..flow() };
    let small = Profile { most: 600, biflow: true, ..profile };
    let messages = packed(small, &flows);
    assert!(messages.iter().all(|message| message.bytes.len() <= 600), "texts that do not fit are truncated");
    let (back, found) = collected(&messages);
    assert_eq!((back.len(), found.malformed), (9, 0));
    assert_eq!(back[0].names.as_ref().unwrap().site(), Some(&*"h".repeat(48)));
    let (back, _) = collected(&packed(Profile { most: 512, ..small }, &[answered]));
    let addresses = back[0].names.as_ref().unwrap().dns.as_ref().unwrap().addresses.as_deref();
    assert_eq!(addresses, Some("2001:db8:1111:1111:1111:1111:1111:1111"), "only whole addresses");
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

fn collected(messages: &[Message]) -> (Vec<Flow>, CollectorCounters) {
    let mut collector = Collector::new(Limits::default(), ENTERPRISE);
    let mut flows = Vec::new();
    messages
        .iter()
        .for_each(|message| collector.take(Session::File(1), &message.bytes, &mut |flow| flows.push(flow.clone())));
    (flows, collector.found())
}

#[test]
fn messages_respect_the_limit_and_lose_nothing() {
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
fn full_records_round_trip() {
    let flows = flows();
    let (back, _) = collected(&packed(Profile { biflow: true, full: true, ..Profile::default() }, &flows));
    for (one, other) in flows.iter().zip(&back) {
        let mut one = one.clone();
        // A direction without packets has no times.
        one.quality = other.quality;
        // Only collected records have an exporter.
        let domain = Profile::default().domain;
        one.exporter.get_or_insert_with(|| ExportedBy { domain, ..ExportedBy::default() }.into());
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
    assert!(found.unknown > 0 && found.records == 0, "no template received");
}

#[test]
fn templates_belong_to_a_session_and_are_bounded() {
    let messages = packed(Profile::default(), &flows());
    let limits = Limits { fields: 400, of_host: 400, of_session: 400 };
    let mut collector = Collector::new(limits, ENTERPRISE);
    let mut none = |_: &Flow| ();
    for session in 0..1000 {
        messages
            .iter()
            .filter(|message| message.records == 0)
            .for_each(|message| collector.take(Session::File(session), &message.bytes, &mut none));
    }
    assert!(collector.found().no_room > 900);
    let before = collector.found().unknown;
    messages
        .iter()
        .filter(|message| message.records > 0)
        .for_each(|message| collector.take(Session::File(5), &message.bytes, &mut none));
    assert!(collector.found().unknown > before, "templates are per session");
}

#[test]
fn withdrawals_apply_only_to_streams() {
    let messages = packed(Profile::default(), &flows()[..1]);
    let withdrawal = [0, 10, 0, 24, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 8, 0, 2, 0, 0];
    let mut withdrawal = withdrawal.to_vec();
    withdrawal[12..16].copy_from_slice(&Profile::default().domain.to_be_bytes());
    let datagrams = Session::Datagrams(([10, 0, 0, 1], 9).into());
    for (session, records) in [(Session::File(1), 2), (datagrams, 4)] {
        let mut collector = Collector::new(Limits::default(), ENTERPRISE);
        let mut none = |_: &Flow| ();
        messages.iter().for_each(|message| collector.take(session, &message.bytes, &mut none));
        collector.take(session, &withdrawal, &mut none);
        collector.take(session, &messages[1].bytes, &mut none);
        assert_eq!(collector.found().records, records, "{session:?}");
    }
}

#[test]
fn collectors_survive_any_bytes() {
    let profiles = ["full", "biflow,full", "biflow"].map(|text| Profile::parse(text).unwrap());
    let v9 = Profile { version: Version::V9, ..Profile::default() };
    let messages: Vec<Message> =
        profiles.into_iter().chain([v9]).flat_map(|profile| packed(profile, &flows())).collect();
    let mut collector = Collector::new(Limits { fields: 4000, of_host: 3000, of_session: 2000 }, ENTERPRISE);
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
        let session = match chance(4) % 5 {
            number if chance(5) % 2 == 0 => Session::File(number),
            number => Session::Datagrams(([10, 0, 0, number as u8], 1).into()),
        };
        collector.take(session, &bytes, &mut |flow| flows += flow.packets() & 1);
    }
    let found = collector.found();
    assert!(found.records > 1000 && found.malformed > 1000 && found.unknown > 100, "{found:?}");
}

#[test]
fn every_field_is_exported_or_omitted_for_a_reason() {
    // Derived fields, and lists.
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
fn statistics_have_counters_of_the_exporter() {
    let packer = Packer::new(Profile::default());
    let statistics = Statistics { messages: 1, flows: 3, lost: 4, dropped: 5, ignored: 6, ..Statistics::default() };
    let bytes = packer.statistics(statistics, NOW).unwrap().bytes;
    let word = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    // After the headers of message and set: template, fields, scopes.
    let (count, mut at) = (word(22), 16 + word(18) + 4);
    let mut values = std::collections::BTreeMap::new();
    for field in 0..count {
        let (element, length) = (word(26 + field * 4), word(28 + field * 4));
        values
            .insert(element, bytes[at..at + length].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)));
        at += length;
    }
    assert_eq!(at, bytes.len());
    for (element, value) in [(41, 1), (42, 3), (166, 4), (135, 5), (164, 6)] {
        assert_eq!(values[&element], value, "{element}");
    }
}

#[test]
fn profile_options_are_checked() {
    let profile = Profile::parse("biflow,full,enterprise=9,domain=3,mtu=1500,rate=5").unwrap();
    assert!(profile.biflow && profile.full);
    assert_eq!((profile.enterprise, profile.domain, profile.most, profile.rate), (9, 3, 1452, 5));
    for text in ["", "uniflow,biflow", "biflow=1", "domain", "domain=x", "rate=0", "mtu=9", "full,"] {
        Profile::parse(text).unwrap_err();
    }
}

/// As in `softflowd`: times relative to its start, which is in options; type and code without a protocol.
#[test]
fn uptime_and_icmp_without_a_protocol_are_decoded() {
    const BEGAN: u64 = 1_699_999_000_123;
    let set = |id: u16, body: &[u8]| [&id.to_be_bytes(), &(body.len() as u16 + 4).to_be_bytes(), body].concat();
    let fields = |fields: &[(u16, u16)]| -> Vec<u8> {
        fields.iter().flat_map(|(element, length)| [element.to_be_bytes(), length.to_be_bytes()].concat()).collect()
    };
    let message = |sets: Vec<u8>| {
        let length = (sets.len() + 16) as u16;
        let seconds = (NOW.0 / 1_000_000_000) as u32;
        [&[0, 10], &length.to_be_bytes()[..], &seconds.to_be_bytes(), &[0; 8], &sets].concat()
    };
    let options = [&[1, 1, 0, 2, 0, 1][..], &fields(&[(143, 4), (160, 8)])].concat();
    let began = [&[0, 0, 0, 7][..], &BEGAN.to_be_bytes()].concat();
    let icmp = [(8, 4), (12, 4), (22, 4), (21, 4), (2, 4), (1, 4), (32, 2)];
    let plain = [&[1, 0, 0, 7][..], &fields(&icmp)].concat();
    let [first, last] = [60_000_u32, 61_500].map(u32::to_be_bytes);
    let record = [&[10, 0, 0, 1, 10, 0, 0, 2][..], &first, &last, &[0, 0, 0, 3, 0, 0, 1, 0, 8, 0]].concat();
    let mut flows = Vec::new();
    let mut collector = Collector::new(Limits::default(), ENTERPRISE);
    for sets in [[set(3, &options), set(257, &began)].concat(), [set(2, &plain), set(256, &record)].concat()] {
        collector.take(Session::File(1), &message(sets), &mut |flow| flows.push(flow.clone()));
    }
    let flow = &flows[0];
    assert_eq!((flow.protocol, flow.ends[0].port, flow.ends[1].port), (1, 8, 0));
    // Relative to a whole second, like the message header.
    let (began, millis) = (BEGAN * 1_000_000, 1_000_000);
    assert_eq!((flow.first().0, flow.last().0), (began + 60_000 * millis, began + 61_500 * millis));
    // 50 days later the same clock has wrapped around once.
    let round = 1_u64 << 32;
    let clock = collect::Clock { seconds: (BEGAN / 1000 + round / 1000 + 100) as u32, uptime: None, boot: Some(BEGAN) };
    let mut record = decode::Record::new(clock, Default::default());
    for (element, value) in [(8, &[1; 4]), (12, &[2; 4]), (22, &first), (21, &last), (2, &[1; 4])] {
        record.set(elements::Meaning::of(collect::Spec { enterprise: 0, element, length: 4 }, ENTERPRISE), value);
    }
    assert_eq!(record.flow().unwrap().last().0, began + (round + 61_500) * millis);
}
