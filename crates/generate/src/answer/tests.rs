//! The state machine, frame by frame; `hops` tests its own requests.

mod hops;

use super::*;
use linerate_burst::{Kind, Ledger, Stage};
use linerate_headers::build::{Frame, Header, Patch};
use linerate_headers::icmp::Echo;
use linerate_headers::{MacAddr, arp, icmp, ipv4, vlan};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const START: Nanos = Nanos(1_700_000_000_000_000_000);
const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);
const OTHER_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x12, 0x3456);
const OTHER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

fn answerer() -> Answerer {
    let own = ["10.0.0.4/30", "fd00::12:3456"].map(|text| format!("{text}@{OWN}").parse().unwrap());
    Answerer::new(Addresses::new(own.to_vec()).unwrap(), ANSWERS_PER_SECOND)
}

fn link(destination: MacAddr) -> ethernet::Header {
    ethernet::Header { destination, source: OTHER, ether_type: 0 }
}

fn request(sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> arp::Packet {
    arp::Packet { operation: arp::REQUEST, sender_mac: OTHER, sender_ip, target_mac: MacAddr::default(), target_ip }
}

fn built(headers: &[&dyn Header], payload: &[u8]) -> Vec<u8> {
    Frame::new(headers, payload).to_vec().unwrap()
}

fn v4(source: Ipv4Addr, destination: Ipv4Addr) -> ipv4::Header {
    ipv4::Header { source, destination, ..ipv4::Header::new(0) }
}

fn v6(source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8) -> ipv6::Header {
    ipv6::Header { source, destination, hop_limit, ..ipv6::Header::new(0) }
}

fn ping(source: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let echo = icmp::Header { kind: icmp::ECHO_REQUEST, code: 0, rest: Echo { identifier: 7, sequence: 9 }.into() };
    built(&[&link(OWN), &v4(source, OWN_V4), &echo], payload)
}

fn solicitation(source: Ipv6Addr, hop_limit: u8, source_mac: Option<MacAddr>) -> Vec<u8> {
    let group = ndp::solicited_node(OWN_V6);
    let mut body = [0; 28];
    let length = ndp::Solicitation { target: OWN_V6, source_mac }.emit(&mut body).unwrap();
    let message = icmpv6::Header { kind: ndp::SOLICITATION, code: 0 };
    let headers: [&dyn Header; 3] = [&link(ndp::multicast_mac(group)), &v6(source, group, hop_limit), &message];
    built(&headers, &body[..length])
}

/// Returns the answer, and the counter of the frame.
fn exchange(answerer: &mut Answerer, frame: &[u8]) -> (Option<Vec<u8>>, Count) {
    let before = answerer.counts.clone();
    answerer.receive(frame, START);
    let grown = |count: &&Count| answerer.counts.get(count) != before.get(count);
    let what = Count::ALL.iter().rfind(|count| **count != Count::AnswerConflict && grown(count)).unwrap();
    assert!(answerer.frames().len() <= 1);
    let back = answerer.frames().iter().next().map(|(_, frame)| frame.to_vec());
    answerer.clear(0);
    (back, *what)
}

fn refusal(frame: &[u8]) -> Count {
    let (back, why) = exchange(&mut answerer(), frame);
    assert_eq!(back, None);
    why
}

/// Packets of a tunnel get the same answers without a link header and padding.
#[test]
fn packets_of_a_tunnel_are_answered_like_frames() {
    let echo = icmpv6::Header { kind: icmpv6::ECHO_REQUEST, code: 0 };
    for asked in [ping(OTHER_V4, b"hello"), built(&[&link(OWN), &v6(OTHER_V6, OWN_V6, 3), &echo], &[0, 1, 2, 3, 4])] {
        let (framed, _) = exchange(&mut answerer(), &asked);
        let mut answerer = answerer();
        answerer.receive_packet(&asked[14..], START);
        let (_, packet) = answerer.frames().iter().next().expect("an answer");
        let framed = framed.expect("an answer");
        assert_eq!(packet, &framed[14..14 + packet.len()]);
        assert_eq!(packet.len(), asked.len() - 14);
    }
    let mut answerer = answerer();
    for other in [&[][..], &[0x45], &[0x10; 40]] {
        answerer.receive_packet(other, START);
    }
    assert!(answerer.frames().is_empty());
}

/// Returns the header of an IPv6 answer, with a right checksum, and its message.
fn read_v6(frame: &[u8]) -> (ipv6::Header, u8, Vec<u8>) {
    let packet = ipv6::View::parse(&frame[14..]).unwrap();
    let message = icmpv6::View::parse(packet.payload()).unwrap();
    assert!(message.is_checksum_right(&packet.pseudo()));
    (packet.header(), message.kind(), message.body().to_vec())
}

#[test]
fn arp_is_answered_only_for_own_addresses() {
    let ask = |packet: arp::Packet| built(&[&link(MacAddr::BROADCAST), &packet], &[]);
    let (back, what) = exchange(&mut answerer(), &ask(request(OTHER_V4, OWN_V4)));
    let back = back.unwrap();
    assert_eq!((what, back.len()), (Count::AnsweredArp, 60));
    let reply = arp::View::parse(&back[14..]).unwrap().packet().unwrap();
    let mirrored = arp::Packet {
        operation: arp::REPLY,
        sender_mac: OWN,
        sender_ip: OWN_V4,
        target_mac: OTHER,
        target_ip: OTHER_V4,
    };
    assert_eq!((&back[..6], &back[6..12], reply), (&OTHER.0[..], &OWN.0[..], mirrored));
    let probe = exchange(&mut answerer(), &ask(request(Ipv4Addr::UNSPECIFIED, OWN_V4))).0.unwrap();
    assert_eq!(arp::View::parse(&probe[14..]).unwrap().packet().unwrap().target_ip, Ipv4Addr::UNSPECIFIED);

    assert_eq!(refusal(&ask(request(OTHER_V4, [10, 0, 0, 8].into()))), Count::AnswerOther);
    assert_eq!(refusal(&ask(request(OWN_V4, OWN_V4))), Count::AnswerOther, "an announcement");
    assert_eq!(refusal(&ask(request([224, 0, 0, 1].into(), OWN_V4))), Count::AnswerMartian);
    let group = arp::Packet { sender_mac: MacAddr::BROADCAST, ..request(OTHER_V4, OWN_V4) };
    assert_eq!(refusal(&ask(group)), Count::AnswerMartian);
    assert_eq!(refusal(&ask(arp::Packet { sender_mac: OWN, ..group })), Count::AnswerMartian);
    let elsewhere = built(&[&link(OTHER), &request(OTHER_V4, OWN_V4)], &[]);
    assert_eq!(refusal(&elsewhere), Count::AnswerOther, "sent to another station");
    assert_eq!(refusal(&ask(request(OTHER_V4, OWN_V4))[..41]), Count::AnswerMalformed);
}

#[test]
fn another_station_with_an_own_address_is_counted() {
    let mut answerer = answerer();
    exchange(&mut answerer, &built(&[&link(MacAddr::BROADCAST), &request(OWN_V4, OWN_V4)], &[]));
    assert_eq!(answerer.counts.get(&Count::AnswerConflict), Some(&1));
}

#[test]
fn replies_keep_their_tags() {
    let own = format!("10.0.0.7@{OWN}@7.100").parse().unwrap();
    let mut answerer = Answerer::new(Addresses::new(vec![own]).unwrap(), 9);
    let outer = vlan::Header { id: 7, priority: 3, drop_eligible: false, ether_type: 0 };
    let service = ethernet::Header { ether_type: vlan::SERVICE, ..link(MacAddr::BROADCAST) };
    let packet = request(OTHER_V4, OWN_V4);
    let ask = |inner| built(&[&service, &outer, &vlan::Header { id: inner, ..outer }, &packet], &[]);
    let back = exchange(&mut answerer, &ask(100)).0.unwrap();
    assert_eq!(back[12..22], ask(100)[12..22]);
    assert_eq!(arp::View::parse(&back[22..]).unwrap().packet().unwrap().operation, arp::REPLY);
    assert_eq!(exchange(&mut answerer, &ask(101)), (None, Count::AnswerOther));
    assert_eq!(exchange(&mut answerer, &built(&[&service, &packet], &[])), (None, Count::AnswerOther));
}

#[test]
fn pings_are_answered_with_their_payload() {
    let (back, what) = exchange(&mut answerer(), &ping(OTHER_V4, b"hello, and so on"));
    let back = back.unwrap();
    let packet = ipv4::View::parse(&back[14..]).unwrap();
    let message = icmp::View::parse(packet.payload()).unwrap();
    assert!(what == Count::AnsweredEcho && packet.is_checksum_right() && message.is_checksum_right());
    assert_eq!((packet.source(), packet.destination(), packet.ttl()), (OWN_V4, OTHER_V4, 64));
    assert_eq!((message.kind(), message.payload()), (icmp::ECHO_REPLY, &b"hello, and so on"[..]));
    assert_eq!(Echo::from(message.rest()), Echo { identifier: 7, sequence: 9 });

    for source in [[255; 4], [0; 4], [127, 0, 0, 1], [224, 0, 0, 1]] {
        assert_eq!(refusal(&ping(source.into(), b"")), Count::AnswerMartian, "{source:?}");
    }
    let mut frame = ping(OTHER_V4, b"payload");
    assert_eq!(refusal(&frame[..frame.len() - 1]), Count::AnswerMalformed, "cut");
    frame[45] ^= 1;
    assert_eq!(refusal(&frame), Count::AnswerMalformed, "checksum");
    let echo = icmp::Header { kind: icmp::ECHO_REQUEST, code: 0, rest: [0; 4] };
    let fragment = ipv4::Header { more_fragments: true, ..v4(OTHER_V4, OWN_V4) };
    assert_eq!(refusal(&built(&[&link(OWN), &fragment, &echo], &[])), Count::AnswerMalformed);
    let broadcast = built(&[&link(MacAddr::BROADCAST), &v4(OTHER_V4, OWN_V4), &echo], &[]);
    assert_eq!(refusal(&broadcast), Count::AnswerOther, "broadcast pings are not answered");
    let reply = icmp::Header { kind: icmp::ECHO_REPLY, ..echo };
    assert_eq!(refusal(&built(&[&link(OWN), &v4(OTHER_V4, OWN_V4), &reply], &[])), Count::AnswerOther);
}

#[test]
fn pings_of_ipv6_are_answered() {
    let body = [[0, 7, 0, 9].as_slice(), b"hello"].concat();
    let echo = icmpv6::Header { kind: icmpv6::ECHO_REQUEST, code: 0 };
    let ask = |source, body: &[u8]| built(&[&link(OWN), &v6(source, OWN_V6, 3), &echo], body);
    let (back, what) = exchange(&mut answerer(), &ask(OTHER_V6, &body));
    let (network, kind, answered) = read_v6(&back.unwrap());
    assert_eq!((what, kind, answered), (Count::AnsweredEcho, icmpv6::ECHO_REPLY, body.clone()));
    assert_eq!((network.source, network.destination, network.hop_limit), (OWN_V6, OTHER_V6, 64));
    assert_eq!(refusal(&ask("ff02::1".parse().unwrap(), &body)), Count::AnswerMartian);
    assert_eq!(refusal(&ask(OTHER_V6, &body[..3])), Count::AnswerMalformed);
    let mut wrong = ask(OTHER_V6, &body);
    wrong[60] ^= 1;
    assert_eq!(refusal(&wrong), Count::AnswerMalformed);
}

#[test]
fn solicitations_are_answered_to_the_sender_or_to_all() {
    let (back, what) = exchange(&mut answerer(), &solicitation(OTHER_V6, 255, Some(OTHER)));
    let back = back.unwrap();
    let (network, kind, body) = read_v6(&back);
    let wanted =
        ndp::Advertisement { router: false, solicited: true, replace: true, target: OWN_V6, target_mac: Some(OWN) };
    assert_eq!((what, kind), (Count::AnsweredNeighbor, ndp::ADVERTISEMENT));
    assert_eq!(ndp::Advertisement::parse(&body), Ok(wanted));
    assert_eq!((network.source, network.destination, network.hop_limit), (OWN_V6, OTHER_V6, 255));
    assert_eq!(back[..6], OTHER.0);

    let probe = exchange(&mut answerer(), &solicitation(Ipv6Addr::UNSPECIFIED, 255, None)).0.unwrap();
    let (network, _, body) = read_v6(&probe);
    assert_eq!((network.destination, probe[..6].to_vec()), (ndp::ALL_NODES, vec![0x33, 0x33, 0, 0, 0, 1]));
    assert_eq!(ndp::Advertisement::parse(&body), Ok(ndp::Advertisement { solicited: false, ..wanted }));

    assert_eq!(refusal(&solicitation(OTHER_V6, 254, Some(OTHER))), Count::AnswerMalformed, "through a router");
    assert_eq!(refusal(&solicitation(Ipv6Addr::UNSPECIFIED, 255, Some(OTHER))), Count::AnswerMalformed);
    assert_eq!(refusal(&solicitation(ndp::ALL_NODES, 255, Some(OTHER))), Count::AnswerMartian);
    assert_eq!(refusal(&solicitation(OTHER_V6, 255, Some(MacAddr::BROADCAST))), Count::AnswerMartian);
}

#[test]
fn a_flood_gets_only_the_allowed_number_of_answers() {
    let mut answerer = Answerer::new(answerer().own, 100);
    (0..5000).for_each(|_| answerer.receive(&ping(OTHER_V4, &[0; 1400]), START));
    assert_eq!((answerer.frames().len(), answerer.counts[&Count::AnswerLimited]), (100, 4900));
    let mut fast = Answerer::new(answerer.own, 1_000_000);
    (0..5000).for_each(|_| fast.receive(&ping(OTHER_V4, &[0; 1400]), START));
    let waiting = fast.frames().len();
    assert!((100..=1024).contains(&waiting), "{waiting}");
    assert_eq!(fast.counts[&Count::AnswerFull], 5000 - waiting as u64);
}

/// Only one thing is wrong in each frame: checksums are right over the bytes present.
#[test]
fn invalid_lengths_are_not_answered() {
    let echo = icmp::Header { kind: icmp::ECHO_REQUEST, code: 0, rest: [0; 4] };
    let echo_v6 = icmpv6::Header { kind: icmpv6::ECHO_REQUEST, code: 0 };
    let (head, network, network_v6) = (link(OWN), v4(OTHER_V4, OWN_V4), v6(OTHER_V6, OWN_V6, 64));
    let asked: [&dyn Header; 3] = [&head, &network, &echo];
    let asked_v6: [&dyn Header; 3] = [&head, &network_v6, &echo_v6];
    for (headers, offset, lengths) in [(asked, 2, [0, 33]), (asked_v6, 4, [0, 9])] {
        let frame = Frame::new(&headers, &[0; 4]);
        exchange(&mut answerer(), &frame.to_vec().unwrap()).0.expect("an answer to the valid frame");
        for length in lengths.map(u16::to_be_bytes) {
            let patches = [Patch { header: 1, offset, bytes: &length }];
            let lying = Frame { patches: &patches, ..frame }.to_vec().unwrap();
            assert_eq!(refusal(&lying), Count::AnswerMalformed, "{length:?}");
        }
    }
    let mut damaged = built(&asked, &[]);
    damaged[22] ^= 1;
    assert_eq!(refusal(&damaged), Count::AnswerMalformed, "the header's own checksum");
    let looped = ethernet::Header { source: OWN, ..head };
    assert_eq!(refusal(&built(&[&looped, &network, &echo], &[])), Count::AnswerMartian);
}

#[test]
fn own_addresses_are_announced_on_request() {
    let mut answerer = answerer();
    answerer.announce(START);
    let sent: Vec<Vec<u8>> = answerer.frames().iter().map(|(_, frame)| frame.to_vec()).collect();
    let first = Ipv4Addr::new(10, 0, 0, 4);
    let announced = arp::Packet {
        operation: arp::REQUEST,
        sender_mac: OWN,
        sender_ip: first,
        target_mac: MacAddr::default(),
        target_ip: first,
    };
    let link = ethernet::Header { destination: MacAddr::BROADCAST, source: OWN, ether_type: 0 };
    let mut expected = built(&[&link, &announced], &[]);
    expected.resize(60, 0);
    assert_eq!((sent.len(), &sent[0]), (2, &expected));
    let group = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!((&sent[1][..6], &sent[1][6..12]), (&group.0[..], &OWN.0[..]));
    let packet = ipv6::View::parse(&sent[1][14..]).unwrap();
    assert_eq!((packet.source(), packet.hop_limit()), (OWN_V6, 255));
    let message = icmpv6::View::parse(packet.payload()).unwrap();
    assert!(message.kind() == ndp::ADVERTISEMENT && message.is_checksum_right(&packet.pseudo()));
    let advertised = ndp::Advertisement::parse(message.body()).unwrap();
    assert_eq!(
        (advertised.target, advertised.target_mac, advertised.solicited, advertised.replace),
        (OWN_V6, Some(OWN), false, true)
    );
    let mut ledger = Ledger::new();
    answerer.counters(ledger.account(Stage::Answer, "x"));
    assert_eq!(ledger.accounts()[0].get(Count::AnswerAnnounced), 2);
}

proptest! {
    /// Nearly valid frames: nothing panics, each is counted once, and no answer is sent to a group except that to
    /// duplicate address detection.
    #[test]
    fn hostile_frames_are_ignored(
        which in 0usize..4, flips in prop::collection::vec((0usize..110, any::<u8>()), 0..4), length in 0usize..140,
    ) {
        let mut frame = match which {
            0 => built(&[&link(MacAddr::BROADCAST), &request(OTHER_V4, OWN_V4)], &[]),
            1 => ping(OTHER_V4, &[7; 60]),
            2 => solicitation(OTHER_V6, 255, Some(OTHER)),
            _ => solicitation(Ipv6Addr::UNSPECIFIED, 255, None),
        };
        for (at, byte) in flips {
            let at = at % frame.len();
            frame[at] = byte;
        }
        frame.truncate(length.max(1));
        let mut answerer = answerer();
        answerer.resolve(Hop::new(OTHER_V4.into(), OWN_V4.into(), OWN, Vlans::NONE).unwrap(), START);
        answerer.clear(0);
        answerer.receive(&frame, START);
        for (_, back) in answerer.frames().iter() {
            prop_assert_eq!(&back[6..12], &OWN.0[..]);
            prop_assert!(back[0] & 1 == 0 || (which == 3 && back[..6] == [0x33, 0x33, 0, 0, 0, 1]));
            prop_assert!(back.len() <= frame.len().max(60) + 16);
        }
        let mut ledger = Ledger::new();
        let account = ledger.account(Stage::Answer, "x");
        answerer.counters(account);
        prop_assert_eq!((account.sum(Kind::Received), account.unaccounted()), (1, 0));
    }

    #[test]
    fn any_bytes_are_handled(frame in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut answerer = answerer();
        answerer.receive(&frame, START);
        prop_assert!(answerer.frames().is_empty());
    }
}
