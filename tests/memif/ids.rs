//! Several interfaces on one socket: a client selects one by ID; clients without a valid INIT block no other client.

use super::peer::{Client, Port, RINGS, Socket, add_region, frame, hello, init, name};
use linerate_backends::open_rx;
use linerate_burst::{Block, Count, Desc, Nanos};
use linerate_port::{RxOptions, Spec};
use linerate_tests::support::Scratch;
use std::os::unix::fs::FileTypeExt;

const IDS: [u32; 3] = [0, 7, u32::MAX];

fn open(name: &str) -> Vec<Port> {
    IDS.iter().map(|id| Port::open(&format!("memif:{name}?role=server&id={id}"))).collect()
}

fn settle(ports: &mut [Port]) {
    (0..3).for_each(|_| ports.iter_mut().for_each(Port::settle));
}

fn refused(ports: &[Port]) -> u64 {
    ports.iter().map(|port| port.count(Count::PeerRefused)).sum()
}

/// Checks that frames of each client reach its own port and no other, in both directions.
fn assert_joined(ports: &mut [Port], clients: &[(usize, Client)]) {
    for (at, client) in clients {
        let outgoing = frame(*at as u8, 60 + at);
        client.memory.head(RINGS[0], client.memory.frame(client.memory.half(RINGS[0] + 6), &outgoing));
        for (other, port) in ports.iter_mut().enumerate() {
            let received = port.step().unwrap();
            assert_eq!(received, vec![outgoing.clone(); usize::from(other == *at)], "{other} of {at}");
        }
        let before = client.memory.half(RINGS[1] + 64);
        let mut back = Block::new(1 << 16, 1);
        assert!(back.push(&Desc::new(Nanos(1), 0, 70), &frame(9, 70)));
        assert_eq!(ports[*at].tx.queues[0].send(back.burst()).unwrap(), 1);
        let tails = clients.iter().map(|(_, client)| client.memory.half(RINGS[1] + 64));
        assert_eq!((client.memory.half(RINGS[1] + 64), tails.count()), (before.wrapping_add(1), clients.len()));
    }
}

#[test]
fn client_connects_to_the_interface_that_it_names() {
    let name = name();
    let mut ports = open(&name);
    let mut clients: Vec<(usize, Client)> = Vec::new();
    for at in [2, 0, 1] {
        clients.push((at, Client::connected_to(&name, IDS[at], || settle(&mut ports))));
    }
    assert_joined(&mut ports, &clients);
    // An ID in use, an unknown ID, and first messages other than INIT.
    for (message, reason) in [
        (init(0x200, 7, 0, b""), "already connected"),
        (init(0x200, 8, 0, b""), "ID not found"),
        (add_region(0, 4096), "the first message is not INIT"),
        (hello(), "the first message is not INIT"),
        (vec![3; 127], "message length is not 128 bytes"),
    ] {
        let wrong = Socket::connect(&name);
        settle(&mut ports);
        wrong.send(&message, &[]);
        settle(&mut ports);
        assert_eq!(wrong.closing_reason(), reason);
    }
    assert_eq!(refused(&ports), 5);
    assert_joined(&mut ports, &clients);
    // A client that disconnects frees its own interface, and no other.
    clients.remove(1);
    settle(&mut ports);
    clients.push((0, Client::connected_to(&name, 0, || settle(&mut ports))));
    assert_joined(&mut ports, &clients);
    // The socket stays open when the first port is closed.
    drop(clients);
    ports.remove(0);
    settle(&mut ports);
    let client = (0, Client::connected_to(&name, 7, || settle(&mut ports)));
    assert_joined(&mut ports, &[client]);
}

/// More silent connections than the limit: the oldest are closed, and a client that sends INIT is accepted.
#[test]
fn silent_connections_block_no_client() {
    let name = name();
    let mut ports = open(&name);
    let silent: Vec<Socket> = (0..40)
        .map(|_| {
            let socket = Socket::connect(&name);
            settle(&mut ports);
            assert_eq!(socket.kind(), Some(2), "no hello");
            socket
        })
        .collect();
    let client = (1, Client::connected_to(&name, 7, || settle(&mut ports)));
    assert_joined(&mut ports, &[client]);
    assert_eq!(silent[0].closing_reason(), "no INIT before newer connections arrived");
    // The accepted client displaced one more.
    assert_eq!(refused(&ports), 40 + 1 - 16);
}

#[test]
fn ports_share_one_socket_file_until_the_last_is_closed() {
    let scratch = Scratch::new();
    let path = scratch.file("x.sock");
    let mut ports = open(&path);
    let is_there = || std::fs::symlink_metadata(&path).is_ok_and(|file| file.file_type().is_socket());
    let spec = |text: &str| Spec::parse(&format!("memif:{path}?role=server&id=3{text}")).unwrap();
    for other in ["&rings-in=2", "&users=65534"] {
        let error = open_rx(&spec(other), &RxOptions::default()).err().expect("refused").to_string();
        assert!(error.contains("another id of its socket is open with other users="), "{error}");
    }
    // Linerate clients at the other end, one per ID.
    let mut clients: Vec<Port> = IDS.iter().map(|id| Port::open(&format!("memif:{path}?id={id}"))).collect();
    for _ in 0..20 {
        settle(&mut ports);
        settle(&mut clients);
    }
    for (at, client) in clients.iter_mut().enumerate() {
        let mut block = Block::new(1 << 16, 1);
        assert!(block.push(&Desc::new(Nanos(1), 0, 64), &frame(at as u8, 64)));
        assert_eq!(client.tx.queues[0].send(block.burst()).unwrap(), 1, "{at}");
    }
    for (at, port) in ports.iter_mut().enumerate() {
        assert_eq!(port.step().unwrap(), [frame(at as u8, 64)]);
    }
    while let Some(port) = ports.pop() {
        assert!(is_there(), "{} are open", ports.len() + 1);
        drop(port);
    }
    assert!(!is_there());
}
