//! A search misses nothing, for any frames, filter, and index.

mod files;

use crate::EntryBuilder;
use crate::entry::{Entry, Query};
use crate::layout::{ADDRESS_BYTES, LONGEST_ENTRY, SetKind, header};
use crate::parts::choose;
use crate::plan::Plan;
use linerate_burst::{Block, Desc, Interface, LinkType, Nanos, StampSource};
use linerate_filter::program::code;
use linerate_filter::{Filter, Insn, Program};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::fs::File;
use std::sync::Arc;

const ETHERNET: u16 = 1;
const LINKS: [u16; 4] = [ETHERNET, 101, 113, 276];

/// Encodes an entry about frames of one link type.
fn entry(link: u16, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut block = Block::new(8 << 20, frames.len() + 1);
    for (number, frame) in frames.iter().enumerate() {
        assert!(block.push(&Desc::new(Nanos(number as u64), 0, frame.len() as u32), frame));
    }
    let (mut gather, mut bytes) = (EntryBuilder::new(), Vec::new());
    gather.add(block.burst(), &[Interface::new("", LinkType(link), StampSource::File)]);
    gather.entry(0..1 << 20, None, 0, &mut bytes);
    bytes
}

/// Returns the headers before an EtherType, and the EtherType.
fn link_header(link: u16, tags: &[(u16, u16)], ethertype: u16) -> Vec<u8> {
    let mut bytes = match link {
        113 => vec![0; 14],
        101 => return Vec::new(),
        276 => vec![0; 20],
        _ => vec![2; 12],
    };
    for (tag, id) in tags {
        bytes.extend(tag.to_be_bytes());
        bytes.extend(id.to_be_bytes());
    }
    bytes.extend(ethertype.to_be_bytes());
    bytes
}

/// Few addresses, so that filters match frames.
fn address() -> impl Strategy<Value = [u8; 4]> {
    select(vec![[10, 0, 0, 1], [10, 0, 0, 2], [192, 168, 1, 9], [172, 16, 0, 3]])
}

fn port() -> impl Strategy<Value = u16> {
    select(vec![53u16, 80, 443, 8000, 8005])
}

/// Frames of a few hosts, whole or truncated, and some malformed.
fn frame(link: u16) -> impl Strategy<Value = Vec<u8>> {
    let tags = vec((select(vec![0x8100u16, 0x88a8, 0x9100]), select(vec![3u16, 5, 0x2003, 0xe005])), 0..5);
    let protocol = select(vec![6u8, 17, 132, 1, 58, 44]);
    let packet = (0..5u8, address(), address(), protocol, port(), port(), 5u8..8, any::<bool>());
    (tags, packet, 0..120usize, vec((0..90usize, any::<u8>()), 0..2)).prop_map(
        move |(tags, (kind, from, to, protocol, source, target, words, is_fragment), cut, changes)| {
            let (ethertype, packet) = match kind {
                0 | 1 => {
                    let mut packet = vec![0x40 | words, 0, 0, 60, 0, 0, 0, 0, 64, protocol, 0, 0];
                    packet[7] = u8::from(is_fragment);
                    packet.extend(from.into_iter().chain(to));
                    packet.resize(usize::from(words) * 4, 0);
                    (0x0800, packet)
                }
                2 => {
                    let mut packet = vec![0x60, 0, 0, 0, 0, 20, protocol, 64];
                    for host in [from, to] {
                        packet.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0]);
                        packet.extend(host);
                    }
                    (0x86dd, packet)
                }
                3 => {
                    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 2, 2, 2, 2, 2];
                    packet.extend(from);
                    packet.extend([0; 6]);
                    packet.extend(to);
                    (0x0806, packet)
                }
                _ => (40 + u16::from(words), vec![0x42, 0x42, 3]),
            };
            let mut bytes = link_header(link, &tags, ethertype);
            bytes.extend(packet);
            bytes.extend(source.to_be_bytes().into_iter().chain(target.to_be_bytes()));
            bytes.resize(bytes.len() + 20, 7);
            for (at, byte) in changes {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            // Most stay whole.
            if cut < bytes.len() && cut % 3 == 0 {
                bytes.truncate(cut);
            }
            bytes
        },
    )
}

/// Filter texts, usual and unusual ones.
fn text() -> impl Strategy<Value = String> {
    let host = address().prop_map(|[a, b, c, d]| format!("{a}.{b}.{c}.{d}"));
    let side = select(vec!["", "src ", "dst "]);
    let leaf = prop_oneof![
        (side.clone(), host).prop_map(|(side, host)| format!("{side}host {host}")),
        (side.clone(), address(), 8..33u8).prop_map(|(side, [a, b, c, d], length)| {
            let address = u32::from_be_bytes([a, b, c, d]) & (u32::MAX << (32 - length));
            let [a, b, c, d] = address.to_be_bytes();
            format!("{side}net {a}.{b}.{c}.{d}/{length}")
        }),
        (side.clone(), port()).prop_map(|(side, port)| format!("{side}port {port}")),
        (side, port(), port()).prop_map(|(side, a, b)| format!("{side}portrange {}-{}", a.min(b), a.max(b))),
        address().prop_map(|[a, b, c, d]| format!("ip6 host 2001:db8::{a:02x}{b:02x}:{c:02x}{d:02x}")),
        select(vec!["ip6 net 2001:db8::/32", "ip6 net 2001:db8::/96", "ip6 net 2001:db8:0:1::/64"])
            .prop_map(Into::into),
        select(vec!["tcp", "udp", "sctp", "icmp", "icmp6", "ip", "ip6", "arp", "ip proto 44", "ip6 proto 17"])
            .prop_map(Into::into),
        select(vec!["tcp port 80", "udp dst port 53", "tcp[0:2] = 443", "ip[16:4] = 0x0a000001"]).prop_map(Into::into),
        select(vec![
            "icmp[0:2] = 443",
            "tcp[0:2] > 8000",
            "udp[2:2] > 8004",
            "ip[16:4] > 0xc0a80108",
            "ether[12:2] > 0x0805"
        ])
        .prop_map(Into::into),
        select(vec!["ether[12:2] = 0x8100 and ether[14:2] = 0x2003", "ether[12:2] = 0x8100 and ether[14] = 0xe0"])
            .prop_map(Into::into),
        select(vec!["len > 60", "less 50", "ether host 02:02:02:02:02:02", "ip[8] = 64", "ip6 protochain 17"])
            .prop_map(Into::into),
        select(vec!["vlan", "vlan 3", "vlan 3 and vlan", "vlan and ip", "vlan 5 and port 443", "mpls", "pppoes"])
            .prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 6, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) and ({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) or ({b})")),
            inner.prop_map(|a| format!("not ({a})")),
        ]
    })
}

fn link_and_frames(most: usize) -> impl Strategy<Value = (u16, Vec<Vec<u8>>)> {
    select(LINKS.to_vec()).prop_flat_map(move |link| (Just(link), vec(frame(link), 1..most)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn a_part_with_a_matching_frame_is_not_skipped((link, frames) in link_and_frames(4), text in text()) {
        let Ok(filter) = Filter::compile(&text, link) else { return Ok(()) };
        let bytes = entry(link, &frames);
        let entry = Entry::parse(&bytes).expect("as it was written");
        let passes = frames.iter().any(|frame| filter.matches(frame, frame.len() as u32));
        prop_assert!(!passes || Plan::new(&text).may_pass(&entry).unwrap(), "{text} of link type {link}");
    }

    #[test]
    fn random_programs_skip_no_matching_part(
        (link, frames) in link_and_frames(3),
        words in vec((0..14usize, 0..30usize, 0..4u8, 0..4u8), 1..12),
        begin in 0..4usize,
    ) {
        let insns = program(begin, &words);
        let Ok(program) = Program::new(insns) else { return Ok(()) };
        let bytes = entry(link, &frames);
        let entry = Entry::parse(&bytes).expect("as it was written");
        let passes = frames.iter().any(|frame| program.run(frame, frame.len() as u32) != 0);
        prop_assert!(!passes || Plan::of_program(&program, link).may_pass(&entry).unwrap());
    }

    #[test]
    fn damaged_indexes_are_detected(changes in vec((0..400usize, any::<u8>()), 1..6), cut in 0..2000usize) {
        let mut index = header().to_vec();
        let frames = [vec![8; 60], vec![9; 60]];
        index.extend(entry(ETHERNET, &frames));
        for (at, byte) in changes {
            let length = index.len();
            index[at % length] = byte;
        }
        index.truncate(cut);
        let file = Arc::new(File::open("/proc/self/exe").unwrap());
        let length = file.metadata().unwrap().len();
        if let Ok(parts) = choose(&index[..], &file, |_| Ok(false)) {
            // The change is detected: nothing is skipped.
            prop_assert!(parts.bytes() == length, "{parts:?} of {length}");
        }
    }
}

/// Returns instructions with meaningful positions and values, in any order, after some usual ones.
fn program(begin: usize, words: &[(usize, usize, u8, u8)]) -> Vec<Insn> {
    const PLACES: [u32; 15] = [0, 2, 6, 9, 12, 14, 16, 18, 20, 22, 23, 26, 30, 38, 54];
    const VALUES: [u32; 15] =
        [0x800, 0x86dd, 0x806, 0x8100, 6, 17, 443, 53, 0x0a00_0001, 0x2001_0db8, 0, 0xfff, 0xff00_0000, 0x40, 0xf0];
    let rest = words.len() as u8;
    let usual = [
        Insn::new(code::LD_H_ABS, 12),
        Insn::jump(code::JEQ_K, 0x800, 0, rest + 3),
        Insn::new(code::LD_B_ABS, 23),
        Insn::jump(code::JEQ_K, 6, 0, rest + 1),
    ];
    let mut insns: Vec<Insn> = match begin {
        0 => Vec::new(),
        // Their jumps go to the end.
        1 => vec![usual[0], Insn::jump(code::JEQ_K, 0x800, 0, rest + 1)],
        2 => vec![usual[0], Insn::jump(code::JEQ_K, 0x800, 0, rest + 2), Insn::new(code::LD_W_ABS, 26)],
        _ => usual.to_vec(),
    };
    for (number, (kind, value, yes, no)) in words.iter().enumerate() {
        let (place, k) = (PLACES[value % 15], VALUES[value % 15]);
        // No further than the last one.
        let room = (words.len() - number).min(3) as u8;
        let (yes, no) = (yes % room.max(1), no % room.max(1));
        insns.push(match kind {
            0 | 1 => Insn::new(code::LD_H_ABS, place),
            2 => Insn::new(code::LD_W_ABS, place),
            3 => Insn::new(code::LD_B_ABS, place),
            4 => Insn::new(code::LDX_MSH, place),
            5 => Insn::new(code::LD_H_IND, place),
            6 => Insn::new(code::AND_K, k),
            7 => Insn::jump(code::JGT_K, k, yes, no),
            8 => Insn::jump(code::JGE_K, k, yes, no),
            9 => Insn::jump(code::JSET_K, k, yes, no),
            10 => Insn::new(if value % 2 == 0 { code::TAX } else { code::TXA }, 0),
            _ => Insn::jump(code::JEQ_K, k, yes, no),
        });
    }
    insns.push(Insn::ret(1));
    insns.push(Insn::ret(0));
    insns
}

/// Parts are skipped, so that the property above is not trivially true.
#[test]
fn parts_without_matches_are_skipped() {
    let host = |last: u8, port: u16| {
        let mut bytes = link_header(ETHERNET, &[], 0x0800);
        bytes.extend([0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, last]);
        bytes.extend(port.to_be_bytes().into_iter().chain([0x9c, 0x40]).chain([0; 20]));
        bytes
    };
    let frames: Vec<Vec<u8>> = (2..50).map(|last| host(last, 443)).collect();
    let bytes = entry(ETHERNET, &frames);
    let entry = Entry::parse(&bytes).unwrap();
    for (text, may) in [
        ("host 10.0.0.2", true),
        ("host 10.0.0.51", false),
        ("src host 10.0.0.2", true),
        ("host 10.0.0.2 and port 80", false),
        ("host 10.0.0.2 and port 443", true),
        ("net 10.0.0.0/8", true),
        ("net 10.0.0.64/26", false),
        ("tcp portrange 400-500", true),
        ("portrange 444-500", false),
        ("udp", false),
        ("not udp", true),
        ("ip6", false),
        ("ip6 host 2001:db8::1", false),
        ("arp", false),
        ("vlan", false),
        ("host 10.0.0.51 or port 80", false),
        ("host 10.0.0.51 or port 443", true),
        ("not (host 10.0.0.2 or port 443)", true),
        ("len > 1500", true),
        ("", true),
    ] {
        assert_eq!(Plan::new(text).may_pass(&entry).unwrap(), may, "{text}");
    }
}

#[test]
fn values_are_tracked_between_registers() {
    let mut frame = link_header(ETHERNET, &[], 0x0800);
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let bytes = entry(ETHERNET, &[frame]);
    let entry = Entry::parse(&bytes).unwrap();
    for (ethertype, may) in [(0x0800, true), (0x0806, false)] {
        let insns = vec![
            Insn::new(code::LD_H_ABS, 12),
            Insn::new(code::TAX, 0),
            Insn::jump(code::JEQ_K, ethertype, 0, 4),
            Insn::new(code::LD_B_ABS, 23),
            Insn::new(code::TXA, 0),
            Insn::jump(code::JEQ_K, ethertype, 0, 1),
            Insn::ret(1),
            Insn::ret(0),
        ];
        let program = Program::new(insns).unwrap();
        assert_eq!(Plan::of_program(&program, ETHERNET).may_pass(&entry).unwrap(), may, "{ethertype:#x}");
    }
}

/// A filter for a network needs only the first word of an address.
#[test]
fn truncated_address_matches_any_value() {
    let mut frame = link_header(ETHERNET, &[], 0x86dd);
    frame.extend([0x60, 0, 0, 0, 0, 20, 6, 64, 0x20, 1, 0x0d, 0xb8, 1, 2, 3]);
    let text = "ip6 net 2001:db8::/32";
    assert!(Filter::compile(text, ETHERNET).unwrap().matches(&frame, 90));
    let bytes = entry(ETHERNET, &[frame]);
    assert!(Plan::new(text).may_pass(&Entry::parse(&bytes).unwrap()).unwrap());
}

/// For any input, an entry stays small, and contains all values added.
#[test]
fn random_addresses_do_not_make_entries_grow() {
    let random = |n: u64, salt: u64| ((n * 2 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
    let frames: Vec<Vec<u8>> = (0..16_384u64)
        .map(|n| {
            let tags = [(0x8100, (n % 4096) as u16)];
            let mut bytes = link_header(ETHERNET, &tags[..(n % 5 / 4) as usize], 0x0800);
            bytes.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
            bytes.extend(random(n, 0).to_be_bytes().into_iter().chain(random(n, 1).to_be_bytes()));
            bytes.extend(random(n, 2).to_be_bytes());
            bytes.resize(60, 0);
            bytes
        })
        .collect();
    let bytes = entry(ETHERNET, &frames);
    let data: usize = frames.iter().map(|frame| frame.len() + 16).sum();
    assert!(bytes.len() * 50 < data, "{} bytes of {data}: more than 2 %", bytes.len());
    assert!(bytes.len() < LONGEST_ENTRY && bytes.len() > ADDRESS_BYTES);
    let entry = Entry::parse(&bytes).unwrap();
    let may = |address: u32| {
        entry.may_have(Query::Value { kind: SetKind::Ipv4, mask: u32::MAX, least: address, greatest: address })
    };
    for n in 0..16_384 {
        assert!(may(random(n, 0)) && may(random(n, 1)), "frame {n}");
    }
    let wrong = (0..3000).filter(|n| may(random(n + 1_000_000, 7))).count();
    assert!(wrong < 1500, "{wrong} false positives of 3000");
}
