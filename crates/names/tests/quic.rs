//! Initials of the RFCs, and others with the same hello.
//!
//! The vectors are packets in hexadecimal, separated by blank lines: [`example`] and `rfc9369-a2` are those of RFC
//! 9001, A.2 and RFC 9369, A.2; the others were encrypted with Python's `cryptography` (HKDF, AES-GCM, AES-ECB), which
//! reproduces the packets of the RFCs. `two-packets` has the hello in four overlapping CRYPTO frames, among PING, ACK
//! and PADDING; the second packet has another destination, and the keys of the first.

use linerate_names::quic::{ConnectionId, Keys, example, initial, open};
use linerate_names::tls::{ClientHello, quic_client_hello};
use linerate_names::{ParseResult, Stream};
use proptest::prelude::*;

fn packets(text: &str) -> Vec<Vec<u8>> {
    let packet = |part: &str| -> Vec<u8> {
        let digits: Vec<u8> = part.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
        digits.chunks_exact(2).map(byte).collect()
    };
    text.split("\n\n").map(packet).filter(|packet| !packet.is_empty()).collect()
}

fn vectors() -> [(u32, Vec<Vec<u8>>); 4] {
    [
        (1, vec![example()]),
        (0x6b33_43cf, packets(include_str!("vectors/rfc9369-a2.hex"))),
        (0xff00_001d, packets(include_str!("vectors/draft-29.hex"))),
        (1, packets(include_str!("vectors/two-packets.hex"))),
    ]
}

fn first_id() -> ConnectionId {
    ConnectionId::new(&[0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08]).unwrap()
}

/// JA4 by its definition, in Python: `sha256("1301,1302")` and
/// `sha256("0005,000a,000d,001c,002b,002d,0033,0039,ff01_0403,0503,0603,0203,0804,0805,0806")`, twelve digits of each.
fn hello() -> ParseResult<ClientHello> {
    ParseResult::Done(ClientHello {
        server_name: Some("example.com".into()),
        alpn: Some("alpn".into()),
        version: 0x0304,
        ja4: "q13d0211an_62ed6f6ca7ad_4d634acda6c0".into(),
        ech: false,
    })
}

#[test]
fn hello_of_the_test_vectors_is_read() {
    for (version, packets) in vectors() {
        assert_eq!(initial(&packets[0]), Some((version, first_id())));
        let keys = Keys::new(version, &first_id()).unwrap();
        // In any order.
        for order in [packets.clone(), packets.iter().rev().cloned().collect()] {
            let mut stream = Stream::default();
            for (place, packet) in order.iter().enumerate() {
                assert!(open(packet, &keys, &mut stream));
                let is_last = place + 1 == packets.len();
                assert_eq!(quic_client_hello(stream.ready()) == ParseResult::More, !is_last, "version {version:x}");
            }
            assert_eq!(quic_client_hello(stream.ready()), hello(), "version {version:x}");
        }
        // Coalesced in one datagram.
        let mut stream = Stream::default();
        assert!(open(&packets.concat(), &keys, &mut stream));
        assert_eq!(quic_client_hello(stream.ready()), hello());
    }
}

#[test]
fn packets_not_from_the_client_are_not_decrypted() {
    let [(_, packets), ..] = vectors();
    let keys = Keys::new(1, &first_id()).unwrap();
    let is_open = |packet: &[u8]| open(packet, &keys, &mut Stream::default());
    for length in 0..packets[0].len() {
        assert!(!is_open(&packets[0][..length]), "cut after {length}");
    }
    for place in 0..packets[0].len() {
        let mut changed = packets[0].clone();
        changed[place] ^= 0x10;
        assert!(!is_open(&changed), "byte {place} changed");
    }
    let other = Keys::new(1, &ConnectionId::new(&[1, 2, 3]).unwrap()).unwrap();
    assert!(!open(&packets[0], &other, &mut Stream::default()), "keys of another connection");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Invalid lengths and arbitrary frames: no panic.
    #[test]
    fn any_bytes_are_parsed_without_panic(head in prop::collection::vec(any::<u8>(), 0..80), which in 0..4usize, at in 0..1200usize) {
        let (version, packets) = vectors()[which].clone();
        let keys = Keys::new(version, &first_id()).unwrap();
        let mut bytes = packets[0].clone();
        let at = at.min(bytes.len());
        bytes.splice(at.., head.iter().copied());
        let _ = (initial(&bytes), open(&bytes, &keys, &mut Stream::default()));
        let mut header = vec![0xc0, 0, 0, 0, 1];
        header.extend(head);
        let _ = (initial(&header), open(&header, &keys, &mut Stream::default()));
    }
}
