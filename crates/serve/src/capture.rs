//! Capture of frames at a port in bounded memory, and export as files.
//!
//! Clients of the Open Traffic Generator API expect the FCS after each frame. Ports do not provide it, so it is
//! computed: frames with a bad FCS never arrive here. Files declare it: pcap in the link type (FCS length in 16-bit
//! words, draft-ietf-opsawg-pcap, section 4), pcapng by the option `if_fcslen`.

use linerate_burst::Desc;
use linerate_filter::Filter;
use linerate_otg::config::Format;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Maximum bytes of frames kept per port; as many again may be exported.
const ROOM: usize = 16 << 20;
/// Overhead per frame in bytes.
const OVERHEAD: usize = 64;

/// The captured frames of a port.
#[derive(Debug, Default)]
pub struct CaptureBuffer {
    frames: VecDeque<CapturedFrame>,
    bytes: usize,
    slice: Option<u64>,
    overwrite: bool,
    is_on: bool,
    /// Frames dropped for lack of space.
    pub dropped: u64,
    /// Number of the first frame, among all captured, from 0.
    first: u64,
    /// Filter, compiled and as text.
    filter: Option<Filter>,
    text: String,
}

/// A captured frame.
#[derive(Clone, Debug)]
pub struct CapturedFrame {
    /// Receive time, UTC nanoseconds.
    pub time: u64,
    /// Length on the wire, without FCS.
    pub wire: u32,
    /// The captured bytes.
    pub bytes: Arc<[u8]>,
}

impl CaptureBuffer {
    /// Restarts the capture with `slice` bytes per frame; when full, the oldest frames are dropped, or the newest.
    pub fn start(&mut self, slice: Option<u64>, overwrite: bool) {
        *self = CaptureBuffer { slice, overwrite, is_on: true, ..CaptureBuffer::default() };
    }

    /// Sets the filter for the following frames.
    pub fn select(&mut self, filter: Filter, text: &str) {
        (self.filter, self.text) = (filter.program().is_some().then_some(filter), text.to_owned());
    }

    /// Returns the filter text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the number of bytes kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Discards all frames and continues.
    pub fn empty(&mut self) {
        self.first += self.frames.len() as u64;
        self.frames.clear();
        (self.bytes, self.dropped) = (0, 0);
    }

    /// Returns up to `most` frames from a number on, with the range of their numbers; `None` if there are none.
    pub fn from(&self, number: u64, most: usize) -> Option<(Range<u64>, impl Iterator<Item = &CapturedFrame>)> {
        let start = number.max(self.first);
        let skip = usize::try_from(start - self.first).ok().filter(|skip| *skip < self.frames.len())?;
        let end = self.frames.len().min(skip.saturating_add(most));
        Some((start..start + (end - skip) as u64, self.frames.range(skip..end)))
    }

    /// Returns the matching frames, sharing their bytes.
    pub fn chosen(&self, filter: &Filter) -> CaptureBuffer {
        let fits = |frame: &&CapturedFrame| filter.matches(&frame.bytes, frame.wire);
        let frames: VecDeque<CapturedFrame> = self.frames.iter().filter(fits).cloned().collect();
        CaptureBuffer { frames, bytes: self.bytes, slice: self.slice, ..CaptureBuffer::default() }
    }

    /// Stops the capture.
    pub fn stop(&mut self) {
        self.is_on = false;
    }

    /// Returns whether the capture is running.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Adds a frame.
    pub fn add(&mut self, desc: &Desc, frame: &[u8]) {
        if self.filter.as_ref().is_some_and(|filter| !filter.matches(frame, desc.wire)) {
            return;
        }
        // The slice limits bytes in the file, where the FCS is the end of the frame.
        let need = frame.len() + OVERHEAD;
        while self.overwrite && self.bytes + need > ROOM {
            let Some(oldest) = self.frames.pop_front() else { break };
            self.bytes -= oldest.bytes.len() + OVERHEAD;
            self.first += 1;
            self.dropped += 1;
        }
        if self.bytes + need > ROOM {
            self.dropped += 1;
            return;
        }
        self.bytes += need;
        self.frames.push_back(CapturedFrame { time: desc.time.0, wire: desc.wire, bytes: frame.into() });
    }

    /// Returns all frames as a file.
    pub fn file(&self, format: Format) -> Vec<u8> {
        let mut file = Vec::with_capacity(self.bytes + 1024);
        match format {
            Format::Pcap => {
                file.extend(0xa1b2_3c4du32.to_le_bytes());
                file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                file.extend(SNAP.to_le_bytes());
                // Ethernet, with an FCS of two 16-bit words.
                file.extend((1u32 | 1 << 26 | 2 << 28).to_le_bytes());
            }
            Format::Pcapng => {
                let header = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
                block(&mut file, 0x0a0d_0d0a, &header);
                // if_tsresol 9: nanoseconds; if_fcslen 4.
                let options = [9, 0, 1, 0, 9, 0, 0, 0, 13, 0, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0];
                block(&mut file, 1, &[&[1, 0, 0, 0][..], &SNAP.to_le_bytes(), &options].concat());
            }
        }
        for frame in &self.frames {
            self.write(frame, format, &mut file);
        }
        file
    }

    fn write(&self, frame: &CapturedFrame, format: Format, file: &mut Vec<u8>) {
        let is_whole = frame.bytes.len() == frame.wire as usize;
        let fcs = crc(&frame.bytes).to_le_bytes();
        let mut bytes = frame.bytes.to_vec();
        if is_whole {
            bytes.extend(fcs);
        }
        let slice = self.slice.map_or(usize::MAX, |slice| usize::try_from(slice).unwrap_or(usize::MAX));
        bytes.truncate(slice.max(1));
        let lengths = [(bytes.len() as u32).to_le_bytes(), (frame.wire + 4).to_le_bytes()].concat();
        match format {
            Format::Pcap => {
                file.extend(((frame.time / 1_000_000_000) as u32).to_le_bytes());
                file.extend(((frame.time % 1_000_000_000) as u32).to_le_bytes());
                file.extend(lengths);
                file.extend(bytes);
            }
            Format::Pcapng => {
                let mut body = vec![0; 4];
                body.extend(((frame.time >> 32) as u32).to_le_bytes());
                body.extend((frame.time as u32).to_le_bytes());
                body.extend(lengths);
                body.extend(bytes);
                body.resize(body.len().next_multiple_of(4), 0);
                block(file, 6, &body);
            }
        }
    }
}

/// Snapshot length declared in files.
const SNAP: u32 = 262_144;

fn block(file: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let length = (body.len() as u32 + 12).to_le_bytes();
    file.extend(kind.to_le_bytes());
    file.extend(length);
    file.extend(body);
    file.extend(length);
}

/// Returns the Ethernet CRC (IEEE 802.3, clause 3.2.9).
fn crc(frame: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| CRC[usize::from(crc as u8 ^ byte)] ^ crc >> 8;
    !frame.iter().fold(u32::MAX, step)
}

const CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let (mut value, mut bit) = (index as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ value >> 1 } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_burst::Nanos;

    fn frame(captured: &mut CaptureBuffer, length: usize) {
        captured.add(&Desc::new(Nanos(1_500_000_000), 0, length as u32), &vec![7; length]);
    }

    #[test]
    fn crc_matches_the_standard() {
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn files_contain_the_frames_with_their_fcs() {
        let mut captured = CaptureBuffer::default();
        captured.start(None, true);
        frame(&mut captured, 60);
        let file = captured.file(Format::Pcap);
        assert_eq!((file.len(), &file[32..40]), (24 + 16 + 64, &[64, 0, 0, 0, 64, 0, 0, 0][..]));
        assert_eq!(file[100..104], crc(&[7; 60]).to_le_bytes());
        assert_eq!(captured.file(Format::Pcapng).len() % 4, 0);
        captured.start(Some(20), true);
        frame(&mut captured, 60);
        assert_eq!(captured.file(Format::Pcap).len(), 24 + 16 + 20);
    }

    #[test]
    fn memory_is_bounded_and_drops_are_counted() {
        for overwrite in [true, false] {
            let mut captured = CaptureBuffer::default();
            captured.start(None, overwrite);
            (0..20_000).for_each(|_| frame(&mut captured, 1514));
            assert!(captured.bytes <= ROOM && captured.len() > 10_000);
            assert_eq!(captured.len() as u64 + captured.dropped, 20_000);
        }
    }
}
