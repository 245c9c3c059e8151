//! A TCP conversation.

use linerate_headers::build::Frame;
use linerate_headers::{MacAddr, ethernet, ipv4, registry, tcp};
use linerate_tests::support::records::Record;

const FIN: u16 = 1;
const SYN: u16 = 2;
const ACK: u16 = 16;

/// A segment between a client and 10.0.0.2:80.
pub(super) fn segment(
    time: u64,
    port: u16,
    is_answer: bool,
    (seq, ack): (u32, u32),
    flags: u16,
    data: &[u8],
) -> Record {
    let (client, server) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let (source, destination) = if is_answer { (server, client) } else { (client, server) };
    let (source_port, destination_port) = if is_answer { (80, port) } else { (port, 80) };
    let header = tcp::Header {
        source_port,
        destination_port,
        sequence: seq,
        acknowledgement: ack,
        flags: tcp::Flags(flags),
        window: 0xffff,
        ..tcp::Header::default()
    };
    let (one, other) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    let macs = ethernet::Header { source: one, destination: other, ether_type: 0 };
    let ip = ipv4::Header { source, destination, ..ipv4::Header::new(registry::TCP) };
    let bytes = Frame::new(&[&macs, &ip, &header], data).to_vec().unwrap();
    Record { time: 1_700_000_000_000_000_000 + time * 1_000_000, wire: bytes.len() as u32, bytes }
}

/// A request and a response, of which bytes 6 to 10 were not captured.
pub(super) fn conversation(port: u16) -> Vec<Record> {
    let at = |time: u64| time + u64::from(port) * 10;
    vec![
        segment(at(0), port, false, (99, 0), SYN, b""),
        segment(at(1), port, true, (499, 100), SYN | ACK, b""),
        segment(at(2), port, false, (100, 500), ACK, b"GET /\n"),
        segment(at(3), port, true, (500, 106), ACK, b"hello "),
        segment(at(4), port, true, (511, 106), ACK, b"\x00world\n"),
        segment(at(5), port, true, (518, 106), ACK | FIN, b""),
        segment(at(6), port, false, (106, 519), ACK | FIN, b""),
    ]
}
