//! Report of received streams, during the run and at the end.

use crate::view::ledger::RunJson;
use crate::view::rates::{bits_per_second, counted, grouped};
use crate::view::table::table;
use crate::view::terminal::print_stderr;
use linerate_burst::{Count, Ledger};
use linerate_engine::RunReport;
use linerate_engine::frame_ring::{FrameRingState, FrameSharingWatch};
use linerate_engine::reception::{ReceptionProgress, ReceptionWatch, StreamProgress};
use linerate_port::Spec;
use linerate_transport::stream_memory::{Ending, StreamId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;

/// Returns a function that prints a line of progress, and one about the reader of shared frames.
pub fn ticker(watch: ReceptionWatch, shared: Option<FrameSharingWatch>) -> impl FnMut() + Send + 'static {
    let started = Instant::now();
    let mut before = (started, 0);
    move || {
        let (now, totals) = (Instant::now(), watch.totals());
        let seconds = now.duration_since(before.0).as_secs_f64();
        let gbps = (totals.bytes - before.1) as f64 * 8.0 / seconds / 1e9;
        before = (now, totals.bytes);
        print_stderr(format_args!(
            "{:>4} s  {:>5} open {:>6} ended  {:>17} bytes  {:>11} payload\n",
            started.elapsed().as_secs(),
            grouped(totals.open),
            grouped(totals.ended),
            grouped(totals.bytes),
            bits_per_second(gbps),
        ));
        shared.iter().for_each(|shared| print_stderr(format_args!("{}\n", held(&shared.so_far()))));
    }
}

/// Describes the use of shared frames.
fn held(shared: &FrameRingState) -> String {
    let FrameRingState { reader, held, waiting } = shared;
    match reader {
        Some(pid) => format!("        frames: {held} held by the reader (pid {pid}), {waiting} waiting"),
        None if *waiting > 0 => format!("        no reader: {waiting} frames waiting; senders stop when none is free"),
        None => "        no reader (start linerate frames NAME)".to_owned(),
    }
}

/// Returns the report as text.
pub fn summary(so_far: &ReceptionProgress, seconds: f64, rows: usize) -> String {
    let missing = match so_far.totals.missing {
        0 => String::new(),
        missing => {
            let part = 100.0 * missing as f64 / (so_far.totals.bytes + missing) as f64;
            format!(", {} missing ({part:.2} %)", counted(missing, "byte"))
        }
    };
    let mut text = format!(
        "{}, {} received in {seconds:.3} s, in {}{missing}\n",
        counted(so_far.totals.streams, "stream"),
        counted(so_far.totals.bytes, "byte"),
        counted(so_far.totals.frames, "frame"),
    );
    let mut streams: Vec<(&StreamId, &StreamProgress)> = so_far.by_stream.iter().collect();
    streams.sort_by_key(|(id, stream)| (std::cmp::Reverse(stream.bytes), **id));
    if streams.is_empty() || rows == 0 {
        return text;
    }
    let mut lines = table(&["stream", "from", "to", "bytes", "payload", "ended"], 1);
    lines.set_left(1);
    lines.set_left(2);
    lines.set_left(5);
    for (id, stream) in streams.iter().take(rows) {
        lines.add_row([
            id.to_string(),
            stream.ends.from.to_string(),
            stream.ends.to.to_string(),
            grouped(stream.bytes),
            bits_per_second(gbps(stream)),
            ending(stream.ending).to_owned(),
        ]);
    }
    let _ = writeln!(text, "{lines}");
    if streams.len() > rows {
        let _ = writeln!(text, "  and {} more (--rows, --json)", grouped((streams.len() - rows) as u64));
    }
    text
}

/// Returns a hint if nearly all packets arrived unmerged (without GRO), which an XDP program handles faster.
pub fn unmerged_hint(spec: &Spec, ledger: &Ledger) -> Option<String> {
    const MANY: u64 = 100_000;
    let (frames, joined) = (ledger.total(Count::Delivered), ledger.total(Count::SuperFrames));
    let is_slow = spec.scheme == "packet" && frames >= MANY && joined < frames / 20;
    is_slow.then(|| {
        format!("packets were not merged by GRO: linerate receive xdp:{} is faster for such traffic", spec.target)
    })
}

/// Returns the payload rate from the first byte to the last.
fn gbps(stream: &StreamProgress) -> f64 {
    let seconds = stream.last.since(stream.first).as_secs_f64();
    if seconds > 0.0 { stream.bytes as f64 * 8.0 / seconds / 1e9 } else { 0.0 }
}

fn ending(ending: Option<Ending>) -> &'static str {
    match ending {
        Some(Ending::Complete) => "complete",
        Some(Ending::Reset) => "reset",
        Some(Ending::Silent) => "silent",
        Some(Ending::Stopped) | None => "stopped",
    }
}

/// `linerate/receive/1`.
#[derive(Serialize)]
pub struct ReceivedJson {
    schema: &'static str,
    port: String,
    /// Settings, including defaults.
    options: BTreeMap<&'static str, String>,
    seconds: f64,
    /// Streams started.
    streams: u64,
    bytes: u64,
    frames: u64,
    /// Bytes missing in frames.
    missing: u64,
    by_stream: Vec<StreamJson>,
    #[serde(flatten)]
    run: RunJson,
}

/// Result of a stream.
#[derive(Serialize)]
pub struct StreamJson {
    stream: u32,
    from: String,
    to: String,
    bytes: u64,
    missing: u64,
    first_ns: u64,
    last_ns: u64,
    gbps_payload: f64,
    ended: &'static str,
}

impl StreamJson {
    /// Returns the streams that are reported individually.
    pub fn all(so_far: &ReceptionProgress) -> Vec<StreamJson> {
        let one = |(id, stream): (&StreamId, &StreamProgress)| StreamJson {
            stream: id.0,
            from: stream.ends.from.to_string(),
            to: stream.ends.to.to_string(),
            bytes: stream.bytes,
            missing: stream.missing,
            first_ns: stream.first.0,
            last_ns: stream.last.0,
            gbps_payload: gbps(stream),
            ended: ending(stream.ending),
        };
        so_far.by_stream.iter().map(one).collect()
    }
}

impl ReceivedJson {
    /// Returns the whole document.
    pub fn new(
        port: &str,
        options: BTreeMap<&'static str, String>,
        so_far: &ReceptionProgress,
        run: &RunReport,
    ) -> Self {
        ReceivedJson {
            schema: "linerate/receive/1",
            port: port.to_owned(),
            options,
            seconds: run.elapsed.as_secs_f64(),
            streams: so_far.totals.streams,
            bytes: so_far.totals.bytes,
            frames: so_far.totals.frames,
            missing: so_far.totals.missing,
            by_stream: StreamJson::all(so_far),
            run: RunJson::new(run),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_burst::Stage;

    #[test]
    fn xdp_is_suggested_for_unmerged_packets() {
        let hint = |spec: &str, frames, joined| {
            let mut ledger = Ledger::new();
            ledger.account(Stage::Receive, spec).add(Count::Delivered, frames).add(Count::SuperFrames, joined);
            unmerged_hint(&Spec::parse(spec).unwrap(), &ledger)
        };
        assert!(hint("packet:eth0", 1_000_000, 10).unwrap().contains("xdp:eth0"));
        assert_eq!(hint("packet:eth0", 1_000_000, 900_000), None);
        assert_eq!(hint("packet:eth0", 1000, 0), None);
        assert_eq!(hint("xdp:eth0", 1_000_000, 0), None);
    }
}
