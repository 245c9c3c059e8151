//! Starts of streams, cut anywhere, in any order, overlapping and repeated: the result is that of the whole.

use linerate_names::tls::{ClientHello, ServerHello};
use linerate_names::{FirstMessage, Names, ParseResult, Protocol, Protocols, Stream, protocol};
use proptest::collection::vec;
use proptest::prelude::*;

fn vector16(content: &[u8]) -> Vec<u8> {
    [&(content.len() as u16).to_be_bytes()[..], content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [kind.to_be_bytes().to_vec(), vector16(content)].concat()
}

fn numbers(numbers: &[u16]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// Splits a message into records of `size` bytes.
fn records(kind: u8, body: &[u8], size: usize) -> Vec<u8> {
    let message = [&[kind][..], &(body.len() as u32).to_be_bytes()[1..], body].concat();
    message.chunks(size).flat_map(|part| [vec![22, 3, 1], vector16(part)].concat()).collect()
}

/// With GREASE everywhere, a key share as long as ML-KEM's before the name, and ECH.
fn client(size: usize) -> (Vec<u8>, FirstMessage) {
    let name = [vec![0], vector16(b"www.example.org")].concat();
    let extensions = [
        extension(0x1a1a, &[]),
        extension(51, &vector16(&[7; 1250])),
        extension(0, &vector16(&name)),
        extension(16, &vector16(b"\x02\x8a\x8a\x02h2\x08http/1.1")),
        extension(43, &[&[8][..], &numbers(&[0x2a2a, 0x0304, 0x0303, 0x0302])].concat()),
        extension(13, &vector16(&numbers(&[0x0403, 0x0804]))),
        extension(34, &vector16(&numbers(&[0x0201]))),
        extension(0xfe0d, &[0; 200]),
    ];
    let session = [&[32][..], &[9; 32]].concat();
    let ciphers = vector16(&numbers(&[0x3a3a, 0x1303, 0x1301, 0x00ff]));
    let body = [numbers(&[0x0303]), vec![5; 32], session, ciphers, vec![1, 0], vector16(&extensions.concat())].concat();
    let hello = ClientHello {
        server_name: Some("www.example.org".into()),
        alpn: Some("h2,http/1.1".into()),
        version: 0x0304,
        // Python: sha256(b"00ff,1301,1303").hexdigest()[:12], sha256(b"000d,0022,002b,0033,fe0d_0403,0804").hexdigest()[:12].
        ja4: "t13d0307h2_cee661580557_bb7624be4960".into(),
        ech: true,
    };
    (records(1, &body, size), FirstMessage::ClientHello(hello))
}

fn server(size: usize) -> (Vec<u8>, FirstMessage) {
    let extensions = [extension(16, &vector16(b"\x02h2")), extension(43, &[3, 4])].concat();
    let body = [numbers(&[0x0303]), vec![5; 32], vec![0], numbers(&[0x1302]), vec![0], vector16(&extensions)].concat();
    let hello = ServerHello { version: 0x0304, cipher: 0x1302, alpn: Some("h2".into()) };
    (records(2, &body, size), FirstMessage::ServerHello(hello))
}

/// Returns streams with their expected results and protocol.
fn streams() -> Vec<(Vec<u8>, Option<Protocol>, FirstMessage)> {
    let mut all: Vec<(Vec<u8>, Option<Protocol>, FirstMessage)> = [16384, 700, 1]
        .into_iter()
        .flat_map(|size| [client(size), server(size)])
        .map(|(bytes, found)| (bytes, None, found))
        .collect();
    let request = "POST /a HTTP/1.1\r\nHost: example.org\r\nUser-Agent: x\r\n\r\n".as_bytes();
    for (bytes, known) in [
        (request, None),
        (&b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\n\r\n"[..], None),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n\0\0", None),
        (b"welcome\r\nSSH-2.0-x\r\n", Some(Protocol::Ssh)),
        (b"\0\x21\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03org\0\0\x1c\0\x01", Some(Protocol::Dns)),
    ] {
        let ParseResult::Done(found) = protocol::read(bytes, known, Protocols::ALL) else { panic!("{bytes:?}") };
        all.push((bytes.to_vec(), known, found));
    }
    all
}

#[test]
fn complete_hellos_yield_their_values() {
    for (bytes, known, found) in streams() {
        assert_eq!(protocol::read(&bytes, known, Protocols::ALL), ParseResult::Done(found));
    }
}

/// Cut after each byte: never another answer, and never `Never`.
#[test]
fn every_truncation_needs_more_or_is_complete() {
    for (bytes, known, found) in streams() {
        for length in 0..bytes.len() {
            match protocol::read(&bytes[..length], known, Protocols::ALL) {
                ParseResult::More => {}
                ParseResult::Done(early) => assert_eq!(early, found, "after {length} of {}", bytes.len()),
                ParseResult::Part(part) => assert_eq!(part.protocol(), found.protocol()),
                ParseResult::Never => panic!("none after {length} of {}", bytes.len()),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_in_any_order_form_the_hello(
        which in any::<prop::sample::Index>(), cuts in vec(any::<prop::sample::Index>(), 0..8),
        again in vec((any::<prop::sample::Index>(), 1..900usize), 0..4), shuffle in any::<u64>()
    ) {
        let streams = streams();
        let (bytes, known, found) = which.get(&streams);
        let mut edges: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).chain([0, bytes.len()]).collect();
        edges.sort_unstable();
        let mut pieces: Vec<(usize, usize)> = edges.windows(2).map(|two| (two[0], two[1])).collect();
        pieces.extend(again.iter().map(|(at, length)| (at.index(bytes.len()), *length)).map(|(at, length)| (at, (at + length).min(bytes.len()))));
        let mut state = shuffle | 1;
        for place in (1..pieces.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            pieces.swap(place, (state >> 33) as usize % (place + 1));
        }
        let (mut stream, mut last) = (Stream::default(), ParseResult::More);
        for (from, to) in pieces {
            stream.put(from, &bytes[from..to]);
            last = protocol::read(stream.ready(), *known, Protocols::ALL);
            prop_assert!(last != ParseResult::Never);
        }
        prop_assert_eq!(last, ParseResult::Done(found.clone()));
    }

    /// A byte changed, or any bytes after a start: any answer, whose texts are short and visible.
    #[test]
    fn hostile_bytes_cause_no_panic(
        which in any::<prop::sample::Index>(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        tail in vec(any::<u8>(), 0..300)
    ) {
        let streams = streams();
        let (bytes, known, _) = which.get(&streams);
        let mut bytes = bytes.clone();
        changes.iter().for_each(|(at, byte)| { let at = at.index(bytes.len()); bytes[at] = *byte; });
        let cut = changes[0].0.index(bytes.len());
        for bytes in [bytes.clone(), [&bytes[..cut], &tail].concat(), tail.clone()] {
            for known in [*known, None, Some(Protocol::Dns), Some(Protocol::Ssh), Some(Protocol::Tls)] {
                if let ParseResult::Done(found) | ParseResult::Part(found) = protocol::read(&bytes, known, Protocols::ALL) {
                    let mut names = Names::default();
                    names.add(found, 1);
                    prop_assert!(names.memory() < 8192);
                    prop_assert!(names.site().is_none_or(|site| site.bytes().all(|byte| (b' '..=b'~').contains(&byte))));
                }
            }
        }
    }
}
