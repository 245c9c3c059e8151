//! Builds the document: counters of all runs of this process, and the traffic of each flow since the previous query.
//!
//! Runs copy their rows ([`watch`](linerate_engine::flows::watch)) on request; the thread of the client computes differences,
//! groups and order. Several clients can send different queries, and all get the same intervals.

use super::flow_query::{FlowIncrease, ParsedQuery};
use super::{ActionTotal, DropCount, FlowQuery, Flows, Port, Reader, SCHEMA, Snapshot};
use crate::view::live;
use foldhash::quality::RandomState;
use linerate_burst::{Account, Count, Kind, Ledger, Nanos, Stage};
use linerate_engine::flows::watch;
use linerate_engine::{CountWatch, metrics};
use linerate_meter::ActiveFlow;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Timeout for counters: a run checks for requests ten times per second.
const PATIENCE: Duration = Duration::from_secs(2);
/// Timeout for flows: after its first packet a meter runs at least four times per second.
const FLOWS_PATIENCE: Duration = Duration::from_millis(600);
/// Queries within this time of each other get the same interval.
const SHORTEST: Duration = Duration::from_millis(200);
/// Maximum number of records with known totals.
const MOST_KNOWN: usize = 1 << 20;
/// Rounds without a packet after which a record is forgotten.
const ROUNDS: u32 = 120;

/// Builds the document of this process.
pub struct Gatherer {
    verb: String,
    began: Instant,
    /// Reason if flows are not reported.
    without_flows: Option<&'static str>,
    /// Byte counters by port, and the names of the ports.
    counted: Option<(CountWatch, Vec<String>)>,
    interval: Mutex<Interval>,
}

/// State since the previous query.
#[derive(Default)]
struct Interval {
    looked: Option<Instant>,
    round: u32,
    /// Start of the previous query, in packet time.
    at: Nanos,
    /// By id and the time of the first packet.
    known: HashMap<(u64, u64), FlowCounters, RandomState>,
    gains: Vec<FlowIncrease>,
    meters: usize,
    totals: Flows,
}

#[derive(Clone, Copy)]
struct FlowCounters {
    packets: [u64; 2],
    bytes: [u64; 2],
    again: u64,
    round: u32,
}

impl Gatherer {
    /// Creates one for a verb; `without_flows` is the reason if flows are not reported.
    pub fn new(verb: &str, without_flows: Option<&'static str>) -> Self {
        if without_flows.is_none() {
            watch::want();
        }
        metrics::want();
        Gatherer {
            verb: verb.to_owned(),
            began: Instant::now(),
            without_flows,
            counted: None,
            interval: Mutex::default(),
        }
    }

    /// Adds byte counters of ports with these names.
    #[cfg(feature = "tui")]
    pub fn counting(mut self, watch: CountWatch, names: Vec<String>) -> Self {
        self.counted = Some((watch, names));
        self
    }

    /// Returns the current document.
    ///
    /// # Errors
    /// The query is invalid.
    pub fn snapshot(&self, ask: &FlowQuery) -> Result<Snapshot, String> {
        let question = ParsedQuery::new(ask)?;
        let ledger = metrics::ask(PATIENCE);
        let mut snapshot = Snapshot {
            schema: SCHEMA.to_owned(),
            verb: self.verb.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            seconds: self.began.elapsed().as_secs_f64(),
            done: done(),
            ports: ports(&ledger),
            drops: drops(&ledger),
            readers: readers(&ledger),
            flows: None,
            without_flows: String::new(),
        };
        if let Some((watch, names)) = &self.counted {
            let counts = watch.counts();
            for (name, counted) in names.iter().zip(&counts.ports) {
                if let Some(port) = snapshot.ports.iter_mut().find(|port| port.name == *name) {
                    port.wire_bytes = Some(counted.traffic.bytes);
                }
            }
        }
        match self.without_flows {
            Some(why) => why.clone_into(&mut snapshot.without_flows),
            None => {
                let mut interval = lock(&self.interval);
                interval.look();
                if interval.meters > 0 {
                    snapshot.flows = Some(Flows {
                        heads: question.heads(),
                        rows: question.rows(&interval.gains),
                        ..interval.totals.clone()
                    });
                } else {
                    "this run does not meter flows; use linerate flows or capture --flows"
                        .clone_into(&mut snapshot.without_flows);
                }
            }
        }
        Ok(snapshot)
    }
}

fn done() -> Vec<ActionTotal> {
    let mut done: Vec<ActionTotal> = Vec::new();
    for (what, progress) in live::watched() {
        let (frames, wire_bytes) =
            (progress.frames.load(Ordering::Relaxed), progress.wire_bytes.load(Ordering::Relaxed));
        match done.iter_mut().find(|known| known.what == what) {
            Some(known) => (known.frames, known.wire_bytes) = (known.frames + frames, known.wire_bytes + wire_bytes),
            None => done.push(ActionTotal { what: what.to_owned(), frames, wire_bytes }),
        }
    }
    done
}

fn ports(ledger: &Ledger) -> Vec<Port> {
    let mut ports: Vec<Port> = Vec::new();
    for account in ledger.accounts().iter().filter(|account| account.stage == Stage::Receive) {
        let name = port_of(&account.subject);
        let (frames, lost) = (account.sum(Kind::Received), account.sum(Kind::Lost));
        match ports.iter_mut().find(|port| port.name == name) {
            Some(port) => (port.frames, port.lost) = (port.frames + frames, port.lost + lost),
            None => ports.push(Port { name: name.to_owned(), frames, lost, wire_bytes: None }),
        }
    }
    ports
}

/// Returns the port of a queue.
fn port_of(subject: &str) -> &str {
    match subject.rsplit_once('@') {
        Some((port, queue)) if queue.bytes().all(|byte| byte.is_ascii_digit()) => port,
        _ => subject,
    }
}

fn drops(ledger: &Ledger) -> Vec<DropCount> {
    let of = |account: &Account| {
        let (stage, subject) = (account.stage.name().to_owned(), account.subject.clone());
        let dropped = account
            .counts()
            .filter(|(count, frames)| *frames > 0 && matches!(count.kind(), Kind::Lost | Kind::Refused));
        let row = |(count, frames): (Count, u64)| DropCount {
            stage: stage.clone(),
            cause: count.name().to_owned(),
            subject: subject.clone(),
            is_lost: count.kind() == Kind::Lost,
            frames,
        };
        dropped.map(row).collect::<Vec<_>>()
    };
    ledger.accounts().iter().filter(|account| account.stage != Stage::Reader).flat_map(of).collect()
}

fn readers(ledger: &Ledger) -> Vec<Reader> {
    let readers = ledger.accounts().iter().filter(|account| account.stage == Stage::Reader);
    readers
        .map(|account| Reader {
            name: account.subject.clone(),
            frames: account.get(Count::ReaderReceived),
            lag: account.get(Count::ReaderOutstanding),
            skipped: account.get(Count::ReaderSkipped),
            waited_us: account.get(Count::ReaderWaitedUs),
        })
        .collect()
}

impl Interval {
    /// Updates the flows, unless another query has just done so.
    fn look(&mut self) {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now.duration_since(looked) < SHORTEST) {
            return;
        }
        let look = watch::look(FLOWS_PATIENCE);
        let now = Instant::now();
        let seconds = self.looked.map_or(0.0, |looked| now.duration_since(looked).as_secs_f64());
        self.looked = Some(now);
        self.meters = look.meters.max(self.meters);
        self.totals =
            Flows { seconds, open: look.open, started: look.begun, unreported: look.left_out, ..Flows::default() };
        let before = std::mem::replace(&mut self.at, look.at);
        self.take(look.flows, (seconds > 0.0).then_some(before));
    }

    /// Takes the current records. A record that started before the previous query at `before`, but was not in it, has no known base:
    /// it counts from the next query on.
    fn take(&mut self, glances: Vec<ActiveFlow>, before: Option<Nanos>) {
        self.gains.clear();
        self.round += 1;
        for glance in glances {
            let key = (glance.id, glance.first.0);
            let again = glance.retransmitted.iter().sum();
            let now = FlowCounters { packets: glance.packets, bytes: glance.frame_bytes, again, round: self.round };
            let is_new = before.is_some_and(|before| glance.first >= before);
            let before = self.known.insert(key, now).or(is_new.then_some(FlowCounters::NOTHING));
            let total_bytes = glance.frame_bytes.iter().sum();
            let before = before.unwrap_or(now);
            let gained = |now: [u64; 2], then: [u64; 2]| [0, 1].map(|side| now[side].saturating_sub(then[side]));
            let packets = gained(now.packets, before.packets);
            if packets == [0, 0] {
                continue;
            }
            let frame_bytes = gained(now.bytes, before.bytes);
            let again = again.saturating_sub(before.again);
            self.gains.push(FlowIncrease { glance: ActiveFlow { packets, frame_bytes, ..glance }, again, total_bytes });
        }
        self.forget();
        self.totals.active = self.gains.len() as u64;
        for gain in &self.gains {
            self.totals.packets += gain.glance.packets.iter().sum::<u64>();
            self.totals.bytes += gain.glance.frame_bytes.iter().sum::<u64>();
            self.totals.retransmissions += gain.again;
        }
    }

    fn forget(&mut self) {
        let round = self.round;
        if self.known.len() > MOST_KNOWN {
            self.known.retain(|_, known| known.round == round);
        } else if round.is_multiple_of(ROUNDS) {
            self.known.retain(|_, known| round - known.round < ROUNDS);
        }
    }
}

impl FlowCounters {
    const NOTHING: FlowCounters = FlowCounters { packets: [0; 2], bytes: [0; 2], again: 0, round: 0 };
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_meter::End;

    /// Returns a record with this start and this many packets of 100 bytes.
    fn glance(id: u64, first: u64, packets: u64) -> ActiveFlow {
        let end = End { address: [10, 0, 0, id as u8].into(), port: 1 };
        ActiveFlow {
            id,
            ends: [end; 2],
            protocol: 17,
            vlan: 0,
            tunnel: None,
            flows: 1,
            packets: [packets, 0],
            frame_bytes: [packets * 100, 0],
            retransmitted: [0, packets / 10],
            tcp_flags: [0; 2],
            first: Nanos(first),
            last: Nanos(first + packets),
            names: None,
        }
    }

    #[test]
    fn a_gain_is_the_difference_to_the_previous_query() {
        let mut interval = Interval::default();
        let gains = |interval: &Interval| -> Vec<(u64, u64, u64, u64)> {
            let gain = |gain: &FlowIncrease| {
                (gain.glance.id, gain.glance.packets[0], gain.glance.frame_bytes[0], gain.total_bytes)
            };
            interval.gains.iter().map(gain).collect()
        };
        interval.take(vec![glance(1, 100, 50), glance(2, 110, 7)], None);
        assert_eq!(gains(&interval), [], "no base yet");
        // One continues, one is idle, one is new, one is older but was not in the previous query.
        interval
            .take(vec![glance(1, 100, 80), glance(2, 110, 7), glance(3, 1000, 9), glance(4, 20, 9)], Some(Nanos(900)));
        assert_eq!(gains(&interval), [(1, 30, 3000, 8000), (3, 9, 900, 900)]);
        assert_eq!(
            (interval.totals.active, interval.totals.packets, interval.totals.bytes, interval.totals.retransmissions),
            (2, 39, 3900, 3)
        );
        // A record that ended and the next one of its flow; one that was idle.
        interval.totals = Flows::default();
        interval.take(vec![glance(1, 100, 85), glance(1, 2100, 3), glance(4, 20, 10)], Some(Nanos(2000)));
        assert_eq!(gains(&interval), [(1, 5, 500, 8500), (1, 3, 300, 300), (4, 1, 100, 1000)]);
        for _ in 0..2 * ROUNDS {
            interval.take(Vec::new(), Some(Nanos(9000)));
        }
        assert!(interval.known.is_empty() && interval.gains.is_empty());
    }

    #[test]
    fn queues_are_summed_by_port() {
        let mut ledger = Ledger::new();
        for (subject, frames) in [("packet:eth0@0", 5), ("packet:eth0@1", 6), ("shm:a@b", 7)] {
            ledger.account(Stage::Receive, subject).add(Count::Received, frames).add(Count::RingFull, 1);
        }
        ledger.account(Stage::Reader, "ids (pid 7)").add(Count::ReaderReceived, 9).add(Count::ReaderOutstanding, 4);
        let rows: Vec<_> = ports(&ledger).into_iter().map(|port| (port.name, port.frames, port.lost)).collect();
        assert_eq!(rows, [("packet:eth0".to_owned(), 11, 2), ("shm:a@b".to_owned(), 7, 1)]);
        let rows: Vec<_> = drops(&ledger).into_iter().map(|drop| (drop.cause, drop.subject, drop.frames)).collect();
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[0], ("ring_full".to_owned(), "packet:eth0@0".to_owned(), 1));
        assert_eq!((readers(&ledger)[0].frames, readers(&ledger)[0].lag), (9, 4));
    }
}
