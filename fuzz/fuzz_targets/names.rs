//! Any bytes are starts of streams and datagrams: no parser panics, results are short and printable, a stream in two
//! pieces gives the same result as the whole, and more bytes never change a complete result.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_meter::names::quic::{self, ConnectionId, Keys};
use linerate_meter::names::tls::quic_client_hello;
use linerate_meter::names::{FirstMessage, Names, ParseResult, Protocol, Protocols, Stream, dns, protocol};

fuzz_target!(|bytes: &[u8]| {
    let Some((bytes, &[choice, cut])) = bytes.split_last_chunk::<2>() else { return };
    let known = [None, Some(Protocol::Dns), Some(Protocol::Ssh), Some(Protocol::Tls)][usize::from(choice % 4)];
    let whole = protocol::read(bytes, known, Protocols::ALL);
    check(&whole);
    let cut = usize::from(cut).min(bytes.len());
    match protocol::read(&bytes[..cut], known, Protocols::ALL) {
        ParseResult::Never => assert_eq!(whole, ParseResult::Never),
        early @ ParseResult::Done(_) if bytes.len() <= Stream::MOST => assert_eq!(early, whole),
        _ => {}
    }
    let mut stream = Stream::default();
    stream.put(cut, &bytes[cut..]);
    stream.put(0, &bytes[..cut]);
    assert_eq!(stream.ready(), &bytes[..bytes.len().min(Stream::MOST)]);
    if let Some(found) = dns::Addresses::parse(bytes) {
        assert!((1..=64).contains(&found.addresses.len()) && found.name.len() <= 4 * 255);
    }
    if let Some(message) = dns::Message::parse(bytes) {
        check(&ParseResult::Done(FirstMessage::Dns(message)));
    }
    check(&quic_client_hello(bytes).map(FirstMessage::ClientHello));
    datagram(bytes, choice);
});

fn check(read: &ParseResult<FirstMessage>) {
    if let ParseResult::Done(found) | ParseResult::Part(found) = read {
        let mut names = Names::default();
        names.add(found.clone(), 0);
        assert!(names.memory() < 8192);
        assert!(names.site().is_none_or(|site| site.bytes().all(|byte| (b' '..=b'~').contains(&byte))));
    }
}

/// Parses QUIC headers, and bytes after one.
fn datagram(bytes: &[u8], choice: u8) {
    let version = [1, 0x6b33_43cf, 0xff00_001d, 0xff00_0017][usize::from(choice / 4 % 4)];
    let head = [&[0xc0 | choice & 0x3f][..], &u32::to_be_bytes(version), bytes].concat();
    for datagram in [bytes, &head] {
        let id = quic::initial(datagram).map_or(ConnectionId::default(), |(_, id)| id);
        if let Some(keys) = Keys::new(version, &id) {
            quic::open(datagram, &keys, &mut Stream::default());
        }
    }
}
