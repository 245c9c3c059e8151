//! The input is the first message of an untrusted reader at the acceptor of a ring and, once accepted, its writes to
//! the memory shared with the writer. The writer continues, another reader gets every frame, every block is returned,
//! and only readers that violate the protocol are evicted.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use linerate_share::Reader;
use raw::{Map, RawReader, control};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{LazyLock, Mutex};
use support::Ring;

#[path = "../src/bytes.rs"]
mod bytes;
#[path = "../../crates/share/tests/support/raw.rs"]
mod raw;
#[path = "../../crates/share/tests/support/mod.rs"]
mod support;

const BLOCKS: u32 = 4;
/// Size of the control memory: two rings with an entry for each block after its head.
const CONTROL: usize = control::RINGS + 2 * BLOCKS as usize * 8;
/// Status numbers of an answer (`docs/block-ring.md`).
const WELCOME: u32 = 0;
const VERSION: u32 = 1;
const PERMISSION: u32 = 2;
const MALFORMED: u32 = 6;

/// One ring and correct reader for all inputs, since creating them dominates the time of an input.
static RING: LazyLock<Mutex<(Ring, Reader)>> = LazyLock::new(|| {
    let mut ring = Ring::new(BLOCKS);
    let correct = ring.lossless();
    Mutex::new((ring, correct))
});

fuzz_target!(|bytes: &[u8]| {
    let mut guard = RING.lock().unwrap();
    let (ring, correct) = &mut *guard;
    let mut bytes = Bytes(bytes);
    if let Some(reader) = connect(ring, &mut bytes) {
        let mut client = Client { reader, held: Vec::new(), conduct: Conduct::Sound };
        while !bytes.0.is_empty() {
            let action = bytes.byte();
            client.act(action % 8, &mut bytes);
            ring.tick();
            let is_out = ring.writer.readers().len() == 1;
            assert!(is_out || client.conduct != Conduct::Broken, "an invalid return was not detected");
            assert!(!is_out || client.conduct != Conduct::Sound, "a correct reader was evicted");
            if action & 0x80 != 0 {
                ring.writer.close_block();
            }
            write(ring, correct, u64::from(action >> 3 & 15));
        }
        leave(ring, client);
    }
    // The blocks held by the client are returned: a frame fits each block.
    for _ in 0..=BLOCKS {
        ring.writer.close_block();
        assert_eq!(write(ring, correct, 1), 1);
    }
});

/// Sends a message to the acceptor: a valid HELLO with changed bits, of any length, or any bytes, with or without a
/// descriptor.
fn connect(ring: &mut Ring, bytes: &mut Bytes<'_>) -> Option<RawReader> {
    let choice = bytes.byte();
    let mut message = bytes.some(160).to_vec();
    if choice & 3 != 3 {
        let mut hello = raw::hello(1, choice & 32 != 0, u32::from(choice >> 6));
        hello.iter_mut().zip(&message).for_each(|(byte, change)| *byte ^= change);
        message = hello.to_vec();
    }
    if choice & 3 == 2 {
        message.resize(usize::from(bytes.byte()), 0);
    }
    let socket = raw::connected(&ring.name);
    let fds = if choice & 12 == 12 { vec![socket.as_fd()] } else { Vec::new() };
    raw::send_message(&socket, &message, &fds);
    let expected = match message.as_slice() {
        _ if !fds.is_empty() => Some(MALFORMED),
        [] => None,
        hello if hello.len() != 128 || !hello.starts_with(b"LRHi") => Some(MALFORMED),
        hello if hello[4..8] != 1u32.to_ne_bytes() => Some(VERSION),
        // Stream frames are shared by another ring, and this one uses no verdicts.
        hello if hello[24..28] == 1u32.to_ne_bytes() => Some(MALFORMED),
        hello if u32::from_ne_bytes([hello[12], hello[13], hello[14], hello[15]]) & 2 != 0 => Some(PERMISSION),
        _ => Some(WELCOME),
    };
    let refused = ring.acceptor.refused();
    ring.let_in();
    assert_eq!(ring.acceptor.refused() - refused, u64::from(expected != Some(WELCOME)));
    let (answer, fds) = raw::read_message(&socket).expect("an answer, or a closed connection");
    let status = (!answer.is_empty()).then(|| u32::from_ne_bytes([answer[12], answer[13], answer[14], answer[15]]));
    assert_eq!(status, expected);
    assert_eq!(ring.writer.readers().len(), if fds.is_empty() { 1 } else { 2 });
    if fds.is_empty() {
        return None;
    }
    assert!(ring.writer.readers().iter().all(|report| !report.who.name.contains(char::is_control)));
    Some(reader(socket, fds))
}

fn reader(socket: OwnedFd, fds: Vec<OwnedFd>) -> RawReader {
    let [arena_fd, control] = fds.try_into().expect("two descriptors");
    assert!(Map::new(arena_fd.as_fd(), true).is_err(), "the blocks are writable");
    let arena = Map::new(arena_fd.as_fd(), false).unwrap();
    let control = Map::new(control.as_fd(), true).unwrap();
    RawReader { socket, arena_fd, arena, control, taken: 0, returned: 0 }
}

/// Accepted client.
struct Client {
    reader: RawReader,
    /// Blocks it has taken and not returned.
    held: Vec<u32>,
    conduct: Conduct,
}

/// Conduct of a client so far.
#[derive(Clone, Copy, PartialEq)]
enum Conduct {
    /// No violation.
    Sound,
    /// Returned an invalid block before any other violation.
    Broken,
    /// Any violation.
    Wild,
}

impl Client {
    fn act(&mut self, action: u8, bytes: &mut Bytes<'_>) {
        let Client { reader, held, conduct } = self;
        // False if it has overwritten the position of its rings.
        let has_valid_rings = reader.control.word(control::CAPACITY).load(Relaxed) == BLOCKS;
        match action {
            0 if has_valid_rings => held.extend(reader.take().map(|(slot, _)| slot)),
            1 if *conduct == Conduct::Sound => {
                if let Some(at) = held.iter().position(|slot| reader.progress(*slot).0) {
                    reader.give(held.remove(at).into());
                }
            }
            2 => reader.control.word(control::SLEEPING).store(1, Release),
            3 => raw::send_message(&reader.socket, bytes.some(200), &[]),
            4 if has_valid_rings => self.return_any(u64::from(bytes.byte() % 8)),
            5 if has_valid_rings => self.return_any(bytes.long()),
            6 => {
                conduct.violate();
                reader.control.long(control::RETURNED).store(bytes.long(), Release);
            }
            7 => {
                conduct.violate();
                let at = usize::from(bytes.byte()) * CONTROL / 256;
                let scribble = bytes.some(64);
                reader.control.put(at, &scribble[..scribble.len().min(CONTROL - at)]);
            }
            _ => {}
        }
    }

    /// Returns a number that may not be a block of its own, or a block that is still being filled.
    fn return_any(&mut self, entry: u64) {
        let Client { reader, held, conduct } = self;
        if *conduct == Conduct::Sound {
            held.extend(std::iter::from_fn(|| reader.take()).map(|(slot, _)| slot));
            match held.iter().position(|slot| u64::from(*slot) == entry && reader.progress(*slot).0) {
                Some(at) => drop(held.remove(at)),
                None => *conduct = Conduct::Broken,
            }
        }
        reader.give(entry);
    }
}

impl Conduct {
    fn violate(&mut self) {
        if *self == Conduct::Sound {
            *self = Conduct::Wild;
        }
    }
}

/// Writes frames, checks that the correct reader gets all, and returns the number that fitted.
fn write(ring: &mut Ring, correct: &mut Reader, frames: u64) -> u64 {
    let first = ring.writer.committed();
    let written = ring.write(frames);
    ring.tick();
    ring.check();
    assert!(support::drain(correct).into_iter().eq(first..first + written), "a correct reader gets every frame");
    let tally = ring.writer.readers()[0].tally;
    assert_eq!((tally.committed, tally.skipped_frames, tally.reclaimed), (first + written, 0, 0));
    if written < frames {
        let waits = ring.writer.waits_for();
        assert!(waits.iter().any(|report| report.lossless && report.reader != 0), "the writer waits for {waits:?}");
    }
    written
}

fn leave(ring: &mut Ring, client: Client) {
    drop(client);
    ring.tick();
    assert_eq!(ring.writer.readers().len(), 1);
    let departures = ring.writer.take_departures();
    assert_eq!(departures.len(), 1);
    support::assert_balanced(&departures[0].report.tally);
    assert!(departures[0].evict.as_ref().is_none_or(|reason| reason.contains("it broke the protocol")));
}
