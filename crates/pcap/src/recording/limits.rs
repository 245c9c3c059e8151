//! Limits of a recording: when files end, which are kept, and the policy for write failures.

use linerate_burst::{Desc, Flags, Nanos};
use std::io::{self, Error, ErrorKind};
use std::time::Duration;

/// Maximum overhead of a frame in a file, without comments.
const FRAME_OVERHEAD: u64 = 80;

/// When files end, and which are kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Size in bytes; a file ends with the frame that reaches it.
    pub file_bytes: Option<u64>,
    /// Time span of a file, aligned to 1970 in UTC.
    pub every: Option<Duration>,
    /// Maximum number of files, including the current one.
    pub files: Option<usize>,
    /// Maximum size of all files in bytes; the current one is kept at any size.
    pub bytes: Option<u64>,
}

/// Policy for write failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteErrorPolicy {
    /// End the run.
    #[default]
    Stop,
    /// Drop and count frames; try a new file once per second.
    Continue,
    /// On a full disk delete the oldest file; otherwise as [`Continue`](WriteErrorPolicy::Continue).
    DropOldest,
}

/// Write options of files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteOptions {
    pub drop_oldest: bool,
    pub direct: bool,
}

/// When written data is forced to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// When the kernel decides: usually within half a minute.
    #[default]
    Never,
    /// Each file, and its name, once it is complete.
    File,
    /// Also at this interval while it is written.
    Every(Duration),
}

/// Returns the maximum size of frames in a file, without comments.
pub(super) fn most_bytes(descs: &[Desc]) -> u64 {
    let (Some(first), Some(last)) = (descs.first(), descs.last()) else { return 0 };
    u64::from(last.offset + last.stored() - first.offset) + descs.len() as u64 * FRAME_OVERHEAD
}

/// Returns the number of frames for a file with `room` bytes left that ends at time `until`: at least the first.
pub(super) fn frames_for(descs: &[Desc], room: u64, until: Nanos) -> usize {
    if until == Nanos::MAX && most_bytes(descs) < room {
        return descs.len();
    }
    let mut bytes = 0;
    let is_for_it = |desc: &&Desc| {
        let is_later = desc.time >= until && !desc.flags.contains(Flags::LATE);
        let is_full = bytes >= room;
        bytes += u64::from(desc.stored()) + FRAME_OVERHEAD;
        !is_later && !is_full
    };
    descs.iter().take_while(is_for_it).count().max(1)
}

/// Returns the end of the time span that contains a time.
pub(super) fn end_of_span(time: Nanos, every: Duration) -> Nanos {
    let every = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1);
    Nanos((time.0 / every).saturating_add(1).saturating_mul(every))
}

/// Endings of recordings, those of compression first.
const ENDINGS: [&str; 5] = [".zst", ".gz", ".lz4", ".pcapng", ".pcap"];

/// Checks that a path can be a recording: an existing thing must be a file or folder.
///
/// # Errors
/// If it is something else.
pub fn check_recording_path(path: &str) -> io::Result<()> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let stem = ENDINGS.iter().fold(name, |stem, ending| stem.strip_suffix(ending).unwrap_or(stem));
    if stem.is_empty() && !name.is_empty() {
        let (folder, format) = (&path[..path.len() - name.len()], if name.contains("pcap") { "" } else { ".pcapng" });
        let text = format!("{path}: no file name; name files by time, as in {folder}%Y%m%d-%H%M%S{format}{name}");
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    match std::fs::metadata(path) {
        Ok(data) if !data.is_file() && !data.is_dir() => {
            let text = format!("{path}: not a regular file, so it cannot be split into several files");
            Err(Error::new(ErrorKind::InvalidInput, text))
        }
        _ => Ok(()),
    }
}
