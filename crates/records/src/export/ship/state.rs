//! What a spool knows of its batches: what lines of the journal say, one after the other.

use super::FORMS;
use super::journal::{Assigned, Batch, Id, Journal, Line};
use super::spool::Spool;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Result;

pub(super) struct State {
    pub journal: Journal,
    /// The oldest first.
    pub waiting: VecDeque<Waiting>,
    pub bytes: u64,
    /// What comes next in each partition.
    pub next: BTreeMap<i32, Assigned>,
    /// Names of batches that have left, while the folder is looked through.
    pub left: BTreeSet<String>,
    /// They are being sent: none of them can give way.
    pub under_way: BTreeSet<Id>,
    pub tally: Tally,
}

/// A batch that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub batch: Batch,
    /// It may have been sent, as this.
    pub assigned: Option<Assigned>,
}

/// What came and went, in records but where it says otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Of this run, and those found at its start.
    pub spooled: u64,
    pub resumed: u64,
    pub delivered: u64,
    pub dropped: u64,
    pub refused: u64,
    pub damaged: u64,
    /// Batches that were delivered.
    pub batches: u64,
    /// Sendings of a batch that may have come before.
    pub resent: u64,
    /// That the other side may have twice.
    pub maybe_duplicated: u64,
    /// Times that the other side went away.
    pub outages: u64,
}

impl State {
    /// What lines say, one after the other.
    pub fn replay(&mut self, lines: &[Line]) {
        for line in lines {
            match *line {
                Line::Begin => {}
                Line::Made(batch) => self.waiting.push_back(Waiting { batch, assigned: None }),
                Line::Sent(id, Assigned { count: 0, .. }) => self.unassign(id),
                Line::Sent(id, assigned) => {
                    self.next.insert(assigned.partition, after(assigned));
                    if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.batch.id == id) {
                        waiting.assigned = Some(assigned);
                    }
                }
                Line::Done(id, _) => {
                    let at = self.waiting.iter().position(|waiting| waiting.batch.id == id);
                    let left = at.and_then(|at| self.waiting.remove(at));
                    self.left.extend(left.map(|left| name_of(&left.batch)));
                }
                Line::Next(next) => {
                    self.next.insert(next.partition, next);
                }
            }
        }
        // Of a run that died while it halved a batch the whole one is there: what has no line is removed.
        let all: BTreeSet<Id> = self.waiting.iter().map(|waiting| waiting.batch.id).collect();
        self.waiting.retain(|waiting| waiting.batch.id.whole().is_none_or(|whole| !all.contains(&whole)));
    }

    /// A batch goes under other numbers the next time.
    pub fn unassign(&mut self, id: Id) {
        self.waiting.iter_mut().filter(|waiting| waiting.batch.id == id).for_each(|waiting| waiting.assigned = None);
    }

    /// Notes something, on the disk.
    pub fn note(&mut self, spool: &Spool, lines: &[Line], needs_room: bool) -> Result<()> {
        self.journal.add(lines, needs_room)?;
        spool.step()?;
        self.journal.sync()
    }

    /// Leaves out of the journal what is of no more use, now and then.
    pub fn shorten(&mut self, spool: &Spool) {
        if !self.journal.is_longer_than(2 * self.waiting.len() + self.next.len()) {
            return;
        }
        let of = |waiting: &Waiting| {
            let sent = waiting.assigned.map(|assigned| Line::Sent(waiting.batch.id, assigned));
            [Some(Line::Made(waiting.batch)), sent]
        };
        let waiting = self.waiting.iter().flat_map(of).flatten();
        let lines: Vec<Line> = waiting.chain(self.next.values().map(|next| Line::Next(*next))).collect();
        // Where that cannot be all stays.
        let _ = self.journal.replace(spool.folder(), &lines);
    }
}

impl State {
    pub fn new(journal: Journal) -> Self {
        State {
            journal,
            waiting: VecDeque::new(),
            bytes: 0,
            next: BTreeMap::new(),
            left: BTreeSet::new(),
            under_way: BTreeSet::new(),
            tally: Tally::default(),
        }
    }
}

/// What comes behind a batch in its partition; numbers begin anew behind the last.
pub(super) fn after(assigned: Assigned) -> Assigned {
    let sequence = (i64::from(assigned.sequence) + i64::from(assigned.count)) & i64::from(i32::MAX);
    Assigned { sequence: sequence as i32, count: 0, ..assigned }
}

pub(super) fn name_of(batch: &Batch) -> String {
    let ending = FORMS.get(usize::from(batch.form)).map_or("batch", |form| form.ending());
    format!("{}.{ending}", stem_of(batch.id))
}

/// What a batch is called: its run, its number, and which part of that it is, if it is one.
pub(super) fn stem_of(id: Id) -> String {
    let (number, part) = id.parts();
    let part = if part == 0 { String::new() } else { format!("-{part}") };
    format!("{:016x}-{number:08}{part}", id.run)
}

/// Whether a file may be a batch by its name.
pub(super) fn is_batch(name: &str) -> bool {
    let (Some((stem, ending)), Some((run, number))) = (name.split_once('.'), name.split_once('-')) else {
        return false;
    };
    let number = number.split('.').next().unwrap_or_default();
    run.len() == 16
        && stem.len() >= 25
        && run.bytes().all(|byte| byte.is_ascii_hexdigit())
        && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        && (ending == "batch" || FORMS.iter().any(|form| form.ending() == ending))
}
