//! Kafka: an idempotent producer whose sequence numbers are stored in the spool.
//!
//! Brokers deduplicate batches by producer id, epoch and sequence number, independent of sender and connection. These
//! numbers are noted on disk before a batch is sent, so that after a crash it is sent again with the same numbers. A
//! broker remembers the last five batches of a producer per partition: that is the number in flight, in the order of
//! their numbers. If one of them is not accepted, the later ones fail too (their numbers leave a gap), and all are sent
//! again in order. If it is rejected for good, the later ones get its numbers. A broker without state of a producer
//! accepts any first number: the first batch is therefore sent without others in flight. A restarted broker remembers
//! less: see `unconfirmed`.

mod auth;
mod broker;
mod in_flight;
mod unconfirmed;
mod wire;

pub(super) use self::auth::Access;

use self::broker::Broker;
use self::in_flight::{BatchFailure, InFlightBatch, describe};
use self::unconfirmed::UnconfirmedBatches;
use self::wire::{RequestKind, Topic};
use super::clock::Clock;
use super::form::Form;
use super::journal::{Assigned, Batch, Id};
use super::link::RunDeadline;
use super::spool::Spool;
use super::state::SpooledBatch;
use super::target::Target;
use super::{DeliveryOptions, Destination, Refusal};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

/// Time until a broker forgets an idle producer (`producer.id.expiration.ms`, a day), with a margin.
const KNOWN: Duration = Duration::from_secs(20 * 3600);
/// Maximum age of cached metadata.
const FRESH: Duration = Duration::from_secs(300);
/// Batches in flight: as many as a broker remembers.
const WINDOW: usize = 5;
/// Key of the bootstrap connection.
const ANY: i32 = i32::MIN;

pub(super) struct Kafka {
    /// Bootstrap servers.
    hosts: Vec<(String, u16)>,
    topic: String,
    sensor: String,
    lanes: u16,
    over: RunDeadline,
    access: Access,
    /// Metadata of the topic, and its age.
    place: Option<(Topic, u64)>,
    brokers: BTreeMap<i32, Broker>,
    /// Producer id of this run, for partitions without one of an earlier run.
    producer: Option<(i64, i16)>,
    /// Batches in flight, the oldest first.
    sent: VecDeque<InFlightBatch>,
    /// Producer whose batches each partition has accepted.
    taken: BTreeMap<i32, (i64, i16)>,
    doubts: UnconfirmedBatches,
    /// Partitions with a failed batch while others are in flight.
    broken: BTreeMap<i32, BatchFailure>,
    /// True if connections and metadata must be refreshed.
    is_stale: bool,
}

/// Returns the topic of a target.
pub(super) fn topic(target: &Target) -> Result<String> {
    let is_of = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let topic = &target.path;
    if (1..=249).contains(&topic.len()) && topic.bytes().all(is_of) && !matches!(topic.as_str(), "." | "..") {
        return Ok(topic.clone());
    }
    let text = "missing or invalid topic; expected kafka://HOST:9092,HOST2/flows";
    Err(Error::new(ErrorKind::InvalidInput, text))
}

impl Kafka {
    pub(super) fn new(target: &Target, ship: &DeliveryOptions, over: RunDeadline, access: Access) -> Result<Self> {
        Ok(Kafka {
            hosts: target.hosts.clone(),
            topic: topic(target)?,
            sensor: ship.sensor.clone(),
            lanes: ship.lanes,
            over,
            access,
            place: None,
            brokers: BTreeMap::new(),
            producer: None,
            sent: VecDeque::new(),
            taken: BTreeMap::new(),
            doubts: UnconfirmedBatches::default(),
            broken: BTreeMap::new(),
            is_stale: false,
        })
    }

    /// Returns any broker, for cluster metadata.
    fn any(&mut self) -> Result<&mut Broker> {
        self.retain_idle();
        if !self.brokers.contains_key(&ANY) {
            let mut last = Error::from(ErrorKind::NotFound);
            for (host, port) in &self.hosts {
                match Broker::open(host, *port, &self.over, &self.access) {
                    Ok(broker) => {
                        self.brokers.insert(ANY, broker);
                        break;
                    }
                    Err(error) => last = error,
                }
            }
            if !self.brokers.contains_key(&ANY) {
                return Err(last);
            }
        }
        self.brokers.get_mut(&ANY).ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Drops connections that have closed or received unexpected data.
    fn retain_idle(&mut self) {
        let sent = &self.sent;
        self.brokers.retain(|node, broker| sent.iter().any(|sent| sent.node == *node) || broker.is_idle());
    }

    fn place(&mut self, clock: Clock) -> std::result::Result<Topic, Refusal> {
        if let Some((place, since)) = &self.place
            && clock.is_within(*since, FRESH)
        {
            return Ok(place.clone());
        }
        let name = self.topic.clone();
        let broker = self.any()?;
        let answer = broker.ask(RequestKind::Metadata, &wire::metadata(&name))?;
        let topic = wire::topic(&answer, &name).ok_or_else(|| broker.garbage())?;
        match topic.error {
            0 | 5 if !topic.leaders.is_empty() => {}
            29 => return Err(Refusal::NeedsFix(format!("topic {name}: access denied (error 29)"))),
            17 => return Err(Refusal::NeedsFix(format!("topic {name}: invalid topic name (error 17)"))),
            3 => {
                let text = format!("topic {name}: not found (error 3); run kafka-topics.sh --create --topic {name}");
                return Err(Refusal::Later(text));
            }
            error => return Err(Refusal::Later(format!("topic {name}: {}", describe(error)))),
        }
        self.place = Some((topic.clone(), clock.now()));
        Ok(topic)
    }

    /// Returns the producer id of this run.
    fn producer(&mut self) -> std::result::Result<(i64, i16), Refusal> {
        if let Some(producer) = self.producer {
            return Ok(producer);
        }
        let broker = self.any()?;
        let answer = broker.ask(RequestKind::InitProducerId, &wire::init_producer())?;
        match wire::producer(&answer).ok_or_else(|| broker.garbage())? {
            (0, id @ 0.., epoch @ 0..) => Ok(*self.producer.insert((id, epoch))),
            (31 | 53, ..) => Err(Refusal::NeedsFix("idempotent writes are not permitted (error 31)".into())),
            // Without a producer id retries would be appended twice without a notice.
            (error, ..) => Err(Refusal::Later(format!("cannot get a producer id: {}", describe(error)))),
        }
    }

    /// Returns the partition of a batch.
    fn partition(&self, batch: &Batch, topic: &Topic) -> i32 {
        let place = if self.lanes > 1 { u64::from(batch.lane) } else { batch.id.run.wrapping_add(batch.id.number) };
        topic.leaders[(place % topic.leaders.len() as u64) as usize].0
    }

    /// Assigns sequence numbers to a batch, and notes them on disk.
    fn assign(&mut self, spool: &Spool, id: Id, partition: i32, count: u32) -> std::result::Result<Assigned, Refusal> {
        let clock = spool.terms.clock;
        let known = spool.next_in(partition).filter(|next| clock.is_within(next.at, KNOWN));
        let (producer, epoch, sequence) = match known {
            Some(next) => (next.producer, next.epoch, next.sequence),
            None => {
                let (producer, epoch) = self.producer()?;
                (producer, epoch, 0)
            }
        };
        let assigned = Assigned { partition, producer, epoch, sequence, count, at: clock.now() };
        spool.assign(id, assigned)?;
        Ok(assigned)
    }

    /// Returns the broker that leads a partition.
    fn leader(&mut self, topic: &Topic, partition: i32) -> std::result::Result<(i32, &mut Broker), Refusal> {
        let leader = topic.leaders.iter().find(|(own, _)| *own == partition).map(|(_, leader)| *leader);
        let place = topic.brokers.iter().find(|(node, ..)| Some(*node) == leader);
        let Some((node, host, port)) = place else {
            self.place = None;
            return Err(Refusal::Later(format!("partition {partition} has no leader")));
        };
        self.retain_idle();
        if !self.brokers.contains_key(node) {
            let broker = Broker::open(host, *port, &self.over, &self.access).map_err(|error| {
                self.place = None;
                let advice = "; check advertised.listeners of the broker, which has this address";
                Error::new(error.kind(), format!("{error}{advice}"))
            })?;
            self.brokers.insert(*node, broker);
        }
        self.brokers.get_mut(node).map(|broker| (*node, broker)).ok_or_else(|| Refusal::Later("no leader".into()))
    }

    /// Returns the messages of a batch: one, or one per line, keyed by flow if lanes are used.
    fn messages<'a>(&self, form: Form, waiting: &SpooledBatch, bytes: &'a [u8]) -> Vec<(Option<Vec<u8>>, &'a [u8])> {
        let key = || (self.lanes > 1).then(|| waiting.batch.lane.to_string().into_bytes());
        match form {
            Form::Json => {
                let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                lines.map(|line| (if self.lanes > 1 { id_of(line) } else { None }, line)).collect()
            }
            _ => vec![(key(), bytes)],
        }
    }

    /// Sends a batch; the answer is read later.
    fn send(&mut self, spool: &Spool, waiting: &SpooledBatch, bytes: &[u8]) -> std::result::Result<(), Refusal> {
        let form = Form::of(&waiting.batch)?;
        let messages = self.messages(form, waiting, bytes);
        let batch = &waiting.batch;
        let headers = [
            ("schema", "linerate/flow/1".to_owned()),
            ("format", form.name().to_owned()),
            ("sensor", self.sensor.clone()),
            ("run", format!("{:016x}", batch.id.run)),
            ("batch", batch.id.parts().0.to_string()),
            ("rows", batch.rows.to_string()),
            ("first", batch.first.to_string()),
            ("last", batch.last.to_string()),
        ];
        let topic = self.place(spool.terms.clock)?;
        let is_known = |assigned: &Assigned| {
            let is_there = topic.leaders.iter().any(|(partition, _)| *partition == assigned.partition);
            is_there && spool.terms.clock.is_within(assigned.at, KNOWN)
        };
        let is_retry = waiting.assigned.is_some();
        let earlier = waiting.assigned.filter(is_known);
        if let Some(assigned) = earlier.filter(|_| self.doubts.is_there(batch.id)) {
            self.sent.push_back(InFlightBatch { id: batch.id, assigned, node: ANY, is_retry, is_there: true });
            return Ok(());
        }
        let partition = earlier.map_or_else(|| self.partition(batch, &topic), |assigned| assigned.partition);
        let is_first = |sent: &InFlightBatch| {
            let Assigned { partition: own, producer, epoch, .. } = sent.assigned;
            own == partition && self.taken.get(&partition) != Some(&(producer, epoch))
        };
        if self.sent.iter().any(is_first) {
            return Err(Refusal::Again);
        }
        let assigned = match earlier {
            Some(assigned) => {
                spool.count(|tally| tally.resent += 1);
                assigned
            }
            None => {
                if is_retry {
                    // Its outcome cannot be determined any more.
                    self.reassign_numbers(spool, batch.rows);
                }
                self.assign(spool, batch.id, partition, messages.len() as u32)?
            }
        };
        let records = wire::batch(&assigned, (batch.last / 1_000_000) as i64, &headers, &messages);
        let body = wire::produce(&self.topic, assigned.partition, &records);
        let (node, broker) = self.leader(&topic, assigned.partition)?;
        spool.step()?;
        broker.begin(RequestKind::Produce, &body)?;
        self.sent.push_back(InFlightBatch { id: batch.id, assigned, node, is_retry, is_there: false });
        Ok(())
    }
}

impl Destination for Kafka {
    fn window(&self) -> usize {
        WINDOW
    }

    fn begin(&mut self, spool: &Spool, waiting: &SpooledBatch, bytes: &[u8]) -> std::result::Result<(), Refusal> {
        let begun = self.send(spool, waiting, bytes);
        self.is_stale |= matches!(begun, Err(Refusal::Later(_)));
        begun
    }

    fn end(&mut self, spool: &Spool, waiting: &SpooledBatch) -> std::result::Result<(), Refusal> {
        let Some(sent) = self.sent.pop_front() else { return Err(Refusal::Again) };
        if sent.is_there {
            self.doubts.taken(&sent);
            return Ok(());
        }
        let (rows, is_behind) = (waiting.batch.rows, self.broken.contains_key(&sent.assigned.partition));
        match self.answer(spool, &sent) {
            Ok(error) if is_behind => self.interpret_after_failure(spool, &sent, rows, Some(error)),
            Ok(error) => self.interpret_response(spool, &sent, rows, error),
            Err(_) if is_behind => self.interpret_after_failure(spool, &sent, rows, None),
            Err(refusal) => {
                self.doubts.mark_unconfirmed(sent.id);
                self.broken.insert(sent.assigned.partition, BatchFailure::Later);
                self.is_stale = true;
                Err(refusal)
            }
        }
    }

    fn settle(&mut self, spool: &Spool) -> Result<()> {
        for broken in std::mem::take(&mut self.broken).into_values() {
            match broken {
                BatchFailure::Later | BatchFailure::Numbers => {}
                BatchFailure::Unconfirmed(assigned) => {
                    for (id, is_retry, rows) in self.doubts.batches_to_renumber(&assigned, &spool.numbered(&assigned)) {
                        self.reset_numbers(spool, id, is_retry, rows);
                    }
                }
                BatchFailure::Refused { assigned, is_confirmed } => {
                    spool.take_back(assigned)?;
                    if !is_confirmed {
                        // Some may still be in the broker's queue: with another producer id they stay rejected.
                        spool.forget();
                        self.producer = None;
                    }
                }
            }
        }
        if std::mem::take(&mut self.is_stale) {
            self.place = None;
            self.brokers.clear();
        }
        Ok(())
    }
}

/// Parses bytes as each kind of response.
pub(super) fn read_anything(bytes: &[u8]) {
    if let Some(topic) = wire::topic(bytes, "t") {
        assert!(topic.leaders.len() * 4 <= bytes.len() && topic.brokers.len() * 4 <= bytes.len());
    }
    let (_, _, _) = (wire::versions(bytes), wire::producer(bytes), wire::produced(bytes, 0));
    let (_, _) = (wire::mechanisms(bytes), wire::signed(bytes));
}

/// Returns the flow id of a line.
fn id_of(line: &[u8]) -> Option<Vec<u8>> {
    const BEFORE: &[u8] = b"\"id\":\"";
    let at = line.windows(BEFORE.len()).position(|window| window == BEFORE)? + BEFORE.len();
    line.get(at..at + 16).map(<[u8]>::to_vec)
}
