//! Several interfaces behind one socket: a client says which one it is for, and who says nothing, or nonsense, holds nobody up.

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

/// Frames of each go to its own and nowhere else, both ways.
fn assert_joined(ports: &mut [Port], clients: &[(usize, Client)]) {
    for (at, client) in clients {
        let there = frame(*at as u8, 60 + at);
        client.memory.head(RINGS[0], client.memory.frame(client.memory.half(RINGS[0] + 6), &there));
        for (other, port) in ports.iter_mut().enumerate() {
            let came = port.step().unwrap();
            assert_eq!(came, vec![there.clone(); usize::from(other == *at)], "{other} of {at}");
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
fn a_client_is_of_the_interface_that_it_names() {
    let name = name();
    let mut ports = open(&name);
    let mut clients: Vec<(usize, Client)> = Vec::new();
    for at in [2, 0, 1] {
        clients.push((at, Client::connected_to(&name, IDS[at], || settle(&mut ports))));
    }
    assert_joined(&mut ports, &clients);
    // An id that is taken, one that there is not, and a first message that is no INIT.
    for (said, reason) in [
        (init(0x200, 7, 0, b""), "already connected"),
        (init(0x200, 8, 0, b""), "ID not found"),
        (add_region(0, 4096), "the first message is not INIT"),
        (hello(), "the first message is not INIT"),
        (vec![3; 127], "message length is not 128 bytes"),
    ] {
        let wrong = Socket::connect(&name);
        settle(&mut ports);
        wrong.say(&said, &[]);
        settle(&mut ports);
        assert_eq!(wrong.farewell(), reason);
    }
    assert_eq!(refused(&ports), 5);
    assert_joined(&mut ports, &clients);
    // One that goes leaves room for the next, and its interface alone.
    clients.remove(1);
    settle(&mut ports);
    clients.push((0, Client::connected_to(&name, 0, || settle(&mut ports))));
    assert_joined(&mut ports, &clients);
    // Whoever listens goes on listening when the first of them has gone.
    drop(clients);
    ports.remove(0);
    settle(&mut ports);
    let client = (0, Client::connected_to(&name, 7, || settle(&mut ports)));
    assert_joined(&mut ports, &[client]);
}

/// More than have room, who say nothing: the first of them go, and one that says whom it is for is let in.
#[test]
fn who_says_nothing_holds_nobody_up() {
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
    assert_eq!(silent[0].farewell(), "no INIT before newer connections arrived");
    // One more than these made room as well.
    assert_eq!(refused(&ports), 40 + 1 - 16);
}

#[test]
fn they_have_one_file_which_goes_with_the_last() {
    let scratch = Scratch::new();
    let path = scratch.file("x.sock");
    let mut ports = open(&path);
    let is_there = || std::fs::symlink_metadata(&path).is_ok_and(|file| file.file_type().is_socket());
    let spec = |text: &str| Spec::parse(&format!("memif:{path}?role=server&id=3{text}")).unwrap();
    for other in ["&rings-in=2", "&users=65534"] {
        let error = open_rx(&spec(other), &RxOptions::default()).err().expect("refused").to_string();
        assert!(error.contains("another id of its socket is open with other users="), "{error}");
    }
    // Ours at the other end, each with its own.
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
