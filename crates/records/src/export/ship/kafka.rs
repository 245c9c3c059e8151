//! Kafka: an idempotent producer whose numbers lie in the spool.
//!
//! A broker appends a batch once by its producer id, epoch and sequence number, whoever sends it again, and over which connection. These are
//! noted on the disk before a batch is sent, so that a process that died sends it again as what it was. One batch is under way at a time:
//! so at most one is of unknown fate, and a batch that a broker refuses leaves no gap in the numbers.

mod broker;
mod wire;

use self::broker::Broker;
use self::wire::{Ask, Topic};
use super::form::Form;
use super::journal::Assigned;
use super::link::Over;
use super::spool::Spool;
use super::state::Waiting;
use super::target::Target;
use super::{Destination, Refusal, now};
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};

/// How long a broker knows a producer that says nothing (`producer.id.expiration.ms`, a day), with something to spare, in ns.
const KNOWN: u64 = 20 * 3600 * 1_000_000_000;
/// How long it is believed where partitions are, in ns.
const FRESH: u64 = 300 * 1_000_000_000;

pub(super) struct Kafka {
    /// Where to begin.
    hosts: Vec<(String, u16)>,
    topic: String,
    sensor: String,
    lanes: u16,
    over: Over,
    /// Where the topic is, and since when that is known.
    place: Option<(Topic, u64)>,
    brokers: BTreeMap<i32, Broker>,
    /// Of this run, for partitions in which nothing is known of an earlier one.
    producer: Option<(i64, i16)>,
}

/// The topic of a target.
pub(super) fn topic(target: &Target) -> Result<String> {
    let is_of = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let topic = &target.path;
    if (1..=249).contains(&topic.len()) && topic.bytes().all(is_of) && !matches!(topic.as_str(), "." | "..") {
        return Ok(topic.clone());
    }
    let text = "name a topic behind the brokers, as in kafka://HOST:9092,HOST2/flows";
    Err(Error::new(ErrorKind::InvalidInput, text))
}

impl Kafka {
    pub fn new(target: &Target, sensor: &str, lanes: u16, over: Over) -> Result<Self> {
        Ok(Kafka {
            hosts: target.hosts.clone(),
            topic: topic(target)?,
            sensor: sensor.to_owned(),
            lanes,
            over,
            place: None,
            brokers: BTreeMap::new(),
            producer: None,
        })
    }

    /// Any broker, to ask for what each of them knows.
    fn any(&mut self) -> Result<&mut Broker> {
        self.brokers.retain(|_, broker| broker.is_quiet());
        if self.brokers.is_empty() {
            let mut last = Error::from(ErrorKind::NotFound);
            for (host, port) in &self.hosts {
                match Broker::open(host, *port, &self.over) {
                    Ok(broker) => {
                        self.brokers.insert(i32::MIN, broker);
                        break;
                    }
                    Err(error) => last = error,
                }
            }
            if self.brokers.is_empty() {
                return Err(last);
            }
        }
        self.brokers.values_mut().next().ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Forgets connections and places: they are looked up anew.
    fn anew(&mut self) {
        self.place = None;
        self.brokers.clear();
    }

    fn place(&mut self) -> std::result::Result<Topic, Refusal> {
        if let Some((place, since)) = &self.place
            && now().saturating_sub(*since) < FRESH
        {
            return Ok(place.clone());
        }
        let name = self.topic.clone();
        let broker = self.any()?;
        let answer = broker.ask(Ask::Metadata, &wire::metadata(&name))?;
        let topic = wire::topic(&answer, &name).ok_or_else(|| broker.garbage())?;
        match topic.error {
            0 | 5 if !topic.leaders.is_empty() => {}
            29 => return Err(Refusal::ToMend(format!("topic {name}: this sensor may not use it (error 29)"))),
            17 => return Err(Refusal::ToMend(format!("topic {name}: no name of a topic (error 17)"))),
            3 => {
                let text =
                    format!("there is no topic {name} yet: kafka-topics.sh --create --topic {name} makes it (error 3)");
                return Err(Refusal::Later(text));
            }
            error => return Err(Refusal::Later(format!("topic {name}: {}", told(error)))),
        }
        self.place = Some((topic.clone(), now()));
        Ok(topic)
    }

    /// A producer id of this run.
    fn producer(&mut self) -> std::result::Result<(i64, i16), Refusal> {
        if let Some(producer) = self.producer {
            return Ok(producer);
        }
        let broker = self.any()?;
        let answer = broker.ask(Ask::InitProducerId, &wire::init_producer())?;
        match wire::producer(&answer).ok_or_else(|| broker.garbage())? {
            (0, id @ 0.., epoch @ 0..) => Ok(*self.producer.insert((id, epoch))),
            (31 | 53, ..) => Err(Refusal::ToMend("this sensor may not write idempotently (error 31)".into())),
            // Without a number of its own everything would be appended twice some day, and nobody would say so.
            (error, ..) => Err(Refusal::Later(format!("no producer id: {}", told(error)))),
        }
    }

    /// What a batch is to be sent as, noted on the disk.
    fn assign(
        &mut self,
        spool: &Spool,
        waiting: &Waiting,
        topic: &Topic,
        count: u32,
    ) -> std::result::Result<Assigned, Refusal> {
        let batch = &waiting.batch;
        let place = if self.lanes > 1 { u64::from(batch.lane) } else { batch.id.run.wrapping_add(batch.id.number) };
        let (partition, _) = topic.leaders[(place % topic.leaders.len() as u64) as usize];
        let known = spool.next_in(partition).filter(|next| now().saturating_sub(next.at) < KNOWN);
        let (producer, epoch, sequence) = match known {
            Some(next) => (next.producer, next.epoch, next.sequence),
            None => {
                let (producer, epoch) = self.producer()?;
                (producer, epoch, 0)
            }
        };
        let assigned = Assigned { partition, producer, epoch, sequence, count, at: now() };
        spool.assign(batch.id, assigned)?;
        Ok(assigned)
    }

    /// The broker that leads a partition.
    fn leader(&mut self, topic: &Topic, partition: i32) -> std::result::Result<&mut Broker, Refusal> {
        let leader = topic.leaders.iter().find(|(own, _)| *own == partition).map(|(_, leader)| *leader);
        let place = topic.brokers.iter().find(|(node, ..)| Some(*node) == leader);
        let Some((node, host, port)) = place else {
            self.place = None;
            return Err(Refusal::Later(format!("partition {partition} has no leader at the moment")));
        };
        self.brokers.retain(|_, broker| broker.is_quiet());
        if !self.brokers.contains_key(node) {
            let broker = Broker::open(host, *port, &self.over).map_err(|error| {
                self.place = None;
                let advice = "; that is its address by its own account (advertised.listeners)";
                Error::new(error.kind(), format!("{error}{advice}"))
            })?;
            self.brokers.insert(*node, broker);
        }
        self.brokers.get_mut(node).ok_or_else(|| Refusal::Later("no leader".into()))
    }

    /// The messages of a batch: one, but of lines each is one, by its flow where flows have lanes.
    fn messages<'a>(&self, form: Form, waiting: &Waiting, bytes: &'a [u8]) -> Vec<(Option<Vec<u8>>, &'a [u8])> {
        let key = || (self.lanes > 1).then(|| waiting.batch.lane.to_string().into_bytes());
        match form {
            Form::Json => {
                let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                lines.map(|line| (if self.lanes > 1 { id_of(line) } else { None }, line)).collect()
            }
            _ => vec![(key(), bytes)],
        }
    }

    fn send(&mut self, spool: &Spool, waiting: &Waiting, bytes: &[u8]) -> std::result::Result<(), Refusal> {
        let form = Form::of(&waiting.batch)?;
        let messages = self.messages(form, waiting, bytes);
        let batch = &waiting.batch;
        let headers = [
            ("schema", "linerate/flow/1".to_owned()),
            ("format", form.name().to_owned()),
            ("sensor", self.sensor.clone()),
            ("run", format!("{:016x}", batch.id.run)),
            ("batch", batch.id.number.to_string()),
            ("rows", batch.rows.to_string()),
            ("first", batch.first.to_string()),
            ("last", batch.last.to_string()),
        ];
        let topic = self.place()?;
        let is_known = |assigned: &Assigned| {
            let is_there = topic.leaders.iter().any(|(partition, _)| *partition == assigned.partition);
            is_there && now().saturating_sub(assigned.at) < KNOWN
        };
        let assigned = match waiting.assigned {
            Some(assigned) if is_known(&assigned) => {
                spool.count(|tally| tally.resent += 1);
                assigned
            }
            earlier => {
                if earlier.is_some() {
                    // Whether it came nobody can find out any more.
                    self.give_up(spool, waiting);
                }
                self.assign(spool, waiting, &topic, messages.len() as u32)?
            }
        };
        let records = wire::batch(&assigned, (batch.last / 1_000_000) as i64, &headers, &messages);
        let body = wire::produce(&self.topic, assigned.partition, &records);
        let broker = self.leader(&topic, assigned.partition)?;
        spool.step()?;
        let answer = broker.ask(Ask::Produce, &body)?;
        spool.step()?;
        let error = wire::produced(&answer, assigned.partition).ok_or_else(|| broker.garbage())?;
        match error {
            // 46: it is there already.
            0 | 46 => Ok(()),
            10 | 18 | 32 | 87 => {
                spool.take_back(assigned)?;
                Err(Refusal::Never(told(error)))
            }
            17 | 29 | 31 => Err(Refusal::ToMend(told(error))),
            // It knows other numbers than these.
            45 | 47 | 49 | 59 | 90 => {
                if waiting.assigned.is_some() {
                    self.give_up(spool, waiting);
                } else {
                    spool.forget();
                    self.producer = None;
                }
                spool.unassign(batch.id);
                Err(Refusal::Later(format!("{}; from now on by a new producer id", told(error))))
            }
            error => {
                self.place = None;
                Err(Refusal::Later(told(error)))
            }
        }
    }

    /// A batch goes on under new numbers though it may have been appended under the old ones.
    fn give_up(&mut self, spool: &Spool, waiting: &Waiting) {
        spool.forget();
        spool.count(|tally| tally.maybe_duplicated += u64::from(waiting.batch.rows));
        self.producer = None;
    }
}

impl Destination for Kafka {
    fn deliver(&mut self, spool: &Spool, waiting: &Waiting, bytes: &[u8]) -> std::result::Result<(), Refusal> {
        let sent = self.send(spool, waiting, bytes);
        if let Err(Refusal::Later(_)) = sent {
            self.anew();
        }
        sent
    }
}

/// Reads bytes as each answer.
pub(super) fn read_anything(bytes: &[u8]) {
    if let Some(topic) = wire::topic(bytes, "t") {
        assert!(topic.leaders.len() * 4 <= bytes.len() && topic.brokers.len() * 4 <= bytes.len());
    }
    let (_, _, _) = (wire::versions(bytes), wire::producer(bytes), wire::produced(bytes, 0));
}

/// The id of the flow of a line.
fn id_of(line: &[u8]) -> Option<Vec<u8>> {
    const BEFORE: &[u8] = b"\"id\":\"";
    let at = line.windows(BEFORE.len()).position(|window| window == BEFORE)? + BEFORE.len();
    line.get(at..at + 16).map(<[u8]>::to_vec)
}

/// An error of a broker, for people.
fn told(error: i16) -> String {
    let what = match error {
        2 => "the broker found the batch damaged",
        3 => "the topic is not there, or not yet",
        5 | 6 => "the partition has another leader",
        7 => "the replicas took too long",
        10 => "the batch is longer than message.max.bytes: --ship rows=N makes shorter ones",
        14 | 15 => "the coordinator is loading",
        18 => "the batch is longer than a segment",
        19 => "too few replicas are in sync",
        20 => "appended by too few replicas",
        29 => "this sensor may not write to the topic",
        31 => "this sensor may not write idempotently",
        45 | 59 => "the broker knows other sequence numbers of this producer",
        47 | 90 => "the broker knows a later epoch of this producer",
        56 => "a disk of the broker failed, or is full",
        87 => "the broker takes no such record",
        _ => "the broker refused",
    };
    format!("{what} (error {error})")
}
