//! Collectors: IPFIX over UDP, TCP and TLS, NetFlow v9 over UDP.
//!
//! Messages for an unreachable collector wait in bounded memory and are sent after the templates when it is back; the
//! oldest are dropped and counted when the memory is full. UDP has no acknowledgements: a collector counts
//! as unreachable when its host reports a closed port.

mod periodic;

use super::host::{default_port, host_and_port};
use super::secure::Secure;
use super::transport::{MessageTransport, Tcp, Udp, is_unreachable};
use super::{Demand, Ending, Exporter, Observed, Options};
use crate::ipfix::{Message, Packer, Profile, Statistics, Version};
use linerate_burst::{Account, Count, Nanos};
use linerate_meter::{Flow, Level};
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// Maximum bytes queued for an unreachable collector.
const MOST_WAITING: usize = 16 << 20;
/// Retry interval while it is unreachable.
const RETRY: Duration = Duration::from_millis(250);
/// Maximum message size in bytes over a stream, where no datagram limits it.
const MOST_OF_STREAM: usize = 16_000;
/// Minimum interval between notices about an unreachable collector, which may flap.
const TELL: Duration = Duration::from_secs(5);
/// Timeout for an unreachable collector at the end.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// Maximum lag behind the configured rate that is caught up in a burst.
const BURST: Duration = Duration::from_millis(2);

struct Network {
    name: String,
    profile: Profile,
    packer: Packer,
    line: Box<dyn MessageTransport>,
    /// Unsent messages.
    waiting: VecDeque<Message>,
    waiting_bytes: usize,
    /// Last datagram sent: its rejection shows at the next send.
    last: Option<Message>,
    fresh: Vec<Message>,
    /// Time of the last attempt, while the collector is unreachable.
    away: Option<Instant>,
    /// Start of the outage, and whether it was reported.
    left: Option<(Instant, bool)>,
    /// Time of the last report of an outage.
    last_notice: Option<Instant>,
    /// Receives notices that it is unreachable or back.
    notify: fn(String),
    is_forced: Option<fn() -> bool>,
    /// Counters for statistics records.
    observed: Observed,
    /// Number of data records sent, or of messages for NetFlow v9; statistics are counted separately.
    sequence: u32,
    statistics_sequence: u32,
    sent: Statistics,
    records: u64,
    outages: u64,
    /// Time of the last templates and statistics, and number of messages since then.
    templates: Nanos,
    since_templates: u64,
    statistics: Nanos,
    /// Time of the last write or tick.
    now: Nanos,
    /// Earliest time of the next message.
    due: Option<Instant>,
}

pub(super) fn ipfix_udp(target: &str, options: &Options) -> Result<Box<dyn Exporter>> {
    open(target, options, Version::Ipfix, |host, port| Ok(Box::new(Udp::open(host, port)?)))
}

pub(super) fn ipfix_tcp(target: &str, options: &Options) -> Result<Box<dyn Exporter>> {
    open(target, options, Version::Ipfix, |host, port| Ok(Box::new(Tcp::open(host, port, Secure::No)?)))
}

/// Opens IPFIX over TLS (RFC 7011, 10.4 and 11): the collector's certificate is checked against its name, and ours is
/// sent if configured.
pub(super) fn ipfix_tls(target: &str, options: &Options) -> Result<Box<dyn Exporter>> {
    let secure = Secure::of(target, &options.tls)?;
    open(target, options, Version::Ipfix, |host, port| Ok(Box::new(Tcp::open(host, port, secure)?)))
}

pub(super) fn netflow9(target: &str, options: &Options) -> Result<Box<dyn Exporter>> {
    open(target, options, Version::V9, |host, port| Ok(Box::new(Udp::open(host, port)?)))
}

fn open(
    target: &str,
    options: &Options,
    version: Version,
    connect: impl FnOnce(&str, u16) -> Result<Box<dyn MessageTransport>>,
) -> Result<Box<dyn Exporter>> {
    let mut profile = Profile { version, ..options.profile };
    if target.starts_with("ipfix+t") {
        profile.most = MOST_OF_STREAM;
    }
    let (host, port) = host_and_port(target, default_port(target))?;
    let line = connect(host, port).map_err(|error| {
        let advice = match error.kind() {
            ErrorKind::ConnectionRefused => ": no collector is listening; start it first",
            _ => "",
        };
        Error::new(error.kind(), format!("{target}: {error}{advice}"))
    })?;
    Ok(Box::new(Network {
        name: target.to_owned(),
        profile,
        packer: Packer::new(profile),
        line,
        waiting: VecDeque::new(),
        waiting_bytes: 0,
        last: None,
        fresh: Vec::new(),
        away: None,
        left: None,
        last_notice: None,
        notify: options.notify.unwrap_or(drop),
        is_forced: options.is_forced,
        observed: options.observed.clone(),
        sequence: 0,
        statistics_sequence: 0,
        sent: Statistics::default(),
        records: 0,
        outages: 0,
        templates: Nanos(0),
        since_templates: 0,
        statistics: Nanos(0),
        now: Nanos(0),
        due: None,
    }))
}

impl Network {
    fn is_udp(&self) -> bool {
        self.line.may_lose_templates()
    }

    /// Queues a message; drops the oldest ones when full.
    fn push(&mut self, message: Message) {
        self.waiting_bytes += message.bytes.len();
        self.waiting.push_back(message);
        while self.waiting_bytes > MOST_WAITING {
            let Some(oldest) = self.waiting.pop_front() else { return };
            self.waiting_bytes -= oldest.bytes.len();
            self.sent.lost += oldest.flows;
        }
    }

    /// Returns whether the last message is rejected within the time that takes on this host or nearby.
    fn is_rejected_soon(&mut self) -> bool {
        if self.is_udp() {
            std::thread::sleep(RETRY / 10);
        }
        self.line.is_rejected()
    }

    /// Sends queued messages while the collector is reachable.
    fn flush(&mut self, now: Nanos) -> Result<()> {
        if self.away.is_none() && self.sent.messages > 0 && self.line.is_rejected() {
            self.leave();
        }
        if self.away.is_some() && !self.try_reconnect(now)? {
            return Ok(());
        }
        while let Some(mut message) = self.waiting.pop_front() {
            self.waiting_bytes -= message.bytes.len();
            message.number(self.profile.version, self.sequence);
            self.pace(message.records);
            if !self.is_udp() && self.line.is_rejected() {
                self.requeue(message);
                self.leave();
                return Ok(());
            }
            match self.line.send(&message.bytes) {
                Ok(()) => {
                    self.count(&message);
                    self.last = Some(message).filter(|_| self.is_udp());
                }
                Err(error) if is_unreachable(&error) => {
                    self.requeue(message);
                    self.leave();
                    return Ok(());
                }
                Err(error) => {
                    self.sent.lost += message.flows;
                    return Err(self.with_advice(error));
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, message: &Message) {
        let step = if self.profile.version == Version::V9 { 1 } else { message.records };
        self.sequence = self.sequence.wrapping_add(step);
        self.sent.messages += 1;
        self.sent.bytes += message.bytes.len() as u64;
        self.sent.flows += message.flows;
        self.records += u64::from(message.records);
        self.since_templates += 1;
    }

    /// Puts a message back at the front of the queue.
    fn requeue(&mut self, message: Message) {
        self.waiting_bytes += message.bytes.len();
        self.waiting.push_front(message);
    }

    /// Marks the collector as unreachable; it did not receive the last message.
    fn leave(&mut self) {
        if let Some(last) = self.last.take() {
            let step = if self.profile.version == Version::V9 { 1 } else { last.records };
            self.sequence = self.sequence.wrapping_sub(step);
            self.sent.messages -= 1;
            self.sent.bytes -= last.bytes.len() as u64;
            self.sent.flows -= last.flows;
            self.records -= u64::from(last.records);
            self.requeue(last);
        }
        if self.away.is_none() {
            self.outages += 1;
            let is_reported = self.last_notice.is_none_or(|last| last.elapsed() >= TELL);
            self.left = Some((Instant::now(), is_reported));
            if is_reported {
                self.last_notice = Some(Instant::now());
                (self.notify)(format!("{}: collector unreachable; buffering records up to 16 MiB", self.name));
            }
        }
        self.away = Some(Instant::now());
    }

    /// Retries an unreachable collector periodically; sends all templates first when it is back.
    fn try_reconnect(&mut self, now: Nanos) -> Result<bool> {
        if self.away.is_some_and(|tried| tried.elapsed() < RETRY) {
            return Ok(false);
        }
        self.away = Some(Instant::now());
        if !self.line.again()? {
            return Ok(false);
        }
        if !self.is_udp() {
            // A new session, with its own templates and sequence numbers.
            (self.sequence, self.statistics_sequence) = (0, 0);
        }
        match self.send_templates(now) {
            // A rejection shows at the next attempt.
            Ok(()) if self.is_rejected_soon() => Ok(false),
            Ok(()) => {
                self.away = None;
                if let Some((since, true)) = self.left.take() {
                    let (seconds, lost) = (since.elapsed().as_secs_f64(), self.sent.lost);
                    let text = format!("collector reachable again after {seconds:.1} s; {lost} records lost so far");
                    (self.notify)(format!("{}: {text}", self.name));
                }
                Ok(true)
            }
            Err(error) if is_unreachable(&error) => Ok(false),
            Err(error) => Err(self.with_advice(error)),
        }
    }

    /// Waits until the rate limit permits this number of records.
    fn pace(&mut self, records: u32) {
        if !self.is_udp() {
            return;
        }
        let now = Instant::now();
        let due = self.due.unwrap_or(now).max(now.checked_sub(BURST).unwrap_or(now));
        if let Some(early) = due.checked_duration_since(now).filter(|early| *early > Duration::from_micros(100)) {
            std::thread::sleep(early);
        }
        let span = Duration::from_nanos(u64::from(records) * 1_000_000_000 / self.profile.rate.max(1));
        self.due = due.checked_add(span);
    }

    fn with_advice(&self, error: Error) -> Error {
        let advice = match error.raw_os_error() {
            Some(90) => ": message exceeds the path MTU; reduce it with --ipfix mtu=BYTES",
            _ => "",
        };
        Error::new(error.kind(), format!("{}: cannot send: {error}{advice}", self.name))
    }
}

impl Exporter for Network {
    fn name(&self) -> &str {
        &self.name
    }

    fn format(&self) -> (&'static str, Level) {
        match self.profile.version {
            Version::V9 => ("NetFlow v9", Level::Counters),
            Version::Ipfix if self.profile.full => ("IPFIX", Level::Stats),
            Version::Ipfix => ("IPFIX without --ipfix full", Level::Counters),
        }
    }

    fn demand(&self) -> Demand {
        Demand { bytes: 1 << 20, age: Duration::from_millis(100), tick: Some(RETRY) }
    }

    fn write(&mut self, flows: &[Flow], now: Nanos) -> Result<()> {
        const CHUNK: usize = 512;
        self.now = now;
        for flows in flows.chunks(CHUNK) {
            let mut fresh = std::mem::take(&mut self.fresh);
            let before = self.packer.absolute;
            self.packer.pack(&flows.iter().collect::<Vec<_>>(), now, &mut fresh);
            if before == 0 && self.packer.absolute > 0 {
                let text = "flow times exceed the NetFlow v9 uptime clock; only elements 152 and 153 have them";
                (self.notify)(format!("{}: {text}", self.name));
            }
            for message in fresh.drain(..) {
                // Datagrams may be lost: send templates twice.
                if message.records == 0 && self.is_udp() {
                    self.push(message.clone());
                }
                self.push(message);
            }
            self.fresh = fresh;
            self.flush(now)?;
            self.repeat(now)?;
        }
        Ok(())
    }

    fn tick(&mut self, now: Nanos) -> Result<()> {
        self.now = now;
        self.flush(now)?;
        self.repeat(now)
    }

    fn finish(&mut self, ending: Ending) -> Result<()> {
        let until = Instant::now() + LAST_WAIT;
        let mut result = Ok(());
        if ending == Ending::Complete {
            let now = self.now;
            if self.away.is_none() && self.last.is_some() && self.is_rejected_soon() {
                self.leave();
            }
            let is_forced = self.is_forced.unwrap_or(|| false);
            while !self.waiting.is_empty() && result.is_ok() && Instant::now() < until && !is_forced() {
                result = self.flush(now);
                if self.away.is_some() {
                    std::thread::sleep(RETRY / 5);
                }
            }
            if self.away.is_none() && result.is_ok() && self.sent.messages > 0 {
                // Failures of the last statistics do not matter.
                let _ = self.send_statistics(now);
            }
            self.line.end();
        }
        for message in std::mem::take(&mut self.waiting) {
            self.sent.lost += message.flows;
        }
        if self.sent.lost > 0 && self.away.is_some() {
            let text = format!("{}: collector unreachable", self.name);
            match result {
                Ok(()) if self.sent.flows == 0 => result = Err(Error::new(ErrorKind::NotConnected, text)),
                _ => (self.notify)(format!("{text}; {} records lost", self.sent.lost)),
            }
        }
        result
    }

    fn counters(&self, account: &mut Account) {
        account.add(Count::Exported, self.sent.flows).add(Count::ExportUnreachable, self.sent.lost);
        account.add(Count::ExportRecords, self.records).add(Count::ExportMessages, self.sent.messages);
        account.add(Count::ExportOutages, self.outages).add(Count::ExportAbsolute, self.packer.absolute);
    }
}
