//! Recordings that streams replay: kept of what was captured, brought by a client, or of a folder that was named at the start.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use linerate_generate::Rate;
use linerate_generate::stream::{Mark, Pick, Selector, Shape, Stream, Variant};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that the frames of all recordings have at most, and those of one have.
pub const ROOM: usize = 32 << 20;
/// Frames of a recording at most: what is sent has each of them in some hundred bytes more.
pub const MOST_FRAMES: usize = 1 << 16;
/// Recordings at most.
const MOST: usize = 100;

/// Reads capture files.
pub trait Reader: Send + Sync {
    /// The Ethernet frames of a file, without FCS.
    ///
    /// # Errors
    /// Why it is none that can be replayed.
    fn read(&self, file: Vec<u8>) -> Result<Vec<Recorded>, String>;

    /// The files that the server has itself, by their names.
    fn names(&self) -> Vec<String>;

    /// Of one of those.
    ///
    /// # Errors
    /// If there is no such file, or it cannot be replayed.
    fn open(&self, name: &str) -> Result<Vec<Recorded>, String>;
}

/// A frame of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// When it came, in nanoseconds.
    pub time: u64,
    /// What it is, without FCS.
    pub bytes: Vec<u8>,
}

/// A recording.
#[derive(Debug)]
pub struct Recording {
    frames: Vec<Recorded>,
    /// Their bytes.
    pub bytes: usize,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Recordings(BTreeMap<String, Arc<Recording>>);

impl Recording {
    /// Of frames, in the order in which they came.
    ///
    /// # Errors
    /// If there are none, or too many.
    pub fn new(frames: Vec<Recorded>) -> Result<Self, String> {
        let bytes = frames.iter().map(|frame| frame.bytes.len()).sum();
        match frames.len() {
            0 => Err("it has no frame".to_owned()),
            many if many > MOST_FRAMES || bytes > ROOM => {
                Err(format!("{many} frames of {bytes} bytes: at most {MOST_FRAMES}, and {ROOM} bytes"))
            }
            _ => Ok(Recording { frames, bytes }),
        }
    }

    /// How many frames it has.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// From its first frame to its last, in seconds.
    pub fn seconds(&self) -> f64 {
        let first = self.frames.first().map_or(0, |frame| frame.time);
        let last = self.frames.iter().map(|frame| frame.time).max().unwrap_or(first);
        (last - first) as f64 / 1e9
    }

    /// Has a stream send its frames as they came, each time it begins once, unless the stream says how many: at its own rate, where
    /// it was given one, or as fast as they came.
    ///
    /// # Errors
    /// A rate in bits.
    fn replay(&self, stream: &mut Stream, has_rate: bool, is_once: bool) -> Result<(), String> {
        let times: Vec<u64> = self.frames.iter().map(|frame| frame.time).collect();
        let (shape, rate) = Shape::recorded(&times);
        if !has_rate {
            stream.rate = Rate::Frames(rate);
        } else if !matches!(stream.rate, Rate::Frames(_)) {
            return Err("a recording goes at frames a second, as in 10kpps; without a rate as it came".to_owned());
        }
        let variant = |frame: &Recorded| Variant { frame: frame.bytes.clone(), ..Variant::default() };
        stream.variants = self.frames.iter().map(variant).collect();
        stream.size = Selector { count: stream.variants.len() as u64, pick: Pick::InTurn { every: 1 } };
        (stream.selectors, stream.shape, stream.mark) = (Vec::new(), shape, Mark::None);
        if is_once {
            stream.count = Some(self.frames.len() as u64);
        }
        Ok(())
    }
}

impl Recordings {
    /// Keeps one, instead of what was kept by that name.
    ///
    /// # Errors
    /// If there is no room.
    pub fn keep(&mut self, name: &str, recording: Recording) -> Result<(), String> {
        let others = self.0.iter().filter(|(other, _)| *other != name);
        let (many, bytes) = others.fold((0, 0), |(many, bytes), (_, other)| (many + 1, bytes + other.bytes));
        if many >= MOST || bytes + recording.bytes > ROOM {
            let left = ROOM.saturating_sub(bytes);
            return Err(format!(
                "there is no room: {many} of {MOST} files are kept, and {left} bytes are left; remove some"
            ));
        }
        self.0.insert(name.to_owned(), Arc::new(recording));
        Ok(())
    }

    /// Lets one go; whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// All, by their names.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Recording)> {
        self.0.iter().map(|(name, recording)| (name.as_str(), &**recording))
    }

    /// One of them.
    ///
    /// # Errors
    /// Which there are.
    pub fn get(&self, name: &str) -> Result<&Recording, String> {
        let known = || self.0.keys().map(String::as_str).take(20).collect::<Vec<_>>().join(", ");
        self.0.get(name).map(|found| &**found).ok_or_else(|| match self.0.is_empty() {
            true => format!("no file {name:?}: keep one first (POST /api/v1/files)"),
            false => format!("no file {name:?}; there is {}", known()),
        })
    }

    /// Has a stream replay one.
    ///
    /// # Errors
    /// If there is none, or it cannot be sent so.
    pub fn replay(&self, name: &str, stream: &mut Stream, has_rate: bool, is_once: bool) -> Result<(), String> {
        self.get(name)?.replay(stream, has_rate, is_once)
    }
}

/// The bytes of a text in Base64 (RFC 4648, section 4).
///
/// # Errors
/// If it is none.
pub fn decoded(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| format!("this is no Base64: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(frames: usize, length: usize) -> Recording {
        let frame = |place: usize| Recorded { time: place as u64 * 1000, bytes: vec![0; length] };
        Recording::new((0..frames).map(frame).collect()).unwrap()
    }

    #[test]
    fn room_is_bounded_and_what_takes_a_place_is_not_counted_twice() {
        let mut all = Recordings::default();
        for _ in 0..3 {
            all.keep("large", recording(20_000, 1500)).unwrap();
        }
        assert!(all.keep("another", recording(20_000, 1500)).unwrap_err().contains("no room"));
        for number in 0..MOST - 1 {
            all.keep(&number.to_string(), recording(1, 60)).unwrap();
        }
        assert!(all.keep("one too many", recording(1, 60)).unwrap_err().contains("no room"));
        assert!(all.remove("large") && !all.remove("large") && all.get("large").is_err());
        all.keep("one more", recording(1, 60)).unwrap();
        assert!(Recording::new(Vec::new()).is_err());
    }
}
