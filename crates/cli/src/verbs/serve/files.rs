//! Capture files that streams of a server replay: uploaded by clients, or in the directory of `--files`.

use linerate_burst::LinkType;
use linerate_pcap::{Reader, plain};
use linerate_serve::recordings::{MOST_FRAMES, ROOM, RecordedFrame, RecordingReader as Reads};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::PathBuf;

/// Maximum number of bytes read of a capture file, decompressed; its frames are only a part of them.
const MOST_BYTES: u64 = 4 * ROOM as u64;
/// Maximum number of files listed.
const MOST_NAMES: usize = 1000;

/// Reader of capture files.
pub(super) struct Files {
    /// Directory of `--files`, if any.
    pub folder: Option<PathBuf>,
}

impl Reads for Files {
    fn read(&self, file: Vec<u8>) -> Result<Vec<RecordedFrame>, String> {
        frames("the file", Box::new(Cursor::new(file)))
    }

    fn names(&self) -> Vec<String> {
        let entries = self.folder.as_ref().and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten();
        let files = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        let mut names: Vec<String> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names.truncate(MOST_NAMES);
        names
    }

    /// Opens a file of the directory only: the name must not have a slash, and must not be a link.
    fn open(&self, name: &str) -> Result<Vec<RecordedFrame>, String> {
        let Some(folder) = &self.folder else {
            return Err(
                "the server was started without a directory of capture files; use serve --files FOLDER".to_owned()
            );
        };
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(format!("{name:?}: invalid file name"));
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(CWD, folder.join(name), flags, Mode::empty()).map(File::from);
        let file = opened.map_err(|error| format!("{name}: {error}"))?;
        if !file.metadata().is_ok_and(|about| about.is_file()) {
            return Err(format!("{name}: not a regular file"));
        }
        frames(name, Box::new(file))
    }
}

/// Fails after a number of bytes: compressed data can expand a thousand times.
struct Bounded {
    inside: Box<dyn Read + Send>,
    left: u64,
}

impl Read for Bounded {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            return Err(std::io::Error::other(format!("too large: more than {MOST_BYTES} bytes, decompressed")));
        }
        let most = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.inside.read(&mut bytes[..most])?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Reads the frames of a capture file; stops if there are too many.
fn frames(name: &str, source: Box<dyn Read + Send>) -> Result<Vec<RecordedFrame>, String> {
    let inside = plain(source).map_err(|error| format!("{name}: {error}"))?;
    let bounded = Box::new(Bounded { inside, left: MOST_BYTES });
    let mut reader = Reader::new(bounded, name).map_err(|error| error.to_string())?;
    let (mut all, mut bytes) = (Vec::new(), 0);
    loop {
        let shown = reader.fill().map_err(|error| error.to_string())?.len();
        if shown == 0 {
            return Ok(all);
        }
        let burst = reader.shown();
        for (index, desc) in burst.descs().iter().enumerate() {
            let interface = reader.interfaces().get(usize::from(desc.interface));
            if interface.is_none_or(|interface| interface.link != LinkType::ETHERNET) {
                return Err(format!("packet {}: not an Ethernet frame", all.len() + 1));
            }
            let frame = burst.frame(index);
            if (frame.len() as u32) < desc.wire {
                return Err(format!("packet {}: truncated to {} of {} bytes", all.len() + 1, frame.len(), desc.wire));
            }
            bytes += frame.len();
            all.push(RecordedFrame { time: desc.time.0, bytes: frame.to_vec() });
            if all.len() > MOST_FRAMES || bytes > ROOM {
                return Err(format!("too large: more than {MOST_FRAMES} packets or {ROOM} bytes"));
            }
        }
        reader.consume(shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_the_directory() {
        let folder = std::env::temp_dir().join(format!("linerate-files-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("below")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("link")).unwrap();
        std::fs::write(folder.join("text"), "no capture file").unwrap();
        let files = Files { folder: Some(folder.clone()) };
        assert_eq!(files.names(), ["text"]);
        for name in ["", ".", "..", "/etc/passwd", "../text", "below", "link", "none", "text", "a\0b"] {
            assert!(files.open(name).is_err(), "{name:?}");
        }
        assert!(Files { folder: None }.open("text").unwrap_err().contains("--files"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// Unknown blocks of zeros: a few KiB expand to hundreds of MiB.
    #[test]
    fn decompressed_size_is_bounded() {
        let block = |kind: u32, body: &[u8]| {
            let length = (body.len() as u32 + 12).to_le_bytes();
            [&kind.to_le_bytes()[..], &length, body, &length].concat()
        };
        let head = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &u64::MAX.to_le_bytes()].concat();
        let (first, more) = (block(0x0a0d_0d0a, &head), block(0x0bad, &[0; 1 << 20]));
        let packed = std::env::temp_dir().join(format!("linerate-bomb-{}", std::process::id()));
        let out = Box::new(File::create(&packed).unwrap());
        let mut bomb = linerate_pcap::Compressed::new(linerate_pcap::Compression::Zstd, out).unwrap();
        std::io::Write::write_all(&mut bomb, &first).unwrap();
        for _ in 0..MOST_BYTES >> 20 {
            std::io::Write::write_all(&mut bomb, &more).unwrap();
        }
        std::io::Write::flush(&mut bomb).unwrap();
        drop(bomb);
        let file = std::fs::read(&packed).unwrap();
        std::fs::remove_file(packed).unwrap();
        assert!(file.len() < 1 << 20, "{} bytes", file.len());
        let refused = Files { folder: None }.read(file).unwrap_err();
        assert!(refused.contains("bytes, decompressed"), "{refused}");
    }
}
