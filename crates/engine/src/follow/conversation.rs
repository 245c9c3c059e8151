//! Both directions of one connection, in order of arrival.

use super::StreamOutput;
use linerate_burst::{Nanos, SinkError};
use linerate_transport::follow::{Output, StreamInfo, StreamSummary};
use linerate_transport::stream_memory::StreamId;
use std::fmt::Write as _;
use std::io::{BufWriter, Error, ErrorKind, Write};
use std::ops::Range;

/// Bytes per line of a hex dump.
const ROW: usize = 16;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationFormat {
    /// Raw bytes, without marks of direction or missing bytes.
    Raw,
    /// Hex dump with offset, sixteen bytes and text; the direction of the responder is indented.
    Hex,
    /// Text, with a dot for each other byte; a line names the direction.
    Ascii,
}

/// Writes one conversation.
pub struct Conversation<W: Write> {
    out: BufWriter<W>,
    number: u64,
    form: ConversationFormat,
    /// The two directions, the originator's first.
    streams: [Option<StreamId>; 2],
    headings: [String; 2],
    /// Direction of the last bytes.
    last: Option<usize>,
    line: String,
    /// Number of gaps and of missing bytes that raw output does not mark.
    unmarked: (u64, u64),
    failure: Option<SinkError>,
}

impl<W: Write> Conversation<W> {
    /// Creates the output of the connection with this number.
    pub fn new(out: W, number: u64, form: ConversationFormat) -> Self {
        Conversation {
            out: BufWriter::new(out),
            number,
            form,
            streams: [None; 2],
            headings: Default::default(),
            last: None,
            line: String::new(),
            unmarked: (0, 0),
            failure: None,
        }
    }

    fn side(&self, stream: StreamId) -> Option<usize> {
        self.streams.iter().position(|one| *one == Some(stream))
    }

    /// Starts output of a direction.
    fn turn_to(&mut self, side: usize) {
        if self.form == ConversationFormat::Ascii && self.last != Some(side) {
            let ahead = if self.last.is_some() { "\n" } else { "" };
            let _ = writeln!(self.line, "{ahead}{}", self.headings[side]);
        }
        self.last = Some(side);
    }

    fn put_hex(&mut self, side: usize, offset: u64, bytes: &[u8]) {
        let indent = if side == 1 { "\t" } else { "" };
        for (row, bytes) in bytes.chunks(ROW).enumerate() {
            let _ = write!(self.line, "{indent}{:08x} ", offset + (row * ROW) as u64);
            for at in 0..ROW {
                let gap = if at == ROW / 2 { " " } else { "" };
                let _ = match bytes.get(at) {
                    Some(byte) => write!(self.line, "{gap} {byte:02x}"),
                    None => write!(self.line, "{gap}   "),
                };
            }
            self.line.push_str("   ");
            self.line.extend(
                bytes.iter().map(|byte| if byte.is_ascii_graphic() || *byte == b' ' { *byte as char } else { '.' }),
            );
            self.line.push('\n');
        }
    }

    fn write(&mut self, bytes: Option<&[u8]>) -> bool {
        if self.failure.is_none()
            && let Err(reason) = self.out.write_all(bytes.unwrap_or(self.line.as_bytes()))
        {
            self.fail(reason);
        }
        self.line.clear();
        self.failure.is_none()
    }

    fn fail(&mut self, reason: std::io::Error) {
        self.failure = Some(SinkError { target: "standard output".into(), reason, advice: String::new() });
    }
}

impl<W: Write> Output for Conversation<W> {
    fn begin(&mut self, about: &StreamInfo, _: Nanos) {
        if about.connection == self.number
            && let Some(side) = self.streams.iter().position(Option::is_none)
        {
            self.streams[side] = Some(about.stream);
            self.headings[side] = format!("--- {} > {}", about.ends.from, about.ends.to);
        }
    }

    fn bytes(&mut self, stream: StreamId, offset: u64, bytes: &[u8], _: Nanos) -> bool {
        let Some(side) = self.side(stream) else { return true };
        self.turn_to(side);
        match self.form {
            ConversationFormat::Raw => return self.write(Some(bytes)),
            ConversationFormat::Hex => self.put_hex(side, offset, bytes),
            ConversationFormat::Ascii => {
                let is_shown = |byte: u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\n' | b'\t');
                self.line.extend(bytes.iter().map(|byte| if is_shown(*byte) { *byte as char } else { '.' }));
            }
        }
        self.write(None)
    }

    fn gap(&mut self, stream: StreamId, gap: Range<u64>, _: Nanos) {
        let Some(side) = self.side(stream) else { return };
        if self.form == ConversationFormat::Raw {
            self.unmarked.0 += 1;
            self.unmarked.1 += gap.end - gap.start;
            return;
        }
        self.turn_to(side);
        if self.form == ConversationFormat::Hex && side == 1 {
            self.line.push('\t');
        }
        let _ = writeln!(self.line, "[{} bytes missing from offset {}]", gap.end - gap.start, gap.start);
        self.write(None);
    }

    fn end(&mut self, _: &StreamSummary) {}
}

impl<W: Write + Send> StreamOutput for Conversation<W> {
    fn flush(&mut self) {
        if self.failure.is_none()
            && let Err(reason) = self.out.flush()
        {
            self.fail(reason);
        }
    }

    fn failure(&self) -> Option<&SinkError> {
        self.failure.as_ref()
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        if self.form == ConversationFormat::Ascii && self.last.is_some() {
            self.line.push('\n');
            self.write(None);
        }
        self.flush();
        if self.streams == [None; 2] {
            self.failure.get_or_insert(SinkError {
                target: format!("--follow {}", self.number),
                reason: Error::new(ErrorKind::NotFound, "no connection with data has this number"),
                advice: "numbers start at 0".into(),
            });
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    fn notes(&self) -> Vec<String> {
        let (gaps, bytes) = self.unmarked;
        let note = format!("gaps in raw output: {gaps}, {bytes} bytes in all; --form ascii or hex marks them");
        (gaps > 0).then_some(note).into_iter().collect()
    }
}
