//! Arbitrary writes of a peer to the shared memory: any bytes anywhere, positions that jump. Nothing panics or hangs,
//! the output is bounded, every slot is accounted for, and a correct client works afterwards.

use super::peer::{
    BUFFER, BUFFERS, Client, LOG2, Memory, NEXT, Port, REGION, RINGS, SLOTS, Socket, ack, add_region, add_ring,
    connect_message, connected, frame, hello, init, name,
};
use linerate_burst::random;
use linerate_burst::{Block, Count, Desc, Nanos};
use linerate_port::PortError;
use linerate_tests::support::wait_until;
use std::os::fd::{AsFd, OwnedFd};

/// Random numbers with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        random::next(&mut self.0)
    }
}

/// Number of random rounds.
const ROUNDS: usize = 3000;

/// Server at the other end; tests write to the memory that its client created.
struct Server {
    socket: Socket,
    memory: Memory,
    /// Offsets of the rings in the memory: out, in.
    rings: [u32; 2],
    _bells: Vec<OwnedFd>,
}

impl Server {
    /// Accepts a port whose rings have `SLOTS` descriptors.
    fn connected(name: &str) -> (Server, Port) {
        let listener = Socket::listen(name);
        let mut port = Port::open(&format!("memif:{name}?ring={SLOTS}&buffer={BUFFER}"));
        let socket = listener.accept().unwrap();
        socket.send(&hello(), &[]);
        let (mut memory, mut bells, mut rings) = (None, Vec::new(), Vec::new());
        loop {
            port.settle();
            let (bytes, mut fds) = socket.receive().expect("a message");
            match bytes[0] {
                4 => memory = fds.pop(),
                5 => {
                    bells.extend(fds);
                    rings.push(u32::from_ne_bytes(bytes[8..12].try_into().unwrap()));
                }
                6 => break,
                _ => {}
            }
            socket.send(&ack(), &[]);
        }
        socket.send(&connected(), &[]);
        port.settle();
        let server =
            Server { socket, memory: Memory(memory.unwrap()), rings: rings.try_into().unwrap(), _bells: bells };
        (server, port)
    }
}

fn block(frames: &[Vec<u8>]) -> Block {
    let mut block = Block::new(1 << 20, frames.len());
    frames.iter().for_each(|frame| assert!(block.push(&Desc::new(Nanos(1), 0, frame.len() as u32), frame)));
    block
}

#[test]
fn random_descriptors_and_positions_of_a_client_are_harmless() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server"));
    let mut client = Client::connected(&name, &mut port);
    let mut random = Random(17);
    let frames = block(&(0..20).map(|first| frame(first, 60 + 100 * usize::from(first))).collect::<Vec<_>>());
    let mut disconnects = 0;
    for round in 0..ROUNDS {
        for _ in 0..1 + random.next() % 8 {
            let word = random.next().to_ne_bytes();
            let ring = RINGS[(random.next() % 2) as usize];
            match random.next() % 6 {
                // Random bytes in descriptors, then nearly valid ones.
                0 => client.memory.put(ring + 128 + (random.next() % (16 * u64::from(SLOTS) - 8)) as u32, &word),
                1 => {
                    let offset =
                        [0, BUFFERS[0], REGION as u32 - 1, REGION as u32, u32::MAX][(random.next() % 5) as usize];
                    let length = [0, 1, BUFFER, BUFFER + 1, u32::MAX][(random.next() % 5) as usize];
                    let region = random.next().is_multiple_of(8).into();
                    client.memory.desc(
                        ring,
                        random.next() as u16,
                        (random.next() as u16 & NEXT, region, length, offset),
                    );
                }
                2 => client.memory.head(ring, random.next() as u16),
                3 => client.memory.tail(ring, random.next() as u16),
                4 => client.memory.put(ring, &word),
                _ => {
                    client.memory.head(ring, client.memory.half(ring + 6).wrapping_add(1 + (random.next() % 8) as u16))
                }
            }
        }
        if let Ok(shown) = port.step() {
            assert!(shown.len() <= usize::from(SLOTS), "{} frames of {SLOTS} slots", shown.len());
        }
        let sent = port.tx.queues[0].send(frames.burst().slice(round % 10..20));
        assert!(matches!(sent, Ok(_) | Err(PortError::Down { .. })), "{sent:?}");
        let _ = port.rx.queues[0].wake();
        if client.socket.kind().is_some_and(|kind| kind == 8 || kind == 0) {
            // The client was disconnected, since sending to it showed a violation.
            disconnects += 1;
            drop(client);
            port.settle();
            client = Client::connected(&name, &mut port);
        }
    }
    assert!(
        disconnects > 10 && port.count(Count::BadDesc) > 100 && port.count(Count::PeerOverrun) > 100,
        "{:?}",
        port.ledger()
    );
    assert_works(client, &name, &mut port);
}

/// A position is two bytes written by the peer: for any value, at most one ring of frames is counted as lost.
#[test]
fn one_poll_counts_at_most_one_ring_of_lost_frames() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server"));
    let client = Client::connected(&name, &mut port);
    for (polls, ahead) in [SLOTS + 1, u16::MAX / 2, u16::MAX].into_iter().enumerate() {
        let next = client.memory.half(RINGS[0] + 64);
        client.memory.head(RINGS[0], next.wrapping_add(ahead));
        assert!(port.step().unwrap().is_empty());
        let lost = (polls as u64 + 1) * u64::from(SLOTS);
        assert_eq!((port.count(Count::PeerOverrun), port.count(Count::Received)), (lost, lost), "{ahead} ahead");
    }
    assert_works(client, &name, &mut port);
}

/// Random bytes in headers and descriptors, between any two polls.
#[test]
fn random_bytes_of_a_server_are_harmless() {
    let name = name();
    let (server, mut port) = Server::connected(&name);
    let mut random = Random(5);
    let frames = block(&(0..20).map(|first| frame(first, 60 + 100 * usize::from(first))).collect::<Vec<_>>());
    let mut disconnected = 0;
    for _ in 0..ROUNDS {
        let ring = server.rings[(random.next() % 2) as usize];
        match random.next() % 4 {
            0 => server
                .memory
                .put(ring + (random.next() % (120 + 16 * u64::from(SLOTS))) as u32, &random.next().to_ne_bytes()),
            1 => server.memory.tail(ring, random.next() as u16),
            2 => server.memory.head(ring, random.next() as u16),
            _ => server.memory.tail(ring, server.memory.half(ring + 64).wrapping_add(1)),
        }
        if let Ok(shown) = port.step() {
            assert!(shown.len() <= usize::from(SLOTS));
        }
        let sent = port.tx.queues[0].send(frames.burst());
        assert!(matches!(sent, Ok(_) | Err(PortError::Down { .. })), "{sent:?}");
        let _ = port.rx.queues[0].wake();
        if server.socket.kind() == Some(8) {
            disconnected += 1;
            break;
        }
    }
    assert_eq!(disconnected, 1, "a server with an impossible position is disconnected");
    assert!(port.count(Count::PeerRefused) == 1);
}

/// A client keeps its own buffer offsets and ignores what the server writes there.
#[test]
fn server_cannot_move_the_buffers_of_its_client() {
    let name = name();
    let (server, mut port) = Server::connected(&name);
    let inward = server.rings[1];
    // Rings out and in with equal buffer counts; the buffers of the outbound ring are first.
    let buffers = 2 * (128 + 16 * u32::from(SLOTS)) + u32::from(SLOTS) * BUFFER;
    server.memory.put(buffers, &frame(9, 100));
    server.memory.desc(inward, 0, (0, 7, 100, u32::MAX));
    server.memory.tail(inward, 1);
    assert_eq!(port.step().unwrap(), [frame(9, 100)]);
    // Posted again with its original length.
    assert_eq!(server.memory.length(inward, 0), (BUFFER, 0));
    assert_eq!(server.memory.half(inward + 6), SLOTS + 1);
    server.memory.desc(inward, 1, (0, 0, BUFFER + 1, 0));
    server.memory.tail(inward, 2);
    assert_eq!((port.step().unwrap().len(), port.count(Count::BadDesc)), (0, 1));
}

#[test]
fn sleeping_peer_is_woken_only_by_its_eventfd() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server"));
    let client = Client::connected(&name, &mut port);
    let frames = block(&[frame(1, 60)]);
    let signals = || {
        let mut count = [0; 8];
        rustix::io::read(&client.bells[1], &mut count).is_ok().then(|| u64::from_ne_bytes(count))
    };
    client.memory.put(RINGS[1] + 4, &1u16.to_ne_bytes());
    assert_eq!(port.tx.queues[0].send(frames.burst()).unwrap(), 1);
    assert_eq!(signals(), None, "it is awake");
    client.memory.put(RINGS[1] + 4, &0u16.to_ne_bytes());
    assert_eq!(port.tx.queues[0].send(frames.burst()).unwrap(), 1);
    let mut rings = None;
    wait_until("the eventfd is signalled", || {
        rings = signals();
        rings.is_some()
    });
    assert_eq!(rings, Some(1));
    // A full, blocking eventfd does not block the sender.
    rustix::io::write(&client.bells[1], &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let flags = rustix::fs::fcntl_getfl(&client.bells[1]).unwrap();
    rustix::fs::fcntl_setfl(&client.bells[1], flags.difference(rustix::fs::OFlags::NONBLOCK)).unwrap();
    assert_eq!(port.tx.queues[0].send(frames.burst()).unwrap(), 1);
    assert_eq!(LOG2, 3);
}

/// Frames of two descriptors whose second one exceeds the limit are bad, but copied first: the bytes copied per poll
/// are bounded for any number of them.
#[test]
fn bytes_copied_per_poll_are_bounded_for_bad_frames() {
    const LOG2: u8 = 10;
    const SLOTS: u32 = 1 << LOG2;
    const BYTES: u64 = 1 << 20;
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server"));
    let memory = Memory::new(true);
    rustix::fs::ftruncate(&memory.0, BYTES).unwrap();
    memory.put(32768, &0x03E3_1F20u32.to_ne_bytes());
    // No descriptor announces its buffer length: any may continue in the next one.
    memory.put(128, &vec![0; 16 * SLOTS as usize]);
    let client = Client::new(&name, memory);
    port.settle();
    assert_eq!(client.socket.kind(), Some(2));
    let bells = client.bells.each_ref().map(|bell| bell.as_fd());
    for (bytes, fds) in [
        (init(0x200, 0, 0, b""), vec![]),
        (add_region(0, BYTES), vec![client.memory.0.as_fd()]),
        (add_ring(true, 0, 0, 0, LOG2), vec![bells[0]]),
        (add_ring(false, 0, 0, 32768, LOG2), vec![bells[1]]),
        (connect_message(), vec![]),
    ] {
        client.socket.send(&bytes, &fds);
        port.settle();
        assert!(matches!(client.socket.kind(), Some(1 | 7)));
    }
    for slot in 0..SLOTS {
        let (flags, length): (u16, u32) = if slot % 2 == 0 { (NEXT, 262_144) } else { (0, 1) };
        let bytes = [&flags.to_ne_bytes()[..], &[0; 2], &length.to_ne_bytes(), &65536u32.to_ne_bytes()].concat();
        client.memory.put(128 + 16 * slot, &bytes);
    }
    client.memory.head(0, SLOTS as u16);
    let mut before = 0;
    while before < SLOTS as u16 {
        assert_eq!(port.step().unwrap(), Vec::<Vec<u8>>::new());
        let read = client.memory.half(64);
        assert!(read > before && read - before <= 4, "{} descriptors after {before} in one poll", read - before);
        before = read;
    }
    assert_eq!(port.count(Count::BadDesc), u64::from(SLOTS) / 2);
}

/// Checks that a correct client of the same port still delivers a frame.
fn assert_works(client: Client, name: &str, port: &mut Port) {
    drop(client);
    port.settle();
    let client = Client::connected(name, port);
    client.memory.head(RINGS[0], client.memory.frame(0, &frame(3, 700)));
    assert_eq!(port.step().unwrap(), [frame(3, 700)]);
}
