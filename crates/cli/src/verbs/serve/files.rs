//! Capture files that streams of a server replay: those that clients bring, and those of a folder that was named at the start.

use linerate_burst::LinkType;
use linerate_record::Reader;
use linerate_serve::recordings::{MOST_FRAMES, ROOM, Reader as Reads, Recorded};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::PathBuf;

/// Files that are told of a folder.
const MOST_NAMES: usize = 1000;

/// Reads them.
pub struct Files {
    /// The folder, where one was named.
    pub folder: Option<PathBuf>,
}

impl Reads for Files {
    fn read(&self, file: Vec<u8>) -> Result<Vec<Recorded>, String> {
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

    /// A name within the folder leads nowhere else: it has no slash, and what it names is no link.
    fn open(&self, name: &str) -> Result<Vec<Recorded>, String> {
        let Some(folder) = &self.folder else {
            return Err("no folder was named when the server was started: --files FOLDER".to_owned());
        };
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(format!("{name:?} is no name of a file in the folder"));
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(CWD, folder.join(name), flags, Mode::empty()).map(File::from);
        let file = opened.map_err(|error| format!("{name}: {error}"))?;
        if !file.metadata().is_ok_and(|about| about.is_file()) {
            return Err(format!("{name} is no file"));
        }
        frames(name, Box::new(file))
    }
}

/// The frames of a capture file; of one that has too many no more than show that.
fn frames(name: &str, source: Box<dyn Read + Send>) -> Result<Vec<Recorded>, String> {
    let mut reader = Reader::new(source, name).map_err(|error| error.to_string())?;
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
                return Err(format!("frame {}: it is not of Ethernet", all.len() + 1));
            }
            let fcs = u32::from(reader.fcs(desc.interface));
            let frame = burst.frame(index);
            if (frame.len() as u32) < desc.wire {
                return Err(format!("frame {}: {} of its {} bytes are there", all.len() + 1, frame.len(), desc.wire));
            }
            let frame = &frame[..frame.len() - (fcs as usize).min(frame.len())];
            bytes += frame.len();
            all.push(Recorded { time: desc.time.0, bytes: frame.to_vec() });
            if all.len() > MOST_FRAMES || bytes > ROOM {
                return Err(format!("it has more than {MOST_FRAMES} frames, or {ROOM} bytes of them"));
            }
        }
        reader.consume(shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else() {
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
}
