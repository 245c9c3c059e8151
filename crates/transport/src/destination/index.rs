//! List of frames (CSV), one line per frame.

use crate::frames::FrameMeta;
use crate::stream_memory::{Ending, Ends, StreamId};
use linerate_burst::Nanos;
use std::fmt::Write;
use std::net::SocketAddr;
use std::ops::Range;

pub(super) const COLUMNS: &str =
    "id,stream,from,to,frame,offset,length,missing,crc32c,first,last,repeated,late,ending,file,gaps\n";

/// Returns the line of a frame.
pub(super) fn line(meta: &FrameMeta, missing: &[Range<u64>], file: &str) -> String {
    let FrameMeta { id, stream, ends, number, offset, len, repeated, late, .. } = meta;
    let crc = meta.crc32c.map(|crc| format!("{crc:08x}")).unwrap_or_default();
    let (first, last) = (seconds(meta.first), seconds(meta.last));
    let ending = meta.ending.map(ending_name).unwrap_or_default();
    let mut line = format!(
        "{id},{stream},{},{},{number},{offset},{len},{},{crc},{first},{last},{repeated},{late},{ending},{file},",
        ends.from, ends.to, meta.missing
    );
    for (index, gap) in missing.iter().enumerate() {
        let between = if index > 0 { " " } else { "" };
        let _ = write!(line, "{between}{}-{}", gap.start, gap.end);
    }
    line + "\n"
}

/// Returns the file name of a stream: its number and addresses.
pub(super) fn file_name(stream: StreamId, ends: &Ends) -> String {
    // Colons have special meaning to other programs.
    let end = |end: &SocketAddr| format!("{}_{}", end.ip().to_string().replace(':', "-"), end.port());
    format!("stream-{:06}_{}_{}", stream.0, end(&ends.from), end(&ends.to))
}

fn seconds(time: Nanos) -> String {
    if time == Nanos::ZERO { String::new() } else { format!("{}.{:09}", time.seconds(), time.subsec()) }
}

fn ending_name(ending: Ending) -> &'static str {
    match ending {
        Ending::Complete => "complete",
        Ending::Reset => "reset",
        Ending::Silent => "silent",
        Ending::Stopped => "stopped",
    }
}
