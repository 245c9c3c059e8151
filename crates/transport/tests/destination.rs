//! Destinations contain the data of the frames.

use linerate_burst::Nanos;
use linerate_transport::datagrams::{self, Datagrams, Field, Form, Unit, WhenFull};
use linerate_transport::destination::{Destination, DestinationError, DestinationTotals, Discard, Files, FilesConfig};
use linerate_transport::frames::{Config, Frames};
use linerate_transport::pattern::Pattern;
use linerate_transport::stream_memory::{Ending, Ends, Payload, Place, StreamId};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SIZE: usize = 8192;

fn ends(stream: StreamId) -> Ends {
    match stream.0 {
        0 => Ends { from: ([10, 0, 0, 1], 40_000).into(), to: ([10, 0, 0, 2], 9).into() },
        _ => Ends { from: "[fe80::1]:7".parse().unwrap(), to: "[fe80::2]:9".parse().unwrap() },
    }
}

/// Two streams at the same time: one of a little more than whole frames, and one whose first bytes are missing.
fn send(to: &mut dyn Destination, pattern: &Pattern) -> Result<(), DestinationError> {
    let mut frames = Frames::new(&Config { size: SIZE, frames: 6, ..Config::default() }).unwrap();
    let mut bytes = vec![0; 2 * SIZE + 700];
    pattern.fill(0, &mut bytes);
    (0..2).map(StreamId).for_each(|stream| assert!(frames.begin(stream, &ends(stream), Nanos(1_000_000_001))));
    // Limited by the free space, which grows as data is received.
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes.len().min(frames.room(StreamId(0)) as usize);
        frames.place(StreamId(0), at as u64, Payload::Bytes(&bytes[at..end]), Nanos(1_000_000_001));
        frames.advance(StreamId(0), end as u64, Nanos(1_000_000_001));
        at = end;
    }
    frames.place(StreamId(1), 500, Payload::Bytes(&bytes[500..900]), Nanos(2_500_000_000));
    frames.end(StreamId(1), Ending::Reset, Nanos(3));
    frames.end(StreamId(0), Ending::Complete, Nanos(3));
    while let Some(frame) = frames.full() {
        to.accept(&frame)?;
        frames.return_frame(frame);
    }
    to.finish()
}

fn pattern() -> Pattern {
    Pattern::new(7)
}

fn stream() -> Vec<u8> {
    let mut bytes = vec![0; 2 * SIZE + 700];
    pattern().fill(0, &mut bytes);
    bytes
}

#[test]
fn discarded_data_is_counted_and_read() {
    let mut any = Discard::default();
    send(&mut any, &Pattern::new(8)).unwrap();
    assert_eq!(any.stored(), DestinationTotals { frames: 4, bytes: 2 * SIZE as u64 + 700 + 900, files: 0 });
    // 500 bytes of the second stream are missing and must not be verified.
    send(&mut Discard::verifying(pattern()), &pattern()).unwrap();
    let error = send(&mut Discard::verifying(pattern()), &Pattern::new(8)).unwrap_err();
    assert!(matches!(error, DestinationError::Mismatch { stream: StreamId(0), .. }), "{error}");
}

/// A temporary folder, deleted at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("linerate-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

const FIRST: &str = "stream-000000_10.0.0.1_40000_10.0.0.2_9";
const SECOND: &str = "stream-000001_fe80--1_7_fe80--2_9";

#[test]
fn a_file_holds_a_stream() {
    for direct in [false, true] {
        let folder = Folder::new(&format!("streams-{direct}"));
        let config = FilesConfig { per_frame: false, direct };
        let mut files = Files::create(&folder.0, SIZE, config).unwrap();
        match send(&mut files, &pattern()) {
            Err(DestinationError::Make { error, .. })
                if direct && error.to_string().contains("not support direct writes") =>
            {
                return eprintln!("SKIPPED: {} does not support direct writes", folder.0.display());
            }
            sent => sent.unwrap(),
        }
        assert_eq!(files.stored(), DestinationTotals { frames: 4, bytes: 2 * SIZE as u64 + 700 + 900, files: 2 });
        let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        let open: Vec<PathBuf> = open.filter(|path| path.starts_with(&folder.0) && *path != folder.0).collect();
        assert_eq!(open, [folder.0.join(LIST)], "files of streams that have ended stay open");
        assert!(read(&folder.0, FIRST) == stream());
        let second = read(&folder.0, SECOND);
        assert!(second[..500] == [0; 500] && second[500..] == stream()[500..900]);
        let list = String::from_utf8(read(&folder.0, LIST)).unwrap();
        let lines: Vec<&str> = list.lines().collect();
        assert_eq!(lines.len(), 5, "{list}");
        let crc = linerate_headers::Crc32c::NEW.with(&second).value();
        let wanted = format!(
            "2,1,[fe80::1]:7,[fe80::2]:9,0,0,900,500,{crc:08x},2.500000000,2.500000000,0,0,reset,{SECOND},0-500"
        );
        assert_eq!(lines[3], wanted);
        assert_eq!(lines[0].split(',').count(), lines[3].split(',').count());
        assert!(lines[4].contains(",2,16384,700,0,") && lines[4].ends_with(&format!(",complete,{FIRST},")));
    }
}

const LIST: &str = "frames.csv";

/// The position in a datagram is not a file offset: it may exceed what file systems support.
#[test]
fn file_starts_at_the_first_byte_of_the_stream() {
    let folder = Folder::new("far");
    let frames = Config { size: SIZE, frames: 4, ..Config::default() };
    let form = Form::Fixed { sequence: Field::big(0, 8), unit: Unit::Bytes, batch: None, data: 8 };
    let timeout = std::time::Duration::from_secs(1);
    let full = WhenFull::DropNewest;
    let config = datagrams::Config { frames, form, window: 2, reach: 1 << 20, timeout, full, streams: 4 };
    let mut datagrams = Datagrams::new(config).unwrap();
    let bytes = stream();
    for (index, data) in bytes.chunks(SIZE / 2).enumerate() {
        let position = (1 << 63) + (index * SIZE / 2) as u64;
        datagrams.receive(&ends(StreamId(0)), &[&position.to_be_bytes()[..], data].concat(), Nanos(1));
    }
    datagrams.finish();
    let mut files = Files::create(&folder.0, SIZE, FilesConfig::default()).unwrap();
    while let Some(frame) = datagrams.full() {
        files.accept(&frame).unwrap();
        datagrams.return_frame(frame);
    }
    assert!(read(&folder.0, FIRST) == bytes);
}

/// More streams than a process may have open files: each continues in its own file.
#[test]
fn files_of_many_streams_are_closed_and_reopened() {
    let folder = Folder::new("many");
    let mut frames = Frames::new(&Config { size: 16, frames: 620, ahead: 16, ..Config::default() }).unwrap();
    let mut files = Files::create(&folder.0, 16, FilesConfig::default()).unwrap();
    let streams = || (1..=300).map(StreamId);
    streams().for_each(|stream| assert!(frames.begin(stream, &ends(stream), Nanos(1))));
    for round in 0..3 {
        for stream in streams() {
            frames.place(stream, round * 16, Payload::Bytes(&[stream.0 as u8 ^ round as u8; 16]), Nanos(1));
            frames.advance(stream, (round + 1) * 16, Nanos(1));
        }
        while let Some(frame) = frames.full() {
            files.accept(&frame).unwrap();
            frames.return_frame(frame);
        }
        let open = fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        assert_eq!(open.filter(|path| path.starts_with(&folder.0) && *path != folder.0).count(), 256 + 1);
    }
    assert_eq!((files.stored().files, files.stored().frames), (300, 900));
    for stream in streams() {
        let bytes: Vec<u8> = (0..48).map(|at| stream.0 as u8 ^ (at / 16) as u8).collect();
        assert!(read(&folder.0, &format!("stream-{:06}_fe80--1_7_fe80--2_9", stream.0)) == bytes, "{stream}");
    }
}

#[test]
fn stream_may_be_a_file_per_frame() {
    let folder = Folder::new("frames");
    let mut files = Files::create(&folder.0, SIZE, FilesConfig { per_frame: true, direct: false }).unwrap();
    send(&mut files, &pattern()).unwrap();
    assert_eq!(files.stored().files, 4);
    assert!(read(&folder.0, &format!("{FIRST}_000001")) == stream()[SIZE..2 * SIZE]);
    assert!(read(&folder.0, &format!("{FIRST}_000002")) == stream()[2 * SIZE..]);
}

#[test]
fn existing_files_are_not_overwritten() {
    let folder = Folder::new("taken");
    let config = FilesConfig::default();
    drop(Files::create(&folder.0, SIZE, config).unwrap());
    let error = Files::create(&folder.0, SIZE, config).unwrap_err().to_string();
    assert!(error.contains("frames.csv: already exists"), "{error}");
    fs::remove_file(folder.0.join(LIST)).unwrap();
    fs::write(folder.0.join(SECOND), "mine").unwrap();
    let mut files = Files::create(&folder.0, SIZE, config).unwrap();
    let error = send(&mut files, &pattern()).unwrap_err();
    assert!(matches!(&error, DestinationError::Make { path, .. } if path.ends_with(SECOND)), "{error}");
    assert_eq!(read(&folder.0, SECOND), b"mine");
    // Frames accepted before are complete and listed.
    assert_eq!(files.stored(), DestinationTotals { frames: 2, bytes: 2 * SIZE as u64, files: 1 });
    assert!(read(&folder.0, FIRST) == stream()[..2 * SIZE]);
    assert_eq!(read(&folder.0, LIST).iter().filter(|byte| **byte == b'\n').count(), 3);
}

#[test]
fn invalid_destinations_are_rejected() {
    let folder = Folder::new("refused");
    let error = Files::create(&folder.0, 5000, FilesConfig { per_frame: false, direct: true }).unwrap_err();
    assert!(matches!(error, DestinationError::Blocks(5000)), "{error}");
    assert!(!folder.0.exists());
    fs::write(&folder.0, "a file").unwrap();
    let error = Files::create(&folder.0, SIZE, FilesConfig::default()).unwrap_err();
    fs::remove_file(&folder.0).unwrap();
    assert!(matches!(error, DestinationError::Folder { .. }), "{error}");
}

const TINY: &str = "LINERATE_TINY_FOLDER";

/// A file system of 16 KiB, in its own mount namespace: half of the second frame is written.
#[test]
fn full_disk_keeps_all_written_data() {
    let folder = Folder::new("full");
    fs::create_dir_all(&folder.0).unwrap();
    let mount = r#"mount -t tmpfs -o size=16k none "$1" || exit 77; exec "$2" --ignored --exact "$3""#;
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", mount, "sh"])
        .arg(&folder.0)
        .arg(std::env::current_exe().unwrap())
        .arg("destination::in_a_tiny_folder")
        .env(TINY, &folder.0)
        .output();
    match output {
        Ok(output) if output.status.success() => {
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "nothing ran");
        }
        Ok(output) if output.status.code() == Some(77) || !rustix::process::geteuid().is_root() => {
            eprintln!("SKIPPED: a tmpfs can only be mounted by root; writing to a full disk was not tested");
        }
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stdout)),
        Err(error) => eprintln!("SKIPPED: unshare: {error}; writing to a full disk was not tested"),
    }
}

#[test]
#[ignore = "runs inside full_disk_keeps_all_written_data"]
fn in_a_tiny_folder() {
    let folder = PathBuf::from(std::env::var(TINY).expect("the folder to fill"));
    let mut files = Files::create(&folder, SIZE, FilesConfig::default()).unwrap();
    let error = send(&mut files, &pattern()).unwrap_err().to_string();
    assert!(error.contains("No space left") && error.contains("make room there"), "{error}");
    files.finish().unwrap();
    assert_eq!(files.stored().frames, 1);
    assert!(read(&folder, FIRST) == stream()[..SIZE], "{} bytes", read(&folder, FIRST).len());
    assert_eq!(read(&folder, LIST).iter().filter(|byte| **byte == b'\n').count(), 2);
}
