//! Invalid connection setup: each kind is rejected with a reason and counted, and the next client is accepted.

use super::peer::{
    Client, LOG2, Memory, Port, REGION, RINGS, SLOTS, Socket, ack, add_region, add_ring, connect_message, connected,
    frame, hello, init, message, name,
};
use linerate_backends::open_rx;
use linerate_burst::Count;
use linerate_port::{PortError, RxOptions, Spec};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// Label, messages of the client, expected reason.
type Wrong = (&'static str, fn(&Client) -> Vec<(Vec<u8>, usize)>, &'static str);

/// Descriptors that a step passes: none, the region, an eventfd, both, a regular file, four files.
fn descriptors(client: &Client, case: usize, file: &OwnedFd) -> Vec<OwnedFd> {
    let copy = |fd: &OwnedFd| fd.try_clone().unwrap();
    match case {
        0 => vec![],
        1 => vec![copy(&client.memory.0)],
        2 => vec![copy(&client.bells[0])],
        3 => vec![copy(&client.memory.0), copy(&client.bells[0])],
        4 => vec![copy(file)],
        _ => vec![copy(file), copy(file), copy(file), copy(file)],
    }
}

fn begun(more: Vec<(Vec<u8>, usize)>) -> Vec<(Vec<u8>, usize)> {
    [vec![(init(0x200, 0, 0, b""), 0)], more].concat()
}

fn mapped(more: Vec<(Vec<u8>, usize)>) -> Vec<(Vec<u8>, usize)> {
    begun([vec![(add_region(0, REGION), 1)], more].concat())
}

const WRONG: &[Wrong] = &[
    ("127 bytes", |_| vec![(init(0x200, 0, 0, b"")[..127].to_vec(), 0)], "128 bytes"),
    ("129 bytes", |_| vec![([init(0x200, 0, 0, b""), vec![0]].concat(), 0)], "128 bytes"),
    ("an unknown kind", |_| vec![(message(9, &[]), 0)], "unknown message type"),
    ("kind 0", |_| vec![(message(0, &[]), 0)], "unknown message type"),
    ("no INIT", |_| vec![(add_region(0, REGION), 1)], "not INIT"),
    ("a hello to a server", |_| vec![(hello(), 0)], "not INIT"),
    ("a hello later", |_| begun(vec![(hello(), 0)]), "unexpected message"),
    ("INIT twice", |_| begun(vec![(init(0x200, 0, 0, b""), 0)]), "unexpected message"),
    ("an ACK", |_| begun(vec![(ack(), 0)]), "unexpected message"),
    ("another version", |_| vec![(init(0x201, 0, 0, b""), 0)], "unsupported version"),
    ("another id", |_| vec![(init(0x200, 1, 0, b""), 0)], "ID not found"),
    ("another mode", |_| vec![(init(0x200, 0, 1, b""), 0)], "only Ethernet"),
    ("INIT with a descriptor", |_| vec![(init(0x200, 0, 0, b""), 2)], "number of descriptors"),
    ("a region without one", |_| begun(vec![(add_region(0, REGION), 0)]), "number of descriptors"),
    ("a region with two", |_| begun(vec![(add_region(0, REGION), 3)]), "number of descriptors"),
    ("a region with four", |_| begun(vec![(add_region(0, REGION), 5)]), "number of descriptors"),
    ("a region out of turn", |_| begun(vec![(add_region(1, REGION), 1)]), "invalid region index"),
    ("a region twice", |_| mapped(vec![(add_region(0, REGION), 1)]), "invalid region index"),
    ("a region of nothing", |_| begun(vec![(add_region(0, 0), 1)]), "more memory"),
    ("a region beyond its file", |_| begun(vec![(add_region(0, REGION + 1), 1)]), "shorter than"),
    ("a region of everything", |_| begun(vec![(add_region(0, u64::MAX), 1)]), "more memory"),
    ("regions beyond the limit", |_| mapped(vec![(add_region(1, 1 << 30), 1)]), "more memory"),
    ("a region that is not sealed", |_| begun(vec![(add_region(0, 4096), 4)]), "F_SEAL_SHRINK"),
    ("a ring before its region", |_| begun(vec![(add_ring(true, 0, 0, 0, LOG2), 2)]), "invalid region index"),
    ("a ring in another region", |_| mapped(vec![(add_ring(true, 0, 7, 0, LOG2), 2)]), "invalid region index"),
    ("a ring that begins at 4", |_| mapped(vec![(add_ring(true, 0, 0, 4, LOG2), 2)]), "invalid ring size"),
    (
        "a ring beyond the end",
        |_| mapped(vec![(add_ring(true, 0, 0, REGION as u32 - 128, LOG2), 2)]),
        "invalid ring size",
    ),
    ("a ring far beyond", |_| mapped(vec![(add_ring(true, 0, 0, u32::MAX - 7, LOG2), 2)]), "invalid ring size"),
    ("a ring of one slot", |_| mapped(vec![(add_ring(true, 0, 0, 0, 0), 2)]), "invalid ring size"),
    ("a ring of 32768", |_| mapped(vec![(add_ring(true, 0, 0, 0, 15), 2)]), "invalid ring size"),
    ("a ring of 2^255", |_| mapped(vec![(add_ring(true, 0, 0, 0, 255), 2)]), "invalid ring size"),
    ("a ring too many", |_| mapped(vec![(add_ring(true, 1, 0, 0, LOG2), 2)]), "invalid ring index"),
    ("a ring twice", |_| mapped(vec![(add_ring(true, 0, 0, 0, LOG2), 2); 2]), "unexpected ring index"),
    ("a ring without a cookie", |_| mapped(vec![(add_ring(true, 0, 0, 8192, LOG2), 2)]), "cookie"),
    ("a ring with a private header", |_| mapped(vec![private_ring()]), "private headers"),
    ("a ring without an eventfd", |_| mapped(vec![(add_ring(true, 0, 0, 0, LOG2), 0)]), "number of descriptors"),
    ("a ring with two", |_| mapped(vec![(add_ring(true, 0, 0, 0, LOG2), 3)]), "number of descriptors"),
    ("a ring with a file", |_| mapped(vec![(add_ring(true, 0, 0, 0, LOG2), 4)]), "eventfd"),
    ("connecting without a ring", |_| mapped(vec![(connect_message(), 0)]), "no ring"),
    ("connected", |_| mapped(vec![(connected(), 0)]), "unexpected message"),
];

fn private_ring() -> (Vec<u8>, usize) {
    let mut ring = add_ring(true, 0, 0, RINGS[0], LOG2);
    ring[13] = 1;
    (ring, 2)
}

#[test]
fn invalid_client_is_rejected_with_the_reason() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server"));
    let file = OwnedFd::from(File::open("/proc/self/exe").unwrap());
    for (index, (case, messages, expected)) in WRONG.iter().enumerate() {
        let client = Client::new(&name, Memory::new(true));
        port.settle();
        assert_eq!(client.socket.kind(), Some(2), "{case}: no hello");
        for (bytes, given) in messages(&client) {
            let fds = descriptors(&client, given, &file);
            client.socket.send(&bytes, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
            port.settle();
        }
        let reason = client.socket.closing_reason();
        assert!(reason.contains(expected), "{case}: reason is {reason:?}, not {expected:?}");
        assert_eq!(port.count(Count::PeerRefused), index as u64 + 1, "{case}");
    }
    let ledger = port.ledger();
    assert!(ledger.details().iter().any(|detail| detail.name == "refused: ID not found" && detail.value == 1));
    let client = Client::connected(&name, &mut port);
    client.memory.head(RINGS[0], client.memory.frame(0, &frame(1, 60)));
    assert_eq!(port.step().unwrap(), [frame(1, 60)]);
}

#[test]
fn client_may_disconnect_at_any_step() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server"));
    for steps in 0..=5 {
        let client = Client::new(&name, Memory::new(true));
        port.settle();
        for (bytes, fds) in client.steps().iter().take(steps) {
            client.socket.send(bytes, fds);
            port.settle();
        }
        drop(client);
        port.settle();
    }
    Client::connected(&name, &mut port);
    assert_eq!(port.count(Count::PeerRefused), 0, "a disconnect is not a violation");
}

#[test]
fn second_client_and_wrong_secrets_are_rejected() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server&secret=hush"));
    for (secret, expected) in
        [(&b""[..], "secret required"), (b"hus", "incorrect secret"), (b"hush!", "incorrect secret")]
    {
        let client = Client::new(&name, Memory::new(true));
        port.settle();
        client.socket.send(&init(0x200, 0, 0, secret), &[]);
        port.settle();
        assert_eq!(client.socket.closing_reason(), expected);
    }
    let client = Client::new(&name, Memory::new(true));
    port.settle();
    assert_eq!(client.socket.kind(), Some(2));
    client.socket.send(&init(0x200, 0, 0, b"hush"), &[]);
    port.settle();
    assert_eq!(client.socket.kind(), Some(1));
    let other = Socket::connect(&name);
    port.settle();
    assert_eq!(other.closing_reason(), "already connected");
}

#[test]
fn unsealed_region_is_accepted_with_trust() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server&trust=yes"));
    let client = Client::new(&name, Memory::new(false));
    port.settle();
    assert_eq!(client.socket.kind(), Some(2));
    for (bytes, fds) in client.steps() {
        client.socket.send(&bytes, &fds);
        port.settle();
        assert!(matches!(client.socket.kind(), Some(1 | 7)));
    }
}

/// A zero-copy peer receives the setting to change, as far as a message has room; the log has the full text.
#[test]
fn unsealed_memory_is_rejected_with_the_settings_to_change() {
    let name = name();
    let news = linerate_port::events::listen();
    let mut port = Port::open(&format!("memif:{name}?role=server&secret=hush"));
    let client = Client::new(&name, Memory::new(false));
    port.settle();
    client.socket.send(&init(0x200, 0, 0, b"hush"), &[]);
    port.settle();
    let (bytes, fds) = client.steps().swap_remove(1);
    client.socket.send(&bytes, &fds);
    port.settle();
    assert_eq!(client.socket.kind(), Some(2));
    assert_eq!(client.socket.kind(), Some(1));
    let reason = client.socket.closing_reason();
    assert!(reason.contains("no-zero-copy") && reason.ends_with("trust=yes"), "{reason}");
    let messages: Vec<String> = news.try_iter().filter(|message| message.contains(&name)).collect();
    let [message] = &messages[..] else { panic!("{messages:?}") };
    for part in ["secret=...", "peer rejected", "no-zero-copy (VPP)", "zero-copy=no (DPDK)", "trust=yes"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

/// Other users may connect to a socket with `users=`, for any umask of this process.
#[test]
fn socket_for_other_users_is_writable_for_them() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = linerate_tests::support::Scratch::new();
    let path = scratch.file("m.sock");
    let port = Port::open(&format!("memif:{path}?role=server&users=65534"));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    drop(port);
    assert!(scratch.names().is_empty(), "the socket stays");
}

/// Violations of a server after a client has connected, and the reason that the client sends.
#[test]
fn invalid_server_is_rejected_with_the_reason() {
    let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let fd = || vec![bell.as_fd()];
    let mut none = hello();
    none[44] = 0;
    let other = message(2, &[(34, &0x300u16.to_ne_bytes()), (36, &0x3ffu16.to_ne_bytes()), (44, &[14])]);
    for (case, messages, expected) in [
        ("an ACK first", vec![(ack(), vec![])], "unexpected message"),
        ("hello twice", vec![(hello(), vec![]), (hello(), vec![])], "unexpected message"),
        ("a hello with a descriptor", vec![(hello(), fd())], "number of descriptors"),
        ("another version", vec![(other, vec![])], "no common version"),
        ("rings of nothing", vec![(none, vec![])], "without descriptors"),
        ("connected too early", vec![(hello(), vec![]), (connected(), vec![])], "unexpected message"),
        ("an INIT", vec![(init(0x200, 0, 0, b""), vec![])], "unexpected message"),
        ("too many ACKs", [vec![(hello(), vec![])], vec![(ack(), vec![]); 9]].concat(), "unexpected ACK"),
        ("100 bytes", vec![(hello()[..100].to_vec(), vec![])], "128 bytes"),
    ] {
        let name = name();
        let server = Socket::listen(&name);
        let mut port = Port::open(&format!("memif:{name}"));
        let socket = server.accept().expect("a connection at open");
        for (bytes, fds) in messages {
            socket.send(&bytes, &fds);
            port.settle();
        }
        let reason = socket.closing_reason();
        assert!(reason.contains(expected), "{case}: reason is {reason:?}, not {expected:?}");
        assert_eq!(port.count(Count::PeerRefused), 1, "{case}");
    }
}

#[test]
fn client_sends_in_order_and_waits_for_each_answer() {
    let name = name();
    let server = Socket::listen(&name);
    let mut port = Port::open(&format!("memif:{name}?rings-in=9&ring=16&secret=hush&id=7"));
    let socket = server.accept().unwrap();
    socket.send(&hello(), &[]);
    port.settle();
    // Two inbound rings of nine requested: the limit of the server.
    for (kind, fds) in [(3, 0), (4, 1), (5, 1), (5, 1), (5, 1), (6, 0)] {
        let (bytes, passed) = socket.receive().expect("a message");
        assert_eq!((u16::from(bytes[0]), passed.len(), bytes.len()), (kind, fds, 128));
        if kind == 3 {
            assert_eq!((&bytes[4..9], &bytes[9..14]), (&[7, 0, 0, 0, 0][..], &b"hush\0"[..]));
        }
        assert!(socket.receive().is_none(), "the client does not wait");
        socket.send(&if kind == 6 { connected() } else { ack() }, &[]);
        port.settle();
    }
    assert!(port.step().unwrap().is_empty());
}

#[test]
fn rejection_by_the_server_is_the_error_of_the_client() {
    let name = name();
    let server = Socket::listen(&name);
    let mut port = open_rx(&Spec::parse(&format!("memif:{name}?secret=hush")).unwrap(), &RxOptions::default()).unwrap();
    let socket = server.accept().unwrap();
    socket.send(&message(8, &[(6, b"Incorrect secret")]), &[]);
    let mut time = linerate_engine::clock::now();
    let error = (0..10).find_map(|_| {
        time = time.after(std::time::Duration::from_millis(1));
        port.queues[0].fill(time).err()
    });
    let Some(PortError::Broken { port, reason }) = error else { panic!("{error:?}") };
    assert_eq!(reason, "refused by the server: Incorrect secret");
    assert!(port.contains("secret=..."), "{port}");
}

/// The memory of a client is sealed, as the region of these tests is.
#[test]
fn memory_of_a_client_is_sealed() {
    let name = name();
    let server = Socket::listen(&name);
    let mut port = Port::open(&format!("memif:{name}"));
    let socket = server.accept().unwrap();
    socket.send(&hello(), &[]);
    port.settle();
    assert_eq!(socket.kind(), Some(3));
    socket.send(&ack(), &[]);
    port.settle();
    let (_, fds) = socket.receive().unwrap();
    let seals = rustix::fs::fcntl_get_seals(&fds[0]).unwrap();
    assert!(seals.contains(rustix::fs::SealFlags::SHRINK));
    assert_eq!(rustix::fs::ftruncate(&fds[0], 0), Err(rustix::io::Errno::PERM));
    let other = memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
    assert!(!rustix::fs::fcntl_get_seals(&other).unwrap().contains(rustix::fs::SealFlags::SHRINK));
    assert_eq!(SLOTS, 8);
}
