//! Built frames are dissected into exactly the headers that they were built from.

use crate::samples::{Sample, can_carry, payload, samples};
use linerate_headers::build::{BuildError, Extension, Frame, Header, Patch, Problem};
use linerate_headers::*;
use proptest::prelude::*;

/// Stacks headers, each chosen by a number among those that its predecessor can carry.
fn stack<'a>(samples: &'a [Sample], choices: &[prop::sample::Index]) -> (Link, Vec<&'a dyn Header>) {
    let first: Vec<_> = samples.iter().filter_map(|(header, link)| Some((header.as_ref(), (*link)?))).collect();
    let (first, link) = first[choices[0].index(first.len())];
    let mut stack: Vec<&dyn Header> = vec![first];
    for choice in &choices[1..] {
        let last = *stack.last().expect("a first one");
        let able: Vec<_> =
            samples.iter().map(|(header, _)| header.as_ref()).filter(|next| can_carry(last, *next)).collect();
        if able.is_empty() {
            break;
        }
        stack.push(able[choice.index(able.len())]);
    }
    (link, stack)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn built_packets_are_dissected_into_the_same_headers(
        choices in prop::collection::vec(any::<prop::sample::Index>(), 1..MAX_LAYERS),
        padding in 0usize..4,
    ) {
        let samples = samples();
        let (link, headers) = stack(&samples, &choices);
        let payload = payload(headers.last().expect("a last one").protocol());
        let frame = Frame::new(&headers, payload);
        let mut bytes = frame.to_vec().unwrap_or_else(|error| panic!("{error}: {:?}", names(&headers)));
        prop_assert_eq!(frame.length(), Ok(bytes.len()));
        bytes.resize(bytes.len() + padding, 0);
        let mut layers = Layers::new();
        dissect(link, &bytes, &mut layers);
        let lengths = (0..=headers.len()).map(|index| Frame::new(&headers[index..], payload).length().unwrap());
        let starts: Vec<usize> = lengths.map(|rest| frame.length().unwrap() - rest).collect();
        let mut expected: Vec<_> = headers
            .iter()
            .zip(starts.windows(2))
            .map(|(header, ends)| (header.protocol(), ends[0] as u32, (ends[1] - ends[0]) as u16))
            .collect();
        // Teredo is identified by the packet after it.
        expected.pop_if(|(protocol, ..)| *protocol == Protocol::Teredo);
        let found: Vec<_> = layers.as_slice().iter().map(|layer| (layer.protocol, layer.offset, layer.length)).collect();
        prop_assert_eq!(found, expected, "{}", layers.stop());
        prop_assert_eq!(coverage::checksums(&bytes, &coverage::placed(&bytes, &layers)), frame.checksums().unwrap());
    }

    #[test]
    fn checksums_are_updated_after_any_change(
        choices in prop::collection::vec(any::<prop::sample::Index>(), 1..MAX_LAYERS),
        text in prop::collection::vec(any::<u8>(), 0..40),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let samples = samples();
        let (_, headers) = stack(&samples, &choices);
        let frame = Frame::new(&headers, &text);
        let (mut bytes, placed) = (frame.to_vec().unwrap(), frame.placed().unwrap());
        let before = frame.checksums().unwrap();
        let mut patches = Vec::new();
        for (header, offset, byte) in &changes {
            let (header, byte) = (header.index(headers.len()), std::slice::from_ref(byte));
            let offset = offset.index(placed[header].length.max(1));
            let at = placed[header].offset + offset;
            let summed = before.iter().any(|sum| (sum.offset..sum.offset + sum.length()).contains(&at));
            if offset < placed[header].length && !summed && !is_form(placed[header].protocol, offset) {
                bytes[at] = byte[0];
                patches.push(Patch { header, offset, bytes: byte });
            }
        }
        let expected = Frame { patches: &patches, ..frame }.to_vec().unwrap();
        let checksums = coverage::checksums(&bytes, &placed);
        for sum in &before {
            // A coverage that is too long has no checksum.
            let is_there = checksums.iter().any(|now| now.offset == sum.offset);
            bytes[sum.offset..sum.offset + sum.length()].fill(if is_there { 0x5a } else { 0 });
        }
        checksums.iter().for_each(|sum| sum.fill(&mut bytes));
        prop_assert_eq!(bytes, expected, "{:?} {:?}", names(&headers), patches);
    }
}

/// Returns whether a byte affects the addresses that checksums cover, or the presence of a checksum: a patch of it is
/// only visible in the bytes.
fn is_form(protocol: Protocol, offset: usize) -> bool {
    match protocol {
        Protocol::Ipv4 => (12..20).contains(&offset),
        Protocol::Ipv6 => offset >= 8,
        Protocol::Routing => true,
        Protocol::Gre => offset < 2,
        Protocol::Shim6 => offset == 2,
        _ => false,
    }
}

#[test]
fn changed_addresses_are_in_the_checksums() {
    let mut data = [0; 22];
    (data[1], data[21]) = (1, 9);
    let mut other = data;
    other[20] = 7;
    let route = |data| Extension::Routing(ipv6_extension::Header { next_header: 0, data });
    let (four, six) =
        (ipv4::Header { source: [1, 2, 3, 4].into(), ..v4() }, ipv6::Header { destination: 77.into(), ..v6() });
    let pairs: [[&[&dyn Header]; 2]; 4] = [
        [&[&v4(), &PORTS], &[&four, &PORTS]],
        [&[&v6(), &PORTS], &[&six, &PORTS]],
        [&[&v6(), &route(&data), &PORTS], &[&v6(), &route(&other), &PORTS]],
        [&[&v6(), &route(&data), &PORTS], &[&six, &route(&data), &PORTS]],
    ];
    for [before, after] in pairs {
        let frame = Frame::new(before, b"hello");
        let checksums = frame.checksums().unwrap();
        let mut bytes = Frame::new(after, b"hello").to_vec().unwrap();
        let expected = bytes.clone();
        for sum in &checksums {
            bytes[sum.offset..sum.offset + sum.length()].copy_from_slice(&[0x12, 0x34]);
        }
        checksums.iter().for_each(|sum| sum.fill(&mut bytes));
        assert_eq!(bytes, expected, "{:?}", names(before));
    }
}

#[test]
fn absent_or_deliberately_wrong_checksums_are_not_listed() {
    let headers: [&dyn Header; 2] = [&v4(), &PORTS];
    let offsets = |patches: &[Patch<'_>]| -> Vec<usize> {
        let frame = Frame { patches, ..Frame::new(&headers, b"hello") };
        frame.checksums().unwrap().iter().map(|sum| sum.offset).collect()
    };
    assert_eq!(offsets(&[]), [26, 10]);
    assert_eq!(offsets(&[Patch { header: 1, offset: 6, bytes: &[0, 0] }]), [10]);
    assert_eq!(offsets(&[Patch { header: 0, offset: 9, bytes: &[1, 2] }]), [26]);
    assert_eq!(offsets(&[Patch { header: 0, offset: 8, bytes: &[1] }]), [26, 10]);
}

const LINK: ethernet::Header =
    ethernet::Header { destination: MacAddr::BROADCAST, source: MacAddr([2, 0, 0, 0, 0, 1]), ether_type: 0 };
const PORTS: udp::Header = udp::Header { source_port: 7, destination_port: 9 };

fn v4() -> ipv4::Header {
    ipv4::Header { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into(), ..ipv4::Header::new(0) }
}

fn v6() -> ipv6::Header {
    ipv6::Header { source: 1.into(), destination: 2.into(), ..ipv6::Header::new(0) }
}

#[test]
fn next_header_fields_are_kept_and_others_replaced() {
    let tag = vlan::Header { id: 1, priority: 0, drop_eligible: false, ether_type: ethernet::IPV6 };
    let types = |ether_type| {
        let link = ethernet::Header { ether_type, ..LINK };
        let frame = Frame::new(&[&link, &tag, &v4()], &[]).to_vec().unwrap();
        [u16::from_be_bytes([frame[12], frame[13]]), u16::from_be_bytes([frame[16], frame[17]])]
    };
    assert_eq!(types(0), [vlan::CUSTOMER, ethernet::IPV4]);
    assert_eq!(types(vlan::SERVICE), [vlan::SERVICE, ethernet::IPV4]);
    assert_eq!(types(ethernet::ARP), [vlan::CUSTOMER, ethernet::IPV4]);
    let port = |destination_port| {
        let outer = udp::Header { destination_port, ..PORTS };
        let frame = Frame::new(&[&v4(), &outer, &vxlan::Header::new(1), &LINK], &[]).to_vec().unwrap();
        udp::View::parse(&frame[20..]).unwrap().destination_port()
    };
    assert_eq!([0, vxlan::OLD_PORT, 1234].map(port), [vxlan::PORT, vxlan::OLD_PORT, 1234]);
    let last = Frame::new(&[&ethernet::Header { ether_type: 0x1234, ..LINK }], &[1]).to_vec().unwrap();
    assert_eq!(last[12..], [0x12, 0x34, 1], "after the last header the value is kept");
}

#[test]
fn checksums_cover_the_final_destination() {
    let right = |left: u8, destination: u128| {
        let mut data = [0; 22];
        (data[1], data[21]) = (left, 9);
        let route = Extension::Routing(ipv6_extension::Header { next_header: 0, data: &data });
        let frame = Frame::new(&[&v6(), &route, &PORTS], b"hello").to_vec().unwrap();
        let pseudo = Pseudo::V6 { source: 1.into(), destination: destination.into() };
        udp::View::parse(&frame[64..]).unwrap().is_checksum_right(&pseudo)
    };
    assert!(right(1, 9) && !right(1, 2));
    assert!(right(0, 2) && !right(0, 9));
}

#[test]
fn patches_apply_before_and_after_checksums() {
    let headers: [&dyn Header; 3] = [&LINK, &v4(), &PORTS];
    let built = |patches: &[Patch<'_>]| Frame { patches, ..Frame::new(&headers, b"hello") }.to_vec().unwrap();
    let frame = built(&[Patch { header: 1, offset: 8, bytes: &[1] }, Patch { header: 2, offset: 0, bytes: &[0, 1] }]);
    let packet = ipv4::View::parse(&frame[14..]).unwrap();
    assert!(packet.ttl() == 1 && packet.is_checksum_right());
    let datagram = udp::View::parse(packet.payload()).unwrap();
    assert!(datagram.source_port() == 1 && datagram.is_checksum_right(&packet.pseudo()));
    let frame =
        built(&[Patch { header: 1, offset: 10, bytes: &[1, 2] }, Patch { header: 2, offset: 6, bytes: &[0, 0] }]);
    let packet = ipv4::View::parse(&frame[14..]).unwrap();
    assert_eq!((packet.checksum(), udp::View::parse(packet.payload()).unwrap().checksum()), (0x0102, 0));
}

#[test]
fn patch_may_leave_no_bytes_for_a_checksum() {
    let lite = |coverage| udp_lite::Header { source_port: 1, destination_port: 2, coverage };
    let patches = [Patch { header: 1, offset: 4, bytes: &[0, 200] }];
    let frame = Frame { patches: &patches, ..Frame::new(&[&v4(), &lite(0)], b"hello") }.to_vec().unwrap();
    assert_eq!(frame[24..28], [0, 200, 0, 0]);
    assert!(Frame::new(&[&v4(), &lite(200)], b"hello").to_vec().is_err());
}

#[test]
fn impossible_packets_are_rejected() {
    let problem = |headers: &[&dyn Header], payload: &[u8]| match Frame::new(headers, payload).to_vec() {
        Err(BuildError::Header { index, problem, .. }) => (index, problem),
        other => panic!("{other:?}"),
    };
    let (v4, v6, segment) = (v4(), v6(), tcp::Header::default());
    assert_eq!(problem(&[&LINK, &segment], &[]), (0, Problem::CannotCarry(Protocol::Tcp)));
    assert_eq!(problem(&[&v4, &segment, &LINK], &[]), (1, Problem::CannotCarry(Protocol::Ethernet)));
    assert_eq!(problem(&[&PORTS], &[]), (0, Problem::NoAddresses));
    assert_eq!(problem(&[&v4, &vxlan::Header::new(0)], &[]), (0, Problem::CannotCarry(Protocol::Vxlan)));
    let snap = llc::Header::Snap(llc::Snap { organization: [0; 3], protocol: 0 });
    let longest: [([&dyn Header; 2], usize); 3] =
        [([&LINK, &snap], 1492), ([&v4, &PORTS], 65_507), ([&v6, &PORTS], 65_527)];
    for (headers, most) in &longest {
        assert!(Frame::new(headers, &vec![0; *most]).to_vec().is_ok());
        assert!(matches!(problem(headers, &vec![0; most + 1]), (_, Problem::EmitError(EmitError::Field(_)))));
    }
    let patched = |patch| Frame { patches: &[patch], ..Frame::new(&[&LINK], &[]) }.to_vec();
    assert_eq!(patched(Patch { header: 1, offset: 0, bytes: &[] }), Err(BuildError::NoSuchHeader { header: 1 }));
    for offset in [13, usize::MAX] {
        let error = BuildError::Header { index: 0, protocol: Protocol::Ethernet, problem: Problem::PatchOutside };
        assert_eq!(patched(Patch { header: 0, offset, bytes: &[0; 2] }), Err(error));
    }
    assert_eq!(Frame::new(&[&LINK], &[0; 3]).write(&mut [0; 16]), Err(BuildError::NoRoom { need: 17 }));
    assert_eq!(Frame::new(&[], &[5]).to_vec(), Ok(vec![5]), "a frame without headers is valid");
}

fn names(headers: &[&dyn Header]) -> Vec<&'static str> {
    headers.iter().map(|header| header.protocol().name()).collect()
}
