//! Recordings for replay by streams: from a capture, uploaded by a client, or from a directory given at the start.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use linerate_generate::Rate;
use linerate_generate::stream::{IndexSelection, Mark, Selector, Shape, Stream, Variant};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum bytes of frames, of all recordings together and of each one.
pub const ROOM: usize = 32 << 20;
/// Maximum number of frames per recording: while sent, each takes some hundred bytes more.
pub const MOST_FRAMES: usize = 1 << 16;
/// Maximum number of recordings.
const MOST: usize = 100;

/// Reads capture files.
pub trait RecordingReader: Send + Sync {
    /// Returns the Ethernet frames of a file, without FCS.
    ///
    /// # Errors
    /// The file cannot be replayed.
    fn read(&self, file: Vec<u8>) -> Result<Vec<RecordedFrame>, String>;

    /// Returns the names of the files of the server.
    fn names(&self) -> Vec<String>;

    /// Reads one of these files.
    ///
    /// # Errors
    /// The file does not exist or cannot be replayed.
    fn open(&self, name: &str) -> Result<Vec<RecordedFrame>, String>;
}

/// Frame of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedFrame {
    /// Time in nanoseconds.
    pub time: u64,
    /// Bytes, without FCS.
    pub bytes: Vec<u8>,
}

/// Sequence of frames with times.
#[derive(Debug)]
pub struct Recording {
    frames: Vec<RecordedFrame>,
    /// Bytes of all frames.
    pub bytes: usize,
}

/// Stored recordings by name.
#[derive(Debug, Default)]
pub struct Recordings(BTreeMap<String, Arc<Recording>>);

impl Recording {
    /// Creates a recording from frames in order of time.
    ///
    /// # Errors
    /// The recording has no frames, or too many.
    pub fn new(frames: Vec<RecordedFrame>) -> Result<Self, String> {
        let bytes = frames.iter().map(|frame| frame.bytes.len()).sum();
        match frames.len() {
            0 => Err("no frames".to_owned()),
            many if many > MOST_FRAMES || bytes > ROOM => {
                Err(format!("{many} frames of {bytes} bytes: at most {MOST_FRAMES}, and {ROOM} bytes"))
            }
            _ => Ok(Recording { frames, bytes }),
        }
    }

    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the time from the first to the last frame in seconds.
    pub fn seconds(&self) -> f64 {
        let first = self.frames.first().map_or(0, |frame| frame.time);
        let last = self.frames.iter().map(|frame| frame.time).max().unwrap_or(first);
        (last - first) as f64 / 1e9
    }

    /// Makes a stream send these frames, once per start unless the stream sets a count: at its own rate if set, else
    /// with the recorded timing.
    ///
    /// # Errors
    /// The rate is in bits.
    fn replay(&self, stream: &mut Stream, has_rate: bool, is_once: bool) -> Result<(), String> {
        let times: Vec<u64> = self.frames.iter().map(|frame| frame.time).collect();
        let (shape, rate) = Shape::recorded(&times);
        if !has_rate {
            stream.rate = Rate::Frames(rate);
        } else if !matches!(stream.rate, Rate::Frames(_)) {
            return Err("a recording needs a frame rate, such as 10kpps, or none for the recorded timing".to_owned());
        }
        let variant = |frame: &RecordedFrame| Variant { frame: frame.bytes.clone(), ..Variant::default() };
        stream.variants = self.frames.iter().map(variant).collect();
        stream.size = Selector { count: stream.variants.len() as u64, pick: IndexSelection::InTurn { every: 1 } };
        (stream.selectors, stream.shape, stream.mark) = (Vec::new(), shape, Mark::None);
        if is_once {
            stream.count = Some(self.frames.len() as u64);
        }
        Ok(())
    }
}

impl Recordings {
    /// Stores a recording, replacing one with the same name.
    ///
    /// # Errors
    /// The limit of space or number is reached.
    pub fn keep(&mut self, name: &str, recording: Recording) -> Result<(), String> {
        let others = self.0.iter().filter(|(other, _)| *other != name);
        let (many, bytes) = others.fold((0, 0), |(many, bytes), (_, other)| (many + 1, bytes + other.bytes));
        if many >= MOST || bytes + recording.bytes > ROOM {
            let left = ROOM.saturating_sub(bytes);
            return Err(format!("no space: {many} of {MOST} files stored, {left} bytes left; remove some"));
        }
        self.0.insert(name.to_owned(), Arc::new(recording));
        Ok(())
    }

    /// Removes a recording; returns whether it existed.
    pub fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// Returns all recordings with their names.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Recording)> {
        self.0.iter().map(|(name, recording)| (name.as_str(), &**recording))
    }

    /// Returns a recording.
    ///
    /// # Errors
    /// The name is unknown; lists the known ones.
    pub fn get(&self, name: &str) -> Result<&Recording, String> {
        let known = || self.0.keys().map(String::as_str).take(20).collect::<Vec<_>>().join(", ");
        self.0.get(name).map(|found| &**found).ok_or_else(|| match self.0.is_empty() {
            true => format!("unknown file {name:?}; store one first (POST /api/v1/files)"),
            false => format!("unknown file {name:?}; expected one of {}", known()),
        })
    }

    /// Makes a stream replay a recording.
    ///
    /// # Errors
    /// The name is unknown, or the rate does not apply.
    pub fn replay(&self, name: &str, stream: &mut Stream, has_rate: bool, is_once: bool) -> Result<(), String> {
        self.get(name)?.replay(stream, has_rate, is_once)
    }
}

/// Decodes Base64 (RFC 4648, section 4).
///
/// # Errors
/// The text is not Base64.
pub fn decoded(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| format!("invalid Base64: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(frames: usize, length: usize) -> Recording {
        let frame = |place: usize| RecordedFrame { time: place as u64 * 1000, bytes: vec![0; length] };
        Recording::new((0..frames).map(frame).collect()).unwrap()
    }

    #[test]
    fn space_is_bounded_and_replaced_recordings_are_not_counted_twice() {
        let mut all = Recordings::default();
        for _ in 0..3 {
            all.keep("large", recording(20_000, 1500)).unwrap();
        }
        assert!(all.keep("another", recording(20_000, 1500)).unwrap_err().contains("no space"));
        for number in 0..MOST - 1 {
            all.keep(&number.to_string(), recording(1, 60)).unwrap();
        }
        assert!(all.keep("one too many", recording(1, 60)).unwrap_err().contains("no space"));
        assert!(all.remove("large") && !all.remove("large") && all.get("large").is_err());
        all.keep("one more", recording(1, 60)).unwrap();
        assert!(Recording::new(Vec::new()).is_err());
    }
}
