//! Compressed files: written, read in any pieces, truncated, damaged, made to exhaust memory.

use crate::common::{Content, Frame, Memory, Slow, read, read_bytes, write, write_to};
use flate2::write::GzEncoder;
use linerate_burst::{Block, Desc, Flags, Interface, LinkType, Nanos, Sink, StampSource};
use linerate_pcap::{Compression, Format, Output, ReadError, Writer};
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use proptest::prelude::*;
use std::io::{Cursor, Read, Write};

const ALL: [Compression; 3] = [Compression::Gzip, Compression::Zstd, Compression::Lz4];

fn interfaces() -> [Interface; 1] {
    [Interface::new("eth0", LinkType::ETHERNET, StampSource::File)]
}

fn frames(count: usize) -> Vec<Frame> {
    let frame = |n: usize| Frame {
        time: Nanos(1_700_000_000_000_000_000 + n as u64),
        wire: 60 + n as u32 % 7,
        interface: 0,
        flags: Flags::NONE,
        bytes: (0..40 + n * 7 % 300).map(|at| (at * n % 251) as u8).collect(),
    };
    (0..count).map(frame).collect()
}

/// Compressed by the libraries' own streams, as other programs do.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0; zstd_safe::compress_bound(bytes.len())];
    let length = zstd_safe::compress(&mut out[..], bytes, 3).unwrap();
    out.truncate(length);
    out
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let info = FrameInfo::new().block_mode(BlockMode::Linked).block_size(BlockSize::Max64KB);
    let info = info
        .content_checksum(true)
        .block_checksums(bytes.len().is_multiple_of(2))
        .content_size(Some(bytes.len() as u64));
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn compressed(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    match compression {
        Compression::Gzip => gzip(bytes),
        Compression::Zstd => zstd(bytes),
        Compression::Lz4 => lz4(bytes),
    }
}

fn written(compression: Compression, frames: &[Frame], format: Format, most: usize) -> Vec<u8> {
    let memory = Memory::default();
    let output = Output::to(Box::new(memory.clone()), "memory").compressed(compression).unwrap();
    write_to(output, frames, &interfaces(), format, most);
    memory.0.lock().unwrap().clone()
}

fn message(content: &Content) -> String {
    content.error.as_ref().map(ToString::to_string).unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn compressed_files_read_like_plain_ones(count in 0..400usize, most in 1..50usize, step in 1..5000usize, classic: bool) {
        let frames = frames(count);
        let format = if classic { Format::Pcap } else { Format::Pcapng };
        for compression in ALL {
            let file = written(compression, &frames, format, most);
            let content = read(Slow { bytes: Cursor::new(file), step }, 7);
            prop_assert!(content.error.is_none(), "{:?}", content.error);
            prop_assert_eq!(&content.frames, &frames);
            let foreign = compressed(compression, &write(&frames, &interfaces(), format, most));
            prop_assert_eq!(&read_bytes(&foreign).frames, &frames);
        }
    }

    #[test]
    fn truncation_leaves_complete_frames_and_is_located(count in 1..300usize, share in 0.0..1.0f64, own: bool) {
        let frames = frames(count);
        for compression in ALL {
            let file = if own {
                written(compression, &frames, Format::Pcapng, 20)
            } else {
                compressed(compression, &write(&frames, &interfaces(), Format::Pcapng, 20))
            };
            let cut = 4 + ((file.len() - 4) as f64 * share) as usize;
            let content = read_bytes(&file[..cut]);
            prop_assert!(content.frames.len() <= frames.len());
            prop_assert_eq!(&content.frames[..], &frames[..content.frames.len()]);
            let at_its_end = matches!(content.error, Some(ReadError::Decompression { offset, frames, .. })
                if offset == cut as u64 && frames == content.frames.len() as u64);
            prop_assert!(at_its_end, "{:?}", content.error);
        }
    }

    #[test]
    fn any_damage_ends_without_panic(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        step in 50..5000usize,
    ) {
        for compression in ALL {
            let mut file = written(compression, &frames(100), Format::Pcapng, 20);
            for (place, value) in &damage {
                let at = place.index(file.len() - 4);
                file[4 + at] = *value;
            }
            let content = read(Slow { bytes: Cursor::new(file), step }, 9);
            prop_assert!(content.frames.len() < 10_000);
        }
    }
}

#[test]
fn frames_before_damage_are_returned() {
    let frames = frames(20_000);
    for compression in ALL {
        let mut file = written(compression, &frames, Format::Pcap, 100);
        let middle = file.len() / 2;
        file[middle..middle + 20_000].fill(0xff);
        let content = read_bytes(&file);
        // At most one piece is lost; pieces have about 20 kB here.
        let right = content.frames.iter().zip(&frames).take_while(|(found, written)| found == written).count();
        assert!(right >= 9_400, "{compression:?}: {right} of {}: {}", content.frames.len(), message(&content));
        match content.error {
            Some(ReadError::Decompression { offset, frames, .. }) => {
                assert_eq!(frames, content.frames.len() as u64);
                assert!(offset.abs_diff(middle as u64) < 40_000, "{offset} {middle}");
            }
            // Damaged data may be valid by chance, but has no frames.
            error => assert!(error.is_some()),
        }
    }
}

#[test]
fn zstd_block_is_returned_before_a_damaged_one() {
    let frames = frames(3);
    let raw = write(&frames, &interfaces(), Format::Pcap, 3);
    // No checksum, no size, a window of 1 KiB; a raw block; one of an undefined type.
    let size = (raw.len() as u32) << 3;
    let start = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0][..], &size.to_le_bytes()[..3]].concat();
    let file = [&start[..], &raw, &[6, 0, 0]].concat();
    for step in [1, 7, usize::MAX] {
        let content = read(Slow { bytes: Cursor::new(file.clone()), step }, 100);
        assert_eq!(content.frames, frames, "{step} bytes at a time: {}", message(&content));
        assert!(matches!(content.error, Some(ReadError::Decompression { frames: 3, .. })), "{}", message(&content));
    }
}

#[test]
fn accepted_frames_can_be_read_at_any_time() {
    let frames = frames(300);
    for compression in ALL {
        for format in [Format::Pcap, Format::PcapMicros, Format::Pcapng] {
            let memory = Memory::default();
            let output = Output::to(Box::new(memory.clone()), "memory").compressed(compression).unwrap();
            let mut writer = Writer::new(output, format);
            let mut block = Block::new(0, 20);
            for (number, frame) in frames.iter().enumerate() {
                let desc = Desc { wire: frame.wire, ..Desc::new(frame.time, 0, 0) };
                assert!(block.push(&desc, &frame.bytes));
                if number % 10 == number / 100 {
                    writer.accept(block.view(0, &interfaces())).unwrap();
                    block.clear();
                    let content = read_bytes(&memory.0.lock().unwrap());
                    assert_eq!(content.frames.len(), number + 1);
                    assert!(message(&content).contains("unexpected end of file"), "{}", message(&content));
                }
            }
        }
    }
}

#[test]
fn members_frames_and_padding_may_be_concatenated() {
    let frames = frames(500);
    let file = write(&frames, &interfaces(), Format::Pcap, 50);
    let (left, right) = file.split_at(file.len() / 3);
    let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 5, 0, 0, 0][..], b"hello"].concat();
    let files = [
        [gzip(left), gzip(b""), gzip(right), vec![0; 1000]].concat(),
        [skippable.clone(), zstd(left), skippable.clone(), zstd(b""), zstd(right), skippable.clone()].concat(),
        [lz4(left), skippable.clone(), lz4(b""), lz4(right), skippable].concat(),
    ];
    for file in files {
        for step in [1, 7, usize::MAX] {
            let content = read(Slow { bytes: Cursor::new(file.clone()), step }, 100);
            assert_eq!(message(&content), "");
            assert_eq!(content.frames, frames);
        }
        let content = read_bytes(&[&file[..], b"garbage"].concat());
        assert_eq!(content.frames, frames);
        let Some(ReadError::Decompression { offset, .. }) = content.error else { panic!("{}", message(&content)) };
        assert!((file.len()..file.len() + 8).contains(&(offset as usize)), "{offset} {}", file.len());
    }
}

#[test]
fn window_beyond_the_limit_is_rejected() {
    // No checksum, no size; a window of 2^28 bytes; an empty last block.
    let frame = |exponent: u8| [0x28, 0xb5, 0x2f, 0xfd, 0, (exponent - 10) << 3, 1, 0, 0];
    let content = read_bytes(&frame(28));
    assert!(message(&content).contains("too much memory") && message(&content).contains("128 MiB"));
    assert!(message(&read_bytes(&frame(27))).contains("(decompressed): not a pcap"), "within the limit");
}

#[test]
fn nested_compression_is_rejected() {
    let file = write(&frames(3), &interfaces(), Format::Pcap, 50);
    for (inner, outer) in [(gzip(&file), gzip(&gzip(&file))), (zstd(&file), gzip(&zstd(&file)))] {
        assert_eq!(read_bytes(&inner).frames.len(), 3);
        assert!(message(&read_bytes(&outer)).contains("not a pcap or pcapng file"), "{}", message(&read_bytes(&outer)));
    }
}

/// Gigabytes of zeros from a few bytes: unknown blocks of the maximum length.
struct Bomb {
    block: u64,
    left: u64,
}

impl Read for Bomb {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        const LENGTH: u64 = 1 << 26;
        let count = into.len().min((LENGTH - self.block) as usize).min(self.left as usize);
        into[..count].fill(0);
        for (at, byte) in [0x0b, 0xad, 0, 0, 0, 0, 0, 4].iter().enumerate() {
            if let Some(at) = (at as u64).checked_sub(self.block).filter(|at| *at < count as u64) {
                into[at as usize] = *byte;
            }
        }
        self.block = (self.block + count as u64) % LENGTH;
        self.left -= count as u64;
        Ok(count)
    }
}

/// In a child process, so that its memory is only that of this test.
#[test]
fn decompression_bomb_takes_no_memory() {
    const CHILD: &str = "LINERATE_RECORD_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let this = "compressed::decompression_bomb_takes_no_memory";
        let output = child.args(["--exact", this]).env(CHILD, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        return assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
    let section = write(&[], &interfaces(), Format::Pcapng, 1);
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::new(1));
    encoder.write_all(&section).unwrap();
    std::io::copy(&mut Bomb { block: 0, left: 5 << 26 }, &mut encoder).unwrap();
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 4 << 20);
    let before = peak();
    let content = read_bytes(&bomb);
    assert_eq!((content.frames.len(), message(&content).as_str()), (0, ""));
    assert!(peak() - before < 64 << 10, "{} KiB more", peak() - before);
}

/// Returns the peak memory of this process in KiB (proc(5), VmHWM).
fn peak() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

/// With any number of threads the file has the same content, and can be read to the end of any piece.
#[test]
fn several_threads_write_the_same_as_one() {
    let frames: Vec<Frame> = (0..20_000u32)
        .map(|number| Frame {
            time: Nanos(u64::from(number) * 1000),
            wire: 200,
            interface: 0,
            flags: linerate_burst::Flags::NONE,
            bytes: (0..200).map(|at| (number.wrapping_mul(2_654_435_761) >> (at % 24)) as u8).collect(),
        })
        .collect();
    let interfaces = [Interface::new("eth0", LinkType::ETHERNET, StampSource::User)];
    for format in [Format::Pcap, Format::Pcapng] {
        let mut sizes = Vec::new();
        for threads in [1, 2, 5] {
            let memory = Memory::default();
            let output = Output::to(Box::new(memory.clone()), "memory");
            let output = output.compressed(Compression::Zstd).unwrap().threads(threads).unwrap();
            write_to(output, &frames, &interfaces, format, 5000);
            let bytes = memory.0.lock().unwrap().clone();
            let content = read_bytes(&bytes);
            assert!(content.error.is_none() && content.frames == frames, "{format:?} {threads}: {:?}", content.error);
            // A truncated file yields all frames before the cut.
            let cut = read_bytes(&bytes[..bytes.len() * 2 / 3]).frames;
            assert!(cut.len() > 5000 && frames.starts_with(&cut), "{format:?} {threads}: {}", cut.len());
            sizes.push(bytes.len());
        }
        assert!(sizes[1] < sizes[0] * 11 / 10 && sizes[1] != sizes[0], "{sizes:?}");
    }
}
