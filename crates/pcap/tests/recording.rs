//! Recordings compared with a naive model: which frames are in which file, which files remain, and what is never
//! touched.

mod ends;

use crate::common::{Frame, read_bytes};
use linerate_burst::{Block, Count, Desc, Flags, Interface, Ledger, LinkType, Nanos, Sink, StampSource};
use linerate_pcap::recording::{Open, PartialFile};
use linerate_pcap::{Format, Limits, Recording, WriteErrorPolicy, Writer};
use proptest::prelude::*;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// 2023-11-14 22:13:20.
const START: u64 = 1_700_000_000;

/// A folder that is deleted at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("linerate-recording-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Returns the names in it, sorted.
    fn names(&self) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = fs::read_dir(&self.0).unwrap().map(name).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn writer(format: Format) -> Open {
    Box::new(move |partial: &mut PartialFile| {
        Ok(Box::new(Writer::new(partial.output(), format).since(partial.before())))
    })
}

fn frame(millis: u64, length: usize, flags: Flags) -> Frame {
    let time = Nanos(START * 1_000_000_000 + millis * 1_000_000);
    Frame { time, wire: length as u32 + 4, interface: 0, flags, bytes: vec![length as u8; length] }
}

/// Passes frames to a recording, in blocks of at most `most`.
fn hand(recording: &mut Recording, frames: &[Frame], most: usize) {
    let interfaces = [Interface::new("eth0", LinkType::ETHERNET, StampSource::User)];
    for frames in frames.chunks(most) {
        let mut block = Block::new(4 << 20, most);
        for frame in frames {
            let desc = Desc { wire: frame.wire, flags: frame.flags, ..Desc::new(frame.time, 0, 0) };
            assert!(block.push(&desc, &frame.bytes));
        }
        recording.accept(block.view(0, &interfaces)).unwrap();
    }
}

fn counted(recording: &Recording) -> Ledger {
    let mut ledger = Ledger::new();
    recording.counters(&mut ledger);
    assert_eq!(ledger.imbalances(), []);
    ledger
}

/// Returns the frames of a complete file.
fn frames_of(path: &Path) -> Vec<Frame> {
    let content = read_bytes(&fs::read(path).unwrap());
    assert!(content.error.is_none(), "{}: {:?}", path.display(), content.error);
    content.frames
}

/// Returns the number of frames of each plain pcap file, and its size in bytes.
fn model(frames: &[Frame], limits: &Limits) -> Vec<(usize, u64)> {
    let mut files: Vec<(usize, u64)> = Vec::new();
    let (mut newest, mut until) = (0, u64::MAX);
    for frame in frames {
        let is_late = frame.flags.contains(Flags::LATE);
        let time = if is_late { frame.time.0.max(newest) } else { frame.time.0 };
        let is_full = |bytes: u64| limits.file_bytes.is_some_and(|most| bytes >= most);
        if files.last().is_none_or(|(_, bytes)| is_full(*bytes) || time >= until) {
            files.push((0, 24));
            until =
                limits.every.map_or(u64::MAX, |every| (time / every.as_nanos() as u64 + 1) * every.as_nanos() as u64);
        }
        let last = files.last_mut().unwrap();
        *last = (last.0 + 1, last.1 + 16 + frame.bytes.len() as u64);
        if !is_late {
            newest = newest.max(frame.time.0);
        }
    }
    files
}

prop_compose! {
    fn any_frames()(steps in prop::collection::vec((0u64..700, 0usize..3000, prop::bool::weighted(0.1)), 1..200)) -> Vec<Frame> {
        let mut now = 10_000;
        steps.into_iter().map(|(step, length, is_late)| {
            if is_late {
                return frame(now - step, length, Flags::LATE);
            }
            now += step;
            frame(now, length, Flags::NONE)
        }).collect()
    }
}

prop_compose! {
    fn any_limits()(
        file in prop::option::of(1024u64..40_000),
        every in prop::option::of(1u64..20),
        files in prop::option::of(1usize..6),
        bytes in prop::option::of(2u64..9),
    ) -> Limits {
        let file_bytes = file.or_else(|| every.is_none().then_some(5000));
        Limits {
            file_bytes,
            every: every.map(Duration::from_secs),
            files,
            bytes: bytes.map(|times| times * file_bytes.unwrap_or(20_000)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn files_match_the_model(
        frames in any_frames(), limits in any_limits(), most in 1usize..60, kind in 0usize..5,
    ) {
        let (ending, format) = [
            (".pcap", Format::Pcap), (".pcapng", Format::Pcapng), (".pcapng.zst", Format::Pcapng), (".pcap.gz", Format::Pcap),
            (".pcapng.lz4", Format::Pcapng),
        ][kind];
        let (scratch, kept) = (Scratch::new(), Scratch::new());
        let all = Limits { files: None, bytes: None, ..limits };
        for (folder, limits) in [(&scratch, all), (&kept, limits)] {
            let mut recording = Recording::new(&folder.path(""), ending, limits, writer(format)).unwrap();
            hand(&mut recording, &frames, most);
            recording.finish(&Ledger::new()).unwrap();
            let ledger = counted(&recording);
            prop_assert_eq!(ledger.total(Count::Written), frames.len() as u64);
            let there = ledger.total(Count::WriteFiles) - ledger.total(Count::FilesRemoved);
            prop_assert_eq!(there, folder.names().len() as u64);
        }
        // All frames are present, in order, in files with final names.
        let names = scratch.names();
        let files: Vec<Vec<Frame>> = names.iter().map(|name| frames_of(&scratch.0.join(name))).collect();
        let expected: Vec<Frame> = match format {
            // Classic pcap does not support late frames.
            Format::Pcapng => frames.clone(),
            _ => frames.iter().map(|frame| Frame { flags: Flags::NONE, ..frame.clone() }).collect(),
        };
        let strip = |frames: &[Frame]| frames.iter().map(|f| (f.time, f.wire, f.bytes.clone())).collect::<Vec<_>>();
        prop_assert_eq!(strip(&files.concat()), strip(&expected));
        prop_assert!(names.iter().all(|name| name.ends_with(ending)), "{:?}", names);
        let sizes: Vec<u64> = names.iter().map(|name| fs::metadata(scratch.0.join(name)).unwrap().len()).collect();
        if ending == ".pcap" {
            let found: Vec<(usize, u64)> = files.iter().map(Vec::len).zip(sizes.iter().copied()).collect();
            prop_assert_eq!(found, model(&frames, &limits));
        }
        // The last files remain.
        let left = kept.names();
        if ending == ".pcap" {
            prop_assert!(names.ends_with(&left) && !left.is_empty(), "{:?} of {:?}", left, names);
            let bytes: u64 = sizes[names.len() - left.len()..].iter().sum();
            let last = sizes[sizes.len() - 1];
            prop_assert!(limits.files.is_none_or(|most| left.len() <= most));
            prop_assert!(limits.bytes.is_none_or(|most| bytes <= most.max(last)), "{} {:?}", bytes, limits);
            // As many as allowed, apart from the upper bound of the size of a block.
            if left.len() < names.len() && limits.files.is_none_or(|most| left.len() < most) {
                let more = bytes + sizes[names.len() - left.len() - 1];
                let block: u64 = frames.iter().map(|frame| frame.bytes.len() as u64 + 80).max().unwrap() * most as u64;
                prop_assert!(more + block > limits.bytes.unwrap(), "{} of {:?} {:?}", left.len(), sizes, limits);
            }
        }
    }
}

#[test]
fn other_files_in_the_folder_are_untouched() {
    let scratch = Scratch::new();
    let others = ["20231114-221320.pcap", "20231114-221320_002.pcap.part", "20231114-221321.pcap"];
    others.iter().for_each(|name| fs::write(scratch.path(name), "of another").unwrap());
    let limits = Limits { every: Some(Duration::from_secs(1)), files: Some(2), ..Limits::default() };
    let mut recording = Recording::new(&scratch.path(""), ".pcap", limits, writer(Format::Pcap)).unwrap();
    let second = |second: u64| [frame(second * 1000, 60, Flags::NONE)];
    hand(&mut recording, &second(0), 1);
    assert_eq!(scratch.names().len(), 4, "{:?}", scratch.names());
    hand(&mut recording, &second(1), 1);
    // Another process replaces one of the files to be deleted, and moves one away.
    let first = scratch.path("20231114-221320_003.pcap");
    assert_eq!(frames_of(Path::new(&first)).len(), 1);
    fs::remove_file(&first).unwrap();
    fs::write(&first, "put there").unwrap();
    hand(&mut recording, &second(2), 1);
    fs::rename(scratch.path("20231114-221321_002.pcap"), scratch.path("mine")).unwrap();
    (3..6).for_each(|at| hand(&mut recording, &second(at), 1));
    recording.finish(&Ledger::new()).unwrap();
    assert_eq!(fs::read(&first).unwrap(), b"put there");
    others.iter().for_each(|name| assert_eq!(fs::read(scratch.path(name)).unwrap(), b"of another"));
    assert_eq!(frames_of(Path::new(&scratch.path("mine"))).len(), 1);
    let ledger = counted(&recording);
    assert_eq!((ledger.total(Count::WriteFiles), ledger.total(Count::FilesRemoved)), (6, 2));
    assert_eq!(scratch.names().len(), 3 + 2 + 2, "{:?}", scratch.names());
}

#[test]
fn companion_files_are_completed_and_deleted_with_their_file() {
    let scratch = Scratch::new();
    let open: Open = Box::new(|partial: &mut PartialFile| {
        partial.open_companion(".idx").1?.write_all(b"index")?;
        Ok(Box::new(Writer::new(partial.output(), Format::Pcapng)))
    });
    let limits = Limits { every: Some(Duration::from_secs(1)), files: Some(2), ..Limits::default() };
    let mut recording = Recording::new(&scratch.path("x-%s.pcapng"), "", limits, open).unwrap();
    for at in 0..4 {
        hand(&mut recording, &[frame(at * 1000, 60, Flags::NONE)], 1);
    }
    let names = scratch.names();
    assert_eq!(
        names,
        ["x-1700000002.pcapng", "x-1700000002.pcapng.idx", "x-1700000003.pcapng.part", "x-1700000003.pcapng.part.idx"]
    );
    recording.finish(&Ledger::new()).unwrap();
    assert_eq!(scratch.names()[2..], ["x-1700000003.pcapng", "x-1700000003.pcapng.idx"]);
    assert_eq!(fs::read(scratch.path("x-1700000003.pcapng.idx")).unwrap(), b"index");
}

/// Empty companion files are deleted.
#[test]
fn empty_companion_files_are_deleted() {
    let scratch = Scratch::new();
    let open: Open = Box::new(|partial: &mut PartialFile| {
        drop(partial.open_companion(".idx").1?);
        Ok(Box::new(Writer::new(partial.output(), Format::Pcapng)))
    });
    let limits = Limits { every: Some(Duration::from_secs(1)), ..Limits::default() };
    let mut recording = Recording::new(&scratch.path("x-%s.pcapng"), "", limits, open).unwrap();
    (0..2).for_each(|at| hand(&mut recording, &[frame(at * 1000, 60, Flags::NONE)], 1));
    recording.finish(&Ledger::new()).unwrap();
    assert_eq!(scratch.names(), ["x-1700000000.pcapng", "x-1700000001.pcapng"]);
}

#[test]
fn expired_file_is_completed_without_new_frames() {
    let scratch = Scratch::new();
    let limits = Limits { every: Some(Duration::from_secs(10)), ..Limits::default() };
    let mut recording = Recording::new(&scratch.path(""), ".pcapng", limits, writer(Format::Pcapng)).unwrap();
    hand(&mut recording, &[frame(1000, 60, Flags::NONE)], 1);
    let at = |second: u64| Nanos::from_parts(START + second, 0);
    for (second, is_open) in [(1, true), (9, true), (10, false)] {
        recording.look(&Ledger::new(), at(second)).unwrap();
        assert_eq!(scratch.names()[0].ends_with(".part"), is_open, "{second} {:?}", scratch.names());
    }
    hand(&mut recording, &[frame(11_000, 60, Flags::NONE)], 1);
    let report = recording.reopen(&Ledger::new()).unwrap().unwrap();
    assert!(report.contains("2 packets in complete files"), "{report}");
    // The end of input files is not a time.
    hand(&mut recording, &[frame(12_000, 60, Flags::NONE)], 1);
    recording.look(&Ledger::new(), Nanos::MAX).unwrap();
    assert_eq!(scratch.names().iter().filter(|name| name.ends_with(".part")).count(), 1);
    recording.finish(&Ledger::new()).unwrap();
    assert_eq!(scratch.names().len(), 3);
}

#[test]
fn policy_applies_if_a_file_cannot_be_created() {
    for on_write_error in [WriteErrorPolicy::Stop, WriteErrorPolicy::Continue] {
        let scratch = Scratch::new();
        let mut left = 2;
        let open: Open = Box::new(move |partial: &mut PartialFile| {
            left -= 1;
            if left == 0 { Err(io::ErrorKind::StorageFull.into()) } else { writer(Format::Pcap)(partial) }
        });
        let limits = Limits { every: Some(Duration::from_secs(1)), ..Limits::default() };
        let recording = Recording::new(&scratch.path(""), ".pcap", limits, open).unwrap();
        let mut recording = recording.on_write_error(on_write_error);
        hand(&mut recording, &[frame(0, 60, Flags::NONE)], 1);
        let interfaces = [Interface::new("eth0", LinkType::ETHERNET, StampSource::User)];
        let mut block = Block::new(0, 9);
        (0..5).for_each(|_| assert!(block.push(&Desc::new(Nanos::from_parts(START + 1, 0), 0, 0), &[1; 60])));
        let result = recording.accept(block.view(0, &interfaces));
        assert_eq!(result.is_ok(), on_write_error == WriteErrorPolicy::Continue);
        let ledger = counted(&recording);
        assert_eq!((ledger.total(Count::Written), ledger.total(Count::WriteFailed)), (1, 5));
        if on_write_error == WriteErrorPolicy::Continue {
            recording.accept(block.view(0, &interfaces)).unwrap();
            (0..10).for_each(|_| recording.look(&Ledger::new(), Nanos::ZERO).unwrap());
            recording.accept(block.view(0, &interfaces)).unwrap();
            recording.finish(&Ledger::new()).unwrap();
            let ledger = counted(&recording);
            assert_eq!((ledger.total(Count::Written), ledger.total(Count::WriteFailed)), (6, 10));
            assert!(
                recording.notes().iter().any(|note| note.contains("writing failed 1 times")),
                "{:?}",
                recording.notes()
            );
        }
        assert!(scratch.names().iter().all(|name| !name.ends_with(".part")), "{:?}", scratch.names());
    }
}
