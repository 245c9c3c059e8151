//! Files designed to exhaust memory, or without any frame: what is kept of them is bounded, and reading returns.

use crate::common::{self, Memory, read_bytes};
use linerate_burst::{Block, Count, Ledger, Sink};
use linerate_pcap::{Format, Output, ReadError, Reader, Writer};
use std::io::{self, Cursor, Read};

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (12 + body.len() as u32).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [code.to_le_bytes(), (value.len() as u16).to_le_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn section(options: &[u8]) -> Vec<u8> {
    let fixed = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    block(0x0a0d_0d0a, &[&fixed, options].concat())
}

fn interface(options: &[u8]) -> Vec<u8> {
    block(1, &[&[1, 0, 0, 0, 0, 0, 0, 0], options].concat())
}

fn frame(interface: u32, time: u32, options: &[u8]) -> Vec<u8> {
    let words = [interface, 0, time, 60, 60].map(u32::to_le_bytes).concat();
    block(6, &[&words, &[7; 60][..], options].concat())
}

fn statistics(interface: u32, options: &[u8]) -> Vec<u8> {
    block(5, &[&[interface, 0, 0].map(u32::to_le_bytes).concat()[..], options].concat())
}

/// A first part, then another one repeated; fails the test if it is read endlessly.
struct Endless {
    head: Cursor<Vec<u8>>,
    again: Vec<u8>,
    at: usize,
    given: usize,
}

/// Far more than a reader may read before it returns.
const FAR_TOO_MUCH: usize = 1 << 30;

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let head = self.head.read(into)?;
        if head > 0 {
            return Ok(head);
        }
        assert!(self.given < FAR_TOO_MUCH, "the reader does not return");
        let count = into.len().min(self.again.len() - self.at);
        into[..count].copy_from_slice(&self.again[self.at..self.at + count]);
        self.at = (self.at + count) % self.again.len();
        self.given += count;
        Ok(count)
    }
}

fn gzip_member(bytes: &[u8]) -> Vec<u8> {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    let mut member = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    if !bytes.is_empty() {
        let length = bytes.len() as u16;
        member.extend([&[0][..], &length.to_le_bytes(), &(!length).to_le_bytes(), bytes].concat());
    }
    member.extend([3, 0]);
    member.extend(crc.sum().to_le_bytes());
    member.extend(crc.amount().to_le_bytes());
    member
}

/// A zstd frame of one raw block.
fn zstd_frame(bytes: &[u8]) -> Vec<u8> {
    let header = ((bytes.len() as u32) << 3 | 1).to_le_bytes();
    [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0x58][..], &header[..3], bytes].concat()
}

/// An LZ4 frame of one uncompressed block.
fn lz4_frame(bytes: &[u8]) -> Vec<u8> {
    let size = (bytes.len() as u32 | 1 << 31).to_le_bytes();
    [&[0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73][..], &size, bytes, &[0; 4]].concat()
}

/// Endless inputs without a frame, by description.
fn endless() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let begun = [section(&[]), interface(&[])].concat();
    let many = |piece: Vec<u8>| piece.repeat(100_000 / piece.len() + 1);
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18][..], &100u32.to_le_bytes(), &[0; 100]].concat();
    let nothing = (block(4, &[]).len() as u32 | 1 << 31).to_le_bytes();
    let linked = [&lz4_frame(&begun)[..4], &[0x40, 0x70, 0xdf], &lz4_frame(&begun)[7..11 + begun.len()]].concat();
    vec![
        ("unknown blocks", begun.clone(), block(0x0bad, &[0; 1 << 16])),
        ("a block of 4 GiB after the other", begun.clone(), {
            let head = [0x0badu32.to_le_bytes(), 0xffff_fffcu32.to_le_bytes()].concat();
            [head, vec![0; 1 << 20]].concat()
        }),
        ("empty tables", begun.clone(), many(block(4, &[]))),
        ("sections", begun.clone(), many(section(&option(2, b"hardware")))),
        ("statistics", begun.clone(), many(statistics(0, &option(1, b"comment")))),
        ("members of nothing", gzip_member(&begun), many(gzip_member(&[]))),
        ("members of next to nothing", gzip_member(&begun), many(gzip_member(&block(4, &[])))),
        ("nothing but members of nothing", Vec::new(), many(gzip_member(&[]))),
        ("padding", gzip_member(&begun), vec![0; 1 << 16]),
        ("frames that are skipped", zstd_frame(&begun), many(skipped)),
        ("frames of nothing", zstd_frame(&begun), many(zstd_frame(&[]))),
        ("LZ4 frames of nothing", lz4_frame(&begun), many(lz4_frame(&[]))),
        ("LZ4 blocks of nothing", lz4_frame(&begun)[..7].to_vec(), many(vec![0, 0, 0, 0x80])),
        ("LZ4 blocks of next to nothing, linked", linked, many([&nothing[..], &block(4, &[])].concat())),
    ]
}

#[test]
fn input_without_frames_returns_to_the_caller() {
    for (what, head, again) in endless() {
        let source = Endless { head: Cursor::new(head), again, at: 0, given: 0 };
        let mut reader = Reader::lazy(Box::new(source), what);
        for _ in 0..10 {
            let shown = reader.look().unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(shown == 0 && reader.has_pending_work() && !reader.ended(), "{what}");
        }
    }
}

#[test]
fn frame_after_much_empty_data_is_found() {
    let begun = [section(&[]), interface(&[])].concat();
    let nothing = block(0x0bad, &vec![0; 1 << 20]).repeat(20);
    let file = [&begun[..], &nothing, &frame(0, 5, &[]), &nothing].concat();
    assert_eq!(read_bytes(&file).frames.len(), 1);
    let mut reader = Reader::lazy(Box::new(Cursor::new(file)), "x");
    let (mut turns, mut frames) = (0, 0);
    while !reader.ended() {
        let shown = reader.look().unwrap();
        assert!(shown > 0 || reader.has_pending_work() || reader.ended());
        reader.consume(shown);
        (turns, frames) = (turns + 1, frames + shown);
    }
    assert_eq!(frames, 1);
    assert!((8..40).contains(&turns), "{turns} turns for 40 MiB");
}

/// Reads all frames of a file into one block and writes them; returns the file, the ledger and the reader.
fn copy(file: Vec<u8>, format: Format) -> (Vec<u8>, Ledger, Reader) {
    let memory = Memory::default();
    let mut writer = Writer::new(Output::to(Box::new(memory.clone()), "copy"), format);
    let mut reader = Reader::new(Box::new(Cursor::new(file)), "x").unwrap();
    let mut block = Block::new(64 << 20, 200_000);
    loop {
        let burst = reader.fill().unwrap();
        burst.iter().for_each(|(desc, frame)| assert!(block.push(desc, frame)));
        let shown = burst.len();
        if shown == 0 {
            break;
        }
        reader.consume(shown);
    }
    writer.accept(block.view(0, reader.interfaces())).unwrap();
    writer.finish(&Ledger::new()).unwrap();
    let mut ledger = Ledger::new();
    writer.counters(&mut ledger);
    let bytes = memory.0.lock().unwrap().clone();
    (bytes, ledger, reader)
}

#[test]
fn tables_are_charged_with_their_size_and_empty_ones_dropped() {
    let record = option(1, &[127, 0, 0, 1, b'a', 0]);
    let tables =
        |table: Vec<u8>| [section(&[]), interface(&[]), table.repeat(1_000_000), frame(0, 5, &[]), table].concat();
    let (copied, _, reader) = copy(tables(block(4, &record)), Format::Pcapng);
    assert!(reader.left_out() > 700_000, "{} left out", reader.left_out());
    assert!((1 << 20..16 << 20).contains(&copied.len()), "{} bytes", copied.len());
    assert_eq!(read_bytes(&copied).frames.len(), 1);

    for empty in [block(4, &[]), block(4, &[0; 4])] {
        let (copied, _, reader) = copy(tables(empty), Format::Pcapng);
        assert_eq!((reader.left_out(), copied.len() < 1000), (0, true), "invalid items");
    }
    let (_, _, reader) = copy(tables(block(10, &[1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff])), Format::Pcapng);
    assert_eq!(reader.left_out(), 1_000_001, "missing secrets");
}

#[test]
fn released_items_free_their_budget() {
    let comment = option(1, &[b'c'; 10_000]);
    let file = [section(&[]), interface(&[]), statistics(0, &comment).repeat(5_000), frame(0, 5, &[])].concat();
    let (copied, _, reader) = copy(file, Format::Pcapng);
    assert_eq!(reader.left_out(), 0);
    assert!((10_000..12_000).contains(&copied.len()), "the last statistics replace earlier ones: {}", copied.len());

    let sections = section(&comment).repeat(5_000);
    let file = [sections, interface(&option(2, b"eth0")), frame(0, 5, &[])].concat();
    let (copied, _, reader) = copy(file, Format::Pcapng);
    assert_eq!((reader.left_out(), reader.interfaces()[0].name.as_str()), (0, "eth0"));
    assert!((10_000..12_000).contains(&copied.len()), "the section of the interface: {}", copied.len());

    let sections = [section(&comment), interface(&[])].concat().repeat(5_000);
    let (_, _, reader) = copy([sections, frame(0, 5, &[])].concat(), Format::Pcapng);
    assert!(reader.left_out() > 3_000, "{}", reader.left_out());
}

#[test]
fn interfaces_and_the_memory_of_their_names_are_bounded() {
    let named = interface(&[option(2, &[1; 1024]), option(3, &[0xff; 1024])].concat());
    let file = |count| [section(&[]), named.repeat(count), frame(count as u32 - 1, 5, &[])].concat();
    let (copied, _, reader) = copy(file(8192), Format::Pcapng);
    let letters = |reader: &Reader| -> usize {
        reader.interfaces().iter().map(|interface| interface.name.len() + interface.description.len()).sum()
    };
    assert!(letters(&reader) < 4 << 20, "{} bytes of names", letters(&reader));
    assert!(reader.interfaces()[0].name.len() == 1023 && reader.interfaces()[8191].name.is_empty());
    assert!(reader.left_out() > 8000, "{}", reader.left_out());
    let again = read_bytes(&copied);
    assert_eq!((again.interfaces.len(), again.frames[0].interface), (8192, 8191));

    let found = read_bytes(&file(8193));
    assert!(
        matches!(&found.error, Some(ReadError::Unsupported { what, .. }) if what.contains("more than 8192 interfaces")),
        "{:?}",
        found.error
    );
}

#[test]
fn comments_dropped_before_writing_are_counted() {
    let frames: Vec<u8> = (0..65_540).flat_map(|time| frame(0, time, &option(1, &time.to_le_bytes()))).collect();
    let (_, counted, _) = copy([section(&[]), interface(&[]), frames].concat(), Format::Pcapng);
    assert_eq!((counted.total(Count::Written), counted.total(Count::CommentsForgotten)), (65_540, 5));
}

#[test]
fn sums_of_claimed_counts_saturate() {
    let claims = [option(4, &[0xff; 8]), option(5, &[0xff; 8]), option(7, &[0xff; 8])].concat();
    let interfaces = interface(&[]).repeat(2);
    let file = [section(&[]), interfaces, frame(0, 5, &[]), statistics(0, &claims), statistics(1, &claims)].concat();
    let (copied, _, reader) = copy(file, Format::Pcapng);
    assert_eq!(reader.seen_and_dropped(), (Some(u64::MAX), Some(u64::MAX)));
    assert_eq!(read_bytes(&copied).frames.len(), 1);
    let mut ledger = Ledger::new();
    let account = ledger.account(linerate_burst::Stage::Receive, "the same file twice");
    account.add(Count::FileSeen, u64::MAX).add(Count::FileSeen, u64::MAX);
    assert_eq!(ledger.total(Count::FileSeen), u64::MAX);
}

#[test]
fn times_of_any_resolution_and_offset_round_trip() {
    for resolution in [0, 6, 9, 10, 28, 29, 0x7f, 0x80, 0x81, 0xbf, 0xc0, 0xff] {
        for offset in [0, 1, -1, i64::MAX, i64::MIN, i64::MAX / 1_000_000_000] {
            let options = [option(9, &[resolution]), option(14, &offset.to_le_bytes())].concat();
            let words = [0u32, u32::MAX, u32::MAX, 60, 60].map(u32::to_le_bytes).concat();
            let latest = block(6, &[&words, &[7; 60][..]].concat());
            let file = [section(&[]), interface(&options), frame(0, 0, &[]), latest].concat();
            let times = |found: common::Content| {
                assert!(found.error.is_none(), "{:?}", found.error);
                found.frames.iter().map(|frame| frame.time).collect::<Vec<_>>()
            };
            let first = times(read_bytes(&file));
            assert!(first[0] <= first[1], "{resolution} {offset}: {first:?}");
            assert_eq!(times(read_bytes(&copy(file.clone(), Format::Pcapng).0)), first, "{resolution} {offset}");
            let last = linerate_burst::Nanos((u64::from(u32::MAX) + 1) * 1_000_000_000 - 1);
            let (classic, counted, _) = copy(file, Format::Pcap);
            let beyond = first.iter().filter(|time| **time > last).count() as u64;
            assert_eq!((times(read_bytes(&classic)).len(), counted.total(Count::TimeBeyond)), (2, beyond));
        }
    }
}
