//! Progress of reading files, by the offsets of this process's file descriptors.

use std::fs::{Metadata, metadata, read_dir, read_to_string};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Files that a run reads from start to end.
#[derive(Debug)]
pub struct FileProgress {
    files: Vec<File>,
}

#[derive(Debug)]
struct File {
    identity: (u64, u64),
    bytes: u64,
    /// Offset when it was last open; a file is closed after its end.
    read: Option<u64>,
}

impl FileProgress {
    /// Watches these paths; `None` if one is not a regular file, whose size is unknown.
    pub fn of(paths: &[String]) -> Option<Self> {
        let file = |path: &String| {
            let data = metadata(path).ok().filter(|data| data.is_file() && data.len() > 0)?;
            Some(File { identity: identity(&data), bytes: data.len(), read: None })
        };
        let files = paths.iter().map(file).collect::<Option<Vec<_>>>()?;
        (!files.is_empty()).then_some(FileProgress { files })
    }

    /// Returns the fraction read so far.
    pub fn share(&mut self) -> Option<f64> {
        let open: Vec<_> = read_dir("/proc/self/fd").ok()?.flatten().map(|entry| entry.path()).collect();
        let mut places = Vec::new();
        for path in open {
            let Ok(data) = metadata(&path) else { continue };
            if let Some(number) = path.file_name().filter(|_| data.is_file()) {
                places.push((identity(&data), format!("/proc/self/fdinfo/{}", number.to_string_lossy())));
            }
        }
        for file in &mut self.files {
            let place = places.iter().find(|(identity, _)| *identity == file.identity);
            let read = place.and_then(|(_, info)| position_in(&read_to_string(info).ok()?));
            // A file that was open and is closed has been read.
            let closed = file.read.map(|_| file.bytes);
            file.read = read.or(closed);
        }
        let read: u64 = self.files.iter().map(|file| file.read.unwrap_or(0).min(file.bytes)).sum();
        let bytes: u64 = self.files.iter().map(|file| file.bytes).sum();
        Some(read as f64 / bytes as f64)
    }
}

/// Formats the fraction read, and the estimated time left.
pub fn progress_text(share: f64, so_far: Duration) -> String {
    let percent = format!("{:>3.0} %", (share * 100.0).floor());
    if share <= 0.0 || share >= 1.0 {
        return percent;
    }
    let left = (so_far.as_secs_f64() * (1.0 - share) / share).ceil() as u64;
    let left = match left {
        0..=99 => format!("{left} s"),
        100..=5999 => format!("{}:{:02} min", left / 60, left % 60),
        _ => format!("{}:{:02} h", left / 3600, left / 60 % 60),
    };
    format!("{percent}, {left} left")
}

fn identity(data: &Metadata) -> (u64, u64) {
    (data.dev(), data.ino())
}

/// Returns `pos` of fdinfo (proc(5)).
fn position_in(info: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn fraction_of_all_files_is_reported() {
        let folder = std::env::temp_dir().join(format!("linerate-reading-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let paths: Vec<String> = ["a", "b"].map(|name| folder.join(name).to_str().unwrap().to_owned()).into();
        for (path, bytes) in paths.iter().zip([3000, 1000]) {
            std::fs::File::create(path).unwrap().write_all(&vec![0; bytes]).unwrap();
        }
        let mut reading = FileProgress::of(&paths).unwrap();
        assert_eq!(reading.share(), Some(0.0));
        let mut first = std::fs::File::open(&paths[0]).unwrap();
        first.read_exact(&mut [0; 1000]).unwrap();
        assert_eq!(reading.share(), Some(0.25));
        drop(first);
        assert_eq!(reading.share(), Some(0.75));
        let mut second = std::fs::File::open(&paths[1]).unwrap();
        second.read_exact(&mut [0; 1000]).unwrap();
        assert_eq!(reading.share(), Some(1.0));
        assert!(FileProgress::of(&["/dev/null".to_owned()]).is_none() && FileProgress::of(&[]).is_none());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_time_left_has_a_readable_unit() {
        let text = |share, seconds| progress_text(share, Duration::from_secs(seconds));
        assert_eq!(text(0.0, 5), "  0 %");
        assert_eq!(text(0.5, 7), " 50 %, 7 s left");
        assert_eq!(text(0.1, 60), " 10 %, 9:00 min left");
        assert_eq!(text(0.01, 100), "  1 %, 2:45 h left");
        assert_eq!(text(1.0, 5), "100 %");
    }
}
