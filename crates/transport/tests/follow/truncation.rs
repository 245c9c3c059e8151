//! Missing parts of frames: truncated by the capture, or with a wrong length field.

use super::hosts::{ACK, FIN, SYN, StreamCollector, TestSegment, answer, sent};
use linerate_burst::{Desc, Nanos};
use linerate_headers::Link;
use linerate_transport::follow::{Config, Follow};

/// Encapsulation of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PacketEncapsulation {
    Ethernet,
    /// 802.3 length, LLC and SNAP.
    Length,
    /// VLAN tag and PPPoE.
    Pppoe,
    Raw,
    /// UDP (VXLAN).
    Vxlan,
    GtpU,
}

const ALL: [PacketEncapsulation; 6] = [
    PacketEncapsulation::Ethernet,
    PacketEncapsulation::Length,
    PacketEncapsulation::Pppoe,
    PacketEncapsulation::Raw,
    PacketEncapsulation::Vxlan,
    PacketEncapsulation::GtpU,
];

/// Encapsulates a packet; the enclosing length field matches its actual length.
fn frame(under: PacketEncapsulation, packet: &[u8]) -> Vec<u8> {
    let bytes = |length: usize| (length as u16).to_be_bytes();
    let (ether_type, ppp) = if packet[0] >> 4 == 6 { ([0x86, 0xdd], [0, 0x57]) } else { ([8, 0], [0, 0x21]) };
    let macs = [2; 12];
    let datagram = |port: u16, inner: &[u8]| {
        let mut outer = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 9, 9, 9, 1, 9, 9, 9, 2, 0x30, 0x39];
        outer.extend(port.to_be_bytes());
        outer.extend([bytes(8 + inner.len()), [0; 2]].concat());
        outer.extend(inner);
        let length = bytes(outer.len());
        outer[2..4].copy_from_slice(&length);
        [&macs[..], &[8, 0], &outer].concat()
    };
    match under {
        PacketEncapsulation::Raw => packet.to_vec(),
        PacketEncapsulation::Ethernet => [&macs[..], &ether_type, packet].concat(),
        PacketEncapsulation::Length => {
            [&macs[..], &bytes(8 + packet.len()), &[0xaa, 0xaa, 3, 0, 0, 0], &ether_type, packet].concat()
        }
        PacketEncapsulation::Pppoe => {
            let ppp = [&bytes(2 + packet.len())[..], &ppp, packet].concat();
            [&macs[..], &[0x81, 0, 0, 5, 0x88, 0x64, 0x11, 0, 0, 7], &ppp].concat()
        }
        PacketEncapsulation::Vxlan => {
            let inner = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &macs, &ether_type, packet].concat();
            datagram(4789, &inner)
        }
        PacketEncapsulation::GtpU => {
            datagram(2152, &[&[0x30, 0xff][..], &bytes(packet.len()), &[0, 0, 0, 1], packet].concat())
        }
    }
}

/// Converts IPv4 to IPv6.
fn six(packet: &[u8]) -> Vec<u8> {
    let mut six = vec![0x60, 0, 0, 0, 0, 0, 6, 64];
    six[4..6].copy_from_slice(&((packet.len() - 20) as u16).to_be_bytes());
    six.extend([[0; 12].as_slice(), &packet[12..16], &[0; 12], &packet[16..20], &packet[20..]].concat());
    six
}

/// Returns the bytes, gaps and late bytes of the first stream.
fn followed(link: Link, frames: &[(Vec<u8>, usize)]) -> (Vec<u8>, Vec<(u64, u64)>, u64) {
    let (mut follow, mut out) = (Follow::new(Config::default()), StreamCollector::default());
    for (number, (frame, wire)) in frames.iter().enumerate() {
        let time = Nanos(1_000_000_000_000 + number as u64);
        let desc = Desc { wire: *wire as u32, ..Desc::new(time, 0, frame.len() as u32) };
        follow.take(link, &desc, frame, &mut out);
    }
    follow.finish(&mut out);
    let (_, stream) = out.streams.into_values().next().expect("a stream");
    let gaps = stream.gaps.iter().map(|gap| (gap.start, gap.end)).collect();
    (stream.whole(), gaps, stream.summary().tally.late)
}

fn segments() -> [TestSegment; 4] {
    [
        answer(499, 100, SYN, &[]),
        answer(500, 100, 0, b"one"),
        answer(503, 100, 0, b"two, and more"),
        answer(516, 100, FIN, &[]),
    ]
}

fn link(under: PacketEncapsulation) -> Link {
    if under == PacketEncapsulation::Raw { Link::RawIp } else { Link::Ethernet }
}

/// All bytes are present, although the IP header of one packet claims more, with any padding.
#[test]
fn complete_frame_has_no_missing_bytes() {
    for under in ALL {
        for lie in [0_u16, 1, 6, 13, 600, 0xff00] {
            for (is_six, padding) in [(false, 0), (false, 9), (true, 0), (true, 9)] {
                let mut frames = Vec::new();
                for (number, segment) in segments().iter().enumerate() {
                    let mut packet = segment.packet();
                    packet = if is_six { six(&packet) } else { packet };
                    let place = if is_six { 4 } else { 2 };
                    let length = u16::from_be_bytes([packet[place], packet[place + 1]]);
                    let lies = number == 1 && lie > 0;
                    let said = if lies { length + lie } else { length };
                    packet[place..place + 2].copy_from_slice(&said.to_be_bytes());
                    let mut frame = frame(under, &packet);
                    // If no enclosing length is shorter than that of IP, bytes after the packet are taken as part of
                    // it.
                    let has_bound = !matches!(under, PacketEncapsulation::Ethernet | PacketEncapsulation::Raw);
                    frame.extend(vec![0; if lies && !has_bound { 0 } else { padding }]);
                    let wire = frame.len();
                    frames.push((frame, wire));
                }
                let wanted = (b"onetwo, and more".to_vec(), vec![], 0);
                assert_eq!(followed(link(under), &frames), wanted, "{under:?} {lie} {is_six} {padding}");
            }
        }
    }
}

/// A truncated frame lacks what all of its headers agree on.
#[test]
fn truncated_frame_lacks_at_most_what_its_headers_state() {
    for under in ALL {
        for lie in [0_u16, 6, 600] {
            let mut frames = Vec::new();
            for (number, segment) in segments().iter().enumerate() {
                let mut packet = segment.packet();
                let is_cut = number == 1;
                let has_bound = !matches!(under, PacketEncapsulation::Ethernet | PacketEncapsulation::Raw);
                if is_cut && has_bound {
                    let said = packet.len() as u16 + lie;
                    packet[2..4].copy_from_slice(&said.to_be_bytes());
                }
                let mut frame = frame(under, &packet);
                frame.extend([0; 7]);
                let wire = frame.len();
                frame.truncate(if is_cut { wire - 7 - 2 } else { wire });
                frames.push((frame, wire));
            }
            let wanted = (b"o\0\0two, and more".to_vec(), vec![(1, 3)], 0);
            assert_eq!(followed(link(under), &frames), wanted, "{under:?} {lie}");
        }
    }
}

/// TSO splits such packets, and sets the length then.
#[test]
fn packet_without_length_extends_to_the_frame_end() {
    let mut packet = sent(100, ACK, b"long").packet();
    packet[2..4].fill(0);
    let whole = frame(PacketEncapsulation::Ethernet, &packet);
    assert_eq!(followed(Link::Ethernet, &[(whole.clone(), whole.len())]).0, b"long");
    let cut = (whole[..whole.len() - 3].to_vec(), whole.len());
    let next = frame(PacketEncapsulation::Ethernet, &sent(104, ACK, b"er").packet());
    let wire = next.len();
    assert_eq!(followed(Link::Ethernet, &[cut, (next, wire)]), (b"l\0\0\0er".to_vec(), vec![(1, 4)], 0));
}
