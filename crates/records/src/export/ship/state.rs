//! What a spool knows of its batches: what lines of the journal say, one after the other.

use super::FORMS;
use super::journal::{Assigned, Batch, Id, Journal, Line, Outcome};
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
    /// Names of batches that have left, and how, while the folder is looked through.
    pub left: BTreeMap<String, Outcome>,
    /// Files of batches that have left by a line that is not on the disk yet: were they removed, and the line lost with the power, nobody would
    /// know what became of them.
    pub gone: Vec<String>,
    /// Files that were set aside and their lengths, the oldest first.
    pub aside: VecDeque<(String, u64)>,
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
    /// It may be there since then, where batches have no numbers.
    pub tried: Option<u64>,
}

impl Waiting {
    pub(super) fn new(batch: Batch) -> Self {
        Waiting { batch, assigned: None, tried: None }
    }
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
    /// Files that were set aside and gave way to others.
    pub aside_dropped: u64,
}

impl State {
    /// What lines say, one after the other.
    pub(super) fn replay(&mut self, lines: &[Line]) {
        for line in lines {
            match *line {
                Line::Begin => {}
                Line::Made(batch) => self.waiting.push_back(Waiting::new(batch)),
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
        // Of a run that died while it halved a batch the whole one is there: what has no line is removed.
        let all: BTreeSet<Id> = self.waiting.iter().map(|waiting| waiting.batch.id).collect();
        self.waiting.retain(|waiting| waiting.batch.id.whole().is_none_or(|whole| !all.contains(&whole)));
    }

    /// A batch goes under other numbers the next time.
    pub(super) fn unassign(&mut self, id: Id) {
        self.waiting.iter_mut().filter(|waiting| waiting.batch.id == id).for_each(|waiting| waiting.assigned = None);
    }

    /// A batch may be there since then; `None`: it is not.
    pub(super) fn tried(&mut self, id: Id, at: Option<u64>) {
        self.waiting.iter_mut().filter(|waiting| waiting.batch.id == id).for_each(|waiting| waiting.tried = at);
    }

    /// Lines of the journal said what nobody knows: which numbers were used last, what was sent as what, when what was tried.
    pub(super) fn doubt(&mut self, has_numbers: bool) {
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

    /// Notes something, on the disk.
    pub(super) fn note(&mut self, spool: &Spool, lines: &[Line], needs_room: bool) -> Result<()> {
        self.journal.add(lines, needs_room)?;
        spool.step()?;
        self.sync(spool)
    }

    /// Brings all that was noted to the disk, and removes files that have left by it.
    pub(super) fn sync(&mut self, spool: &Spool) -> Result<()> {
        self.journal.sync()?;
        if !self.gone.is_empty() {
            spool.step()?;
        }
        for name in self.gone.drain(..) {
            // What stays is removed at the next start.
            let _ = spool.folder().remove(name.as_ref());
        }
        Ok(())
    }

    /// Leaves out of the journal what is of no more use, now and then.
    pub(super) fn shorten(&mut self, spool: &Spool) {
        if self.journal.is_longer_than(2 * self.waiting.len() + self.next.len()) {
            self.rewrite(spool);
        }
    }

    /// Leaves out of the journal what is of no more use.
    pub(super) fn rewrite(&mut self, spool: &Spool) {
        // What it does not name any more is to be gone.
        if self.sync(spool).is_err() {
            return;
        }
        let of = |waiting: &Waiting| {
            let id = waiting.batch.id;
            let sent = waiting.assigned.map(|assigned| Line::Sent(id, assigned));
            [Some(Line::Made(waiting.batch)), sent, waiting.tried.map(|at| Line::Tried(id, at))]
        };
        let waiting = self.waiting.iter().flat_map(of).flatten();
        let lines: Vec<Line> = waiting.chain(self.next.values().map(|next| Line::Next(*next))).collect();
        // Where that cannot be all stays.
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
