//! The faults of DPDK, each played from a fixed schedule by a client that is honest otherwise.

use super::peer::{BUFFER, BUFFERS, Client, Memory, NEXT, Port, RINGS, SLOTS, frame, name};
use linerate_burst::{Block, Count, Desc, Flags, Nanos};
use linerate_port::PortError;
use linerate_tests::support::wait_until;

fn joined(options: &str) -> (Port, Client) {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server{options}"));
    let client = Client::connected(&name, &mut port);
    (port, client)
}

/// Sends frames of these lengths, the first descriptor of each keeping the mark that it had before (DPDK up to 25.11).
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

/// A frame goes on behind full buffers alone.
#[test]
fn a_mark_left_from_the_frame_before_glues_no_frames() {
    let lengths: Vec<usize> = (0..200).map(|number| [60, 700, 255, 1500, 257, 90][number % 6]).collect();
    let sent: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(index, length)| frame(index as u8, *length)).collect();
    let (mut port, client) = joined("");
    assert!(send_stale(&client, &mut port, &lengths) == sent, "frames were glued or lost");
    assert!(port.count(Count::StaleNext) > 20, "nothing was played: {:?}", port.ledger());
    assert!(port.count(Count::Joined) > 50);
    assert_eq!(port.ledger().lost(), 0);
    // The same, believed: what it would be without the rule.
    let (mut port, client) = joined("&chains=any");
    assert!(send_stale(&client, &mut port, &lengths) != sent, "the schedule plays no fault");
}

/// A client sends as soon as it is told that it is connected: how long its buffers are was read before.
#[test]
fn frames_right_behind_the_connection_are_not_glued() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server"));
    let client = Client::connected_by(&name, &mut port, Port::look_after);
    let lengths = [60, 1500, 60, 700].repeat(20);
    let sent: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(index, length)| frame(index as u8, *length)).collect();
    assert!(send_stale(&client, &mut port, &lengths) == sent, "frames were glued or lost");
    assert!(port.count(Count::StaleNext) > 10, "nothing was played: {:?}", port.ledger());
}

/// A client may post its buffers in parts: what needs more of them than it has posted yet waits for them.
#[test]
fn a_frame_waits_for_buffers_that_are_posted_later() {
    let (mut port, client) = joined("");
    client.memory.head(RINGS[1], 2);
    let mut block = Block::new(1 << 16, 4);
    for length in [700, 60, SLOTS as usize * BUFFER as usize + 1, 61] {
        assert!(block.push(&Desc::new(Nanos(1), 0, length as u32), &frame(7, length)));
    }
    let queue = &mut port.tx.queues[0];
    assert_eq!(queue.send(block.burst()).unwrap(), 0);
    client.memory.head(RINGS[1], SLOTS);
    assert_eq!(queue.send(block.burst()).unwrap(), 2);
    // As it has read them: an empty ring, which the third one is too long for.
    client.memory.head(RINGS[1], SLOTS + 4);
    assert_eq!(queue.send(block.burst().slice(2..4)).unwrap(), 2);
    assert_eq!((port.count(Count::Sent), port.count(Count::TooLong)), (3, 1), "{:?}", port.ledger());
    // And one that never posts more than two holds nobody up for ever.
    let (mut port, client) = joined("");
    client.memory.head(RINGS[1], 2);
    wait_until("the frame is given up", || port.tx.queues[0].send(block.burst().slice(0..2)).unwrap() == 2);
    assert_eq!((port.count(Count::Sent), port.count(Count::TooLong)), (1, 1), "{:?}", port.ledger());
}

/// The last free slot, used by a chain, lets the writer pass the reader (DPDK up to 26.07, VPP before 2026-05).
#[test]
fn a_ring_written_over_is_not_read() {
    let (mut port, client) = joined("");
    let mut slot = 0;
    for _ in 0..SLOTS - 1 {
        slot = client.memory.frame(slot, &frame(1, 60));
    }
    // Four slots, where one is free.
    slot = client.memory.frame(slot, &frame(2, 1000));
    assert_eq!(slot, SLOTS + 3);
    client.memory.head(RINGS[0], slot);
    assert_eq!(port.step().unwrap(), Vec::<Vec<u8>>::new());
    assert_eq!(port.count(Count::PeerOverrun), u64::from(SLOTS));
    assert_eq!(client.memory.half(RINGS[0] + 64), slot, "it goes on where the writer is");
    slot = client.memory.frame(slot, &frame(3, 300));
    client.memory.head(RINGS[0], slot);
    assert_eq!(port.step().unwrap(), [frame(3, 300)]);
    assert_eq!(port.ledger().losses(), [(Count::PeerOverrun, u64::from(SLOTS))]);
}

/// A frame whose end has not come is none; later ones come.
#[test]
fn a_chain_without_an_end_is_a_bad_frame() {
    let (mut port, client) = joined("");
    client.memory.desc(RINGS[0], 0, (NEXT, 0, BUFFER, BUFFERS[0]));
    client.memory.head(RINGS[0], 1);
    assert!(port.step().unwrap().is_empty());
    client.memory.head(RINGS[0], client.memory.frame(1, &frame(4, 60)));
    assert_eq!(port.step().unwrap(), [frame(4, 60)]);
    assert_eq!(port.ledger().losses(), [(Count::BadDesc, 1)]);
    // Of no bytes, in no region, beyond the end of one, beyond all numbers.
    let wrong =
        [(0, 0, 0, BUFFERS[0]), (0, 1, 60, 0), (0, 0, 60, 16384 - 59), (0, 0, 60, u32::MAX - 30), (0, 0, u32::MAX, 1)];
    for (index, desc) in wrong.into_iter().enumerate() {
        let slot = 2 + 2 * index as u16;
        client.memory.desc(RINGS[0], slot, desc);
        client.memory.head(RINGS[0], client.memory.frame(slot + 1, &frame(5, 61)));
        assert_eq!(port.step().unwrap(), [frame(5, 61)], "{desc:?}");
    }
    assert_eq!(port.count(Count::BadDesc), 1 + wrong.len() as u64);
}

/// A peer that goes takes nothing away that is looked at: what it had sent comes, then the port is down, once.
#[test]
fn what_a_peer_sent_before_it_went_comes_first() {
    let (mut port, client) = joined("");
    let next = (0..5).fold(0, |slot, number| client.memory.frame(slot, &frame(number, 64)));
    client.memory.head(RINGS[0], next);
    drop(client);
    let mut got = Vec::new();
    let mut downs = 0;
    for _ in 0..10 {
        match port.step() {
            Ok(frames) => got.extend(frames),
            Err(PortError::Down { .. }) => downs += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((got.len(), downs, port.count(Count::LinkDown)), (5, 1, 1));
}

/// What a peer had not read when it went is lost, by name, and exactly.
#[test]
fn what_a_peer_did_not_read_is_lost_by_name() {
    let (mut port, client) = joined("");
    let mut block = Block::new(1 << 16, 6);
    for number in 0..6 {
        // One buffer, then two.
        let bytes = frame(number, if number % 2 == 0 { 100 } else { 400 });
        assert!(block.push(&Desc::new(Nanos(1), 0, bytes.len() as u32), &bytes));
    }
    // Nine slots, of eight: five frames.
    assert_eq!(port.tx.queues[0].send(block.burst()).unwrap(), 5);
    assert_eq!(client.memory.half(RINGS[1] + 64), 7);
    // Two are read, of three slots: these are posted again.
    client.memory.head(RINGS[1], SLOTS + 3);
    drop(client);
    port.settle();
    let sent = port.tx.queues[0].send(block.burst());
    assert!(matches!(sent, Err(PortError::Down { .. })), "{sent:?}");
    let ledger = port.ledger();
    assert_eq!((ledger.total(Count::Sent), ledger.total(Count::SendPeerGone)), (2, 3), "{ledger:#?}");
    assert_eq!(port.tx.queues[0].sent().frames, 2);
}

/// A client's frames over buffers of any length, as one that copies nothing sends them.
#[test]
fn a_client_that_shows_its_own_memory_may_chain_any_lengths() {
    let name = name();
    let mut port = Port::open(&format!("memif:{name}?role=server"));
    let memory = Memory::new(true);
    // It has said nothing of its buffers.
    (0..SLOTS).for_each(|slot| memory.desc(RINGS[0], slot, (0, 0, 0, 0)));
    let client = super::peer::Client::new(&name, memory);
    port.settle();
    client.socket.kind();
    for (bytes, fds) in client.steps() {
        client.socket.say(&bytes, &fds);
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
    assert_eq!(client.memory.half(RINGS[0] + 4), 1, "a reader that is awake says so");
}
