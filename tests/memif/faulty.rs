//! Faults of DPDK, each reproduced from a fixed schedule by an otherwise correct client.

use super::peer::{BUFFER, BUFFERS, Client, Memory, NEXT, Port, RINGS, SLOTS, frame, name};
use linerate_burst::{Block, Count, Desc, Flags, Nanos};
use linerate_port::PortError;
use linerate_tests::support::wait_until;

fn connected_pair(options: &str) -> (Port, Client) {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server{options}"));
    let client = Client::connected(&name, &mut port);
    (port, client)
}

/// Sends frames of these lengths; the first descriptor of each keeps its previous NEXT flag (DPDK up to 25.11).
fn send_stale(client: &Client, port: &mut Port, lengths: &[usize]) -> Vec<Vec<u8>> {
    let (mut slot, mut got) = (0u16, Vec::new());
    for (index, length) in lengths.iter().enumerate() {
        let before = client.memory.length(RINGS[0], slot).1;
        let next = client.memory.frame(slot, &frame(index as u8, *length));
        let (length, flags) = client.memory.length(RINGS[0], slot);
        let offset = BUFFERS[0] + u32::from(slot % SLOTS) * BUFFER;
        client.memory.desc(RINGS[0], slot, (flags | before & NEXT, 0, length, offset));
        slot = next;
        client.memory.head(RINGS[0], slot);
        got.extend(port.step().unwrap());
    }
    got
}

/// A frame continues only after a full buffer.
#[test]
fn stale_next_flag_joins_no_frames() {
    let lengths: Vec<usize> = (0..200).map(|number| [60, 700, 255, 1500, 257, 90][number % 6]).collect();
    let sent: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(index, length)| frame(index as u8, *length)).collect();
    let (mut port, client) = connected_pair("");
    assert!(send_stale(&client, &mut port, &lengths) == sent, "frames were joined or lost");
    assert!(port.count(Count::StaleNext) > 20, "no fault was reproduced: {:?}", port.ledger());
    assert!(port.count(Count::Joined) > 50);
    assert_eq!(port.ledger().lost(), 0);
    // With all flags trusted, the result is invalid without the rule.
    let (mut port, client) = connected_pair("&chains=any");
    assert!(send_stale(&client, &mut port, &lengths) != sent, "the schedule reproduces no fault");
}

/// A client sends right after CONNECTED: its buffer lengths were read before.
#[test]
fn frames_right_after_connecting_are_not_joined() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server"));
    let client = Client::connected_by(&name, &mut port, Port::service);
    let lengths = [60, 1500, 60, 700].repeat(20);
    let sent: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(index, length)| frame(index as u8, *length)).collect();
    assert!(send_stale(&client, &mut port, &lengths) == sent, "frames were joined or lost");
    assert!(port.count(Count::StaleNext) > 10, "no fault was reproduced: {:?}", port.ledger());
}

/// A client may post its buffers in parts: a frame that needs more than are posted waits for them.
#[test]
fn frame_waits_for_buffers_that_are_posted_later() {
    let (mut port, client) = connected_pair("");
    client.memory.head(RINGS[1], 2);
    let mut block = Block::new(1 << 16, 4);
    for length in [700, 60, SLOTS as usize * BUFFER as usize + 1, 61] {
        assert!(block.push(&Desc::new(Nanos(1), 0, length as u32), &frame(7, length)));
    }
    let queue = &mut port.tx.queues[0];
    assert_eq!(queue.send(block.burst()).unwrap(), 0);
    client.memory.head(RINGS[1], SLOTS);
    assert_eq!(queue.send(block.burst()).unwrap(), 2);
    // After the client read both: an empty ring, too small for the third frame.
    client.memory.head(RINGS[1], SLOTS + 4);
    assert_eq!(queue.send(block.burst().slice(2..4)).unwrap(), 2);
    assert_eq!((port.count(Count::Sent), port.count(Count::TooLong)), (3, 1), "{:?}", port.ledger());
    // A client that never posts more than two buffers does not block the sender.
    let (mut port, client) = connected_pair("");
    client.memory.head(RINGS[1], 2);
    wait_until("the sender gives up on the frame", || port.tx.queues[0].send(block.burst().slice(0..2)).unwrap() == 2);
    assert_eq!((port.count(Count::Sent), port.count(Count::TooLong)), (1, 1), "{:?}", port.ledger());
}

/// A chain that starts in the last free slot lets the writer pass the reader (DPDK up to 26.07, VPP before 2026-05).
#[test]
fn overwritten_ring_is_not_read() {
    let (mut port, client) = connected_pair("");
    let mut slot = 0;
    for _ in 0..SLOTS - 1 {
        slot = client.memory.frame(slot, &frame(1, 60));
    }
    // Four slots, with one free.
    slot = client.memory.frame(slot, &frame(2, 1000));
    assert_eq!(slot, SLOTS + 3);
    client.memory.head(RINGS[0], slot);
    assert_eq!(port.step().unwrap(), Vec::<Vec<u8>>::new());
    assert_eq!(port.count(Count::PeerOverrun), u64::from(SLOTS));
    assert_eq!(client.memory.half(RINGS[0] + 64), slot, "reading continues at the writer's position");
    slot = client.memory.frame(slot, &frame(3, 300));
    client.memory.head(RINGS[0], slot);
    assert_eq!(port.step().unwrap(), [frame(3, 300)]);
    assert_eq!(port.ledger().losses(), [(Count::PeerOverrun, u64::from(SLOTS))]);
}

/// An incomplete chain is dropped as a bad frame; later frames are received.
#[test]
fn chain_without_an_end_is_a_bad_frame() {
    let (mut port, client) = connected_pair("");
    client.memory.desc(RINGS[0], 0, (NEXT, 0, BUFFER, BUFFERS[0]));
    client.memory.head(RINGS[0], 1);
    assert!(port.step().unwrap().is_empty());
    client.memory.head(RINGS[0], client.memory.frame(1, &frame(4, 60)));
    assert_eq!(port.step().unwrap(), [frame(4, 60)]);
    assert_eq!(port.ledger().losses(), [(Count::BadDesc, 1)]);
    // Empty, in an unknown region, past the end of a region, offset overflow, length overflow.
    let invalid =
        [(0, 0, 0, BUFFERS[0]), (0, 1, 60, 0), (0, 0, 60, 16384 - 59), (0, 0, 60, u32::MAX - 30), (0, 0, u32::MAX, 1)];
    for (index, desc) in invalid.into_iter().enumerate() {
        let slot = 2 + 2 * index as u16;
        client.memory.desc(RINGS[0], slot, desc);
        client.memory.head(RINGS[0], client.memory.frame(slot + 1, &frame(5, 61)));
        assert_eq!(port.step().unwrap(), [frame(5, 61)], "{desc:?}");
    }
    assert_eq!(port.count(Count::BadDesc), 1 + invalid.len() as u64);
}

/// A peer that disconnects removes no memory in use: its packets are received, then the port reports link down, once.
#[test]
fn frames_of_a_disconnected_peer_are_received_first() {
    let (mut port, client) = connected_pair("");
    let next = (0..5).fold(0, |slot, number| client.memory.frame(slot, &frame(number, 64)));
    client.memory.head(RINGS[0], next);
    drop(client);
    let mut got = Vec::new();
    let mut link_downs = 0;
    for _ in 0..10 {
        match port.step() {
            Ok(frames) => got.extend(frames),
            Err(PortError::Down { .. }) => link_downs += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((got.len(), link_downs, port.count(Count::LinkDown)), (5, 1, 1));
}

/// Frames unread by a disconnected peer are counted as lost, exactly.
#[test]
fn frames_unread_by_a_peer_are_counted_as_lost() {
    let (mut port, client) = connected_pair("");
    let mut block = Block::new(1 << 16, 6);
    for number in 0..6 {
        // Alternately one and two buffers.
        let bytes = frame(number, if number % 2 == 0 { 100 } else { 400 });
        assert!(block.push(&Desc::new(Nanos(1), 0, bytes.len() as u32), &bytes));
    }
    // All six need nine slots of eight: five are sent.
    assert_eq!(port.tx.queues[0].send(block.burst()).unwrap(), 5);
    assert_eq!(client.memory.half(RINGS[1] + 64), 7);
    // Two frames are read, and their three slots posted again.
    client.memory.head(RINGS[1], SLOTS + 3);
    drop(client);
    port.settle();
    let sent = port.tx.queues[0].send(block.burst());
    assert!(matches!(sent, Err(PortError::Down { .. })), "{sent:?}");
    let ledger = port.ledger();
    assert_eq!((ledger.total(Count::Sent), ledger.total(Count::SendPeerGone)), (2, 3), "{ledger:#?}");
    assert_eq!(port.tx.queues[0].sent().frames, 2);
}

/// Chains of a zero-copy client may have buffers of any length.
#[test]
fn zero_copy_client_may_chain_buffers_of_any_length() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server"));
    let memory = Memory::new(true);
    // Its descriptors announce no buffer lengths.
    (0..SLOTS).for_each(|slot| memory.desc(RINGS[0], slot, (0, 0, 0, 0)));
    let client = super::peer::Client::new(&name, memory);
    port.settle();
    client.socket.kind();
    for (bytes, fds) in client.steps() {
        client.socket.send(&bytes, &fds);
        port.settle();
        assert!(matches!(client.socket.kind(), Some(1 | 7)));
    }
    client.memory.put(8000, &frame(1, 70));
    client.memory.put(9000, &frame(2, 13));
    client.memory.desc(RINGS[0], 0, (NEXT, 0, 70, 8000));
    client.memory.desc(RINGS[0], 1, (0, 0, 13, 9000));
    client.memory.head(RINGS[0], 2);
    assert_eq!(port.step().unwrap(), [[frame(1, 70), frame(2, 13)].concat()]);
    client.memory.desc(RINGS[0], 2, (0, 0, 70, 8000));
    client.memory.head(RINGS[0], 3);
    let head = port.rx.queues[0].fill(linerate_engine::clock::now()).unwrap();
    assert_eq!(head.burst.descs()[0].flags, Flags::NONE);
    assert_eq!(client.memory.half(RINGS[0] + 4), 1, "an awake reader masks interrupts");
}
