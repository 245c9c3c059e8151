//! Cost of names: each parser on the first bytes of a conversation.

use crate::Effort;
use crate::harness::{Case, Ours, Sample};
use linerate_meter::Protocols;
use linerate_meter::names::quic::{self, Keys};
use linerate_meter::names::tls::quic_client_hello;
use linerate_meter::names::{Stream, dns, protocol};
use std::hint::black_box;

/// Messages parsed in a round.
const READ: usize = 100_000;

/// First messages per second that one core parses, a row per protocol.
pub(super) fn parsers(effort: Effort) -> Case {
    let packet = quic::example();
    let question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03org\0\0\x1c\0\x01";
    let request = b"GET /index.html HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n";
    let read = |bytes: &[u8]| drop(black_box(protocol::read(black_box(bytes), None, Protocols::ALL)));
    let hello = tls_hello(&packet);
    Case::default()
        .ours(of(effort, "TLS hello", hello.len(), move || read(&hello)))
        .ours(of(effort, "QUIC Initial", packet.len(), move || drop(black_box(open(black_box(&packet))))))
        .ours(of(effort, "DNS question", question.len(), || drop(black_box(dns::Message::parse(black_box(question))))))
        .ours(of(effort, "HTTP request", request.len(), move || read(request)))
        .ours(of(effort, "SSH line", 21, move || read(b"SSH-2.0-OpenSSH_9.2\r\n")))
}

fn of(effort: Effort, name: &str, bytes: usize, mut work: impl FnMut() + 'static) -> Ours {
    let count = effort.of(READ);
    let round = move || {
        Sample::timed(|| {
            (0..count).for_each(|_| work());
            Ok(count as u64)
        })
    };
    Ours::new(format!("names: {name} of {bytes} bytes"), round).finish(|row| row.ns = Some(1e3 / row.mpps))
}

/// Returns the stream of CRYPTO frames.
fn open(packet: &[u8]) -> Option<Stream> {
    let (version, id) = quic::initial(packet)?;
    let (keys, mut stream) = (Keys::new(version, &id)?, Stream::default());
    quic::open(packet, &keys, &mut stream);
    black_box(quic_client_hello(stream.ready()));
    Some(stream)
}

/// Returns the hello of a QUIC packet in the form that it has over TCP.
fn tls_hello(packet: &[u8]) -> Vec<u8> {
    let stream = open(packet).unwrap_or_default();
    let hello = stream.ready();
    [&[22, 3, 1][..], &(hello.len() as u16).to_be_bytes(), hello].concat()
}
