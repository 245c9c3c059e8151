//! Report of reassembled streams as text and JSON.

use super::super::inputs::Inputs;
use crate::view::ledger::RunJson;
use crate::view::rates::{counted, grouped, stated};
use crate::view::table::table;
use linerate_burst::{Count, Kind, Stage};
use linerate_engine::{FollowReport, RunReport};
use linerate_transport::follow::{Config, StreamSummary, Tally};
use serde::Serialize;

/// `linerate/streams/1`.
#[derive(Serialize)]
pub(super) struct SummaryJson<'a> {
    schema: &'static str,
    ports: Vec<String>,
    filter: &'a str,
    received: u64,
    frames: u64,
    connections: u64,
    most_connections: u64,
    streams: u64,
    files: u64,
    bytes: u64,
    gaps: u64,
    missing: u64,
    missing_at_end: u64,
    repeated: u64,
    differing: u64,
    late: u64,
    before: u64,
    beyond: u64,
    far: u64,
    evicted: u64,
    most_held_bytes: usize,
    held_memory: usize,
    stream_memory: usize,
    max_connections: usize,
    longest: Vec<StreamJson>,
    #[serde(flatten)]
    run: RunJson,
}

/// One of the longest streams.
#[derive(Serialize)]
struct StreamJson {
    stream: u32,
    connection: u64,
    src: String,
    src_port: u16,
    dst: String,
    dst_port: u16,
    began: &'static str,
    ended: &'static str,
    bytes: u64,
    missing: u64,
}

impl<'a> SummaryJson<'a> {
    pub(super) fn new(inputs: &'a Inputs, config: &Config, followed: &FollowReport, run: &RunReport) -> Self {
        let counts = &followed.counts;
        let Tally { bytes, gaps, missing, unlisted: _, repeated, differing, late, before, beyond, far } = counts.tally;
        SummaryJson {
            schema: "linerate/streams/1",
            ports: inputs.names(),
            filter: &inputs.filter,
            received: run.ledger.sum(Stage::Receive, Kind::Received),
            frames: run.ledger.total(Count::Followed),
            connections: counts.connections,
            most_connections: counts.most_connections,
            streams: counts.streams,
            files: followed.files,
            bytes,
            gaps,
            missing,
            missing_at_end: counts.missing_at_end,
            repeated,
            differing,
            late,
            before,
            beyond,
            far,
            evicted: counts.evicted,
            most_held_bytes: counts.most_memory,
            held_memory: config.memory,
            stream_memory: config.stream_memory,
            max_connections: config.connections,
            longest: followed.longest.iter().map(stream).collect(),
            run: RunJson::new(run),
        }
    }
}

fn stream(summary: &StreamSummary) -> StreamJson {
    let about = &summary.about;
    StreamJson {
        stream: about.stream.0,
        connection: about.connection,
        src: about.ends.from.ip().to_string(),
        src_port: about.ends.from.port(),
        dst: about.ends.to.ip().to_string(),
        dst_port: about.ends.to.port(),
        began: about.began.name(),
        ended: summary.ending.name(),
        bytes: summary.tally.bytes,
        missing: summary.tally.missing,
    }
}

/// Returns the summary as text.
pub(super) fn summary(followed: &FollowReport, target: Option<&str>) -> String {
    let counts = &followed.counts;
    let tally = &counts.tally;
    let mut text = format!(
        "{} with data in {}, {}\n",
        counted(counts.streams, "stream"),
        counted(counts.connections, "connection"),
        counted(tally.bytes, "byte")
    );
    if let Some(target) = target.filter(|target| *target != "-") {
        let folder = target.trim_end_matches('/');
        let files = counted(followed.files, "file");
        text += &format!("  {files} in {folder}, listed in {folder}/streams.jsonl\n");
    }
    if tally.gaps > 0 {
        text += &format!("  {} of {}\n", counted(tally.gaps, "gap"), counted(tally.missing, "byte"));
    }
    for (count, what) in [
        (counts.missing_at_end, "bytes at ends of streams not captured"),
        (tally.differing, "bytes in overlapping segments with different data (--overlap)"),
        (tally.late, "bytes received after the timeout of their gap (--gap-wait)"),
        (tally.before, "bytes before the first captured one of their stream"),
        (tally.beyond, "bytes after the end of their stream, ignored"),
        (tally.far, "bytes outside the window of their stream, ignored"),
        (tally.unlisted, "gaps not listed for lack of memory (--held-memory)"),
        (counts.evicted, "open connections evicted (--max-connections)"),
    ] {
        if count > 0 {
            text += &format!("  {}\n", stated(count, what));
        }
    }
    text += &followed.notes.iter().map(|note| format!("  {note}\n")).collect::<String>();
    text += &longest(&followed.longest);
    let (all, listed) = (counts.streams, followed.longest.len() as u64);
    if 0 < listed && listed < all {
        let all = counted(all, "stream");
        text += &format!("  {} of {all} listed; --top N lists more, -w DIR writes all\n", grouped(listed));
    }
    text
}

fn longest(streams: &[StreamSummary]) -> String {
    if streams.is_empty() {
        return String::new();
    }
    let mut rows = table(&["connection", "from", "to", "began", "ended", "bytes", "missing"], 5).with_single_key();
    for one in streams {
        let about = &one.about;
        rows.add_row([
            about.connection.to_string(),
            about.ends.from.to_string(),
            about.ends.to.to_string(),
            about.began.name().to_owned(),
            one.ending.name().to_owned(),
            grouped(one.tally.bytes),
            grouped(one.tally.missing + one.missing_at_end),
        ]);
    }
    format!("{rows}\n")
}
