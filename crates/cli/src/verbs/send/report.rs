//! Report as text and JSON.

use super::Args;
use super::source::Bytes;
use crate::exit::Exit;
use crate::view::rates::{bits_per_second, counted, grouped};
use crate::view::table::table;
use crate::view::terminal::{fail, show, show_document};
use linerate_backends::transfer::{DatagramResult, Outcome, Series, TcpInfo, TransferStream, explain};
use serde::Serialize;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Data, endpoints and protocol of a run.
pub(super) struct Head {
    pub protocol: &'static str,
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub congestion: Option<String>,
    pub datagram: Option<usize>,
    pub connections: u16,
    pub data: String,
}

/// Result of one chunk size, or of all data without chunks; names as in docs/json.md.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    chunk: Option<u64>,
    chunks: u64,
    bytes: u64,
    seconds: f64,
    gbps: f64,
    average_us: Option<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    max_us: Option<f64>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    to: String,
    from: String,
    protocol: &'static str,
    connections: u16,
    data: &'a str,
    congestion: Option<&'a str>,
    datagram: Option<usize>,
    rows: Vec<Row>,
    written: u64,
    acknowledged: Option<u64>,
    datagrams: Option<u64>,
    refused: Option<u64>,
    unread: u64,
    seconds: f64,
    gbps: f64,
    resent_segments: Option<u32>,
    min_rtt_us: Option<u32>,
    window_limited_s: Option<f64>,
    buffer_limited_s: Option<f64>,
    failures: Vec<String>,
}

impl Head {
    /// Returns the first line of the report.
    pub(super) fn text(&self) -> String {
        let protocol = match (&self.congestion, self.datagram) {
            (Some(congestion), _) => format!("TCP ({congestion})"),
            (None, size) => format!("UDP (datagrams of {} bytes)", grouped(size.unwrap_or_default() as u64)),
        };
        let several = if self.connections > 1 { format!(", {} connections", self.connections) } else { String::new() };
        format!("sending {} to {} from {} by {protocol}{several}", self.data, self.peer, self.local)
    }

    fn document(&self) -> Document<'_> {
        Document {
            schema: "linerate/send/1",
            to: self.peer.to_string(),
            from: self.local.to_string(),
            protocol: self.protocol,
            connections: self.connections,
            data: &self.data,
            congestion: self.congestion.as_deref(),
            datagram: self.datagram,
            rows: Vec::new(),
            written: 0,
            acknowledged: None,
            datagrams: None,
            refused: None,
            unread: 0,
            seconds: 0.0,
            gbps: 0.0,
            resent_segments: None,
            min_rtt_us: None,
            window_limited_s: None,
            buffer_limited_s: None,
            failures: Vec::new(),
        }
    }
}

impl Row {
    pub(super) fn new(series: &Series, outcome: &Outcome) -> Row {
        let times = &outcome.chunks;
        let micros = |time: Duration| (times.count() > 0).then_some(time.as_nanos() as f64 / 1e3);
        Row {
            chunk: series.chunk,
            chunks: times.count(),
            bytes: outcome.bytes,
            seconds: outcome.elapsed.as_secs_f64(),
            gbps: gbps(outcome.bytes, outcome.elapsed),
            average_us: micros(times.mean()),
            p50_us: micros(times.quantile(0.5)),
            p99_us: micros(times.quantile(0.99)),
            max_us: micros(times.max()),
        }
    }
}

/// Reports the result of connections.
pub(super) fn conclude(
    args: &Args,
    head: &Head,
    rows: Vec<Row>,
    streams: &[TransferStream<Bytes>],
    elapsed: Duration,
    unread: u64,
) -> anyhow::Result<Exit> {
    let written: u64 = streams.iter().map(|stream| stream.connection.written()).sum();
    let acknowledged: u64 = streams.iter().map(|stream| stream.connection.acknowledged()).sum();
    let infos: Vec<TcpInfo> = streams.iter().map(|stream| stream.connection.info()).collect();
    let failures: Vec<String> = streams.iter().filter_map(failure).collect();
    let resent: u32 = infos.iter().map(|info| info.resent).sum();
    let least = infos.iter().map(|info| info.min_rtt_us).filter(|least| *least < u32::MAX).min().unwrap_or_default();
    let longest = |of: fn(&TcpInfo) -> u64| infos.iter().map(of).max().unwrap_or_default() as f64 / 1e6;
    let (window, buffer) = (longest(|info| info.window_limited_us), longest(|info| info.buffer_limited_us));
    if args.json {
        show_document(&Document {
            rows,
            written,
            acknowledged: Some(acknowledged),
            unread,
            seconds: elapsed.as_secs_f64(),
            gbps: gbps(acknowledged, elapsed),
            resent_segments: Some(resent),
            min_rtt_us: Some(least),
            window_limited_s: Some(window),
            buffer_limited_s: Some(buffer),
            failures: failures.clone(),
            ..head.document()
        })?;
    } else {
        let mut text = table_of(&rows);
        let rate = bits_per_second(gbps(acknowledged, elapsed));
        let seconds = elapsed.as_secs_f64();
        let _ = writeln!(text, "{} acknowledged in {seconds:.3} s: {rate} of payload", counted(acknowledged, "byte"));
        if written > acknowledged {
            let _ = writeln!(text, "{} sent but not acknowledged", counted(written - acknowledged, "byte"));
        }
        let _ = writeln!(
            text,
            "{}, min RTT {least} us, receive window full for {window:.3} s",
            counted(resent.into(), "retransmission")
        );
        if unread > 0 {
            let _ = writeln!(text, "{} received and not read", counted(unread, "byte"));
        }
        show(text);
    }
    failures.iter().for_each(fail);
    Ok(if failures.is_empty() { Exit::Done } else { Exit::Failed })
}

/// Reports the result of datagrams.
pub(super) fn conclude_datagrams(
    args: &Args,
    head: &Head,
    results: Vec<(DatagramResult, Option<io::Error>)>,
) -> anyhow::Result<Exit> {
    let mut all = DatagramResult::default();
    let mut failures = Vec::new();
    for (sent, failure) in results {
        all.datagrams += sent.datagrams;
        all.bytes += sent.bytes;
        all.refused += sent.refused;
        all.elapsed = all.elapsed.max(sent.elapsed);
        failures.extend(failure.map(|error| explain(&error, head.peer)));
    }
    if all.refused > 0 {
        failures.push(format!("{}: port unreachable: refused {}", head.peer, counted(all.refused, "time")));
    }
    let (seconds, rate) = (all.elapsed.as_secs_f64(), gbps(all.bytes, all.elapsed));
    if args.json {
        let row = Row { bytes: all.bytes, seconds, gbps: rate, ..Row::default() };
        show_document(&Document {
            rows: vec![row],
            written: all.bytes,
            datagrams: Some(all.datagrams),
            refused: Some(all.refused),
            seconds,
            gbps: rate,
            failures: failures.clone(),
            ..head.document()
        })?;
    } else {
        let (datagrams, bytes) = (counted(all.datagrams, "datagram"), counted(all.bytes, "byte"));
        show(format!("{datagrams} with {bytes} sent in {seconds:.3} s: {} of payload\n", bits_per_second(rate)));
    }
    failures.iter().for_each(fail);
    Ok(if failures.is_empty() { Exit::Done } else { Exit::Failed })
}

/// Returns the reason of a failed connection, and how many bytes were acknowledged.
fn failure(stream: &TransferStream<Bytes>) -> Option<String> {
    let connection = &stream.connection;
    let reason = explain(stream.failure.as_ref()?, connection.peer());
    let (acknowledged, written) = (grouped(connection.acknowledged()), grouped(connection.written()));
    Some(format!("{reason}; {acknowledged} of {written} bytes acknowledged"))
}

fn table_of(rows: &[Row]) -> String {
    if rows.iter().all(|row| row.chunk.is_none()) {
        return String::new();
    }
    let mut all = table(&["chunk", "chunks", "Gb/s", "average us", "p50 us", "p99 us", "max us"], 1);
    for row in rows {
        let micros = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.1}"));
        let times = [row.average_us, row.p50_us, row.p99_us, row.max_us].map(micros);
        let first = [size(row.chunk.unwrap_or_default()), grouped(row.chunks), format!("{:.3}", row.gbps)];
        all.add_row(first.into_iter().chain(times));
    }
    format!("{all}\n")
}

fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes >> shift << shift == bytes);
    unit.map_or_else(|| format!("{bytes} B"), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}

fn gbps(bytes: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds / 1e9 } else { 0.0 }
}
