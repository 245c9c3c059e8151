//! Names found in flows, packet by packet: for all bursts, orders and limits.

use crate::support::metered_frames;
use linerate_burst::{Desc, Nanos};
use linerate_headers::build::{Frame, Header};
use linerate_headers::{Link, MacAddr, ethernet, ipv4, tcp, udp};
use linerate_meter::{Config, Flow, Level, Names, Protocol, Protocols};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const SYN: u16 = 2;
const ACK: u16 = 16;
const FIN: u16 = 1;
const SECOND: u64 = 1_000_000_000;

/// A packet of a conversation between two hosts, the one with the lower address if `from_low`.
#[derive(Clone, Debug)]
struct NamePacket<'a> {
    time: u64,
    from_low: bool,
    ports: (u16, u16),
    sequence: u32,
    flags: u16,
    bytes: &'a [u8],
    is_tcp: bool,
}

/// A TCP packet; the low host's port is 1000.
fn tcp(time: u64, from_low: bool, sequence: u32, flags: u16, bytes: &[u8]) -> NamePacket<'_> {
    NamePacket { time, from_low, ports: (1000, 8000), sequence, flags, bytes, is_tcp: true }
}

fn udp(time: u64, from_low: bool, port: u16, bytes: &[u8]) -> NamePacket<'_> {
    NamePacket { time, from_low, ports: (1000, port), sequence: 0, flags: 0, bytes, is_tcp: false }
}

fn frame(said: &NamePacket<'_>) -> (Desc, Vec<u8>) {
    let ends = [(Ipv4Addr::new(10, 0, 0, 1), said.ports.0), (Ipv4Addr::new(10, 0, 0, 2), said.ports.1)];
    let [from, to] = if said.from_low { ends } else { [ends[1], ends[0]] };
    let link = ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 };
    let number = if said.is_tcp { 6 } else { 17 };
    let network = ipv4::Header { source: from.0, destination: to.0, ..ipv4::Header::new(number) };
    let transport: Box<dyn Header> = match said.is_tcp {
        true => Box::new(tcp::Header {
            source_port: from.1,
            destination_port: to.1,
            sequence: said.sequence,
            flags: tcp::Flags(said.flags),
            ..tcp::Header::default()
        }),
        false => Box::new(udp::Header { source_port: from.1, destination_port: to.1 }),
    };
    let mut frame = Frame::new(&[&link, &network, &*transport], said.bytes).to_vec().unwrap();
    frame.resize(frame.len().max(60), 0);
    (Desc::new(Nanos(said.time), 0, frame.len() as u32), frame)
}

fn all() -> Config {
    Config { max_flows: 64, names: Protocols::ALL, ..Config::default() }
}

fn flows(said: &[NamePacket<'_>], config: &Config, bursts: &[usize]) -> Vec<Flow> {
    let frames: Vec<_> = said.iter().map(frame).collect();
    metered_frames(&frames, Link::Ethernet, config, bursts).0
}

/// Names of the only flow.
fn names(said: &[NamePacket<'_>]) -> Option<Names> {
    let flows = flows(said, &all(), &[3]);
    assert_eq!(flows.len(), 1);
    flows[0].names.as_deref().cloned()
}

const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: example.org\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 404 Not Found\r\n\r\n";

/// A handshake, a request in pieces of `piece` bytes, and its response.
fn web(piece: usize, first: u32) -> Vec<NamePacket<'static>> {
    let mut said = vec![tcp(1, true, first, SYN, b""), tcp(2, false, 70, SYN | ACK, b"")];
    for (place, part) in REQUEST.chunks(piece).enumerate() {
        let sequence = first.wrapping_add(1 + (place * piece) as u32);
        said.push(tcp(3 + place as u64, true, sequence, ACK, part));
    }
    said.push(tcp(99, false, 71, ACK, ANSWER));
    said
}

fn is_whole(names: &Names) -> bool {
    names.site() == Some("example.org") && names.http.as_ref().and_then(|http| http.status) == Some(404)
}

#[test]
fn names_are_parsed_only_on_request() {
    let said = web(1000, 5);
    assert!(names(&said).is_some_and(|names| is_whole(&names)));
    let without = flows(&said, &Config { max_flows: 64, ..Config::default() }, &[3]);
    assert_eq!(without[0].names, None);
    let others = Config { names: Protocols::ALL.without(Protocol::Http), ..all() };
    assert_eq!(flows(&said, &others, &[3])[0].names, None);
    let [plain, named] = [Config::default(), all()].map(|config| config.bytes_per_flow());
    assert_eq!(named, plain.map(|bytes| bytes + Config::NAME_BYTES));
    // All else is the same.
    let same = |flow: &Flow| Flow { names: None, ..flow.clone() };
    assert_eq!(same(&flows(&said, &all(), &[3])[0]), without[0]);
}

/// A DNS message in segments is read when it begins and when it is complete, or when its flow ends before that.
#[test]
fn segmented_message_is_read_to_its_end() {
    let head = b"\x12\x34\x81\x80\0\x01\0\x02\0\0\0\0\x01a\x01b\0\0\x01\0\x01";
    let record = |last| [b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\xc0\0\x02".as_slice(), &[last]].concat();
    let message = [head.as_slice(), &record(1), &record(2)].concat();
    let stream = [&(message.len() as u16).to_be_bytes()[..], &message].concat();
    for (length, addresses) in [(stream.len(), "192.0.2.1,192.0.2.2"), (stream.len() - 1, "192.0.2.1")] {
        for piece in [2, 5, 30, 45] {
            let pieces = stream[..length].chunks(piece).enumerate();
            let of = |(place, bytes)| NamePacket {
                ports: (1000, 53),
                ..tcp(place as u64, false, 7 + (place * piece) as u32, ACK, bytes)
            };
            let said: Vec<_> = pieces.map(of).collect();
            let dns = names(&said).and_then(|names| names.dns);
            let found = dns.as_ref().and_then(|dns| dns.addresses.as_deref());
            assert_eq!(found, Some(addresses), "{length} bytes in pieces of {piece}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Pieces of any size, in any order after the handshake, twice, with wrapping sequence numbers; bursts and levels.
    #[test]
    fn any_order_has_the_same_names(
        piece in 1..40usize, first in prop_oneof![any::<u32>(), Just(u32::MAX - 9)], swaps in prop::collection::vec(any::<[prop::sample::Index; 2]>(), 0..20),
        again in any::<prop::sample::Index>(), burst in 1..50usize, level in 0..3usize
    ) {
        let mut said = web(piece, first);
        let more = said[2 + again.index(said.len() - 2)].clone();
        said.push(more);
        let count = said.len() - 2;
        swaps.iter().for_each(|[one, other]| said.swap(2 + one.index(count), 2 + other.index(count)));
        (1..).zip(&mut said).for_each(|(time, said)| said.time = time);
        let level = [Level::Counters, Level::Tcp, Level::Stats][level];
        let flows = flows(&said, &Config { level, ..all() }, &[burst]);
        prop_assert!(said.len() > 39 || is_whole(flows[0].names.as_ref().unwrap()), "{:?}", flows[0].names);
    }

    /// Any bytes from both sides cause no panic, whichever protocol they are taken for.
    #[test]
    fn any_bytes_are_parsed_without_panic(
        said in prop::collection::vec((any::<bool>(), any::<u32>(), 0..4usize, prop::collection::vec(any::<u8>(), 0..60), 0..32u16), 1..40)
    ) {
        let starts: [&[u8]; 4] = [b"", b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03", b"GET / HTTP/1.1\r\nHost", b"SSH-2"];
        let said: Vec<(bool, u32, Vec<u8>, u16)> = said.into_iter()
            .map(|(low, sequence, start, bytes, flags)| (low, sequence % 50, [starts[start], &bytes].concat(), flags)).collect();
        for (port, is_tcp) in [(8000, true), (53, true), (53, false), (443, false), (22, true)] {
            let packets: Vec<NamePacket<'_>> = said.iter().enumerate().map(|(time, (from_low, sequence, bytes, flags))| NamePacket {
                time: time as u64, from_low: *from_low, ports: (1000, port), sequence: *sequence, flags: *flags, bytes, is_tcp,
            }).collect();
            let _ = flows(&packets, &all(), &[4]);
        }
    }
}

#[test]
fn names_need_the_beginning_of_a_stream() {
    assert_eq!(names(&[tcp(1, true, 9, ACK, b"\x17\x03\x03 some data"), tcp(2, false, 9, ACK, b"more of it")]), None);
    let joined = names(&[tcp(1, true, 9, ACK, &REQUEST[..30]), tcp(2, true, 39, ACK, &REQUEST[30..])]);
    assert_eq!(joined.unwrap().site(), Some("example.org"));
    // The first piece is missing: no name is guessed.
    assert_eq!(names(&[tcp(1, true, 9, SYN, b""), tcp(2, true, 20, ACK, &REQUEST[10..])]), None);
    // Data in the SYN itself (RFC 7413).
    assert_eq!(names(&[tcp(1, true, 9, SYN, REQUEST)]).unwrap().site(), Some("example.org"));
}

#[test]
fn ssh_banner_of_the_originator_is_the_client() {
    let said = [
        NamePacket { ports: (22, 5000), ..tcp(1, false, 1, SYN, b"") },
        NamePacket { ports: (22, 5000), ..tcp(2, true, 1, SYN | ACK, b"") },
        NamePacket { ports: (22, 5000), ..tcp(3, true, 2, ACK, b"hello\r\nSSH-2.0-server\r\n") },
        NamePacket { ports: (22, 5000), ..tcp(4, false, 2, ACK, b"SSH-2.0-client\r\n") },
    ];
    assert_eq!(names(&said).unwrap().ssh, Some([Some("SSH-2.0-client".into()), Some("SSH-2.0-server".into())]));
}

fn dns(id: u8, flags: u8, name: &str, answers: u8) -> Vec<u8> {
    let header = [0, id, flags, 3, 0, 1, 0, answers, 0, 0, 0, 0];
    [&header[..], &[name.len() as u8], name.as_bytes(), &[0, 0, 28, 0, 1]].concat()
}

#[test]
fn first_question_and_its_answer_are_recorded() {
    let [one, other] = [dns(1, 1, "one", 0), dns(2, 1, "other", 0)];
    let [wrong, right] = [dns(2, 0x81, "other", 7), dns(1, 0x81, "one", 2)];
    let said = [udp(1, true, 53, &one), udp(2, true, 53, &other), udp(3, false, 53, &wrong), udp(4, false, 53, &right)];
    let found = names(&said).unwrap().dns.unwrap();
    assert_eq!((found.name.as_deref(), found.kind, found.rcode, found.answers), (Some("one"), 28, Some(3), Some(2)));
    let unasked = names(&said[3..]).unwrap().dns.unwrap();
    assert_eq!(
        (unasked.name.as_deref(), unasked.rcode),
        (Some("one"), Some(3)),
        "an answer whose question was not seen"
    );
    assert_eq!(names(&[udp(1, true, 53, b"nonsense")]), None);
}

/// A record that continues after the active timeout has the names of the previous one.
#[test]
fn next_record_of_a_flow_keeps_the_names() {
    let mut said = web(1000, 5);
    said.extend([tcp(5 * SECOND, true, 43, ACK, b"more"), tcp(9 * SECOND, true, 47, ACK, b"more")]);
    let config = all().with_timeouts(Nanos(60 * SECOND), Nanos(4 * SECOND));
    let flows = flows(&said, &config, &[2]);
    assert_eq!(flows.len(), 3);
    assert!(flows.iter().all(|flow| flow.names.as_deref().is_some_and(is_whole)));
    let mut sum = flows[0].clone();
    sum.join(&flows[1]);
    assert!(sum.names.as_deref().is_some_and(is_whole));
}

/// A later connection of the same ports has its own record and names.
#[test]
fn a_new_connection_has_its_own_names() {
    let mut said = web(1000, 5);
    said.extend([tcp(100, true, 43, FIN | ACK, b""), tcp(101, false, 97, FIN | ACK, b"")]);
    said.push(tcp(200, true, 900, SYN, b""));
    let flows = flows(&said, &all(), &[1]);
    assert_eq!(flows.iter().map(|flow| flow.names.is_some()).collect::<Vec<_>>(), [true, false]);
}

/// Incomplete hellos without end: their memory is bounded, the oldest are evicted and counted, and no flow is.
#[test]
fn a_flood_of_incomplete_hellos_is_evicted_and_counted() {
    let half = [&b"GET / HTTP/1.1\r\nX: "[..], &[b'x'; 30]].concat();
    let flood = 6000;
    let port = |number: u32| (1 + (number % 60_000) as u16, 8000);
    let said: Vec<NamePacket<'_>> =
        (0..flood).map(|number| NamePacket { ports: port(number), ..tcp(1, true, 1, ACK, &half) }).collect();
    let mut frames: Vec<_> = said.iter().map(frame).collect();
    // The last one is completed, the first one has been evicted.
    for number in [0, flood - 1] {
        frames.push(frame(&NamePacket { ports: port(number), ..tcp(2, true, 50, ACK, b"\r\nHost: late\r\n\r\n") }));
    }
    let config = Config { max_flows: 1 << 13, ..all() };
    let (flows, counts) = metered_frames(&frames, Link::Ethernet, &config, &[256]);
    assert_eq!((flows.len(), counts.names_full), (flood as usize, 0));
    assert!((2000..4000).contains(&counts.name_buffer_full), "{} evicted", counts.name_buffer_full);
    let site = |number: u32| {
        let flow = flows.iter().find(|flow| flow.ends[0].port == port(number).0).unwrap();
        flow.names.as_ref().and_then(|names| names.site()).map(str::to_owned)
    };
    assert_eq!((site(0), site(flood - 1)), (None, Some("late".to_owned())));
    let most = [config.clone(), Config { names: Protocols::NONE, ..config }].map(|config| config.most_bytes());
    assert!(most[0] - most[1] < 128 << 20, "the memory of names is bounded");
}

/// A flow is not examined after the maximum number of packets.
#[test]
fn flows_without_names_are_examined_for_a_limited_number_of_packets() {
    let mut said: Vec<NamePacket<'_>> = (0..40).map(|time| tcp(time, false, time as u32, ACK, b"x")).collect();
    said.push(tcp(50, true, 9, ACK, REQUEST));
    assert_eq!(names(&said), None);
}
