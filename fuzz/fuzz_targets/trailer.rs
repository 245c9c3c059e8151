//! Trailers are read back from their bytes, also with one wrong bit, and from any frame they are written to. The
//! receiver counts frames with and without trailers, of any kind and order, once each, as a simple set of numbers does.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_burst::{Block, Desc, Flags, Nanos};
use linerate_generate::Check;
use linerate_generate::check::{Matcher, Options};
use linerate_generate::trailer::{Key, LEN, Tail, Trailer};
use linerate_headers::{Layers, Link};
use std::collections::{BTreeMap, BTreeSet};

const KEY: Key = Key(0x1234_5678_9abc_def0);
const START: u64 = 1_700_000_000_000_000_000;
const MAX_FRAMES: usize = 48;

fuzz_target!(|bytes: &[u8]| {
    // The last bytes choose options, and are not part of the frame.
    let Some((frame, &[link, ref rest @ ..])) = bytes.split_last_chunk::<17>() else { return };
    read_back(rest);
    let link = Link::ALL[usize::from(link) % Link::ALL.len()];
    let tail = Tail::of(link, frame, &mut Layers::new());
    assert!(tail.packet.is_none_or(|packet| packet < frame.len()));
    assert_eq!(tail.bytes(frame).is_some(), (LEN..=frame.len()).contains(&tail.end));
    write_to(link, frame, &tail);
    receive(link, frame, rest);
});

fn read_back(bytes: &[u8; LEN]) {
    let word = u128::from_be_bytes(*bytes);
    let (stream, sequence, time) = ((word >> 104) as u32, (word >> 64) as u64, word as u64);
    let trailer = Trailer { stream, sequence: sequence & ((1 << 40) - 1), time: time & ((1 << 40) - 1) };
    let mut written = Trailer { stream, sequence, time }.bytes(&KEY);
    assert_eq!((Trailer::read(&written, &KEY), Trailer::repair(&written, &KEY)), (Some(trailer), Some(trailer)));
    if let Some(read) = Trailer::read(bytes, &KEY) {
        assert_eq!(read.bytes(&KEY), *bytes);
    }
    written[usize::from(bytes[15]) % LEN] ^= 1 << (bytes[14] % 8);
    // Another trailer may be at the same distance.
    let corrected = Trailer::repair(&written, &KEY).expect("one bit is wrong").bytes(&KEY);
    assert_eq!((u128::from_be_bytes(corrected) ^ u128::from_be_bytes(written)).count_ones(), 1);
}

/// Writes a trailer to the frame, and finds it again if the frame is dissected the same.
fn write_to(link: Link, frame: &[u8], tail: &Tail) {
    let trailer = Trailer { stream: 5, sequence: 6, time: START };
    let mut with = frame.to_vec();
    let Some(last_bytes) = with.get_mut(..tail.end).and_then(|bytes| bytes.last_chunk_mut::<LEN>()) else { return };
    *last_bytes = trailer.bytes(&KEY);
    if Tail::of(link, &with, &mut Layers::new()) == *tail {
        let time = START & ((1 << 40) - 1);
        assert_eq!(Trailer::find(link, &with, &KEY, &mut Layers::new()), Some(Trailer { time, ..trailer }));
    }
}

/// Receives the frame unchanged, changed, truncated, and with trailers, as chosen by the bytes.
fn receive(link: Link, frame: &[u8], bytes: &[u8; LEN]) {
    let mut check = Check::new(KEY, Options { streams: 2, verify: bytes[0] & 1 == 0 });
    if bytes[0] & 2 != 0 && link == Link::Ethernet {
        check.count_only(9, Matcher::new(frame, &[]));
    }
    let mut block = Block::new(1 << 20, MAX_FRAMES);
    let mut model = Model::default();
    for (number, byte) in bytes.iter().chain(frame).take(MAX_FRAMES).enumerate() {
        let mut changed = frame.to_vec();
        let trailer = Trailer { stream: u32::from(byte & 3), sequence: u64::from(byte >> 2) * 9, time: START };
        match number % 4 {
            0 => {}
            1 => changed[usize::from(*byte) % frame.len().max(1)..].iter_mut().take(1).for_each(|byte| *byte ^= 4),
            _ => changed = plain(&trailer),
        }
        let captured = if number % 8 == 5 { changed.len() / 2 } else { changed.len() };
        let flags = if byte & 0x90 == 0x90 { Flags::CHECKSUM_PARTIAL } else { Flags::NONE };
        let interface = if number % 4 < 2 { 0 } else { 1 };
        let time = Nanos(START + number as u64);
        let desc = Desc { wire: changed.len() as u32, flags, interface, ..Desc::new(time, 0, captured as u32) };
        if block.push(&desc, &changed[..captured]) && number % 4 > 1 {
            model.take(&trailer);
        }
    }
    check.take(block.burst(), &[Some(link), Some(Link::Ethernet)]);
    let totals = check.totals();
    assert_eq!(totals.frames, block.len() as u64);
    let known = totals.received + totals.counted + totals.damaged + totals.cut + totals.over_limit;
    assert_eq!(known + totals.foreign(), totals.frames);
    let mut second_check = Check::new(KEY, Options { streams: 4, verify: false });
    for (desc, frame) in block.burst().iter().filter(|(desc, _)| desc.interface == 1) {
        let mut one = Block::new(1 << 20, 1);
        one.push(desc, frame);
        second_check.take(one.burst(), &[Some(link), Some(Link::Ethernet)]);
    }
    model.check(&second_check);
    assert_eq!(check.report(None).summary().counts.received, totals.received + totals.counted);
    assert_eq!(second_check.report(Some(&[9; 4])).summary().counts.received, model.received);
}

/// Returns an Ethernet frame with only a trailer.
fn plain(trailer: &Trailer) -> Vec<u8> {
    [&[2; 12][..], &[0x88, 0xb5], &[0; 30], &trailer.bytes(&KEY)].concat()
}

/// Sequence numbers received per stream.
#[derive(Default)]
struct Model {
    received_numbers: BTreeMap<u32, BTreeSet<u64>>,
    received: u64,
    duplicated: u64,
    reordered: u64,
}

impl Model {
    fn take(&mut self, trailer: &Trailer) {
        let received_numbers = self.received_numbers.entry(trailer.stream).or_default();
        self.received += 1;
        let is_late = received_numbers.last().is_some_and(|last| trailer.sequence < *last);
        match received_numbers.insert(trailer.sequence) {
            true => self.reordered += u64::from(is_late),
            false => self.duplicated += 1,
        }
    }

    fn check(&self, check: &Check) {
        let totals = check.totals();
        let missing = self
            .received_numbers
            .values()
            .map(|received_numbers| received_numbers.last().map_or(0, |last| last + 1) - received_numbers.len() as u64);
        assert_eq!((totals.received, totals.stale, totals.foreign()), (self.received, 0, 0));
        assert_eq!((totals.duplicated, totals.reordered), (self.duplicated, self.reordered));
        assert_eq!(totals.missing, missing.sum::<u64>());
        assert_eq!(check.streams(), self.received_numbers.len());
    }
}
