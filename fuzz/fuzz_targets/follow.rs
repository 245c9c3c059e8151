//! Any bytes are what a writer says at its acceptor and writes into the memory of its ring. A reader that attaches is told what
//! is wrong, or sees frames: exactly those that were written as long as the writer does what it may. Whatever it does, no
//! more frames are shown than were asked for, all of each can be read, and once the reader detaches it comes to an end.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use linerate_share::{Attach, End, Error, Reader};
use raw::{Map, RAW_SLOTS, RawWriter};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Release;
use std::sync::{LazyLock, Mutex};
use support::{ids, unique};

#[path = "../src/bytes.rs"]
mod bytes;
#[path = "../../crates/share/tests/support/raw.rs"]
mod raw;
#[path = "../../crates/share/tests/support/mod.rs"]
mod support;

/// One ring for all inputs, since to make one takes longer than all the rest.
static RING: LazyLock<Mutex<(String, RawWriter)>> = LazyLock::new(|| {
    let name = unique();
    let writer = RawWriter::new(&name);
    Mutex::new((name, writer))
});

fuzz_target!(|bytes: &[u8]| {
    let mut guard = RING.lock().unwrap();
    let (name, writer) = &mut *guard;
    let mut bytes = Bytes(bytes);
    clean(writer);
    let is_sound = bytes.byte() & 3 != 0;
    if !is_sound {
        spoil(writer, &mut bytes);
    }
    let attaching = Attach::default().begin(name).unwrap();
    answer(writer, if is_sound { None } else { Some(&mut bytes) });
    match attaching.finish() {
        Ok(reader) => Follower::new(reader, is_sound).follow(writer, &mut bytes),
        Err(error) => {
            assert!(!is_sound, "{error}");
            let is_the_writers = matches!(
                error,
                Error::Protocol { .. } | Error::Refused { .. } | Error::System { .. } | Error::Unanswered { .. }
            );
            assert!(is_the_writers, "{error:?}");
            assert!(!error.to_string().is_empty());
        }
    }
});

/// As a new ring is.
fn clean(writer: &mut RawWriter) {
    let zeros = |map: &Map, at: usize, length: usize| map.put(at, &vec![0; length]);
    zeros(&writer.arena, 0, 4096 + 512);
    zeros(&writer.control, 0, 4096);
    (0..RAW_SLOTS).for_each(|slot| zeros(&writer.arena, writer.block(slot), 128));
    writer.put_headers();
    writer.published = 0;
}

/// Headers that are wrong in a few places.
fn spoil(writer: &RawWriter, bytes: &mut Bytes<'_>) {
    for _ in 0..bytes.byte() % 4 {
        let at = usize::from(bytes.byte());
        let change = bytes.some(8);
        let map = if at & 1 == 0 { &writer.arena } else { &writer.control };
        map.put(at / 2 * 4 % 288, change);
    }
}

/// Lets the reader in, or says something like it; with other descriptors, or none.
fn answer(writer: &mut RawWriter, wild: Option<&mut Bytes<'_>>) {
    let Some(bytes) = wild else { return writer.welcome() };
    writer.accept();
    let mut message = writer.answer().to_vec();
    let choice = bytes.byte();
    let at = usize::from(bytes.byte()) * 2 % message.len();
    message[at..].iter_mut().zip(bytes.some(64)).for_each(|(byte, change)| *byte ^= change);
    if choice & 12 == 12 {
        message.resize(usize::from(bytes.byte()) * 4, 0x41);
    }
    let (arena, control, socket) = (writer.arena_fd.as_fd(), writer.control_fd.as_fd(), writer.listener.as_fd());
    let fds = match (choice & 3, choice >> 4 & 3) {
        (3, 0) => vec![],
        (3, 1) => vec![arena],
        (3, 2) => vec![control, arena],
        (3, _) => vec![arena, socket],
        _ => vec![arena, control],
    };
    raw::say(writer.socket.as_ref().unwrap(), &message, &fds);
    if choice & 0x80 != 0 {
        writer.socket = None;
    }
}

/// A reader, and what it should see.
struct Follower {
    reader: Reader,
    /// Whether the writer has done nothing but what it may.
    is_sound: bool,
    /// Blocks that the writer may fill.
    free: Vec<u32>,
    /// Number of the next frame to be written, and those written that were not seen yet.
    next: u64,
    due: Vec<u64>,
    left: usize,
}

impl Follower {
    fn new(reader: Reader, is_sound: bool) -> Self {
        Follower { reader, is_sound, free: (0..RAW_SLOTS).collect(), next: 0, due: Vec::new(), left: 0 }
    }

    fn follow(mut self, writer: &mut RawWriter, bytes: &mut Bytes<'_>) {
        while !bytes.0.is_empty() {
            self.act(writer, bytes);
            self.look(usize::from(bytes.byte()), bytes.byte());
        }
        self.reader.detach();
        for _ in 0..2 * RAW_SLOTS {
            self.look(5000, 0xff);
        }
        let end = self.reader.ended().expect("it has detached");
        assert!(!self.is_sound || end == End::Detached && self.due.is_empty(), "{end:?}");
        self.look(1, 0);
        assert!(self.reader.ended() == Some(end) && self.left == 0);
    }

    fn act(&mut self, writer: &mut RawWriter, bytes: &mut Bytes<'_>) {
        let deed = bytes.byte();
        if deed & 7 < 4 {
            return self.write(writer, bytes.byte());
        }
        self.is_sound = false;
        match deed & 7 {
            4 => {
                let at = usize::from(bytes.byte()) * 18;
                writer.arena.put(at, bytes.some(64));
            }
            5 => {
                let at = writer.block(u32::from(deed >> 3) % RAW_SLOTS) + usize::from(bytes.byte()) * 2;
                writer.arena.put(at, bytes.some(64));
            }
            6 => {
                let at = usize::from(bytes.byte()) * 2;
                writer.control.put(at, bytes.some(64));
            }
            _ => writer.publish(bytes.long()),
        }
    }

    /// Fills a block that is free and publishes it, from its first frame on or a later one.
    fn write(&mut self, writer: &mut RawWriter, choice: u8) {
        let Some(slot) = (!self.free.is_empty()).then(|| self.free.remove(0)) else { return };
        let (frames, from) = (u32::from(choice & 31), u32::from(choice >> 5).min(u32::from(choice & 31)));
        writer.fill(slot, self.next, frames);
        writer.arena.word(writer.block(slot) + 108).store(1, Release);
        writer.publish(u64::from(slot) | u64::from(from) << 32);
        self.due.extend(self.next + u64::from(from)..self.next + u64::from(frames));
        self.next += u64::from(frames);
        // All are given back before the first comes round again, or the reader would see it at once.
        if self.free.is_empty() && self.is_sound {
            while !self.due.is_empty() {
                self.look(100, 0xff);
            }
            self.look(1, 0);
            self.free.extend(0..RAW_SLOTS);
        }
    }

    /// Looks for frames and consumes a part of them.
    fn look(&mut self, most: usize, part: u8) {
        let before = self.left;
        let reader = &mut self.reader;
        let burst = reader.fill(most);
        assert!(burst.len() <= most.max(before), "{} frames shown, {most} asked for", burst.len());
        let shown = burst.len();
        if self.is_sound {
            assert_eq!(ids(burst), self.due[..shown]);
        }
        let touched: u64 = burst.iter().flat_map(|(_, frame)| frame).map(|byte| u64::from(*byte)).sum();
        let longest = burst.iter().map(|(_, frame)| frame.len()).max().unwrap_or_default();
        assert!(touched < 1 << 40 && longest <= linerate_burst::MAX_FRAME);
        let _ = (reader.horizon(), reader.heartbeat(), reader.is_lossless(), reader.writer(), reader.wake());
        assert!(reader.skipped().0 <= 1 << 56 && reader.lost_upstream() <= 1 << 56);
        let links = reader.interfaces().len();
        assert!(reader.shown().descs().iter().all(|desc| usize::from(desc.interface) < links));
        let consumed = shown * usize::from(part) / 255;
        reader.consume(consumed);
        self.due.drain(..consumed.min(self.due.len()));
        self.left = shown - consumed;
        assert!(!self.is_sound || self.reader.bad() == 0 && matches!(self.reader.ended(), None | Some(End::Detached)));
    }
}
