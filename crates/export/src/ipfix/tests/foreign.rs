//! Records of other exporters.

use super::super::{Collector, CollectorCounters, ENTERPRISE, Limits, Session};
use crate::fields::REVERSE;
use linerate_burst::random::draw;
use linerate_meter::{EndReason, Flow, Quality};
use std::sync::Mutex;

const SECOND: u64 = 1_000_000_000;
/// Export time, and start of a flow, in s and ms.
const EXPORTED: u32 = 1_700_000_100;
const BEGAN: u64 = 1_700_000_000;
const MS: u64 = BEGAN * 1000;

/// An element: enterprise, number, length and value.
type Element = (u32, u16, u16, u64);

fn set(id: u16, body: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes(), &(body.len() as u16 + 4).to_be_bytes(), body].concat()
}

fn message(sets: &[u8]) -> Vec<u8> {
    let length = (sets.len() + 16) as u16;
    [&[0, 10], &length.to_be_bytes()[..], &EXPORTED.to_be_bytes(), &[0; 8], sets].concat()
}

fn template(id: u16, elements: &[Element]) -> Vec<u8> {
    let mut body = [id.to_be_bytes(), (elements.len() as u16).to_be_bytes()].concat();
    for (enterprise, element, length, _) in elements {
        let foreign = u16::from(*enterprise != 0) << 15;
        body.extend([(element | foreign).to_be_bytes(), length.to_be_bytes()].concat());
        if *enterprise != 0 {
            body.extend(enterprise.to_be_bytes());
        }
    }
    set(2, &body)
}

fn record(elements: &[Element]) -> Vec<u8> {
    let value = |(_, _, length, value): &Element| {
        let wide = [[0; 8], value.to_be_bytes()].concat();
        wide[16 - usize::from(*length)..].to_vec()
    };
    elements.iter().flat_map(value).collect()
}

/// Returns the flow of a record with these elements, and with the addresses 10.0.0.1 and 10.0.0.2 unless they have others.
fn flow(elements: &[Element]) -> Flow {
    let ends = [(0, 8, 4, 0x0a00_0001), (0, 12, 4, 0x0a00_0002)];
    let has_ends = elements.iter().any(|(_, element, ..)| matches!(element, 8 | 27 | 28 | 44));
    let elements = if has_ends { elements.to_vec() } else { [&ends, elements].concat() };
    let mut flows = Vec::new();
    let mut collector = Collector::new(Limits::default(), ENTERPRISE);
    let sets = [template(256, &elements), set(256, &record(&elements))].concat();
    collector.take(Session::File(1), &message(&sets), &mut |flow| flows.push(flow.clone()));
    assert_eq!((flows.len(), collector.found().malformed), (1, 0), "{elements:?}");
    flows.remove(0)
}

fn times(elements: &[Element]) -> [u64; 2] {
    let flow = flow(elements);
    [flow.first().0, flow.last().0.saturating_sub(flow.first().0)]
}

#[test]
fn every_counter_element_is_decoded() {
    let packets = |elements: &[Element]| flow(elements).sides.map(|side| side.packets);
    for element in [2, 86, 298, 402, 24, 172, 430, 431] {
        assert_eq!(packets(&[(0, element, 4, 7)]), [7, 0], "{element}");
        assert_eq!(packets(&[(REVERSE, element, 8, 7), (0, 2, 1, 1)]), [1, 7], "reverse {element}");
        // An element with value 0 does not hide another, in any order.
        assert_eq!(packets(&[(0, element, 4, 7), (0, 2, 4, 0), (0, 86, 4, 0), (0, 24, 4, 0)]), [7, 0], "{element}");
        assert_eq!(packets(&[(0, 2, 4, 0), (0, element, 4, 7)]), [7, 0], "{element} after a 0");
    }
    assert_eq!(packets(&[(0, 24, 4, 9), (0, 2, 4, 7), (0, 86, 4, 5)]), [7, 0], "the best one counts");
    assert_eq!(packets(&[(0, 298, 4, 10), (0, 299, 4, 20)]), [10, 20]);
    for element in [1, 85, 23, 171] {
        assert_eq!(flow(&[(0, element, 4, 700)]).sides[0].packet_bytes, 700, "{element}");
        assert_eq!(flow(&[(0, element, 4, 700)]).sides[0].frame_bytes, 700, "{element}");
    }
    for element in [352, 353, 417, 420] {
        assert_eq!(flow(&[(0, element, 4, 700), (0, 1, 4, 600)]).sides[0].frame_bytes, 700, "{element}");
    }
    let asa = flow(&[(0, 231, 4, 81), (0, 232, 4, 763)]);
    assert_eq!(asa.sides.map(|side| (side.payload_bytes, side.packet_bytes)), [(81, 81), (763, 763)]);
    assert_eq!(flow(&[(0, 3, 4, 0)]).flows, 1);
    let both = flow(&[(0, 192, 1, 64)]);
    assert_eq!(both.sides[0].ttl, [64, 64]);
    assert_eq!(flow(&[(0, 218, 4, 3), (0, 219, 4, 0), (0, 222, 4, 1)]).sides[0].tcp_flags, 0x12);
    assert_eq!(flow(&[(0, 6, 2, 0x112)]).sides[0].tcp_flags, 0x12);
    assert_eq!(flow(&[(0, 5, 1, 0), (0, 195, 1, 46)]).sides[0].tos, 184);
    assert_eq!(flow(&[(0, 5, 1, 0), (0, 55, 1, 184)]).sides[0].tos, 0, "remarked after the exporter");
    assert_eq!(flow(&[(0, 55, 1, 184)]).sides[0].tos, 184);
}

#[test]
fn times_do_not_depend_on_other_elements() {
    let at = BEGAN * SECOND;
    // Start and end in each unit, packets or not.
    let ntp = (BEGAN + 2_208_988_800) << 32;
    for (start, end, length, first, last) in [
        (150, 151, 4, BEGAN, BEGAN + 1),
        (152, 153, 8, MS, MS + 1000),
        (154, 155, 8, ntp, ntp + (1 << 32)),
        (156, 157, 8, ntp, ntp + (1 << 32)),
        (158, 159, 4, 100_000_000, 99_000_000),
        (265, 261, 4, BEGAN, BEGAN + 1),
        (272, 269, 8, MS, MS + 1000),
        (271, 268, 8, ntp, ntp + (1 << 32)),
        (273, 270, 8, ntp, ntp + (1 << 32)),
        (359, 360, 8, MS, MS + 1000),
    ] {
        let both = [(0, start, length, first), (0, end, length, last)];
        for more in [&[][..], &[(0, 2, 4, 5)], &[(0, 1, 4, 1000)], &[(0, 152, 8, 0), (0, 153, 8, 0)][..]] {
            if more.len() == 2 && start == 152 {
                continue;
            }
            assert_eq!(times(&[&both, more].concat()), [at, SECOND], "{start} {more:?}");
        }
        let duration = (0, 161, 4, 1000);
        assert_eq!(times(&[both[0], duration]), [at, SECOND], "{start} with a duration");
        assert_eq!(times(&[both[1], (0, 162, 4, 1_000_000)]), [at, SECOND], "{end} with a duration");
        assert_eq!(times(&[both[1]]), [at + SECOND, 0], "an event that has only an end");
        assert_eq!(times(&[both[0], (0, 233, 1, 1)]), [at, 0], "an event that has only a start");
    }
    // In the NTP era that starts in 2036.
    let later = 2_300_000_000_u64;
    let number = (later + 2_208_988_800) << 32;
    assert_eq!(times(&[(0, 156, 8, number), (0, 157, 8, number)])[0], later * SECOND);
    // The observation time is the only time, or the end of the flow.
    for (element, length, value) in [(322, 4, BEGAN), (323, 8, MS), (324, 8, ntp), (325, 8, ntp)] {
        assert_eq!(times(&[(0, element, length, value)]), [at, 0], "{element}");
        assert_eq!(times(&[(0, 152, 8, MS - 60), (0, element, length, value)]), [at - 60_000_000, 60_000_000]);
    }
    assert_eq!(times(&[(0, 2, 4, 1)]), [u64::from(EXPORTED) * SECOND, 0], "the export time is the fallback");
    // Relative to the start of the exporter.
    let up = [(0, 160, 8, MS - 5000), (0, 22, 4, 5000), (0, 21, 4, 6000)];
    assert_eq!(times(&up), [at, SECOND]);
    assert_eq!(times(&[(0, 150, 4, BEGAN), (0, 151, 4, BEGAN + 1), (0, 22, 4, 0), (0, 21, 4, 0)]), [at, SECOND]);
}

#[test]
fn a_direction_without_packets_does_not_hide_times() {
    let both = [(0, 152, 8, MS), (0, 153, 8, MS + 500)];
    let asa = flow(&[both[0], (0, 323, 8, MS + 60), (0, 298, 4, 10), (0, 299, 4, 20)]);
    assert_eq!((asa.first().0, asa.last().0), (MS * 1_000_000, (MS + 60) * 1_000_000));
    assert_eq!(asa.quality, Quality::PAYLOAD_UNKNOWN);
    let counted = flow(&[both[0], (0, 231, 4, 0), (0, 232, 4, 5), (0, 1, 4, 40)]);
    assert_eq!(counted.quality, Quality::default(), "0 payload bytes were counted");
    // No forward packets, as in a flow that starts with a reply.
    for more in [&[][..], &[(REVERSE, 152, 8, MS + 10), (REVERSE, 153, 8, MS + 400)], &[(REVERSE, 152, 8, 0)]] {
        let elements = [&both[..], &[(0, 2, 4, 0), (REVERSE, 2, 4, 3)], more].concat();
        let flow = flow(&elements);
        assert_eq!((flow.first().0, flow.last().0), (MS * 1_000_000, (MS + 500) * 1_000_000), "{more:?}");
        let quality = Quality(Quality::ONE_WAY.0 | Quality::PAYLOAD_UNKNOWN.0);
        assert_eq!((flow.sides[0], flow.quality), (Default::default(), quality), "{more:?}");
    }
    // Bytes without packets in both directions.
    let counted = flow(&[&both[..], &[(0, 1, 4, 5), (REVERSE, 1, 4, 6)]].concat());
    assert_eq!(counted.sides.map(|side| (side.packet_bytes, side.first.0)), [(5, MS * 1_000_000), (6, MS * 1_000_000)]);
}

#[test]
fn nonzero_address_family_is_used() {
    let of_4 = [(0, 8, 4, 0x0a00_0001), (0, 12, 4, 0x0a00_0002)];
    let of_6 = [(0, 27, 16, 0x11), (0, 28, 16, 0x12)];
    let none = |of: [Element; 2]| of.map(|(enterprise, element, length, _)| (enterprise, element, length, 0));
    let ends = |elements: &[&[Element]]| flow(&elements.concat()).ends.map(|end| end.address.to_string());
    for elements in [[of_4, none(of_6)], [none(of_6), of_4]] {
        assert_eq!(ends(&[&elements[0], &elements[1]]), ["10.0.0.1", "10.0.0.2"]);
    }
    for elements in [[none(of_4), of_6], [of_6, none(of_4)]] {
        assert_eq!(ends(&[&elements[0], &elements[1]]), ["::11", "::12"]);
        assert_eq!(ends(&[&elements[0], &elements[1], &[(0, 60, 1, 4)]]), ["::11", "::12"], "a wrong IP version");
    }
    assert_eq!(ends(&[&of_4, &of_6, &[(0, 60, 1, 6)]]), ["::11", "::12"]);
    assert_eq!(ends(&[&of_6, &of_4, &[(0, 256, 2, 0x0800)]]), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(ends(&[&none(of_4), &none(of_6), &[(0, 60, 1, 6)]]), ["::", "::"]);
    // With both families and no version: by the protocol, or the more complete family.
    assert_eq!(ends(&[&of_4, &of_6, &[(0, 4, 1, 58)]]), ["::11", "::12"]);
    assert_eq!(ends(&[&of_6, &[of_4[0], (0, 12, 4, 0)]]), ["::11", "::12"]);
    assert_eq!(ends(&[&of_6, &of_4, &[(0, 60, 1, 4), (0, 4, 1, 58)]]), ["10.0.0.1", "10.0.0.2"]);
    // Only one endpoint, as in records aggregated by source or destination.
    assert_eq!(ends(&[&of_4[..1]]), ["10.0.0.1", "0.0.0.0"]);
    assert_eq!(ends(&[&of_6[1..], &none(of_4)]), ["::", "::12"]);
    assert_eq!(ends(&[&of_4[..1], &none(of_6)]), ["10.0.0.1", "0.0.0.0"]);
    // A single 0 is an address, as in DHCP.
    let dhcp = [(0, 8, 4, 0), (0, 12, 4, 0xffff_ffff)];
    assert_eq!(ends(&[&dhcp, &none(of_6)]), ["0.0.0.0", "255.255.255.255"]);
    let prefixes = [(0, 44, 4, 0x0a00_0000), (0, 45, 4, 0x0a01_0000)];
    assert_eq!(ends(&[&prefixes]), ["10.0.0.0", "10.1.0.0"]);
    assert_eq!(ends(&[&prefixes, &of_4]), ["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn every_port_and_type_element_is_decoded() {
    let key = |elements: &[Element]| {
        let flow = flow(elements);
        (flow.protocol, flow.ends[0].port, flow.ends[1].port)
    };
    let none = [(0, 7, 2, 0), (0, 11, 2, 0)];
    let cases: [(u8, u64, [Element; 2], u16, u16); 6] = [
        (17, 17, [(0, 180, 2, 1000), (0, 181, 2, 53)], 1000, 53),
        (6, 6, [(0, 182, 2, 1000), (0, 183, 2, 80)], 1000, 80),
        (1, 1, [(0, 176, 1, 3), (0, 177, 1, 1)], 3, 1),
        (58, 58, [(0, 178, 1, 1), (0, 179, 1, 4)], 1, 4),
        (1, 1, [(0, 32, 2, 0x0301), (0, 139, 2, 0)], 3, 1),
        (58, 58, [(0, 139, 2, 0x0104), (0, 32, 2, 0)], 1, 4),
    ];
    for (protocol, elements, pair, source, destination) in cases {
        let number = [(0, 4, 1, elements)];
        for elements in [[&number[..], &none, &pair].concat(), [&pair[..], &none, &number].concat()] {
            assert_eq!(key(&elements), (protocol, source, destination), "{elements:?}");
        }
    }
    // With port elements of two protocols, those of the record's protocol count.
    let two = [(0, 180, 2, 1), (0, 181, 2, 2), (0, 182, 2, 3), (0, 183, 2, 0)];
    for (protocol, ports) in [(6, (3, 0)), (17, (1, 2)), (136, (1, 2))] {
        assert_eq!(key(&[&[(0, 4, 1, protocol)], &none[..], &two].concat()), (protocol as u8, ports.0, ports.1));
    }
    // All of them in one template, as in ASA.
    let all: Vec<Element> = (176..184).map(|element| (0, element, 2, if element == 180 { 1000 } else { 0 })).collect();
    assert_eq!(key(&[&[(0, 4, 1, 17), (0, 11, 2, 53)], &all[..]].concat()), (17, 1000, 53));
    // ICMP type and code in the destination port, as in NetFlow v9.
    assert_eq!(key(&[(0, 4, 1, 1), (0, 7, 2, 0), (0, 11, 2, 0x0301)]), (1, 3, 1));
    // Elements that imply the protocol if it is absent.
    assert_eq!(key(&[(0, 180, 2, 1), (0, 181, 2, 2)]), (17, 1, 2));
    assert_eq!(key(&[(0, 182, 2, 1), (0, 183, 2, 2)]), (6, 1, 2));
    assert_eq!(key(&[(0, 176, 1, 0), (0, 177, 1, 0)]), (1, 0, 0));
    assert_eq!(key(&[(0, 193, 1, 47)]), (47, 0, 0));
}

#[test]
fn every_header_and_interface_element_is_decoded() {
    for (elements, vlans) in [
        (&[(0, 58, 2, 0), (0, 243, 2, 9)][..], [9, 0]),
        (&[(0, 254, 2, 7), (0, 255, 2, 8)], [7, 8]),
        (&[(0, 58, 2, 0), (0, 59, 2, 7)], [0, 0]),
        (&[(0, 59, 2, 7), (0, 245, 2, 3)], [7, 3]),
    ] {
        assert_eq!(flow(elements).vlans, vlans, "{elements:?}");
    }
    for (source, destination) in [(56, 80), (81, 57), (414, 415), (56, 57)] {
        let macs = flow(&[(0, source, 6, 1), (0, destination, 6, 2), (0, 80, 6, 0), (0, 81, 6, 0)]).macs.unwrap();
        assert_eq!(macs.map(|mac| mac.0[5]), [1, 2], "{source} {destination}");
    }
    let elements = flow(&[(0, 10, 4, 0), (0, 252, 4, 3), (0, 253, 4, 4), (0, 405, 4, 5), (0, 403, 4, 0x0a00_0009)]);
    let exporter = elements.exporter.unwrap();
    assert_eq!((exporter.interfaces, exporter.domain), ([3, 4], 5));
    assert_eq!(exporter.address, Some([10, 0, 0, 9].into()));
    for (element, value, end) in
        [(136, 3, EndReason::End), (233, 1, EndReason::Active), (233, 2, EndReason::End), (230, 5, EndReason::End)]
    {
        assert_eq!(flow(&[(0, element, 1, value)]).end, end, "{element} {value}");
    }
    assert!(flow(&[(0, 184, 4, 0)]).tcp.is_none());
}

static NOTICES: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn unread_elements_are_counted_and_named_once_per_template() {
    let ends = [(0, 8, 4, 1), (0, 12, 4, 2)];
    let unread = [(0, 16, 4, 1), (9, 12_243, 1, 1), (0, 1, 0, 0), (0, 56, 7, 0)];
    let elements = [&ends[..], &unread[..3]].concat();
    let mut collector =
        Collector::new(Limits::default(), ENTERPRISE).with_notify(|text| NOTICES.lock().unwrap().push(text));
    for _ in 0..3 {
        collector.take(Session::File(1), &message(&template(300, &elements)), &mut |_| ());
        collector.take(Session::File(1), &message(&template(301, &ends)), &mut |_| ());
    }
    assert_eq!(collector.found().unread, 3);
    assert_eq!(*NOTICES.lock().unwrap(), ["template 300, domain 0: elements not read: 16, 9/12243, 1"]);
    for id in 400..600 {
        collector.take(Session::File(1), &message(&template(id, &elements)), &mut |_| ());
    }
    assert_eq!((NOTICES.lock().unwrap().len(), collector.found().unread), (64, 603));
    assert!(NOTICES.lock().unwrap()[63].ends_with("; further templates are counted only"));
    NOTICES.lock().unwrap().clear();
    // All elements of its own export are read.
    let profile = super::Profile { full: true, biflow: true, ..super::Profile::default() };
    let mut collector =
        Collector::new(Limits::default(), ENTERPRISE).with_notify(|text| NOTICES.lock().unwrap().push(text));
    for message in super::packed(profile, &super::flows()) {
        collector.take(Session::File(1), &message.bytes, &mut |_| ());
    }
    assert_eq!(*NOTICES.lock().unwrap(), [""; 0]);
}

/// The cost of a message is proportional to its length for any content.
#[test]
fn the_work_for_a_message_is_bounded_by_its_bytes() {
    let empty = |count: u16, element: u16| {
        let fields = [
            &[1, 0],
            &(count + 1).to_be_bytes()[..],
            &[element.to_be_bytes(), [0; 2]].concat().repeat(count.into()),
            &[0, 4, 0, 1],
        ];
        fields.concat()
    };
    let withdrawals = |kind: u8| message(&set(kind.into(), &[0, kind, 0, 0].repeat(8_000)));
    let mut messages = vec![
        message(&set(2, &empty(16_000, 460))),
        message(&set(2, &empty(1_000, 460))),
        message(&set(256, &[6; 60_000])),
        message(&set(3, &[&[1, 1, 3, 0xe9, 0, 1][..], &empty(1_000, 34)[4..]].concat())),
        message(&set(257, &[6; 60_000])),
        // A thousand empty texts.
        message(&set(2, &[&[1, 2, 4, 0][..], &[1, 0xcc, 0xff, 0xff].repeat(1024)].concat())),
        message(&set(258, &[0; 60_000])),
        message(&set(256, &[]).repeat(16_000)),
        withdrawals(2),
        withdrawals(3),
    ];
    // Many templates, and withdrawals of unknown ones.
    messages.insert(
        0,
        message(
            &(1000_u16..5000)
                .flat_map(|id| set(2, &[&id.to_be_bytes()[..], &[0, 1, 0, 8, 0, 4]].concat()))
                .collect::<Vec<_>>(),
        ),
    );
    for seed in 0..200 {
        let fields: Vec<u8> = (0..draw(seed, 0) % 900)
            .flat_map(|place| {
                let length = [0, 0, 1, 4, 8, 16, u16::MAX][draw(seed, place + 10) as usize % 7];
                [(draw(seed, place + 2000) as u16 % 500).to_be_bytes(), length.to_be_bytes()].concat()
            })
            .collect();
        let count = (fields.len() / 4) as u16;
        messages.push(message(&set(2, &[&[1, 0], &count.to_be_bytes()[..], &fields].concat())));
        let data: Vec<u8> =
            (0..draw(seed, 1) % 60_000).map(|place| draw(seed, place + 5000) as u8 & draw(seed, 9) as u8).collect();
        messages.push(message(&set(256, &data)));
    }
    for session in [Session::File(1), Session::Datagrams(([10, 0, 0, 1], 9).into())] {
        let mut collector = Collector::new(Limits::default(), ENTERPRISE);
        for (place, message) in messages.iter().enumerate() {
            let before = collector.steps();
            collector.take(session, message, &mut |_| ());
            let steps = collector.steps() - before;
            assert!(steps <= 3 * message.len() as u64, "message {place}: {steps} for {} bytes", message.len());
        }
        let found: CollectorCounters = collector.found();
        assert!(found.others > 100_000 && found.malformed > 0, "{found:?}");
    }
}
