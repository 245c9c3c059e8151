//! Encoding of records into messages of limited length, with their templates.

use super::column::{Column, Kind, MOST_TEXTS};
use super::times::millis;
use super::types::types;
use super::{Profile, Version};
use linerate_burst::Nanos;
use linerate_meter::Flow;
use std::collections::BTreeMap;

/// Encoded message. Its sequence number is set when it is sent.
#[derive(Clone, Debug)]
pub struct Message {
    /// Encoded bytes.
    pub bytes: Vec<u8>,
    /// Number of data records, as counted by IPFIX sequence numbers.
    pub records: u32,
    /// Number of flows whose last record it contains.
    pub flows: u64,
}

/// Template id of statistics.
const STATISTICS: u16 = 512;
/// Set ids of templates and options templates.
const TEMPLATES: u16 = 2;
pub(super) const OPTIONS: u16 = 3;
/// Start of the NetFlow v9 uptime clock before the first export: from then on its times are unambiguous for 49 days.
const UP: u64 = 86_400_000;

/// Counters that an exporter sends about itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// Messages sent.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Flows in these messages.
    pub flows: u64,
    /// Flows not sent.
    pub lost: u64,
    /// Packets lost before metering.
    pub dropped: u64,
    /// Packets ignored by the meter.
    pub ignored: u64,
}

/// Encodes flows into messages.
pub struct Packer {
    profile: Profile,
    /// Layouts in use, by template id.
    layouts: BTreeMap<u16, Vec<Column>>,
    message: Message,
    /// Open set: its template, and its offset.
    set: Option<(u16, usize)>,
    /// Start of the NetFlow v9 uptime clock, in milliseconds since 1970.
    boot: Option<u64>,
    /// Number of flows whose times exceed this clock.
    pub absolute: u64,
}

impl Packer {
    /// Creates a packer without templates.
    pub fn new(profile: Profile) -> Self {
        let message = Message { bytes: Vec::new(), records: 0, flows: 0 };
        Packer { profile, layouts: BTreeMap::new(), message, set: None, boot: None, absolute: 0 }
    }

    /// Appends the messages for these flows, each template before its first record.
    pub fn pack(&mut self, flows: &[&Flow], now: Nanos, out: &mut Vec<Message>) {
        let boot = *self.boot.get_or_insert_with(|| millis(now).saturating_sub(UP));
        for flow in flows {
            let mut kind = Kind::of(flow, &self.profile);
            let mut times = flow.sides.iter().filter(|side| side.has_time()).flat_map(|side| [side.first, side.last]);
            kind.absolute = self.profile.version == Version::V9 && times.any(|time| !is_expressible(time, now, boot));
            self.absolute += u64::from(kind.absolute);
            let template = kind.template(&self.profile);
            if !self.layouts.contains_key(&template) {
                self.close(out);
                self.layouts.insert(template, kind.columns(&self.profile));
                out.push(self.template(template, now));
            }
            let is_there = flow.sides.map(|side| side.has_time());
            let sides: &[usize] = match is_there {
                _ if kind.biflow => &[0],
                [true, true] => &[0, 1],
                [false, true] => &[1],
                _ => &[0],
            };
            sides.iter().for_each(|side| self.add(flow, *side, template, now, out));
            self.message.flows += 1;
        }
        self.close(out);
    }

    /// Returns all templates in use, one message each.
    pub fn templates(&self, now: Nanos) -> Vec<Message> {
        self.layouts.keys().map(|template| self.template(*template, now)).collect()
    }

    /// Returns a statistics message, without an observation domain: collectors count sequence numbers per domain.
    pub fn statistics(&self, statistics: Statistics, now: Nanos) -> Option<Message> {
        if self.profile.version == Version::V9 {
            return None;
        }
        let fields: [(u16, u16, u64); 11] = [
            // The scope: exportingProcessId.
            (144, 4, std::process::id().into()),
            // exportedMessageTotalCount, exportedFlowRecordTotalCount, exportedOctetTotalCount.
            (41, 8, statistics.messages),
            (42, 8, statistics.flows),
            (40, 8, statistics.bytes),
            // notSentFlowTotalCount.
            (166, 8, statistics.lost),
            // droppedPacketTotalCount, ignoredPacketTotalCount.
            (135, 8, statistics.dropped),
            (164, 8, statistics.ignored),
            // samplingPacketInterval, samplingPacketSpace: every packet is metered.
            (305, 4, 1),
            (306, 4, 0),
            // observationDomainId, systemInitTimeMilliseconds.
            (149, 4, self.profile.domain.into()),
            (160, 8, self.boot.map_or(0, |boot| boot + UP)),
        ];
        let mut bytes = head(Profile { domain: 0, ..self.profile }, now, 0);
        let set = start_set(&mut bytes, OPTIONS);
        [STATISTICS, fields.len() as u16, 1].iter().for_each(|number| bytes.extend(number.to_be_bytes()));
        fields.iter().for_each(|(element, length, _)| {
            bytes.extend([element.to_be_bytes(), length.to_be_bytes()].concat());
        });
        end_set(&mut bytes, set);
        let set = start_set(&mut bytes, STATISTICS);
        for (_, length, value) in fields {
            bytes.extend_from_slice(&value.to_be_bytes()[8 - usize::from(length)..]);
        }
        end_set(&mut bytes, set);
        end_message(&mut bytes);
        Some(Message { bytes, records: 1, flows: 0 })
    }

    /// Returns the types of unregistered elements, if configured; without an observation domain.
    pub fn types(&self, now: Nanos) -> Vec<Message> {
        types(&self.profile, now)
    }

    fn add(&mut self, flow: &Flow, side: usize, template: u16, now: Nanos, out: &mut Vec<Message>) {
        if self.put(flow, side, template, now) {
            return;
        }
        // Starts the next message, even if the record is too long for any.
        self.close(out);
        self.put(flow, side, template, now);
    }

    /// Writes a record into the message; false if it does not fit and the message has others.
    fn put(&mut self, flow: &Flow, side: usize, template: u16, now: Nanos) -> bool {
        let most = self.profile.most;
        if self.message.records == 0 {
            self.message.bytes = head(self.profile, now, self.boot.unwrap_or(0));
            self.message.bytes.reserve(most);
        }
        let (before, set) = (self.message.bytes.len(), self.set);
        if self.set.is_none_or(|(open, _)| open != template) {
            self.end_set();
            self.set = Some((template, start_set(&mut self.message.bytes, template)));
        }
        let (is_v9, boot) = (self.profile.version == Version::V9, self.boot.unwrap_or(0));
        let (bytes, is_alone) = (&mut self.message.bytes, self.message.records == 0);
        let begin = bytes.len();
        for text in MOST_TEXTS {
            bytes.truncate(begin);
            for column in self.layouts.get(&template).into_iter().flatten() {
                match column.element {
                    22 if is_v9 => bytes.extend(uptime(flow.sides[side].first, boot)),
                    21 if is_v9 => bytes.extend(uptime(flow.sides[side].last, boot)),
                    _ => column.put(flow, side, text, bytes),
                }
            }
            if bytes.len() <= most || !is_alone {
                break;
            }
        }
        // Sets of NetFlow v9 are padded.
        if bytes.len() + 3 > most && self.message.records > 0 {
            bytes.truncate(before);
            self.set = set;
            return false;
        }
        self.message.records += 1;
        true
    }

    fn end_set(&mut self) {
        if let Some((_, begin)) = self.set.take() {
            if self.profile.version == Version::V9 {
                let padded = (self.message.bytes.len() - begin).next_multiple_of(4);
                self.message.bytes.resize(begin + padded, 0);
            }
            end_set(&mut self.message.bytes, begin);
        }
    }

    /// Completes the open message.
    fn close(&mut self, out: &mut Vec<Message>) {
        if self.message.records == 0 {
            return;
        }
        self.end_set();
        let mut message = std::mem::replace(&mut self.message, Message { bytes: Vec::new(), records: 0, flows: 0 });
        end(self.profile.version, &mut message);
        out.push(message);
    }

    /// Returns a message with one template.
    fn template(&self, template: u16, now: Nanos) -> Message {
        let is_v9 = self.profile.version == Version::V9;
        let mut bytes = head(self.profile, now, self.boot.unwrap_or(0));
        let set = start_set(&mut bytes, if is_v9 { 0 } else { TEMPLATES });
        let columns = &self.layouts[&template];
        bytes.extend([template.to_be_bytes(), (columns.len() as u16).to_be_bytes()].concat());
        for Column { enterprise, element, length, .. } in columns {
            let foreign = if *enterprise != 0 { 1 << 15 } else { 0 };
            bytes.extend([(element | foreign).to_be_bytes(), length.to_be_bytes()].concat());
            if *enterprise != 0 {
                bytes.extend(enterprise.to_be_bytes());
            }
        }
        end_set(&mut bytes, set);
        let mut message = Message { bytes, records: 0, flows: 0 };
        end(self.profile.version, &mut message);
        message
    }
}

impl Message {
    /// Sets the sequence number: data records sent before for IPFIX, messages for NetFlow v9.
    pub fn number(&mut self, version: Version, sequence: u32) {
        let at = if version == Version::V9 { 12 } else { 8 };
        self.bytes[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
    }
}

/// Returns a header; length and sequence number are set later.
pub(super) fn head(profile: Profile, now: Nanos, boot: u64) -> Vec<u8> {
    let seconds = now.seconds() as u32;
    let mut bytes = Vec::with_capacity(20);
    match profile.version {
        Version::Ipfix => {
            bytes.extend([0, 10, 0, 0]);
            bytes.extend(seconds.to_be_bytes());
        }
        Version::V9 => {
            bytes.extend([0, 9, 0, 0]);
            // Truncated to the whole second of the header, so that times are exact.
            bytes.extend(uptime(Nanos(now.seconds() * 1_000_000_000), boot));
            bytes.extend(seconds.to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend(profile.domain.to_be_bytes());
    bytes
}

/// Returns whether the NetFlow v9 clock can express a time relative to a message header: not times before its start or
/// its last wraparound, and none so distant that it is ambiguous.
fn is_expressible(time: Nanos, now: Nanos, boot: u64) -> bool {
    let (time, now) = (millis(time), now.seconds() * 1000);
    let began = now.saturating_sub((now.wrapping_sub(boot) as u32).into());
    time >= began && time - began < 1 << 32 && time.abs_diff(now) < 1 << 31
}

/// Returns milliseconds of uptime, which wrap around after 49 days.
fn uptime(time: Nanos, boot: u64) -> [u8; 4] {
    (millis(time).wrapping_sub(boot) as u32).to_be_bytes()
}

pub(super) fn start_set(bytes: &mut Vec<u8>, id: u16) -> usize {
    bytes.extend([id.to_be_bytes(), [0; 2]].concat());
    bytes.len() - 4
}

pub(super) fn end_set(bytes: &mut [u8], begin: usize) {
    let length = (bytes.len() - begin) as u16;
    bytes[begin + 2..begin + 4].copy_from_slice(&length.to_be_bytes());
}

pub(super) fn end_message(bytes: &mut [u8]) {
    let length = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
}

/// Sets the length for IPFIX, or the number of records, including templates, for NetFlow v9.
fn end(version: Version, message: &mut Message) {
    match version {
        Version::Ipfix => end_message(&mut message.bytes),
        Version::V9 => {
            let count = message.records.max(1) as u16;
            message.bytes[2..4].copy_from_slice(&count.to_be_bytes());
        }
    }
}
