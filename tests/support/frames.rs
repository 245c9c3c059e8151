//! Small capture with a frame for each property that filters test, with and without VLAN tags.

use super::records::Record;

const UNICAST: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0b];
const BROADCAST: [u8; 6] = [0xff; 6];
const MULTICAST: [u8; 6] = [0x01, 0, 0x5e, 0, 0, 0xfb];
const SOURCE: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0a];

/// Nanoseconds between frames.
const GAP: u64 = 1_000_003;
/// Time of the first frame: 2023-11-14 22:13:20 UTC.
const START: u64 = 1_700_000_000_000_000_000;

/// Returns every inner frame with every tag stack, alternating tagged and untagged.
pub fn sample() -> Vec<Record> {
    let tags: [&[(u16, u16)]; 8] = [
        &[],
        &[(0x8100, 100)],
        &[(0x8100, 0xe065)],
        &[],
        &[(0x88a8, 200), (0x8100, 100)],
        &[(0x8100, 100), (0x8100, 7)],
        &[(0x9100, 300), (0x8100, 100)],
        &[(0x8100, 0x6000)],
    ];
    let mut records: Vec<Record> = Vec::new();
    for (destination, ethertype, payload) in inner_frames() {
        for tags in tags {
            let bytes = frame(destination, tags, ethertype, &payload);
            let time = START + GAP * records.len() as u64;
            records.push(Record { time, wire: bytes.len() as u32, bytes });
        }
    }
    records
}

/// Returns the inner frames: destination, EtherType (or 802.3 length), payload.
fn inner_frames() -> Vec<([u8; 6], u16, Vec<u8>)> {
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &SOURCE, &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2]].concat();
    let mut inner_frames = vec![(BROADCAST, 0x0806, arp), (MULTICAST, 38, [&[0x42, 0x42, 3][..], &[0; 35]].concat())];
    for (ports, length) in [((5353, 53), 20), ((80, 40000), 500), ((1024, 8080), 1400), ((443, 22), 0)] {
        let (udp, tcp) = (udp(ports, length), tcp(ports, length));
        inner_frames.push((UNICAST, 0x0800, ipv4(17, [10, 0, 0, 1], [10, 0, 0, 2], 0, &udp)));
        inner_frames.push((UNICAST, 0x0800, ipv4(6, [10, 0, 0, 2], [192, 168, 1, 9], 0, &tcp)));
        inner_frames.push((UNICAST, 0x86dd, ipv6(6, &tcp)));
        inner_frames.push((UNICAST, 0x86dd, ipv6(17, &udp)));
        inner_frames.push((MULTICAST, 0x0800, ipv4(17, [10, 0, 0, 1], [224, 0, 0, 251], 0, &udp)));
    }
    inner_frames.push((UNICAST, 0x0800, ipv4(1, [10, 0, 0, 1], [10, 0, 0, 2], 0, &[8, 0, 0, 0, 0, 1, 0, 1])));
    inner_frames.push((UNICAST, 0x0800, ipv4(17, [10, 0, 0, 1], [10, 0, 0, 2], 185, &[0x55; 64])));
    inner_frames.push((BROADCAST, 0x0800, ipv4(17, [0; 4], [255; 4], 0, &udp((68, 67), 300))));
    inner_frames.push((UNICAST, 0x86dd, ipv6(58, &[128, 0, 0, 0, 0, 1, 0, 1])));
    inner_frames.push((UNICAST, 0x8847, vec![0, 0x01, 0x01, 0x40, 0x45, 0, 0, 20]));
    // The kernel drops tagged frames with less than two bytes after the EtherType (skb_vlan_untag).
    inner_frames.push((UNICAST, 0x88b5, vec![0; 2]));
    inner_frames
}

fn frame(destination: [u8; 6], tags: &[(u16, u16)], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [destination, SOURCE].concat();
    for (protocol, tag) in tags {
        bytes.extend(protocol.to_be_bytes());
        bytes.extend(tag.to_be_bytes());
    }
    bytes.extend(ethertype.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn ipv4(protocol: u8, source: [u8; 4], destination: [u8; 4], fragment: u16, payload: &[u8]) -> Vec<u8> {
    let length = 20 + payload.len() as u16;
    let mut bytes = vec![0x45, 0];
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, 1]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0]);
    bytes.extend([source, destination].concat());
    bytes.extend(payload);
    bytes
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((payload.len() as u16).to_be_bytes());
    bytes.extend([next, 64]);
    for last in [1, 2] {
        bytes.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    bytes.extend(payload);
    bytes
}

fn udp((from, to): (u16, u16), length: u16) -> Vec<u8> {
    let head = [from, to, 8 + length, 0].map(u16::to_be_bytes).concat();
    [head, vec![0x61; length.into()]].concat()
}

fn tcp((from, to): (u16, u16), length: u16) -> Vec<u8> {
    let head = [from, to, 0, 1, 0, 0, 0x5002, 8192, 0, 0].map(u16::to_be_bytes).concat();
    [head, vec![0x62; length.into()]].concat()
}
