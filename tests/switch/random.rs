//! Random rules and frames from few values, so that they often match.

use linerate_headers::checksum::Sum;
use proptest::prelude::*;
use proptest::sample::select;

/// Rules with distinct priorities: with equal ones, Open vSwitch does not define which rule matches.
pub(super) fn rules() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec((matches(), 0..3usize), 1..7).prop_flat_map(|heads| {
        let rules = heads.into_iter().enumerate().map(|(n, ((head, kind), _))| {
            actions(kind).prop_map(move |actions| format!("priority={},{head},actions={actions}", 100 + n))
        });
        rules.collect::<Vec<_>>()
    })
}

/// Packets that a rule is certain to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketKind {
    Any,
    V4,
    V6,
    V4Ports,
    V6Ports,
}

fn matches() -> impl Strategy<Value = (String, PacketKind)> {
    let any = Just((String::new(), PacketKind::Any));
    let v4 = prop::collection::vec(ip_field(), 0..3).prop_flat_map(|fields| {
        let address = prop_oneof![
            Just(String::new()),
            (select(vec!["nw_src", "nw_dst"]), 0..4u8, select(vec!["", "/31", "/24", "/255.255.255.2", "/0"]))
                .prop_map(|(field, host, mask)| format!(",{field}=10.0.0.{host}{mask}")),
            (select(vec![1u8, 2, 6, 17, 47])).prop_map(|protocol| format!(",nw_proto={protocol}")),
        ];
        address.prop_map(move |address| (format!("ip{address},{}", fields.join(",")), PacketKind::V4))
    });
    let v6 = prop::collection::vec(ip_field(), 0..3).prop_flat_map(|fields| {
        let address = prop_oneof![
            Just(String::new()),
            (select(vec!["ipv6_src", "ipv6_dst"]), 0..4u8, select(vec!["", "/127", "/64", "/0"]))
                .prop_map(|(field, host, mask)| format!(",{field}=fd00::{host}{mask}")),
        ];
        address.prop_map(move |address| (format!("ipv6{address},{}", fields.join(",")), PacketKind::V6))
    });
    let port = (select(vec!["tp_src", "tp_dst"]), 1..5u16, select(vec!["", "/0xfffe", "/0x1"]))
        .prop_map(|(field, port, mask)| format!("{field}={port}{mask}"));
    let flags = select(vec!["tcp_flags=+syn-ack", "tcp_flags=-rst", "tcp_flags=0x012/0x012"]).prop_map(str::to_owned);
    let ports = (select(vec!["tcp", "udp", "tcp6", "udp6"]), prop_oneof![Just(String::new()), port, flags]).prop_map(
        |(word, field)| {
            let field = if field.starts_with("tcp_flags") && word.starts_with("udp") { String::new() } else { field };
            (format!("{word},{field}"), if word.ends_with('6') { PacketKind::V6Ports } else { PacketKind::V4Ports })
        },
    );
    let rest = prop_oneof![
        select(vec![
            "sctp,tp_dst=2",
            "sctp6",
            "icmp,icmp_type=8",
            "icmp,icmp_type=0,icmp_code=0",
            "arp,arp_op=1",
            "arp,arp_spa=10.0.0.1",
            "arp,arp_tpa=10.0.0.0/30",
            "dl_type=0x0806",
            "dl_type=0x05ff",
            "dl_type=0x8100",
            "dl_type=0x1234",
            "rarp"
        ])
        .prop_map(|head| (head.to_owned(), PacketKind::Any)),
        select(vec!["icmp6,icmp_type=135", "icmp6,icmp_code=0"]).prop_map(|head| (head.to_owned(), PacketKind::V6)),
    ];
    let head = prop_oneof![2 => any, 3 => v4, 3 => v6, 4 => ports, 2 => rest];
    (prop::collection::vec(link_field(), 0..3), head).prop_map(|(fields, (head, kind))| {
        // No field twice: both switches reject contradictions, but with different messages.
        let mut names: Vec<&str> = Vec::new();
        let mut kept: Vec<&str> = Vec::new();
        for field in fields.iter().map(String::as_str).chain(head.split(',')).filter(|field| !field.is_empty()) {
            let name = field.split('=').next().unwrap_or(field);
            let group = if name.contains("vlan") { "vlan" } else { name };
            if !names.contains(&group) {
                names.push(group);
                kept.push(field);
            }
        }
        (kept.join(","), kind)
    })
}

fn link_field() -> impl Strategy<Value = String> {
    prop_oneof![
        (1..4u16).prop_map(|port| format!("in_port={port}")),
        (
            select(vec!["dl_src", "dl_dst"]),
            0..4u8,
            select(vec!["", "/ff:ff:ff:ff:ff:fe", "/01:00:00:00:00:00", "/00:00:00:00:00:01"])
        )
            .prop_map(|(field, mac, mask)| format!("{field}=02:00:00:00:00:{mac:02x}{mask}")),
        (0..4u16).prop_map(|vlan| format!("dl_vlan={vlan}")),
        (0..3u16).prop_map(|priority| format!("dl_vlan_pcp={priority}")),
        select(vec!["dl_vlan=0xffff", "vlan_tci=0x1000/0x1000", "vlan_tci=0x0000/0x1fff", "vlan_tci=0x1001/0x1001"])
            .prop_map(str::to_owned),
    ]
}

fn ip_field() -> impl Strategy<Value = String> {
    prop_oneof![
        select(vec!["no", "yes", "first", "later", "not_later"]).prop_map(|frag| format!("nw_frag={frag}")),
        (0..4u8).prop_map(|ttl| format!("nw_ttl={ttl}")),
        select(vec!["nw_tos=0", "nw_tos=32", "nw_ecn=0", "nw_ecn=1"]).prop_map(str::to_owned),
    ]
}

fn actions(kind: PacketKind) -> impl Strategy<Value = String> {
    let out = || {
        prop_oneof![
            4 => (1..4u16).prop_map(|port| format!("output:{port}")),
            1 => (1..4u16, 14..80u32).prop_map(|(port, most)| format!("output(port={port},max_len={most})")),
            1 => select(vec!["in_port", "all"]).prop_map(str::to_owned),
        ]
    };
    let link = prop_oneof![
        (select(vec!["mod_dl_src", "mod_dl_dst"]), 0..4u8)
            .prop_map(|(action, mac)| format!("{action}:02:00:00:00:01:{mac:02x}")),
        (0..4u16).prop_map(|vlan| format!("mod_vlan_vid:{vlan}")),
        (0..8u16).prop_map(|priority| format!("mod_vlan_pcp:{priority}")),
        Just("strip_vlan".to_owned()),
    ];
    let both = prop_oneof![
        Just("dec_ttl".to_owned()),
        (0..4u8).prop_map(|ttl| format!("mod_nw_ttl:{ttl}")),
        select(vec!["mod_nw_tos:32", "mod_nw_tos:0", "mod_nw_ecn:2"]).prop_map(str::to_owned),
    ];
    let port = (select(vec!["mod_tp_src", "mod_tp_dst"]), any::<u16>())
        .prop_map(|(action, port)| format!("{action}:{}", port.max(1)));
    let v4 = (select(vec!["mod_nw_src", "mod_nw_dst"]), any::<u32>())
        .prop_map(|(action, address)| format!("{action}:{}", std::net::Ipv4Addr::from_bits(address)));
    let v6 = (select(vec!["ipv6_src", "ipv6_dst"]), any::<u128>())
        .prop_map(|(field, address)| format!("set_field:{}->{field}", std::net::Ipv6Addr::from_bits(address)));
    let change = match kind {
        PacketKind::Any => link.boxed(),
        PacketKind::V4 => prop_oneof![link, both, v4].boxed(),
        PacketKind::V6 => prop_oneof![link, both, v6].boxed(),
        PacketKind::V4Ports => prop_oneof![link, both, v4, port].boxed(),
        PacketKind::V6Ports => prop_oneof![link, both, v6, port].boxed(),
    };
    let step = prop_oneof![2 => change, 1 => out()];
    prop_oneof![
        1 => Just("drop".to_owned()),
        3 => out(),
        8 => (prop::collection::vec(step, 1..6), out()).prop_map(|(mut steps, last)| {
            steps.push(last);
            steps.join(",")
        }),
    ]
}

pub(super) fn frame() -> impl Strategy<Value = Vec<u8>> {
    let macs = (
        0..4u8,
        select(vec![[2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [1, 0, 0x5e, 0, 0, 1], [0xff; 6]]),
    );
    let tag = (select(vec![0x8100u16, 0x8100, 0x8100, 0x88a8]), 0..4u16, 0..3u16, any::<bool>()).prop_map(
        |(kind, vlan, priority, dei)| {
            let tci = priority << 13 | u16::from(dei) << 12 | vlan;
            [kind.to_be_bytes(), tci.to_be_bytes()].concat()
        },
    );
    let tags = prop_oneof![5 => Just(vec![]), 4 => tag.clone().prop_map(|tag| vec![tag]), 1 => (tag.clone(), tag).prop_map(|(one, other)| vec![one, other])];
    let payload = prop_oneof![
        6 => v4().prop_map(|packet| (0x0800u16, packet)),
        6 => v6().prop_map(|packet| (0x86dd, packet)),
        1 => arp().prop_map(|packet| (0x0806, packet)),
        1 => (select(vec![0x1234, 0x0800, 0x86dd, 0x0806, 0x8035]), prop::collection::vec(any::<u8>(), 0..60)),
        1 => prop::collection::vec(any::<u8>(), 8..60).prop_map(|mut llc| {
            llc[..6].copy_from_slice(&[0xaa, 0xaa, 3, 0, 0, 0]);
            (llc.len() as u16, llc)
        }),
    ];
    (macs, tags, payload, 0..20usize).prop_map(|((source, destination), tags, (kind, payload), padding)| {
        let mut frame = destination.to_vec();
        frame.extend([2, 0, 0, 0, 0, source]);
        frame.extend(tags.concat());
        frame.extend(kind.to_be_bytes());
        frame.extend(payload);
        frame.resize((frame.len() + padding).max(60), 0);
        frame
    })
}

/// Protocol and segment, with a random checksum.
fn segment() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let ports = [1..5u16, 1..5u16];
    let rest = prop::collection::vec(any::<u8>(), 0..40);
    (select(vec![6u8, 6, 17, 17, 17, 1, 58, 132, 47, 2]), ports, rest, any::<u16>(), 0..64u8, any::<bool>()).prop_map(
        |(protocol, ports, rest, sum, flags, is_zero)| {
            let mut segment = [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat();
            segment.resize(
                match protocol {
                    6 => 20,
                    132 => 12,
                    _ => 8,
                },
                0,
            );
            let sum = if is_zero && protocol == 17 { 0 } else { sum };
            match protocol {
                6 => {
                    (segment[12], segment[13]) = (0x50, flags);
                    segment[16..18].copy_from_slice(&sum.to_be_bytes());
                }
                17 => segment[6..8].copy_from_slice(&sum.to_be_bytes()),
                1 | 58 => {
                    let kind = [0, 8, 128, 135][usize::from(flags & 3)];
                    (segment[0], segment[1]) = (kind, flags >> 5);
                    segment[2..4].copy_from_slice(&sum.to_be_bytes());
                }
                _ => {}
            }
            segment.extend(rest);
            if protocol == 17 {
                let length = segment.len() as u16;
                segment[4..6].copy_from_slice(&length.to_be_bytes());
            }
            (protocol, segment)
        },
    )
}

fn v4() -> impl Strategy<Value = Vec<u8>> {
    let fragment = select(vec![0u16, 0, 0, 0x4000, 0x2000, 0x2001, 0x0002]);
    let wrong = prop_oneof![8 => Just(0), 1 => 1..5u8];
    (segment(), [0..4u8, 0..4u8], 0..4u8, select(vec![0u8, 1, 32, 34]), fragment, select(vec![0usize, 0, 4]), wrong)
        .prop_map(|((protocol, segment), ends, ttl, tos, fragment, options, wrong)| {
            let mut head = vec![0x45 + (options / 4) as u8, tos];
            head.extend(((20 + options + segment.len()) as u16).to_be_bytes());
            head.extend([0, 7]);
            head.extend(fragment.to_be_bytes());
            head.extend([ttl, protocol, 0, 0, 10, 0, 0, ends[0], 10, 0, 0, ends[1]]);
            head.resize(20 + options, 1);
            let sum = Sum::of(&head).checksum();
            head[10..12].copy_from_slice(&sum.to_be_bytes());
            match wrong {
                1 => head[2] = 0xff,
                2 => head[0] = 0x4f,
                3 => head[0] = 0x42,
                4 => head[3] = 19,
                _ => {}
            }
            [head, segment].concat()
        })
}

fn v6() -> impl Strategy<Value = Vec<u8>> {
    let extension = select(vec![
        None,
        None,
        None,
        Some((0u8, [0; 8])),
        Some((60, [0; 8])),
        Some((44, [0, 0, 0, 0, 0, 0, 0, 9])),
        Some((44, [0, 0, 0, 1, 0, 0, 0, 9])),
        Some((44, [0, 0, 0, 8, 0, 0, 0, 9])),
        Some((0, [0, 9, 0, 0, 0, 0, 0, 0])),
        Some((43, [0, 0, 0, 1, 0, 0, 0, 0])),
        Some((43, [0; 8])),
        Some((51, [0, 0, 0, 0, 0, 0, 0, 0])),
    ]);
    (
        segment(),
        [0..4u8, 0..4u8],
        0..4u8,
        select(vec![0u8, 1, 32, 34]),
        extension,
        any::<u8>(),
        prop_oneof![8 => Just(false), 1 => Just(true)],
    )
        .prop_map(|((protocol, segment), ends, hops, class, extension, label, wrong)| {
            let (first, behind) = match extension {
                Some((kind, mut bytes)) => {
                    bytes[0] = protocol;
                    (kind, [bytes.to_vec(), segment].concat())
                }
                None => (protocol, segment),
            };
            let length = behind.len() as u16 + if wrong { 200 } else { 0 };
            let mut packet = vec![0x60 | class >> 4, class << 4 | 3, 1, label];
            packet.extend(length.to_be_bytes());
            packet.extend([first, hops]);
            for end in ends {
                packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
            }
            packet.extend(behind);
            packet
        })
}

fn arp() -> impl Strategy<Value = Vec<u8>> {
    (select(vec![[0u8, 1], [0, 2], [1, 1]]), [0..4u8, 0..4u8], select(vec![6u8, 6, 6, 7])).prop_map(
        |(operation, ends, length)| {
            let mut packet = vec![0, 1, 8, 0, length, 4];
            packet.extend(operation);
            packet.extend([2, 0, 0, 0, 0, ends[0], 10, 0, 0, ends[0], 0, 0, 0, 0, 0, 0, 10, 0, 0, ends[1]]);
            packet
        },
    )
}
