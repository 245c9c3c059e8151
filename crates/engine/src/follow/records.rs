//! All streams in one pipe.
//!
//! Eight bytes of magic, then records: 32 bytes, all numbers little-endian, and their data.
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 1 | `B` start of a stream, `D` bytes of it, `G` a gap in it, `E` its end |
//! | 1 | 3 | 0 |
//! | 4 | 4 | number of the stream |
//! | 8 | 8 | offset in the stream: of the first byte, or of the gap; of `E` its length |
//! | 16 | 8 | time, nanoseconds since 1970 |
//! | 24 | 8 | number of bytes of data; of `G` number of missing bytes, without data |
//!
//! `B` and `E` are followed by a JSON document, like the lines of an index.

use super::{StreamOutput, index};
use linerate_burst::{Nanos, SinkError};
use linerate_transport::follow::{Output, StreamInfo, StreamSummary};
use linerate_transport::stream_memory::StreamId;
use std::io::{BufWriter, Result, Write};
use std::ops::Range;

/// Magic at the start.
const MAGIC: &[u8; 8] = b"LRSTRM1\n";
/// Size of a write.
const BUFFER: usize = 256 << 10;

/// Writes records.
pub struct StreamRecords<W: Write> {
    out: BufWriter<W>,
    target: String,
    failure: Option<SinkError>,
}

impl<W: Write> StreamRecords<W> {
    /// Starts the output; `target` is its name in messages.
    pub fn new(out: W, target: &str) -> Self {
        let mut records =
            StreamRecords { out: BufWriter::with_capacity(BUFFER, out), target: target.to_owned(), failure: None };
        records.try_write(|out| out.write_all(MAGIC));
        records
    }

    fn put(&mut self, kind: u8, stream: StreamId, offset: u64, time: Nanos, len: u64, bytes: &[u8]) -> bool {
        let mut head = [0; 32];
        head[0] = kind;
        head[4..8].copy_from_slice(&stream.0.to_le_bytes());
        head[8..16].copy_from_slice(&offset.to_le_bytes());
        head[16..24].copy_from_slice(&time.0.to_le_bytes());
        head[24..32].copy_from_slice(&len.to_le_bytes());
        self.try_write(|out| {
            out.write_all(&head)?;
            out.write_all(bytes)
        })
    }

    fn try_write(&mut self, write: impl FnOnce(&mut BufWriter<W>) -> Result<()>) -> bool {
        if self.failure.is_none()
            && let Err(reason) = write(&mut self.out)
        {
            self.failure = Some(SinkError { target: self.target.clone(), reason, advice: String::new() });
        }
        self.failure.is_none()
    }
}

impl<W: Write> Output for StreamRecords<W> {
    fn begin(&mut self, about: &StreamInfo, now: Nanos) {
        let document = index::begun(about) + "}\n";
        self.put(b'B', about.stream, 0, now, document.len() as u64, document.as_bytes());
    }

    fn bytes(&mut self, stream: StreamId, offset: u64, bytes: &[u8], now: Nanos) -> bool {
        self.put(b'D', stream, offset, now, bytes.len() as u64, bytes)
    }

    fn gap(&mut self, stream: StreamId, gap: Range<u64>, now: Nanos) {
        self.put(b'G', stream, gap.start, now, gap.end - gap.start, &[]);
    }

    fn end(&mut self, summary: &StreamSummary) {
        let document = index::ended(summary, None, None);
        let length = summary.tally.bytes + summary.tally.missing;
        let last = summary.times.map_or(Nanos::ZERO, |(_, last)| last);
        self.put(b'E', summary.about.stream, length, last, document.len() as u64, document.as_bytes());
    }
}

impl<W: Write + Send> StreamOutput for StreamRecords<W> {
    fn flush(&mut self) {
        self.try_write(BufWriter::flush);
    }

    fn failure(&self) -> Option<&SinkError> {
        self.failure.as_ref()
    }

    fn finish(&mut self) -> std::result::Result<(), SinkError> {
        self.flush();
        match &self.failure {
            None => Ok(()),
            Some(SinkError { target, reason, advice }) => {
                Err(SinkError { target: target.clone(), reason: reason.kind().into(), advice: advice.clone() })
            }
        }
    }
}
