//! When files of a recording end, which of them are kept, and what is done where none can be written.

use linerate_burst::{Desc, Flags, Nanos};
use std::io::{self, Error, ErrorKind};
use std::time::Duration;

/// The most that a frame takes in a file beyond its bytes, but for comments.
const BESIDE_FRAME: u64 = 80;

/// When files end, and which of them are kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// A file ends with the frame that it reaches so many bytes with.
    pub file_bytes: Option<u64>,
    /// A file ends where a new span of so long begins, counted from 1970 in UTC.
    pub every: Option<Duration>,
    /// Files that are kept, the one that is written among them.
    pub files: Option<usize>,
    /// Bytes of all files that are kept; the one that is written is, whatever it takes.
    pub bytes: Option<u64>,
}

/// What to do where nothing more can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTrouble {
    /// The run ends.
    #[default]
    Stop,
    /// Frames are lost, and counted; a new file is tried once a second.
    GoOn,
    /// On a full disk the oldest file goes; otherwise as [`GoOn`](OnTrouble::GoOn).
    DropOldest,
}

/// How files are written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Writing {
    pub drop_oldest: bool,
    /// Past the page cache.
    pub direct: bool,
}

/// When what was written is forced to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// When the system likes: within half a minute, usually.
    #[default]
    Never,
    /// Each file, with its name, once it is complete.
    File,
    /// The same, and so often meanwhile.
    Every(Duration),
}

/// The most that frames take in a file, but for comments.
pub(super) fn most_bytes(descs: &[Desc]) -> u64 {
    let (Some(first), Some(last)) = (descs.first(), descs.last()) else { return 0 };
    u64::from(last.offset + last.stored() - first.offset) + descs.len() as u64 * BESIDE_FRAME
}

/// How many of these frames are for a file with so much room, and no frames of `until` or later: at least the first.
pub(super) fn frames_for(descs: &[Desc], room: u64, until: Nanos) -> usize {
    if until == Nanos::MAX && most_bytes(descs) < room {
        return descs.len();
    }
    let mut bytes = 0;
    let is_for_it = |desc: &&Desc| {
        let is_later = desc.time >= until && !desc.flags.contains(Flags::LATE);
        let is_full = bytes >= room;
        bytes += u64::from(desc.stored()) + BESIDE_FRAME;
        !is_later && !is_full
    };
    descs.iter().take_while(is_for_it).count().max(1)
}

/// The end of the span that a time is in.
pub(super) fn end_of_span(time: Nanos, every: Duration) -> Nanos {
    let every = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1);
    Nanos((time.0 / every).saturating_add(1).saturating_mul(every))
}

/// An existing thing that is no file and no folder cannot be a recording.
///
/// # Errors
/// It is one.
pub fn check_place(path: &str) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(data) if !data.is_file() && !data.is_dir() => {
            let text = format!("{path} is no file: what is written to it cannot be divided into files");
            Err(Error::new(ErrorKind::InvalidInput, text))
        }
        _ => Ok(()),
    }
}
