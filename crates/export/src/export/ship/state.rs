//! State of the batches of a spool, reconstructed from the journal.

use super::FORMS;
use super::journal::{Assigned, Batch, Id, Journal, Line, Outcome};
use super::spool::Spool;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Result;

pub(super) struct State {
    pub journal: Journal,
    /// Batches in the spool, the oldest first.
    pub waiting: VecDeque<SpooledBatch>,
    pub bytes: u64,
    /// Next sequence number of each partition.
    pub next: BTreeMap<i32, Assigned>,
    /// Outcomes of removed batches by name, during recovery.
    pub left: BTreeMap<String, Outcome>,
    /// Files of batches whose final line is not on disk yet: if they were deleted and a power failure lost the line,
    /// their outcome would be unknown.
    pub gone: Vec<String>,
    /// Files set aside with their sizes, the oldest first.
    pub aside: VecDeque<(String, u64)>,
    /// Batches in flight: they cannot be dropped.
    pub under_way: BTreeSet<Id>,
    pub tally: Tally,
}

/// Batch in the spool.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpooledBatch {
    pub batch: Batch,
    /// Numbers with which it may have been sent.
    pub assigned: Option<Assigned>,
    /// Time since which it may be delivered, if the destination has no sequence numbers.
    pub tried: Option<u64>,
}

impl SpooledBatch {
    pub(super) fn new(batch: Batch) -> Self {
        SpooledBatch { batch, assigned: None, tried: None }
    }
}

/// Counters, in records unless noted otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Records of this run and those found at its start.
    pub spooled: u64,
    pub resumed: u64,
    pub delivered: u64,
    pub dropped: u64,
    pub refused: u64,
    pub damaged: u64,
    /// Delivered batches.
    pub batches: u64,
    /// Retries of batches that may have been delivered.
    pub resent: u64,
    /// Records that may be duplicated.
    pub maybe_duplicated: u64,
    /// Number of outages of the destination.
    pub outages: u64,
    /// Files set aside that were deleted for lack of space.
    pub aside_dropped: u64,
}

impl State {
    /// Applies journal lines in order.
    pub(super) fn replay(&mut self, lines: &[Line]) {
        for line in lines {
            match *line {
                Line::Begin => {}
                Line::Made(batch) => self.waiting.push_back(SpooledBatch::new(batch)),
                Line::Tried(id, at) => self.tried(id, (at > 0).then_some(at)),
                Line::Sent(id, Assigned { count: 0, .. }) => self.unassign(id),
                Line::Sent(id, assigned) => {
                    self.next.insert(assigned.partition, after(assigned));
                    if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.batch.id == id) {
                        waiting.assigned = Some(assigned);
                    }
                }
                Line::Done(id, outcome) => {
                    let at = self.waiting.iter().position(|waiting| waiting.batch.id == id);
                    let left = at.and_then(|at| self.waiting.remove(at));
                    self.left.extend(left.map(|left| (name_of(&left.batch), outcome)));
                }
                Line::Next(next) => {
                    self.next.insert(next.partition, next);
                }
            }
        }
        // If a run crashed during a split, the whole batch is still valid: halves without final lines are deleted.
        let all: BTreeSet<Id> = self.waiting.iter().map(|waiting| waiting.batch.id).collect();
        self.waiting.retain(|waiting| waiting.batch.id.whole().is_none_or(|whole| !all.contains(&whole)));
    }

    /// Releases the numbers of a batch.
    pub(super) fn unassign(&mut self, id: Id) {
        self.waiting.iter_mut().filter(|waiting| waiting.batch.id == id).for_each(|waiting| waiting.assigned = None);
    }

    /// Notes the time since which a batch may be delivered; `None`: it is not.
    pub(super) fn tried(&mut self, id: Id, at: Option<u64>) {
        self.waiting.iter_mut().filter(|waiting| waiting.batch.id == id).for_each(|waiting| waiting.tried = at);
    }

    /// Handles lost journal lines: the last numbers, the numbers of sent batches and times of attempts are unknown.
    pub(super) fn handle_lost_lines(&mut self, has_numbers: bool) {
        self.next.clear();
        for waiting in &mut self.waiting {
            if has_numbers {
                waiting.assigned = None;
                self.tally.maybe_duplicated += u64::from(waiting.batch.rows);
            } else {
                waiting.tried = waiting.tried.or(Some(waiting.batch.made));
            }
        }
    }

    /// Appends lines to the journal, on disk.
    pub(super) fn note(&mut self, spool: &Spool, lines: &[Line], needs_room: bool) -> Result<()> {
        self.journal.add(lines, needs_room)?;
        spool.step()?;
        self.sync(spool)
    }

    /// Syncs the journal, and deletes files whose final lines are then on disk.
    pub(super) fn sync(&mut self, spool: &Spool) -> Result<()> {
        self.journal.sync()?;
        if !self.gone.is_empty() {
            spool.step()?;
        }
        for name in self.gone.drain(..) {
            // The next start deletes a remaining file.
            let _ = spool.folder().remove(name.as_ref());
        }
        Ok(())
    }

    /// Removes obsolete journal lines, if there are many.
    pub(super) fn shorten(&mut self, spool: &Spool) {
        if self.journal.is_longer_than(2 * self.waiting.len() + self.next.len()) {
            self.rewrite(spool);
        }
    }

    /// Removes obsolete journal lines.
    pub(super) fn rewrite(&mut self, spool: &Spool) {
        // Files that it no longer lists must be deleted first.
        if self.sync(spool).is_err() {
            return;
        }
        let of = |waiting: &SpooledBatch| {
            let id = waiting.batch.id;
            let sent = waiting.assigned.map(|assigned| Line::Sent(id, assigned));
            [Some(Line::Made(waiting.batch)), sent, waiting.tried.map(|at| Line::Tried(id, at))]
        };
        let waiting = self.waiting.iter().flat_map(of).flatten();
        let lines: Vec<Line> = waiting.chain(self.next.values().map(|next| Line::Next(*next))).collect();
        // On failure the old journal stays.
        let _ = self.journal.replace(spool.folder(), &lines);
    }
}

impl State {
    pub(super) fn new(journal: Journal) -> Self {
        State {
            journal,
            waiting: VecDeque::new(),
            bytes: 0,
            next: BTreeMap::new(),
            left: BTreeMap::new(),
            gone: Vec::new(),
            aside: VecDeque::new(),
            under_way: BTreeSet::new(),
            tally: Tally::default(),
        }
    }
}

/// Returns the next sequence number after a batch; numbers wrap around.
pub(super) fn after(assigned: Assigned) -> Assigned {
    let sequence = (i64::from(assigned.sequence) + i64::from(assigned.count)) & i64::from(i32::MAX);
    Assigned { sequence: sequence as i32, count: 0, ..assigned }
}

pub(super) fn name_of(batch: &Batch) -> String {
    let ending = FORMS.get(usize::from(batch.form)).map_or("batch", |form| form.ending());
    format!("{}.{ending}", stem_of(batch.id))
}

/// Returns the name of a batch: run, number, and part number if it was split.
pub(super) fn stem_of(id: Id) -> String {
    let (number, part) = id.parts();
    let part = if part == 0 { String::new() } else { format!("-{part}") };
    format!("{:016x}-{number:08}{part}", id.run)
}

/// Returns whether a file name is that of a batch.
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
