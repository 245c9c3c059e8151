//! Streams to send, and their check.

use crate::error::Error;
use linerate_backends::REGISTRY;
use linerate_burst::Ledger;
use linerate_engine::streams::{StreamRun, Streams, StreamsReport};
use linerate_engine::{CheckConsumer, CheckReport, CheckThread, Progress, Receive, Selection, Stop, StreamWatch};
use linerate_generate::check::{Check, CheckSummary, StreamRow};
use linerate_generate::file::{self, Setup};
use linerate_generate::stream::StreamSet;
use linerate_port::{RxOptions, Spec, TxOptions};
use std::time::Duration;

/// A check ends after this time without a packet (RFC 2544, section 23), and this long after sending at the latest.
const SILENCE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(10);

/// Describes streams to send through a port, in the TOML of stream files (`docs/streams.md`):
///
/// ```
/// # fn main() -> Result<(), linerate::Error> {
/// let streams = r#"
///     [[stream]]
///     packet = "ip(dst=10.0.1.1)/udp(dport=53)"
///     size = "imix"
///     rate = "50kpps"
///     count = 1000
/// "#;
/// let sent = linerate::send("mem:a", streams)?.check("mem:a")?.run()?;
/// assert_eq!((sent.packets(), sent.lost()), (1000, 0));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Streams`] with the position of the first mistake, [`Error::Port`] if the syntax of the port is invalid.
pub fn send(port: &str, streams: &str) -> Result<Output, Error> {
    let set = file::streams("streams", streams, &Setup::default())?;
    Ok(Output { port: Spec::parse(port)?, check: None, set, duration: None, stop: Stop::new() })
}

/// Streams to send through a port.
#[must_use = "nothing is opened before run()"]
pub struct Output {
    port: Spec,
    check: Option<Spec>,
    set: StreamSet,
    duration: Option<Duration>,
    stop: Stop,
}

impl Output {
    /// Checks the packets where they arrive: each one is counted by its trailer, with its latency.
    ///
    /// # Errors
    /// [`Error::Port`] if the syntax of the port is invalid.
    pub fn check(mut self, port: &str) -> Result<Self, Error> {
        self.check = Some(Spec::parse(port)?);
        Ok(self)
    }

    /// Ends after this time, if the streams have not ended.
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = Some(duration);
        self
    }

    /// Ends when this is requested, from any thread or a signal handler.
    pub fn stop(mut self, stop: &Stop) -> Self {
        self.stop = stop.clone();
        self
    }

    /// Opens the ports, sends, and waits for the packets to arrive: up to 2 s for the next one, as in RFC 2544, 23.
    ///
    /// # Errors
    /// [`Error::Port`] if a port cannot be opened or fails, [`Error::Send`] if the streams cannot be sent.
    pub fn run(self) -> Result<Sent, Error> {
        let Output { port, check, set, duration, stop } = self;
        let receive = RxOptions { promiscuous: true, lossless: true, ..RxOptions::default() };
        let options = TxOptions { stamped: check.is_some(), ..TxOptions::default() };
        let check = check.map(|port| REGISTRY.open_rx(&port, &receive)).transpose()?;
        let at_once = !REGISTRY.leaves_when_sent(&port, &options);
        let streams = Streams::new(&set, REGISTRY.open_tx(&port, &options)?)?;
        let start = |port| {
            let checking = CheckConsumer::new(Check::of(&set, 0), Selection::default());
            CheckThread::start(checking, Receive::all(vec![port]))
        };
        let checker = check.map(start).transpose().map_err(Error::Thread)?;
        let (progress, watch) = (Progress::new(), StreamWatch::default());
        let mut sent = streams.run(&StreamRun { duration, stop: stop.clone(), progress, watch, at_once });
        let mut received = checker.map(|checker| checker.finish(Some(sent.sent.frames), SILENCE, PATIENCE, &stop));
        if let Some(failure) = sent.failure.take() {
            return Err(failure.into());
        }
        if let Some(failure) = received.as_mut().and_then(|received| received.run.failure.take()) {
            return Err(Error::Run { error: failure, summary: None });
        }
        Ok(Sent { sent, received, streams: set.streams.into_iter().map(|stream| (stream.id, stream.name)).collect() })
    }
}

/// Result of sending.
pub struct Sent {
    sent: StreamsReport,
    received: Option<CheckReport>,
    /// Number of each stream in trailers, and its name.
    streams: Vec<(u32, String)>,
}

impl Sent {
    /// Returns the number of packets sent.
    pub fn packets(&self) -> u64 {
        self.sent.sent.frames
    }

    /// Returns the number of packets that did not arrive; 0 without a check.
    pub fn lost(&self) -> u64 {
        self.arrived().map_or(0, |arrived| arrived.counts.lost)
    }

    /// Returns counts, rates and latencies of all that arrived, if it was checked. Latency is from the time of sending to
    /// the time of arrival, by the clock of this machine.
    pub fn arrived(&self) -> Option<CheckSummary> {
        Some(self.received.as_ref()?.check.report(Some(&self.by_number())).summary())
    }

    /// Returns the same of each stream, with its name, in the order of the text; empty if it was not checked.
    pub fn streams(&self) -> Vec<(&str, StreamRow)> {
        let Some(received) = &self.received else { return Vec::new() };
        let sent = self.by_number();
        let report = received.check.report(Some(&sent));
        self.streams.iter().filter_map(|(id, name)| Some((name.as_str(), report.row(*id)?))).collect()
    }

    /// Returns the packets sent of each stream number.
    fn by_number(&self) -> Vec<u64> {
        let mut sent = vec![0; self.streams.iter().map(|(id, _)| *id as usize + 1).max().unwrap_or(0)];
        self.streams.iter().zip(&self.sent.per_stream).for_each(|((id, _), frames)| sent[*id as usize] = *frames);
        sent
    }

    /// Returns the number of packets that left more than 1 ms after they were due.
    pub fn late(&self) -> u64 {
        self.sent.late
    }

    /// Returns the packet accounting of sending.
    pub fn ledger(&self) -> &Ledger {
        &self.sent.ledger
    }

    /// Returns the time from the first packet to the last.
    pub fn elapsed(&self) -> Duration {
        self.sent.elapsed
    }
}
