//! Lines of the journal.

use super::super::crc32c;
use super::LINE;

const MAGIC: [u8; 16] = *b"linerate spool 1";

/// Batch id, unique over all sensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Id {
    /// Random 64-bit id of the run.
    pub run: u64,
    /// Number of the batch in the run, from 0; the upper bits are the number of a part after splits.
    pub number: u64,
}

/// Bit position and limit of the part number.
const PART: u32 = 40;
const MOST_PARTS: u64 = 1 << (64 - PART);

impl Id {
    /// Returns the number of the batch in its run, and its part number: 0 for an unsplit batch. The halves of part n
    /// are 2n and 2n + 1, those of an unsplit batch 2 and 3.
    pub(crate) fn parts(self) -> (u64, u64) {
        (self.number & ((1 << PART) - 1), self.number >> PART)
    }

    /// Returns the id that it is a half of, if any.
    pub(crate) fn whole(self) -> Option<Id> {
        let (number, part) = self.parts();
        let whole = if part < 4 { 0 } else { part / 2 };
        (part > 0).then_some(Id { run: self.run, number: number | whole << PART })
    }

    /// Returns the ids of its halves; `None` after too many splits.
    pub(crate) fn halves(self) -> Option<[Id; 2]> {
        let (number, part) = self.parts();
        let first = part.max(1) * 2;
        let half = |part: u64| Id { run: self.run, number: number | part << PART };
        (first + 1 < MOST_PARTS).then(|| [half(first), half(first + 1)])
    }
}

/// Batch in the spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Batch {
    pub id: Id,
    /// Encoding, and lane of its flows.
    pub form: u8,
    pub lane: u16,
    /// Number of records.
    pub rows: u32,
    /// Size of its file in bytes, and CRC-32C.
    pub bytes: u64,
    pub crc: u32,
    /// Times of the earliest and latest packet of its flows, and of its creation: ns since 1970.
    pub first: u64,
    pub last: u64,
    pub made: u64,
}

/// Kafka sequence numbers of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Assigned {
    pub partition: i32,
    pub producer: i64,
    pub epoch: i16,
    pub sequence: i32,
    /// Number of messages, each of which has a sequence number.
    pub count: u32,
    /// Time in ns since 1970.
    pub at: u64,
}

/// Outcome of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Outcome {
    /// Delivered.
    Delivered = 1,
    /// Dropped, as the spool was full.
    Dropped = 2,
    /// Rejected for good.
    Refused = 3,
    /// Its file is damaged.
    Damaged = 4,
    /// Replaced by its halves.
    Halved = 5,
}

/// Line of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Line {
    Begin,
    Made(Batch),
    /// About to be sent with these numbers; with a `count` of 0 the numbers are released.
    Sent(Id, Assigned),
    /// About to be sent to a destination without sequence numbers, at this time in ns since 1970; 0: certainly not
    /// delivered.
    Tried(Id, u64),
    Done(Id, Outcome),
    /// Next sequence number of a partition: `count` is 0.
    Next(Assigned),
}

impl Line {
    pub(crate) fn to_bytes(self) -> [u8; LINE] {
        let mut line = [0; LINE];
        let mut put = |at: usize, bytes: &[u8]| line[at..at + bytes.len()].copy_from_slice(bytes);
        let mut head = |kind: u8, what: u8, id: Id| {
            put(4, &[kind, what]);
            put(8, &id.run.to_le_bytes());
            put(16, &id.number.to_le_bytes());
        };
        let none = Id { run: 0, number: 0 };
        match self {
            Line::Begin => {
                head(1, 0, none);
                put(24, &MAGIC);
            }
            Line::Made(batch) => {
                head(2, batch.form, batch.id);
                put(6, &batch.lane.to_le_bytes());
                put(24, &batch.rows.to_le_bytes());
                put(28, &batch.crc.to_le_bytes());
                for (at, word) in [(32, batch.bytes), (40, batch.first), (48, batch.last), (56, batch.made)] {
                    put(at, &word.to_le_bytes());
                }
            }
            Line::Done(id, outcome) => head(4, outcome as u8, id),
            Line::Tried(id, at) => {
                head(6, 0, id);
                put(48, &at.to_le_bytes());
            }
            Line::Sent(_, assigned) | Line::Next(assigned) => {
                match self {
                    Line::Sent(id, _) => head(3, 0, id),
                    _ => head(5, 0, none),
                }
                put(24, &assigned.partition.to_le_bytes());
                put(28, &assigned.epoch.to_le_bytes());
                put(32, &assigned.producer.to_le_bytes());
                put(40, &assigned.sequence.to_le_bytes());
                put(44, &assigned.count.to_le_bytes());
                put(48, &assigned.at.to_le_bytes());
            }
        }
        let crc = crc32c(&line[4..]);
        line[..4].copy_from_slice(&crc.to_le_bytes());
        line
    }

    /// Parses a line; `None` if invalid.
    pub(crate) fn of(line: &[u8; LINE]) -> Option<Line> {
        let word = |at: usize| u32::from_le_bytes([line[at], line[at + 1], line[at + 2], line[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if word(0) != crc32c(&line[4..]) {
            return None;
        }
        let id = Id { run: long(8), number: long(16) };
        let assigned = Assigned {
            partition: word(24) as i32,
            epoch: word(28) as i16,
            producer: long(32) as i64,
            sequence: word(40) as i32,
            count: word(44),
            at: long(48),
        };
        match line[4] {
            1 if line[24..40] == MAGIC => Some(Line::Begin),
            2 => Some(Line::Made(Batch {
                id,
                form: line[5],
                lane: u16::from_le_bytes([line[6], line[7]]),
                rows: word(24),
                crc: word(28),
                bytes: long(32),
                first: long(40),
                last: long(48),
                made: long(56),
            })),
            3 => Some(Line::Sent(id, assigned)),
            4 => {
                let all = [Outcome::Delivered, Outcome::Dropped, Outcome::Refused, Outcome::Damaged, Outcome::Halved];
                let outcome = all.into_iter().find(|outcome| *outcome as u8 == line[5])?;
                Some(Line::Done(id, outcome))
            }
            5 => Some(Line::Next(assigned)),
            6 => Some(Line::Tried(id, assigned.at)),
            _ => None,
        }
    }
}
