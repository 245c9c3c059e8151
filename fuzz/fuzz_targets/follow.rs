//! The input is the message of a writer at its acceptor and its writes to the memory of its ring. An attaching reader
//! gets an error or frames: exactly those written, as long as the writer follows the protocol. In any case it shows at
//! most the number of frames requested, all bytes of each are readable, and it ends after a detach.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use linerate_share::{AttachOptions, End, Error, Reader};
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

/// One ring for all inputs, since creating it dominates the time of an input.
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
    let attaching = AttachOptions::default().begin(name).unwrap();
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

/// Resets the ring to its initial state.
fn clean(writer: &mut RawWriter) {
    let zeros = |map: &Map, at: usize, length: usize| map.put(at, &vec![0; length]);
    zeros(&writer.arena, 0, 4096 + 512);
    zeros(&writer.control, 0, 4096);
    (0..RAW_SLOTS).for_each(|slot| zeros(&writer.arena, writer.block(slot), 128));
    writer.put_headers();
    writer.published = 0;
}

/// Writes some wrong bytes to the headers.
fn spoil(writer: &RawWriter, bytes: &mut Bytes<'_>) {
    for _ in 0..bytes.byte() % 4 {
        let at = usize::from(bytes.byte());
        let change = bytes.some(8);
        let map = if at & 1 == 0 { &writer.arena } else { &writer.control };
        map.put(at / 2 * 4 % 288, change);
    }
}

/// Accepts the reader, or sends a similar message with other descriptors or none.
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
    raw::send_message(writer.socket.as_ref().unwrap(), &message, &fds);
    if choice & 0x80 != 0 {
        writer.socket = None;
    }
}

/// Reader, and the frames expected from it.
struct Follower {
    reader: Reader,
    /// True as long as the writer follows the protocol.
    is_sound: bool,
    /// Blocks that the writer may fill.
    free: Vec<u32>,
    /// Number of the next frame, and numbers of written frames not read yet.
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
            self.read(usize::from(bytes.byte()), bytes.byte());
        }
        self.reader.detach();
        for _ in 0..2 * RAW_SLOTS {
            self.read(5000, 0xff);
        }
        let end = self.reader.ended().expect("an end after a detach");
        assert!(!self.is_sound || end == End::Detached && self.due.is_empty(), "{end:?}");
        self.read(1, 0);
        assert!(self.reader.ended() == Some(end) && self.left == 0);
    }

    fn act(&mut self, writer: &mut RawWriter, bytes: &mut Bytes<'_>) {
        let action = bytes.byte();
        if action & 7 < 4 {
            return self.write(writer, bytes.byte());
        }
        self.is_sound = false;
        match action & 7 {
            4 => {
                let at = usize::from(bytes.byte()) * 18;
                writer.arena.put(at, bytes.some(64));
            }
            5 => {
                let at = writer.block(u32::from(action >> 3) % RAW_SLOTS) + usize::from(bytes.byte()) * 2;
                writer.arena.put(at, bytes.some(64));
            }
            6 => {
                let at = usize::from(bytes.byte()) * 2;
                writer.control.put(at, bytes.some(64));
            }
            _ => writer.publish(bytes.long()),
        }
    }

    /// Fills a free block and publishes it, from its first frame or a later one.
    fn write(&mut self, writer: &mut RawWriter, choice: u8) {
        let Some(slot) = (!self.free.is_empty()).then(|| self.free.remove(0)) else { return };
        let (frames, from) = (u32::from(choice & 31), u32::from(choice >> 5).min(u32::from(choice & 31)));
        writer.fill(slot, self.next, frames);
        writer.arena.word(writer.block(slot) + 108).store(1, Release);
        writer.publish(u64::from(slot) | u64::from(from) << 32);
        self.due.extend(self.next + u64::from(from)..self.next + u64::from(frames));
        self.next += u64::from(frames);
        // All blocks are returned before the first is reused, since the reader would see it at once.
        if self.free.is_empty() && self.is_sound {
            while !self.due.is_empty() {
                self.read(100, 0xff);
            }
            self.read(1, 0);
            self.free.extend(0..RAW_SLOTS);
        }
    }

    /// Reads frames, and consumes a part of them.
    fn read(&mut self, most: usize, part: u8) {
        let before = self.left;
        let reader = &mut self.reader;
        let burst = reader.fill(most);
        assert!(burst.len() <= most.max(before), "{} frames returned, {most} requested", burst.len());
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
