//! Messages of IPFIX and NetFlow v9 back to flows, whoever made them.
//!
//! Templates are of one session (an address and port, a connection, a file) and one observation domain. Memory is bounded, whatever
//! is sent: beyond so many fields of templates the oldest give way, and what is then not known is counted.

use super::back::Record;
use linerate_burst::Nanos;
use linerate_meter::Flow;
use std::collections::{HashMap, VecDeque};

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Fields of all templates together, 12 bytes each.
    pub fields: usize,
    /// Sequences that are followed: of a session and domain each.
    pub sequences: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { fields: 1 << 20, sequences: 1 << 16 }
    }
}

/// What came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Messages of either protocol.
    pub messages: u64,
    /// Records that are flows.
    pub records: u64,
    /// Records of something else: statistics, sampling, names; without addresses.
    pub others: u64,
    /// Messages that are damaged, or of no protocol that is known here; what stood in front of the damage counts.
    pub malformed: u64,
    /// Sets of data whose template is not known, or not any more.
    pub unknown: u64,
    /// Templates that were learned, again or anew.
    pub templates: u64,
    /// Templates that gave way to others for want of room.
    pub no_room: u64,
    /// Data records of IPFIX that did not come, by sequence numbers.
    pub lost: u64,
    /// Messages of NetFlow v9 that did not come, by sequence numbers.
    pub lost_messages: u64,
    /// The greatest number of packets of which one was looked at, as an exporter says; 0: nobody said.
    pub sampling: u64,
}

/// A field of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub enterprise: u32,
    pub element: u16,
    pub length: u16,
}

#[derive(Debug)]
struct Template {
    fields: Vec<Spec>,
    /// Whether it is of options: its records are about an exporter, not of flows.
    is_options: bool,
    /// The fewest bytes of a record.
    least: usize,
    /// Which one it is of all that were learned.
    number: u64,
}

/// Session, domain, and number of a template.
type Key = (u64, u32, u16);

/// Takes messages of any number of sessions.
pub struct Collector {
    limits: Limits,
    enterprise: u32,
    templates: HashMap<Key, Template>,
    /// As they were learned; those that were replaced stand here too.
    order: VecDeque<(Key, u64)>,
    fields: usize,
    /// The sequence number that is to come, of a session, domain and protocol.
    sequences: HashMap<(u64, u32, u16), u32>,
    found: Found,
}

/// A header, and how much of the message it is.
struct Head {
    version: u16,
    bytes: usize,
    sequence: u32,
    domain: u32,
    clock: Clock,
}

/// What times in a message are relative to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Seconds since 1970.
    pub seconds: u32,
    /// Milliseconds since the exporter began; of NetFlow v9.
    pub uptime: Option<u32>,
}

/// More than this is no gap.
const FAR: u32 = 1 << 24;

/// A message is damaged.
struct Malformed;

impl Collector {
    /// Elements of `enterprise` are ours.
    pub fn new(limits: Limits, enterprise: u32) -> Self {
        Collector {
            limits,
            enterprise,
            templates: HashMap::new(),
            order: VecDeque::new(),
            fields: 0,
            sequences: HashMap::new(),
            found: Found::default(),
        }
    }

    /// What came so far.
    pub fn found(&self) -> Found {
        self.found
    }

    /// Takes one message, of a session whose templates may be withdrawn if `is_stream` (RFC 7011, 8.1); over UDP nobody may do that.
    pub fn take(&mut self, session: u64, is_stream: bool, message: &[u8], out: &mut dyn FnMut(&Flow)) {
        self.found.messages += 1;
        if self.read(session, is_stream, message, out).is_err() {
            self.found.malformed += 1;
        }
    }

    /// Counts what is no message at all.
    pub fn refuse(&mut self) {
        self.found.malformed += 1;
    }

    /// Forgets sessions that have ended.
    pub fn end(&mut self, has_ended: impl Fn(u64) -> bool) {
        let fields = &mut self.fields;
        self.templates.retain(|key, template| {
            let stays = !has_ended(key.0);
            *fields -= if stays { 0 } else { template.fields.len() };
            stays
        });
        self.sequences.retain(|key, _| !has_ended(key.0));
    }

    fn read(
        &mut self,
        session: u64,
        is_stream: bool,
        message: &[u8],
        out: &mut dyn FnMut(&Flow),
    ) -> Result<(), Malformed> {
        let head = Head::parse(message)?;
        let (mut rest, mut records, mut is_known) = (&message[head.bytes..], 0_u32, true);
        let mut result = Ok(());
        while rest.len() >= 4 {
            let [id, length] = [0, 2].map(|at| u16::from_be_bytes([rest[at], rest[at + 1]]));
            let length = usize::from(length);
            if length < 4 || length > rest.len() {
                result = Err(Malformed);
                break;
            }
            let (set, behind) = rest.split_at(length);
            rest = behind;
            let (set, key) = (&set[4..], (session, head.domain, id));
            let read = match (head.version, id) {
                (10, 2) | (9, 0) => self.learn(key, set, head.version, false, is_stream),
                (10, 3) | (9, 1) => self.learn(key, set, head.version, true, is_stream),
                (_, 256..) => match self.data(key, set, head.clock, out) {
                    Some(count) => {
                        records = records.saturating_add(count);
                        Ok(())
                    }
                    None => {
                        is_known = false;
                        Ok(())
                    }
                },
                _ => Ok(()),
            };
            if read.is_err() {
                result = read;
            }
        }
        self.follow(session, &head, if is_known && result.is_ok() { Some(records) } else { None });
        result
    }

    /// Templates, until there are no more or the rest is padding.
    fn learn(
        &mut self,
        (session, domain, _): Key,
        mut set: &[u8],
        version: u16,
        is_options: bool,
        is_stream: bool,
    ) -> Result<(), Malformed> {
        while set.len() >= 4 {
            let mut number = || -> Result<u16, Malformed> {
                let (number, rest) = set.split_first_chunk::<2>().ok_or(Malformed)?;
                set = rest;
                Ok(u16::from_be_bytes(*number))
            };
            let (id, count) = (number()?, usize::from(number()?));
            if id == 0 && count == 0 {
                return Ok(());
            }
            if count == 0 && version == 10 {
                // Withdrawn; all of a kind by the number of its sets.
                if is_stream {
                    self.withdraw((session, domain, id), is_options);
                }
                continue;
            }
            if id < 256 {
                return Err(Malformed);
            }
            let (scopes, count) = match (is_options, version) {
                (false, _) => (0, count),
                (true, 9) => (count / 4, count / 4 + usize::from(number()?) / 4),
                (true, _) => (usize::from(number()?), count),
            };
            let mut fields = Vec::new();
            for place in 0..count {
                let (element, length) = (number()?, number()?);
                let is_foreign = version == 10 && element & 1 << 15 != 0;
                let enterprise = if is_foreign { u32::from(number()?) << 16 | u32::from(number()?) } else { 0 };
                let element = if is_foreign { element & !(1 << 15) } else { element };
                // What scopes of NetFlow v9 are numbers of is something else.
                let enterprise = if version == 9 && place < scopes { u32::MAX } else { enterprise };
                fields.push(Spec { enterprise, element, length });
            }
            self.keep((session, domain, id), fields, is_options)?;
        }
        Ok(())
    }

    fn keep(&mut self, key: Key, fields: Vec<Spec>, is_options: bool) -> Result<(), Malformed> {
        let least: usize =
            fields.iter().map(|field| if field.length == u16::MAX { 1 } else { usize::from(field.length) }).sum();
        if least == 0 {
            return Err(Malformed);
        }
        self.found.templates += 1;
        if let Some(known) = self.templates.get_mut(&key)
            && known.fields == fields
            && known.is_options == is_options
        {
            return Ok(());
        }
        self.forget(key);
        self.fields += fields.len();
        let number = self.found.templates;
        self.templates.insert(key, Template { fields, is_options, least, number });
        self.order.push_back((key, number));
        while self.fields > self.limits.fields || self.order.len() > self.limits.fields {
            let Some((oldest, number)) = self.order.pop_front() else { break };
            if self.templates.get(&oldest).is_some_and(|template| template.number == number) {
                self.forget(oldest);
                self.found.no_room += 1;
            }
        }
        Ok(())
    }

    fn forget(&mut self, key: Key) {
        if let Some(template) = self.templates.remove(&key) {
            self.fields -= template.fields.len();
        }
    }

    fn withdraw(&mut self, key: Key, is_options: bool) {
        if key.2 >= 256 {
            return self.forget(key);
        }
        let fields = &mut self.fields;
        self.templates.retain(|(session, domain, _), template| {
            let stays = (*session, *domain) != (key.0, key.1) || template.is_options != is_options;
            *fields -= if stays { 0 } else { template.fields.len() };
            stays
        });
    }

    /// The records of a set, and how many there are; `None` where that is not known.
    fn data(&mut self, key: Key, mut set: &[u8], clock: Clock, out: &mut dyn FnMut(&Flow)) -> Option<u32> {
        let Some(template) = self.templates.get(&key) else {
            self.found.unknown += 1;
            return None;
        };
        let mut count = 0;
        // What is shorter than any record is padding.
        while set.len() >= template.least {
            let mut record = Record::new(clock, self.enterprise);
            for field in &template.fields {
                let Some(value) = value(field.length, &mut set) else {
                    self.found.malformed += 1;
                    return None;
                };
                record.set(*field, value);
            }
            count += 1;
            self.found.sampling = self.found.sampling.max(record.sampling());
            match record.flow().filter(|_| !template.is_options) {
                Some(flow) => {
                    self.found.records += 1;
                    out(&flow);
                }
                None => self.found.others += 1,
            }
        }
        Some(count)
    }

    /// Compares a sequence number with what was to come; `records` are those of this message, where all are known.
    fn follow(&mut self, session: u64, head: &Head, records: Option<u32>) {
        let key = (session, head.domain, head.version);
        let gap = self.sequences.get(&key).map_or(0, |expected| head.sequence.wrapping_sub(*expected));
        // A number from before is of a message that was late; one far from there of an exporter that began anew.
        if gap < FAR {
            let lost = if head.version == 9 { &mut self.found.lost_messages } else { &mut self.found.lost };
            *lost = lost.saturating_add(gap.into());
        }
        let step = if head.version == 9 { Some(1) } else { records };
        match step {
            Some(step) if self.sequences.len() < self.limits.sequences || self.sequences.contains_key(&key) => {
                self.sequences.insert(key, head.sequence.wrapping_add(step));
            }
            _ => drop(self.sequences.remove(&key)),
        }
    }
}

/// The bytes of a value, which are taken off.
fn value<'a>(length: u16, set: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = match length {
        u16::MAX => match **set {
            [255, high, low, ..] => {
                *set = &set[3..];
                usize::from(u16::from_be_bytes([high, low]))
            }
            [length, ..] if length < 255 => {
                *set = &set[1..];
                length.into()
            }
            _ => return None,
        },
        length => length.into(),
    };
    let (value, rest) = set.split_at_checked(length)?;
    *set = rest;
    Some(value)
}

impl Head {
    fn parse(message: &[u8]) -> Result<Head, Malformed> {
        let word =
            |at: usize| message.get(at..at + 4).map(|four| u32::from_be_bytes([four[0], four[1], four[2], four[3]]));
        let word = |at| word(at).ok_or(Malformed);
        let first = word(0)?;
        let (version, length) = ((first >> 16) as u16, (first & 0xffff) as usize);
        match version {
            10 if length == message.len() && length >= 16 => {
                let clock = Clock { seconds: word(4)?, uptime: None };
                Ok(Head { version, bytes: 16, sequence: word(8)?, domain: word(12)?, clock })
            }
            9 => {
                let clock = Clock { seconds: word(8)?, uptime: Some(word(4)?) };
                Ok(Head { version, bytes: 20, sequence: word(12)?, domain: word(16)?, clock })
            }
            _ => Err(Malformed),
        }
    }
}

/// Nothing is known of a record's times.
pub(super) const NO_TIME: Nanos = Nanos(0);
