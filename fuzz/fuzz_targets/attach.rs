//! Any bytes are the first message of a stranger at the acceptor of a ring and, once it is let in, all that it writes into the
//! memory it shares with the writer. The writer goes on, another reader gets every frame, every block comes back, and only
//! who broke the protocol is evicted.
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
/// Of the control memory: two rings with an entry for each block behind its head.
const CONTROL: usize = control::RINGS + 2 * BLOCKS as usize * 8;
/// Numbers of an answer (`docs/block-ring.md`).
const WELCOME: u32 = 0;
const VERSION: u32 = 1;
const PERMISSION: u32 = 2;
const MALFORMED: u32 = 6;

/// One ring for all inputs, with the reader that behaves, since to make one takes longer than all the rest.
static RING: LazyLock<Mutex<(Ring, Reader)>> = LazyLock::new(|| {
    let mut ring = Ring::new(BLOCKS);
    let honest = ring.lossless();
    Mutex::new((ring, honest))
});

fuzz_target!(|bytes: &[u8]| {
    let mut guard = RING.lock().unwrap();
    let (ring, honest) = &mut *guard;
    let mut bytes = Bytes(bytes);
    if let Some(reader) = come_in(ring, &mut bytes) {
        let mut stranger = Stranger { reader, held: Vec::new(), conduct: Conduct::Sound };
        while !bytes.0.is_empty() {
            let deed = bytes.byte();
            stranger.act(deed % 8, &mut bytes);
            ring.tick();
            let is_out = ring.writer.readers().len() == 1;
            assert!(is_out || stranger.conduct != Conduct::Broken, "what it gave back went unnoticed");
            assert!(!is_out || stranger.conduct != Conduct::Sound, "it was evicted for nothing");
            if deed & 0x80 != 0 {
                ring.writer.close_block();
            }
            write(ring, honest, u64::from(deed >> 3 & 15));
        }
        leave(ring, stranger);
    }
    // What a stranger held is back: there is a block for each frame of one.
    for _ in 0..=BLOCKS {
        ring.writer.close_block();
        assert_eq!(write(ring, honest, 1), 1);
    }
});

/// Says something to the acceptor: a sound hello with changed bits, of this length or another, or any bytes; with a
/// descriptor or without.
fn come_in(ring: &mut Ring, bytes: &mut Bytes<'_>) -> Option<RawReader> {
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
    raw::say(&socket, &message, &fds);
    let expected = match message.as_slice() {
        _ if !fds.is_empty() => Some(MALFORMED),
        [] => None,
        hello if hello.len() != 128 || !hello.starts_with(b"LRHi") => Some(MALFORMED),
        hello if hello[4..8] != 1u32.to_ne_bytes() => Some(VERSION),
        // Frames of streams are shared elsewhere, and this ring wants no verdicts.
        hello if hello[24..28] == 1u32.to_ne_bytes() => Some(MALFORMED),
        hello if u32::from_ne_bytes([hello[12], hello[13], hello[14], hello[15]]) & 2 != 0 => Some(PERMISSION),
        _ => Some(WELCOME),
    };
    let refused = ring.acceptor.refused();
    ring.let_in();
    assert_eq!(ring.acceptor.refused() - refused, u64::from(expected != Some(WELCOME)));
    let (answer, fds) = raw::hear(&socket).expect("an answer, or none ever");
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
    assert!(Map::new(arena_fd.as_fd(), true).is_err(), "the blocks can be written");
    let arena = Map::new(arena_fd.as_fd(), false).unwrap();
    let control = Map::new(control.as_fd(), true).unwrap();
    RawReader { socket, arena_fd, arena, control, taken: 0, returned: 0 }
}

/// Whoever came in.
struct Stranger {
    reader: RawReader,
    /// Blocks it has taken and not given back.
    held: Vec<u32>,
    conduct: Conduct,
}

/// What a stranger has done so far.
#[derive(Clone, Copy, PartialEq)]
enum Conduct {
    /// Nothing that a reader may not do.
    Sound,
    /// It gave back what it could not, before anything else went wrong.
    Broken,
    /// Anything.
    Wild,
}

impl Stranger {
    fn act(&mut self, deed: u8, bytes: &mut Bytes<'_>) {
        let Stranger { reader, held, conduct } = self;
        // Only where it has not overwritten what tells it where its rings lie.
        let knows_its_rings = reader.control.word(control::CAPACITY).load(Relaxed) == BLOCKS;
        match deed {
            0 if knows_its_rings => held.extend(reader.take().map(|(slot, _)| slot)),
            1 if *conduct == Conduct::Sound => {
                if let Some(at) = held.iter().position(|slot| reader.progress(*slot).0) {
                    reader.give(held.remove(at).into());
                }
            }
            2 => reader.control.word(control::SLEEPING).store(1, Release),
            3 => raw::say(&reader.socket, bytes.some(200), &[]),
            4 if knows_its_rings => self.give_any(u64::from(bytes.byte() % 8)),
            5 if knows_its_rings => self.give_any(bytes.long()),
            6 => {
                conduct.go_wild();
                reader.control.long(control::RETURNED).store(bytes.long(), Release);
            }
            7 => {
                conduct.go_wild();
                let at = usize::from(bytes.byte()) * CONTROL / 256;
                let scribble = bytes.some(64);
                reader.control.put(at, &scribble[..scribble.len().min(CONTROL - at)]);
            }
            _ => {}
        }
    }

    /// Gives back what may be no block of its own, or one still being filled.
    fn give_any(&mut self, entry: u64) {
        let Stranger { reader, held, conduct } = self;
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
    fn go_wild(&mut self) {
        if *self == Conduct::Sound {
            *self = Conduct::Wild;
        }
    }
}

/// Writes frames, all of which the reader that behaves gets; how many there was room for.
fn write(ring: &mut Ring, honest: &mut Reader, frames: u64) -> u64 {
    let first = ring.writer.committed();
    let written = ring.write(frames);
    ring.tick();
    ring.check();
    assert!(support::drain(honest).into_iter().eq(first..first + written), "an honest reader gets every frame");
    let tally = ring.writer.readers()[0].tally;
    assert_eq!((tally.committed, tally.skipped_frames, tally.reclaimed), (first + written, 0, 0));
    if written < frames {
        let waits = ring.writer.waits_for();
        assert!(waits.iter().any(|report| report.lossless && report.reader != 0), "the writer waits for {waits:?}");
    }
    written
}

fn leave(ring: &mut Ring, stranger: Stranger) {
    drop(stranger);
    ring.tick();
    assert_eq!(ring.writer.readers().len(), 1);
    let gone = ring.writer.take_departures();
    assert_eq!(gone.len(), 1);
    support::assert_balanced(&gone[0].report.tally);
    assert!(gone[0].evict.as_ref().is_none_or(|reason| reason.contains("it broke the protocol")));
}
