//! Damaged files, as far as they can be read, are rewritten as valid ones: everything the reader returned is equal
//! when read again, and other programs open the result.

use crate::common::{self, Content, Frame, Memory, read_bytes};
use linerate_burst::{Block, Count, Flags, Interface, Ledger, LinkType, Nanos, Sink, StampSource};
use linerate_pcap::{Format, Output, Reader, Writer, pcap};
use std::io::Cursor;
use std::process::Command;

const FORMATS: [Format; 3] = [Format::Pcap, Format::PcapMicros, Format::Pcapng];

/// Random numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % end as u64) as usize
    }
}

/// Valid files, each with all kinds of metadata of its format.
fn sound() -> Vec<Vec<u8>> {
    let mut two = Interface::new("tun0", LinkType::RAW, StampSource::User);
    two.description = "a tunnel".into();
    let interfaces = [Interface::new("eth0", LinkType::ETHERNET, StampSource::Kernel), two];
    let frames: Vec<Frame> = (0..12u8)
        .map(|n| Frame {
            time: Nanos::from_parts(1_700_000_000 + u64::from(n), 1000 * u64::from(n)),
            wire: 40 + u32::from(n),
            interface: u16::from(n % 2),
            flags: if n % 3 == 0 { Flags::OUTGOING } else { Flags::NONE },
            bytes: vec![n; 20 + usize::from(n)],
        })
        .collect();
    let files = FORMATS.map(|format| {
        let only = |frame: &Frame| Frame { interface: 0, ..frame.clone() };
        match format {
            Format::Pcapng => common::write(&frames, &interfaces, format, 5),
            _ => common::write(&frames.iter().map(only).collect::<Vec<_>>(), &interfaces, format, 5),
        }
    });
    let [first, _, last] = &files;
    // A capture in the other byte order, and concatenated sections.
    let mut swapped = first[..40].to_vec();
    for (at, width) in [(0, 4), (4, 2), (6, 2), (16, 4), (20, 4), (24, 4), (28, 4), (32, 4), (36, 4)] {
        swapped[at..at + width].reverse();
    }
    swapped.extend(&first[40..60]);
    let sections = [&last[..], last].concat();
    [files.to_vec(), vec![swapped, sections]].concat()
}

/// Flips a few bits, replaces words, removes or repeats parts.
fn damage(file: &mut Vec<u8>, numbers: &mut Numbers) {
    for _ in 0..=numbers.below(4) {
        // Half of the damage is in the headers.
        let reach = [60, 1500][numbers.below(2)];
        let at = numbers.below(file.len().clamp(1, reach));
        let Some(byte) = file.get_mut(at) else { continue };
        match numbers.below(5) {
            0 | 1 => *byte ^= 1 << numbers.below(8),
            2 => {
                let odd = [0u32, 1, 0xffff, 0x1_0000, 262_144, 262_145, 0x7fff_ffff, u32::MAX];
                let word = odd[numbers.below(odd.len())].to_le_bytes();
                let end = file.len().min(at / 4 * 4 + 4);
                file[at / 4 * 4..end].copy_from_slice(&word[..end - at / 4 * 4]);
            }
            3 => {
                let end = file.len().min(at + 4 * numbers.below(30));
                file.drain(at..end);
            }
            _ => {
                let end = file.len().min(at + 4 * numbers.below(30));
                let twice = file[at..end].to_vec();
                file.splice(at..at, twice);
            }
        }
    }
}

/// Rewrites what the reader returns of a file. Also returns the ledger, and whether everything could be written.
fn rewrite(file: &[u8], format: Format) -> Option<(Vec<u8>, Ledger, bool)> {
    let mut reader = Reader::new(Box::new(Cursor::new(file.to_vec())), "x").ok()?;
    let memory = Memory::default();
    let mut writer = Writer::new(Output::to(Box::new(memory.clone()), "copy"), format);
    let mut block = Block::new(1 << 20, 64);
    while let Ok(shown @ 1..) = reader.fill().map(|burst| burst.len()) {
        let burst = reader.shown();
        for (index, desc) in burst.descs().iter().enumerate() {
            if !block.push_stored(desc, burst, index) {
                let _ = writer.accept(block.view(0, reader.interfaces()));
                block.clear();
                assert!(block.push_stored(desc, burst, index));
            }
        }
        let _ = writer.accept(block.view(0, reader.interfaces()));
        block.clear();
        reader.consume(shown);
    }
    let is_whole = writer.finish(&Ledger::new()).is_ok();
    let mut ledger = Ledger::new();
    writer.counters(&mut ledger);
    assert_eq!(ledger.imbalances(), []);
    let bytes = memory.0.lock().unwrap().clone();
    Some((bytes, ledger, is_whole))
}

/// Returns what a format keeps of each frame: link type, time, wire length, bytes.
fn kept(content: &Content, format: Format) -> Vec<(LinkType, Nanos, u32, Vec<u8>)> {
    let link = |frame: &Frame| content.interfaces[usize::from(frame.interface)].link;
    let classic = format != Format::Pcapng;
    let mut fits = content.frames.iter().take_while(|frame| !classic || pcap::holds(link(frame))).peekable();
    let first = fits.peek().map(|frame| link(frame));
    let unit = if format == Format::PcapMicros { 1000 } else { 1 };
    let time = |time: Nanos| {
        let seconds = if classic { time.seconds().min(u32::MAX.into()) } else { time.seconds() };
        Nanos(seconds * 1_000_000_000 + u64::from(time.subsec() / unit * unit))
    };
    fits.take_while(|frame| !classic || Some(link(frame)) == first)
        .map(|frame| (link(frame), time(frame.time), frame.wire, frame.bytes.clone()))
        .collect()
}

/// Files whose options, names and secrets have all lengths, including invalid ones.
fn with_odd_options() -> Vec<Vec<u8>> {
    let block = |kind: u32, body: &[u8]| {
        let length = (12 + body.len() as u32).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, body, &length].concat()
    };
    let mut files = Vec::new();
    for length in [0u16, 1, 3, 4, 5, 8, 9, 16, 17, 1000] {
        for (code, fill) in (1..18u16).chain([2988, 2989]).flat_map(|code| [(code, 0), (code, 0xff)]) {
            let mut option = [code.to_le_bytes(), length.to_le_bytes()].concat();
            option.resize(4 + usize::from(length), fill);
            option.resize(option.len().next_multiple_of(4), 0);
            // The resolution of times is handled elsewhere.
            let of_interface = if matches!(code, 9 | 14) { &[][..] } else { &option };
            let head = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
            let words = [0u32, 0, 1, 8, 8].map(u32::to_le_bytes).concat();
            files.push(
                [
                    block(0x0a0d_0d0a, &[&head, &option[..]].concat()),
                    block(1, &[&[1, 0, 0, 0, 0, 0, 0, 0], of_interface].concat()),
                    block(4, &option),
                    block(10, &[&[77, 0, 0, 0][..], &option].concat()),
                    block(6, &[&words, &[7; 8][..], &option].concat()),
                    block(5, &[&[0; 12][..], &option].concat()),
                ]
                .concat(),
            );
        }
    }
    files
}

#[test]
fn invalid_metadata_is_omitted() {
    let mut samples = Vec::new();
    for (at, file) in with_odd_options().into_iter().enumerate() {
        let (first, ..) = rewrite(&file, Format::Pcapng).unwrap();
        assert_eq!(read_bytes(&first).frames.len(), 1, "{at}");
        let (second, ..) = rewrite(&first, Format::Pcapng).unwrap();
        assert!(first == second, "{at}: a rewritten file is rewritten unchanged");
        samples.push((Format::Pcapng, first));
    }
    check_open(&samples);
}

#[test]
fn damaged_files_are_rewritten_as_valid_ones() {
    let (mut numbers, sound) = (Numbers(7), sound());
    let mut written = 0;
    let mut samples: Vec<(Format, Vec<u8>)> = Vec::new();
    for round in 0..2000 {
        let mut file = sound[round % sound.len()].clone();
        damage(&mut file, &mut numbers);
        let whole = read_bytes(&file);
        for format in FORMATS {
            let Some((bytes, counted, is_whole)) = rewrite(&file, format) else { continue };
            if !is_whole && bytes.is_empty() {
                continue;
            }
            let again = read_bytes(&bytes);
            assert!(again.error.is_none(), "round {round}, {format:?}: {:?}", again.error);
            let expected = kept(&whole, format);
            // pcap can hold only the first part of mixed link types.
            let expected = if is_whole { &expected[..] } else { &expected[..again.frames.len()] };
            assert!(kept(&again, Format::Pcapng) == expected, "round {round}, {format:?}");
            assert_eq!(counted.total(Count::Written), expected.len() as u64, "round {round}, {format:?}");
            written += expected.len();
            // Other programs need a process per file.
            let is_new = samples.last().is_none_or(|(_, last)| *last != bytes);
            if round % 100 < 5 && is_new && !expected.is_empty() {
                samples.push((format, bytes));
            }
        }
    }
    assert!(written > 10_000, "{written} frames");
    check_open(&samples);
}

/// Checks that `capinfos` and `tcpdump` open the files, in a few calls.
fn check_open(samples: &[(Format, Vec<u8>)]) {
    let folder = std::env::temp_dir().join(format!("linerate-rewritten-{}-{}", std::process::id(), samples.len()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let paths: Vec<_> = (0..samples.len()).map(|n| folder.join(format!("{n}.cap"))).collect();
    paths.iter().zip(samples).for_each(|(path, (_, bytes))| std::fs::write(path, bytes).unwrap());
    match Command::new("capinfos").arg("-cM").args(&paths).output() {
        Err(error) => eprintln!("SKIPPED: capinfos: {error}"),
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            // Registered types that this release does not know.
            let complaints: Vec<&str> = errors.lines().filter(|line| line.starts_with('(')).collect();
            let unknown = |line: &&str| !line.contains("network type") || !line.contains("unknown or unsupported");
            assert_eq!(complaints.into_iter().find(unknown), None, "{errors} in {}", folder.display());
        }
    }
    for (path, (format, _)) in paths.iter().zip(samples).filter(|(_, (format, _))| *format != Format::Pcapng) {
        let Ok(output) = Command::new("tcpdump").args(["-n", "-r"]).arg(path).output() else {
            eprintln!("SKIPPED: tcpdump is not installed");
            break;
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        let opened = output.status.success() || errors.contains("unknown data link type");
        assert!(opened, "{format:?}: {errors} in {}", path.display());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
