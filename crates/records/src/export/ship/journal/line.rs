//! Lines of a journal.

use super::super::crc32c;
use super::LINE;

const MAGIC: [u8; 16] = *b"linerate spool 1";

/// Which batch: no two of any sensors have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Id {
    /// 64 random bits of a run.
    pub run: u64,
    /// Counts up in a run, from 0; of a part of a batch that was too long, which part it is stands in the upper bits.
    pub number: u64,
}

/// Where the part begins in a number, and how many there can be.
const PART: u32 = 40;
const MOST_PARTS: u64 = 1 << (64 - PART);

impl Id {
    /// The number of the batch in its run, and which part of it this is: 0 for all of it. Halves of part n are 2n and 2n + 1, those of a
    /// whole batch 2 and 3.
    pub(crate) fn parts(self) -> (u64, u64) {
        (self.number & ((1 << PART) - 1), self.number >> PART)
    }

    /// What it is a half of; `None`: of nothing.
    pub(crate) fn whole(self) -> Option<Id> {
        let (number, part) = self.parts();
        let whole = if part < 4 { 0 } else { part / 2 };
        (part > 0).then_some(Id { run: self.run, number: number | whole << PART })
    }

    /// What its halves are called; `None`: it is halved no more.
    pub(crate) fn halves(self) -> Option<[Id; 2]> {
        let (number, part) = self.parts();
        let first = part.max(1) * 2;
        let half = |part: u64| Id { run: self.run, number: number | part << PART };
        (first + 1 < MOST_PARTS).then(|| [half(first), half(first + 1)])
    }
}

/// A batch as it lies in the spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Batch {
    pub id: Id,
    /// What it is written as, and which part of the flows it is of.
    pub form: u8,
    pub lane: u16,
    /// Records.
    pub rows: u32,
    /// Of its file: bytes, and their check.
    pub bytes: u64,
    pub crc: u32,
    /// The first packet of all its flows and the last one, and when it was made: ns since 1970.
    pub first: u64,
    pub last: u64,
    pub made: u64,
}

/// The place of a batch in what Kafka is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Assigned {
    pub partition: i32,
    pub producer: i64,
    pub epoch: i16,
    pub sequence: i32,
    /// Messages, each of which has a sequence number.
    pub count: u32,
    /// ns since 1970.
    pub at: u64,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Outcome {
    /// The other side has it.
    Delivered = 1,
    /// It gave way to others.
    Dropped = 2,
    /// The other side will never take it.
    Refused = 3,
    /// Its file is not what it was.
    Damaged = 4,
    /// Its halves have taken its place.
    Halved = 5,
}

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Line {
    Begin,
    Made(Batch),
    /// It is about to be sent, as this; with a `count` of 0: not as it was to be.
    Sent(Id, Assigned),
    /// It is about to be sent, where batches have no numbers, at this time in ns since 1970; 0: it is surely not there.
    Tried(Id, u64),
    Done(Id, Outcome),
    /// What comes next in a partition: `count` is 0.
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

    /// `None`: it is no line.
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
