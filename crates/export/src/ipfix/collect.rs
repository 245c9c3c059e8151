//! Decoding of IPFIX and NetFlow v9 messages of any exporter into flows.
//!
//! Templates belong to one session (an address and port, a connection, a file) and one observation domain. Data without
//! a known template is counted.

use super::decode::Record;
use super::elements::Meaning;
use super::sessions::{Field, Limits, Session, Sessions, Template};
use linerate_meter::{ExportedBy, Flow};

/// Counters of a collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectorCounters {
    /// Sessions started.
    pub sessions: u64,
    /// Messages of both protocols.
    pub messages: u64,
    /// Flow records.
    pub records: u64,
    /// Other records: statistics, sampling, names, and records without addresses.
    pub others: u64,
    /// Malformed messages, or messages of unknown protocols; records before the error are counted.
    pub malformed: u64,
    /// Data sets without a known template.
    pub unknown: u64,
    /// Templates received, including refreshed ones.
    pub templates: u64,
    /// Elements of flow templates that are not read, as no field corresponds to them.
    pub unread: u64,
    /// Templates evicted for lack of space.
    pub no_room: u64,
    /// Lost IPFIX data records, by sequence numbers.
    pub lost: u64,
    /// Lost NetFlow v9 messages, by sequence numbers.
    pub lost_messages: u64,
    /// Connections closed by the connection limit or by TLS.
    pub refused: u64,
    /// Highest sampling interval (packets per sampled packet) announced by an exporter; 0: none.
    pub sampling: u64,
}

/// Field of a template, as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub enterprise: u32,
    pub element: u16,
    pub length: u16,
}

/// Decoder for messages of any number of sessions.
pub struct Collector {
    enterprise: u32,
    sessions: Sessions,
    found: CollectorCounters,
    /// Receives the unread elements of a template; and the number of such notices.
    notify: Option<fn(String)>,
    notices: usize,
    steps: u64,
}

/// Header of a message, with its length.
struct Head {
    version: u16,
    bytes: usize,
    sequence: u32,
    domain: u32,
    clock: Clock,
}

/// Reference of relative times in a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Seconds since 1970.
    pub seconds: u32,
    /// Uptime of the exporter in milliseconds; NetFlow v9.
    pub uptime: Option<u32>,
    /// Start of the exporter in milliseconds since 1970; IPFIX, if present.
    pub boot: Option<u64>,
}

/// A larger difference is a restart rather than a gap.
const FAR: u32 = 1 << 24;
/// Maximum number of fields of a template; no exporter needs as many.
const MOST_FIELDS: usize = 1024;
/// Maximum number of notices about templates, and of elements per notice.
const MOST_NOTICES: usize = 64;
const MOST_NAMED: usize = 16;

/// Error of a malformed message.
struct Malformed;

impl Collector {
    /// Creates a collector; elements of `enterprise` are ours.
    pub fn new(limits: Limits, enterprise: u32) -> Self {
        let sessions = Sessions::new(limits);
        Collector { enterprise, sessions, found: CollectorCounters::default(), notify: None, notices: 0, steps: 0 }
    }

    /// Sets a function that receives the unread elements of each template, for a limited number of templates.
    pub fn with_notify(self, notify: fn(String)) -> Self {
        Collector { notify: Some(notify), ..self }
    }

    /// Returns the counters so far.
    pub fn found(&self) -> CollectorCounters {
        CollectorCounters { sessions: self.sessions.begun, no_room: self.sessions.no_room, ..self.found }
    }

    /// Returns the amount of work so far: sets, records, fields, parts of templates. It is bounded by the bytes of
    /// messages.
    pub fn steps(&self) -> u64 {
        self.steps + self.sessions.walked
    }

    /// Processes a message of a session.
    pub fn take(&mut self, session: Session, message: &[u8], out: &mut dyn FnMut(&Flow)) {
        self.found.messages += 1;
        self.sessions.record_message(session);
        if self.read(session, message, out).is_err() {
            self.found.malformed += 1;
        }
    }

    /// Counts malformed data.
    pub fn refuse(&mut self) {
        self.found.malformed += 1;
    }

    /// Counts a rejected connection.
    pub(super) fn count_rejected(&mut self) {
        self.found.refused += 1;
    }

    /// Removes a session that has ended.
    pub fn end(&mut self, session: Session) {
        self.sessions.end(session);
    }

    fn read(&mut self, session: Session, message: &[u8], out: &mut dyn FnMut(&Flow)) -> Result<(), Malformed> {
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
            self.steps += 1;
            let (set, behind) = rest.split_at(length);
            rest = behind;
            let set = &set[4..];
            let read = match (head.version, id) {
                (10, 2) | (9, 0) => self.learn(session, &head, set, false),
                (10, 3) | (9, 1) => self.learn(session, &head, set, true),
                (_, 256..) => match self.data(session, &head, id, set, out) {
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

    /// Reads templates until the end of the set or the padding.
    fn learn(&mut self, session: Session, head: &Head, mut set: &[u8], is_options: bool) -> Result<(), Malformed> {
        let Head { version, domain, .. } = *head;
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
                // Withdrawals; the set id withdraws all of a kind.
                match id {
                    _ if !session.is_stream() => {}
                    256.. => self.sessions.forget(session, domain, id),
                    _ => self.sessions.remove_templates(session, domain, is_options),
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
            if count > MOST_FIELDS {
                return Err(Malformed);
            }
            let (mut fields, mut unread) = (Vec::new(), Vec::new());
            for place in 0..count {
                let (element, length) = (number()?, number()?);
                let is_foreign = version == 10 && element & 1 << 15 != 0;
                let enterprise = if is_foreign { u32::from(number()?) << 16 | u32::from(number()?) } else { 0 };
                let element = if is_foreign { element & !(1 << 15) } else { element };
                // Scope fields of NetFlow v9 are not information elements.
                let enterprise = if version == 9 && place < scopes { u32::MAX } else { enterprise };
                let spec = Spec { enterprise, element, length };
                let meaning = Meaning::of(spec, self.enterprise);
                // Skips empty fields: records of only such fields would never end.
                if length > 0 {
                    fields.push(Field { meaning, length });
                }
                if (length == 0 || meaning == Meaning::Unknown) && !is_options {
                    unread.push(spec);
                }
                self.steps += 1;
            }
            let shortest = |field: &Field| if field.length == u16::MAX { 1 } else { usize::from(field.length) };
            let least: usize = fields.iter().map(shortest).sum();
            if least == 0 {
                return Err(Malformed);
            }
            self.found.templates += 1;
            if self.sessions.keep(session, domain, id, Template { fields, is_options, least }) {
                self.name(session, domain, id, &unread);
            }
        }
        Ok(())
    }

    /// Counts and reports the unread elements of a new template.
    fn name(&mut self, session: Session, domain: u32, id: u16, unread: &[Spec]) {
        self.found.unread += unread.len() as u64;
        let Some(notify) = self.notify.filter(|_| !unread.is_empty() && self.notices < MOST_NOTICES) else { return };
        self.notices += 1;
        let of = session.exporter().map_or_else(String::new, |address| format!(" of {address}"));
        let named = unread.iter().take(MOST_NAMED).map(|Spec { enterprise, element, .. }| match enterprise {
            0 => element.to_string(),
            enterprise => format!("{enterprise}/{element}"),
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let more = match unread.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let last = if self.notices == MOST_NOTICES { "; further templates are counted only" } else { "" };
        notify(format!("template {id}{of}, domain {domain}: elements not read: {named}{more}{last}"));
    }

    /// Reads the records of a set and returns their number; `None` if unknown.
    fn data(
        &mut self,
        session: Session,
        head: &Head,
        id: u16,
        mut set: &[u8],
        out: &mut dyn FnMut(&Flow),
    ) -> Option<u32> {
        let boot = self.sessions.domain(session, head.domain).and_then(|domain| domain.boot);
        let clock = Clock { boot, ..head.clock };
        let exporter = ExportedBy { address: session.exporter(), domain: head.domain, interfaces: [0; 2] };
        let Some(template) = self.sessions.template(session, head.domain, id) else {
            self.found.unknown += 1;
            return None;
        };
        let (mut count, mut began) = (0, boot);
        // A remainder shorter than any record is padding.
        while set.len() >= template.least {
            let mut record = Record::new(clock, exporter);
            self.steps += 1;
            for field in &template.fields {
                self.steps += 1;
                let Some(value) = value(field.length, &mut set) else {
                    self.found.malformed += 1;
                    return None;
                };
                record.set(field.meaning, value);
            }
            count += 1;
            self.found.sampling = self.found.sampling.max(record.sampling());
            began = record.boot().or(began);
            match record.flow().filter(|_| !template.is_options) {
                Some(flow) => {
                    self.found.records += 1;
                    out(&flow);
                }
                None => self.found.others += 1,
            }
        }
        if began != boot
            && let Some(domain) = self.sessions.domain(session, head.domain)
        {
            domain.boot = began;
        }
        Some(count)
    }

    /// Compares a sequence number with the expected one; `records` is the number in this message, if known.
    fn follow(&mut self, session: Session, head: &Head, records: Option<u32>) {
        let Some(domain) = self.sessions.domain(session, head.domain) else { return };
        let next = &mut domain.sequences[usize::from(head.version == 9)];
        let gap = next.map_or(0, |expected| head.sequence.wrapping_sub(expected));
        let step = if head.version == 9 { Some(1) } else { records };
        *next = step.map(|step| head.sequence.wrapping_add(step));
        // A lower number is a late message; a distant one means that the exporter restarted.
        if gap < FAR {
            let lost = if head.version == 9 { &mut self.found.lost_messages } else { &mut self.found.lost };
            *lost = lost.saturating_add(gap.into());
        }
    }
}

/// Takes the bytes of a value off the set.
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
                let clock = Clock { seconds: word(4)?, uptime: None, boot: None };
                Ok(Head { version, bytes: 16, sequence: word(8)?, domain: word(12)?, clock })
            }
            9 => {
                let clock = Clock { seconds: word(8)?, uptime: Some(word(4)?), boot: None };
                Ok(Head { version, bytes: 20, sequence: word(12)?, domain: word(16)?, clock })
            }
            _ => Err(Malformed),
        }
    }
}
