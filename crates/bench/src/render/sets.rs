//! Streams of UDP datagrams to be measured.

use linerate_generate::Rate;
use linerate_generate::rate::FCS;
use linerate_generate::stream::*;
use linerate_generate::trailer::{self, Key};
use linerate_wire::Link;

/// Where things lie in a UDP datagram over IPv4 and Ethernet without a VLAN tag.
const IP: usize = 14;
const IP_CHECKSUM: usize = 24;
const SOURCE: usize = 26;
const DESTINATION: usize = 30;
const UDP: usize = 34;
const UDP_CHECKSUM: usize = 40;
const PAYLOAD: usize = 42;

/// A field: where, how wide, and what picks its values, of which there are as many as it can have or 65,536.
type Field = (usize, usize, Pick);

const TURNS: Pick = Pick::InTurn { every: 1 };

/// Source address and port count, destination address and port are anything.
pub(super) fn four_fields() -> Vec<Field> {
    vec![
        (SOURCE, 4, TURNS),
        (DESTINATION, 4, Pick::Random { seed: 1 }),
        (UDP, 2, TURNS),
        (UDP + 2, 2, Pick::Random { seed: 2 }),
    ]
}

/// All four are anything.
pub(super) fn four_random_fields() -> Vec<Field> {
    let places = [(SOURCE, 4), (DESTINATION, 4), (UDP, 2), (UDP + 2, 2)];
    places.iter().zip(1..).map(|((offset, width), seed)| (*offset, *width, Pick::Random { seed })).collect()
}

/// The source address counts.
pub(super) fn one_field() -> Vec<Field> {
    vec![(SOURCE, 4, TURNS)]
}

/// One stream of datagrams with the fields, at top speed and without end; `sizes` count the FCS and say how often each is met.
pub(super) fn stream(id: u32, sizes: &[(usize, f64)], fields: &[Field]) -> Stream {
    let weights: Vec<f64> = sizes.iter().map(|(_, weight)| *weight).collect();
    let table = Alias::new(&weights).expect("some size is likely").into();
    let size = Selector { count: sizes.len() as u64, pick: Pick::Weighted { table, seed: 9 } };
    Stream {
        name: format!("stream {id}"),
        id,
        link: Link::Ethernet,
        variants: sizes.iter().map(|(size, _)| datagram(id, size - FCS as usize, fields)).collect(),
        size,
        selectors: fields.iter().map(|(.., pick)| Selector { count: 1 << 16, pick: pick.clone() }).collect(),
        rate: Rate::Top,
        shape: Shape::Even,
        count: None,
        next: Next::Following,
        span: Default::default(),
        mark: Mark::None,
    }
}

/// Streams that take turns.
pub(super) fn set(streams: Vec<Stream>) -> StreamSet {
    let order = if streams.len() == 1 { Order::Sequential } else { Order::Interleaved };
    StreamSet { streams, order, rate: None, key: Key::default() }
}

/// The same stream with a trailer in each frame.
pub(super) fn with_trailer(mut stream: Stream) -> Stream {
    stream.mark = Mark::Trailer;
    for variant in &mut stream.variants {
        variant.trailer = Some(variant.frame.len() - trailer::LEN);
    }
    stream
}

/// The same stream with a payload that is noise.
pub(super) fn with_noise(mut stream: Stream) -> Stream {
    for variant in &mut stream.variants {
        variant.fills.push(Fill { offset: PAYLOAD, length: variant.frame.len() - PAYLOAD, seed: 3 });
    }
    stream
}

fn datagram(id: u32, length: usize, fields: &[Field]) -> Variant {
    let mut frame = vec![0; length];
    frame[..IP].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    let (total, datagram) = ((length - IP) as u16, (length - UDP) as u16);
    frame[IP..IP + 2].copy_from_slice(&[0x45, 0]);
    frame[IP + 2..IP + 4].copy_from_slice(&total.to_be_bytes());
    frame[IP + 8..IP + 10].copy_from_slice(&[64, 17]);
    frame[SOURCE..UDP].copy_from_slice(&[10, id as u8, 0, 0, 10, 200, 0, 0]);
    frame[UDP + 4..UDP + 6].copy_from_slice(&datagram.to_be_bytes());
    let change = |(index, (offset, width, _)): (usize, &Field)| {
        let (start, mask) = if *width == 4 { (u128::from(0x0a00_0000 | id << 16), 0xffff_ffff) } else { (0, 0xffff) };
        Change { offset: *offset, width: *width, mask, selector: index, map: Map::counting(start) }
    };
    let internet =
        |offset, plus, no_zero, parts| Checksum { offset, kind: ChecksumKind::Internet { plus, no_zero }, parts };
    Variant {
        frame,
        changes: fields.iter().enumerate().map(change).collect(),
        fills: Vec::new(),
        checksums: vec![
            internet(IP_CHECKSUM, 0, false, vec![(IP, UDP)]),
            internet(UDP_CHECKSUM, 17 + datagram, true, vec![(SOURCE, length)]),
        ],
        trailer: None,
    }
}
