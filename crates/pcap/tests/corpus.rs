//! Reads every capture of a corpus (`LINERATE_CORPUS`), compared with `capinfos` and `tshark`.

use crate::common::{self, Content, Frame, read, write_to};
use linerate_pcap::{Format, Output, ReadError};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compared values: frames, bytes on the wire, first and last time in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Figures {
    frames: u64,
    bytes: u64,
    times: Option<(u64, u64)>,
}

/// Returns all captures under `LINERATE_CORPUS`; `None`, with a message, if something needed is missing.
fn corpus(tool: &str) -> Option<Vec<PathBuf>> {
    let Some(root) = std::env::var_os("LINERATE_CORPUS") else {
        eprintln!("SKIPPED: LINERATE_CORPUS is not set, no capture was tested");
        return None;
    };
    if std::env::var_os("LINERATE_PEERS").is_none() {
        eprintln!("SKIPPED: make test-peers compares with {tool}");
        return None;
    }
    Command::new(tool).arg("--version").output().expect("a program that scripts/setup peers installs");
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::from(root)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if ["pcap", "pcapng", "cap"].map(OsStr::new).iter().any(|ending| path.extension() == Some(ending)) {
                files.push(path);
            }
        }
    }
    files.sort();
    assert!(!files.is_empty(), "LINERATE_CORPUS has no captures");
    Some(files)
}

fn load(path: &Path) -> Content {
    read(File::open(path).unwrap(), usize::MAX)
}

/// Returns the figures as `capinfos` counts them: it omits the four bytes before each frame of SunATM (link type 123).
fn figures(content: &Content) -> Figures {
    let times = content.frames.iter().map(|frame| frame.time.0);
    let bytes = |frame: &Frame| {
        let link = content.interfaces[usize::from(frame.interface)].link;
        u64::from(frame.wire) - if link.0 == 123 { 4 } else { 0 }
    };
    Figures {
        frames: content.frames.len() as u64,
        bytes: content.frames.iter().map(bytes).sum(),
        times: times.clone().min().zip(times.max()),
    }
}

/// Captures with fractions above one second: the reader carries them over, `capinfos` overflows.
const MORE_THAN_A_SECOND: [&str; 4] = [
    "timestamp_invalid_micro.pcap",
    "timestamp_invalid_nano.pcap",
    "rx_serviceid_oobr.pcap",
    "atm-oam-loopback-print-overrun.pcap",
];

/// Returns whether both agree. `capinfos` compares seconds as 32-bit numbers: with times further apart its first and
/// last are wrong.
fn agree(ours: &Figures, theirs: &Figures, times_too: bool) -> bool {
    let far_apart = ours.times.is_some_and(|(first, last)| last - first >= 1_000_000_000 << 31);
    let times = !times_too || far_apart || ours.times == theirs.times;
    (ours.frames, ours.bytes) == (theirs.frames, theirs.bytes) && times
}

/// Returns the figures of `capinfos` for each file that it can open.
fn capinfos(files: &[PathBuf]) -> BTreeMap<PathBuf, Figures> {
    let mut found = BTreeMap::new();
    for files in files.chunks(200) {
        let output =
            Command::new("capinfos").args(["-T", "-r", "-c", "-d", "-a", "-e", "-S"]).args(files).output().unwrap();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let columns: Vec<&str> = line.split('\t').collect();
            let [name, frames, bytes, first, last] = columns[..] else { panic!("{line:?}") };
            let times = nanos(first).zip(nanos(last));
            let figures = Figures { frames: frames.parse().unwrap(), bytes: bytes.parse().unwrap(), times };
            found.insert(PathBuf::from(name), figures);
        }
    }
    found
}

/// Parses seconds with any number of decimals.
fn nanos(text: &str) -> Option<u64> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, ""));
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + format!("{decimals:0<9.9}").parse::<u64>().ok()?)
}

/// A temporary folder, deleted at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("linerate-corpus-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn figures_equal_those_of_capinfos() {
    let Some(files) = corpus("capinfos") else { return };
    let theirs = capinfos(&files);
    let mut differing = Vec::new();
    let mut errors = 0;
    for file in &files {
        let content = load(file);
        errors += usize::from(content.error.is_some());
        let ours = figures(&content);
        let times_too = !MORE_THAN_A_SECOND.iter().any(|name| file.ends_with(name));
        match theirs.get(file) {
            Some(theirs) if !agree(&ours, theirs, times_too) => {
                differing.push((file, ours, theirs.clone(), content.error))
            }
            _ => {}
        }
    }
    println!("{} captures, {} opened by capinfos, {errors} with an error here", files.len(), theirs.len());
    assert!(differing.is_empty(), "{} differ: {differing:#?}", differing.len());
    assert!(theirs.len() * 10 > files.len() * 9, "capinfos opened {} of {}", theirs.len(), files.len());
}

#[test]
fn rewritten_files_have_the_same_figures() {
    let Some(files) = corpus("capinfos") else { return };
    let scratch = Scratch::new("rewritten");
    let theirs = capinfos(&files);
    let mut expected = BTreeMap::new();
    for (number, file) in files.iter().enumerate() {
        let content = load(file);
        let Content { frames, interfaces, .. } = &content;
        // pcap records hold seconds up to 2106.
        let classic_time = frames.iter().all(|frame| frame.time.seconds() <= u32::MAX.into());
        let mut links: Vec<_> = frames.iter().map(|frame| interfaces[usize::from(frame.interface)].link).collect();
        links.dedup();
        for (format, ending) in [(Format::Pcapng, "pcapng"), (Format::Pcap, "pcap")] {
            let path = scratch.0.join(format!("{number}.{ending}"));
            if theirs.contains_key(file) && (format == Format::Pcapng || links.len() == 1 && classic_time) {
                let output = Output::open(path.to_str().unwrap()).unwrap();
                write_to(output, frames, interfaces, format, 500);
                let again = load(&path);
                assert!(again.error.is_none(), "{file:?} as {ending}: {:?}", again.error);
                assert!(again.frames.iter().map(|frame| &frame.bytes).eq(frames.iter().map(|frame| &frame.bytes)));
                expected.insert(path, (file, figures(&content)));
            }
        }
    }
    let found = capinfos(&expected.keys().cloned().collect::<Vec<_>>());
    for (path, (file, figures)) in &expected {
        let theirs = found.get(path).unwrap_or_else(|| panic!("{} as {}", file.display(), path.display()));
        assert!(agree(figures, theirs, true), "{} as {}: {figures:?} {theirs:?}", file.display(), path.display());
    }
    println!("{} files rewritten", expected.len());
}

#[test]
fn each_frame_equals_that_of_tshark() {
    let Some(files) = corpus("tshark") else { return };
    let (mut modern, mut classic): (Vec<_>, Vec<_>) = files
        .iter()
        .filter(|file| fs::metadata(file).unwrap().len() < 200_000)
        .partition(|file| file.extension() == Some(OsStr::new("pcapng")));
    modern.truncate(12);
    classic = classic.into_iter().step_by(100).take(12).collect();
    let whole = files.iter().filter(|file| file.ends_with("real-mix.pcap"));
    for file in modern.into_iter().chain(classic).chain(whole) {
        let fields = ["frame.time_epoch", "frame.len", "frame.cap_len"].map(|field| ["-e", field]).concat();
        let output = Command::new("tshark").arg("-nr").arg(file).args(["-T", "fields"]).args(fields).output().unwrap();
        let Content { frames, .. } = load(file);
        let lines = String::from_utf8(output.stdout).unwrap();
        if !output.status.success() && lines.is_empty() {
            println!("{}: {}", file.display(), String::from_utf8_lossy(&output.stderr).trim());
            continue;
        }
        let ours = frames.iter().map(|frame| (Some(frame.time.0), u64::from(frame.wire), frame.bytes.len() as u64));
        let theirs = lines.lines().map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            (nanos(columns[0]), columns[1].parse().unwrap(), columns[2].parse().unwrap())
        });
        assert_eq!(ours.collect::<Vec<_>>(), theirs.collect::<Vec<_>>(), "{}", file.display());
    }
}

#[test]
fn truncated_file_yields_its_complete_frames() {
    let Some(files) = corpus("capinfos") else { return };
    for file in files.iter().filter(|file| fs::metadata(file).unwrap().len() < 3000) {
        let bytes = fs::read(file).unwrap();
        let whole = common::read_bytes(&bytes);
        let mut before = 0;
        for cut in (24..bytes.len()).step_by(7) {
            let content = common::read_bytes(&bytes[..cut]);
            assert!(content.frames.len() >= before, "{} cut at {cut}", file.display());
            assert_eq!(content.frames, whole.frames[..content.frames.len()], "{} cut at {cut}", file.display());
            before = content.frames.len();
            match content.error {
                None | Some(ReadError::Damaged { .. } | ReadError::Unsupported { .. }) => {}
                Some(ReadError::CutOff { offset, needed, present, frames, .. }) => {
                    assert!(present < needed && offset + present == cut as u64 && frames == before as u64);
                }
                Some(error) => panic!("{} cut at {cut}: {error}", file.display()),
            }
        }
    }
}
