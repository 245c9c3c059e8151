//! What names cost: each parser alone, on what begins a conversation.

use crate::Effort;
use crate::measure::{Rounds, Row};
use linerate_meter::Protocols;
use linerate_meter::names::quic::{self, Keys};
use linerate_meter::names::tls::quic_client_hello;
use linerate_meter::names::{Stream, dns, first};
use std::hint::black_box;

/// Beginnings that are read in a round.
const READ: usize = 100_000;

/// A row for each protocol: how many beginnings a second one core reads.
pub(super) fn parsers(effort: Effort) -> Vec<Row> {
    let packet = quic::example();
    let question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03org\0\0\x1c\0\x01";
    let request = b"GET /index.html HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n";
    let read = |bytes: &[u8]| drop(black_box(first::read(black_box(bytes), None, Protocols::ALL)));
    let hello = tls_hello(&packet);
    vec![
        row(effort, "TLS hello", hello.len(), || read(&hello)),
        row(effort, "QUIC Initial", packet.len(), || drop(black_box(open(black_box(&packet))))),
        row(effort, "DNS question", question.len(), || drop(black_box(dns::Message::parse(black_box(question))))),
        row(effort, "HTTP request", request.len(), || read(request)),
        row(effort, "SSH line", 21, || read(b"SSH-2.0-OpenSSH_9.2\r\n")),
    ]
}

fn row(effort: Effort, case: &str, bytes: usize, mut work: impl FnMut()) -> Row {
    let (mut rounds, count) = (Rounds::default(), effort.of(READ));
    for _ in 0..effort.rounds {
        rounds.time(|| {
            (0..count).for_each(|_| work());
            count as u64
        });
    }
    let row = rounds.row("flows", format!("names: {case} of {bytes} bytes"), bytes as f64);
    Row { ns: Some(1e3 / row.mpps), ..row }
}

/// The stream of CRYPTO frames.
fn open(packet: &[u8]) -> Option<Stream> {
    let (version, id) = quic::initial(packet)?;
    let (keys, mut stream) = (Keys::new(version, &id)?, Stream::default());
    quic::open(packet, &keys, &mut stream);
    black_box(quic_client_hello(stream.ready()));
    Some(stream)
}

/// The hello of a packet of QUIC as it would be over TCP.
fn tls_hello(packet: &[u8]) -> Vec<u8> {
    let stream = open(packet).unwrap_or_default();
    let hello = stream.ready();
    [&[22, 3, 1][..], &(hello.len() as u16).to_be_bytes(), hello].concat()
}
