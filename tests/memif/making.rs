//! What is wrong with a connection while it is made: each way is refused with a reason, counted, and the next one gets in.

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

/// What a client does, and what it is told.
type Wrong = (&'static str, fn(&Client) -> Vec<(Vec<u8>, usize)>, &'static str);

/// Descriptors that a step hands over, by their number: none, the region, a bell, two of them, a file that is no bell.
fn hand(client: &Client, what: usize, file: &OwnedFd) -> Vec<OwnedFd> {
    let copy = |fd: &OwnedFd| fd.try_clone().unwrap();
    match what {
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
    ("no such kind", |_| vec![(message(9, &[]), 0)], "unknown message type"),
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
    ("regions beyond what is taken", |_| mapped(vec![(add_region(1, 1 << 30), 1)]), "more memory"),
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
    ("a ring without a bell", |_| mapped(vec![(add_ring(true, 0, 0, 0, LOG2), 0)]), "number of descriptors"),
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
fn a_client_that_breaks_a_rule_is_told_which_and_the_next_one_gets_in() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server"));
    let file = OwnedFd::from(File::open("/proc/self/exe").unwrap());
    for (index, (what, says, told)) in WRONG.iter().enumerate() {
        let client = Client::new(&name, Memory::new(true));
        port.settle();
        assert_eq!(client.socket.kind(), Some(2), "{what}: no hello");
        for (bytes, given) in says(&client) {
            let fds = hand(&client, given, &file);
            client.socket.say(&bytes, &fds.iter().map(AsFd::as_fd).collect::<Vec<_>>());
            port.settle();
        }
        let said = client.socket.farewell();
        assert!(said.contains(told), "{what}: told {said:?}, not {told:?}");
        assert_eq!(port.count(Count::PeerRefused), index as u64 + 1, "{what}");
    }
    let ledger = port.ledger();
    assert!(ledger.details().iter().any(|detail| detail.name == "refused: ID not found" && detail.value == 1));
    let client = Client::connected(&name, &mut port);
    client.memory.head(RINGS[0], client.memory.frame(0, &frame(1, 60)));
    assert_eq!(port.step().unwrap(), [frame(1, 60)]);
}

#[test]
fn a_client_that_goes_at_any_step_makes_room() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server"));
    for steps in 0..=5 {
        let client = Client::new(&name, Memory::new(true));
        port.settle();
        for (bytes, fds) in client.steps().iter().take(steps) {
            client.socket.say(bytes, fds);
            port.settle();
        }
        drop(client);
        port.settle();
    }
    Client::connected(&name, &mut port);
    assert_eq!(port.count(Count::PeerRefused), 0, "whoever goes breaks no rule");
}

#[test]
fn a_second_client_and_one_without_the_secret_are_refused() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server&secret=hush"));
    for (secret, told) in [(&b""[..], "secret required"), (b"hus", "incorrect secret"), (b"hush!", "incorrect secret")]
    {
        let client = Client::new(&name, Memory::new(true));
        port.settle();
        client.socket.say(&init(0x200, 0, 0, secret), &[]);
        port.settle();
        assert_eq!(client.socket.farewell(), told);
    }
    let client = Client::new(&name, Memory::new(true));
    port.settle();
    assert_eq!(client.socket.kind(), Some(2));
    client.socket.say(&init(0x200, 0, 0, b"hush"), &[]);
    port.settle();
    assert_eq!(client.socket.kind(), Some(1));
    let other = Socket::connect(&name);
    port.settle();
    assert_eq!(other.farewell(), "already connected");
}

#[test]
fn a_region_of_pages_that_may_go_is_taken_from_whom_is_trusted() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server&trust=yes"));
    let client = Client::new(&name, Memory::new(false));
    port.settle();
    assert_eq!(client.socket.kind(), Some(2));
    for (bytes, fds) in client.steps() {
        client.socket.say(&bytes, &fds);
        port.settle();
        assert!(matches!(client.socket.kind(), Some(1 | 7)));
    }
}

/// A peer that shares without a copy learns what to set, as far as a message has room; whoever watches learns it at length, by news.
#[test]
fn memory_that_may_go_is_refused_with_what_to_set() {
    let name = name();
    let news = linerate_port::news::listen();
    let mut port = Port::open(&format!("memif:{name}?role=server&secret=hush"));
    let client = Client::new(&name, Memory::new(false));
    port.settle();
    client.socket.say(&init(0x200, 0, 0, b"hush"), &[]);
    port.settle();
    let (bytes, fds) = client.steps().swap_remove(1);
    client.socket.say(&bytes, &fds);
    port.settle();
    assert_eq!(client.socket.kind(), Some(2));
    assert_eq!(client.socket.kind(), Some(1));
    let told = client.socket.farewell();
    assert!(told.contains("no-zero-copy") && told.ends_with("trust=yes"), "{told}");
    let said: Vec<String> = news.try_iter().filter(|said| said.contains(&name)).collect();
    let [said] = &said[..] else { panic!("{said:?}") };
    for part in ["secret=...", "peer rejected", "no-zero-copy (VPP)", "zero-copy=no (DPDK)", "trust=yes"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Others may knock at a socket that is for them too, whatever the mask of this process.
#[test]
fn the_file_of_a_socket_for_others_lets_them_knock() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = linerate_tests::support::Scratch::new();
    let path = scratch.file("m.sock");
    let port = Port::open(&format!("memif:{path}?role=server&users=65534"));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    drop(port);
    assert!(scratch.names().is_empty(), "the socket stays");
}

/// What a server does wrong once it has a client that listens, and what that tells it.
#[test]
fn a_server_that_breaks_a_rule_is_told_which() {
    let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let fd = || vec![bell.as_fd()];
    let mut none = hello();
    none[44] = 0;
    let other = message(2, &[(34, &0x300u16.to_ne_bytes()), (36, &0x3ffu16.to_ne_bytes()), (44, &[14])]);
    for (what, says, told) in [
        ("an ACK first", vec![(ack(), vec![])], "unexpected message"),
        ("hello twice", vec![(hello(), vec![]), (hello(), vec![])], "unexpected message"),
        ("a hello with a descriptor", vec![(hello(), fd())], "number of descriptors"),
        ("another version", vec![(other, vec![])], "no common version"),
        ("rings of nothing", vec![(none, vec![])], "without descriptors"),
        ("connected too early", vec![(hello(), vec![]), (connected(), vec![])], "unexpected message"),
        ("an INIT", vec![(init(0x200, 0, 0, b""), vec![])], "unexpected message"),
        ("ACKs without end", [vec![(hello(), vec![])], vec![(ack(), vec![]); 9]].concat(), "unexpected ACK"),
        ("100 bytes", vec![(hello()[..100].to_vec(), vec![])], "128 bytes"),
    ] {
        let name = name();
        let server = Socket::listen(&name);
        let mut port = Port::open(&format!("memif:{name}"));
        let socket = server.accept().expect("it connects as it opens");
        for (bytes, fds) in says {
            socket.say(&bytes, &fds);
            port.settle();
        }
        let said = socket.farewell();
        assert!(said.contains(told), "{what}: told {said:?}, not {told:?}");
        assert_eq!(port.count(Count::PeerRefused), 1, "{what}");
    }
}

#[test]
fn a_client_says_what_it_has_in_order_and_waits_for_each_answer() {
    let name = name();
    let server = Socket::listen(&name);
    let mut port = Port::open(&format!("memif:{name}?rings-in=9&ring=16&secret=hush&id=7"));
    let socket = server.accept().unwrap();
    socket.say(&hello(), &[]);
    port.settle();
    // Two rings in, of the nine it would like: the server has no more.
    for (kind, fds) in [(3, 0), (4, 1), (5, 1), (5, 1), (5, 1), (6, 0)] {
        let (bytes, handed) = socket.hear().expect("a message");
        assert_eq!((u16::from(bytes[0]), handed.len(), bytes.len()), (kind, fds, 128));
        if kind == 3 {
            assert_eq!((&bytes[4..9], &bytes[9..14]), (&[7, 0, 0, 0, 0][..], &b"hush\0"[..]));
        }
        assert!(socket.hear().is_none(), "it does not wait");
        socket.say(&if kind == 6 { connected() } else { ack() }, &[]);
        port.settle();
    }
    assert!(port.step().unwrap().is_empty());
}

#[test]
fn what_a_server_refuses_a_client_with_is_its_error() {
    let name = name();
    let server = Socket::listen(&name);
    let mut port = open_rx(&Spec::parse(&format!("memif:{name}?secret=hush")).unwrap(), &RxOptions::default()).unwrap();
    let socket = server.accept().unwrap();
    socket.say(&message(8, &[(6, b"Incorrect secret")]), &[]);
    let mut time = linerate_engine::clock::now();
    let error = (0..10).find_map(|_| {
        time = time.after(std::time::Duration::from_millis(1));
        port.queues[0].fill(time).err()
    });
    let Some(PortError::Broken { port, reason }) = error else { panic!("{error:?}") };
    assert_eq!(reason, "refused by the server: Incorrect secret");
    assert!(port.contains("secret=..."), "{port}");
}

/// The tests' own region is like real ones, and the memory of a client nobody can cut off.
#[test]
fn the_memory_of_a_client_is_sealed() {
    let name = name();
    let server = Socket::listen(&name);
    let mut port = Port::open(&format!("memif:{name}"));
    let socket = server.accept().unwrap();
    socket.say(&hello(), &[]);
    port.settle();
    assert_eq!(socket.kind(), Some(3));
    socket.say(&ack(), &[]);
    port.settle();
    let (_, fds) = socket.hear().unwrap();
    let seals = rustix::fs::fcntl_get_seals(&fds[0]).unwrap();
    assert!(seals.contains(rustix::fs::SealFlags::SHRINK));
    assert_eq!(rustix::fs::ftruncate(&fds[0], 0), Err(rustix::io::Errno::PERM));
    let other = memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
    assert!(!rustix::fs::fcntl_get_seals(&other).unwrap().contains(rustix::fs::SealFlags::SHRINK));
    assert_eq!(SLOTS, 8);
}
