//! Which records are meant: conditions, and what is known of many records without looking at each.

use crate::columns::{Batch, Id, Word, own};
use crate::networks::Networks;
use crate::quantity::{Number, Order, Quantity};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A condition on records.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Each of these; of none at all every record.
    All(Vec<Filter>),
    /// One of these.
    Any(Vec<Filter>),
    /// Not this.
    Not(Box<Filter>),
    /// A test of its own.
    Is(Test),
}

/// A test of a record. What is absent passes none of them.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// A quantity compared with a number.
    Compare(Quantity, Order, Number),
    /// A number that is one of these.
    Among(Id, BTreeSet<u64>),
    /// An address in one of these networks.
    Within(Id, Networks),
    /// An address of IPv6 (true), or of IPv4.
    Version(bool),
    /// A text that is one of these, or has one of these in it.
    Text(Id, Match, BTreeSet<String>),
    /// All of these bits are in one of the columns.
    Bits(Vec<Id>, u64),
    /// It is there; of flags: it is set.
    Is(Id),
}

/// What a text is compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// The whole.
    Whole,
    /// A part of it.
    Part,
}

/// What some of many records, and what all of them are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// One of them may pass.
    pub may: bool,
    /// All of them do.
    pub must: bool,
}

impl Outlook {
    /// Nothing is known.
    pub(crate) const OPEN: Outlook = Outlook { may: true, must: false };
}

/// The least and the greatest value of a column, of many records.
#[derive(Clone, Debug, PartialEq)]
pub enum Range {
    /// Of numbers; and whether none is absent.
    Numbers(u64, u64, bool),
    /// Of texts, by their bytes.
    Texts(Vec<u8>, Vec<u8>),
    /// Of none of them it is there.
    Nothing,
}

impl Filter {
    /// Every record.
    pub fn every() -> Self {
        Filter::All(Vec::new())
    }

    /// This and another.
    pub fn and(self, other: Filter) -> Filter {
        Filter::All([self, other].into_iter().flat_map(Filter::parts).collect())
    }

    /// What has to hold, each by itself.
    pub fn parts(self) -> Vec<Filter> {
        match self {
            Filter::All(parts) => parts.into_iter().flat_map(Filter::parts).collect(),
            one => vec![one],
        }
    }

    /// A record that some packet was seen of from `since` on, and before `until`, in ns since 1970.
    pub fn active(since: u64, until: u64) -> Filter {
        let compare =
            |name, order, time| Filter::Is(Test::Compare(Quantity::Column(own(name)), order, Number::Whole(time)));
        let is_early = Filter::Not(Box::new(compare("last_time", Order::Less, since)));
        let mut parts = if since > 0 { vec![is_early] } else { Vec::new() };
        parts.extend((until < u64::MAX).then(|| compare("first_time", Order::Less, until)));
        Filter::All(parts)
    }

    /// The columns that it looks at.
    pub fn columns(&self) -> BTreeSet<Id> {
        match self {
            Filter::All(parts) | Filter::Any(parts) => parts.iter().flat_map(Filter::columns).collect(),
            Filter::Not(part) => part.columns(),
            Filter::Is(test) => test.columns().into_iter().collect(),
        }
    }

    /// Which of these records pass.
    pub fn choose(&self, batch: &Batch, memo: &mut Memo) -> Vec<bool> {
        match self {
            Filter::All(parts) => {
                let mut chosen = vec![true; batch.rows];
                for part in parts {
                    let more = part.choose(batch, memo);
                    chosen.iter_mut().zip(more).for_each(|(one, other)| *one &= other);
                }
                chosen
            }
            Filter::Any(parts) => {
                let mut chosen = vec![false; batch.rows];
                for part in parts {
                    let more = part.choose(batch, memo);
                    chosen.iter_mut().zip(more).for_each(|(one, other)| *one |= other);
                }
                chosen
            }
            Filter::Not(part) => part.choose(batch, memo).into_iter().map(|one| !one).collect(),
            Filter::Is(test) => test.choose(batch, memo),
        }
    }

    /// What is known of records of whose columns no more is known than `range` says.
    pub fn outlook(&self, range: &dyn Fn(Id) -> Option<Range>) -> Outlook {
        match self {
            Filter::All(parts) => parts.iter().fold(Outlook { may: true, must: true }, |all, part| {
                let part = part.outlook(range);
                Outlook { may: all.may && part.may, must: all.must && part.must }
            }),
            Filter::Any(parts) => parts.iter().fold(Outlook { may: false, must: false }, |any, part| {
                let part = part.outlook(range);
                Outlook { may: any.may || part.may, must: any.must || part.must }
            }),
            Filter::Not(part) => {
                let Outlook { may, must } = part.outlook(range);
                Outlook { may: !must, must: !may }
            }
            Filter::Is(test) => test.outlook(range),
        }
    }
}

/// A test, words, and what it says of each.
type Told = (usize, Arc<Vec<Word>>, Arc<Vec<bool>>);

/// What is known of the words of a dictionary already: a dictionary comes with many batches.
#[derive(Default)]
pub struct Memo(Vec<Told>);

impl Memo {
    /// What a test says of each word; of what is absent, no.
    pub(crate) fn of(&mut self, test: &Test, words: &Arc<Vec<Word>>, passes: impl Fn(&Word) -> bool) -> Arc<Vec<bool>> {
        // Where it lies is who it is, as long as the filter is asked.
        let own = std::ptr::from_ref(test) as usize;
        let place = self.0.iter().position(|(known, _, _)| *known == own);
        if let Some(place) = place {
            let (_, known, passed) = &self.0[place];
            if Arc::ptr_eq(known, words) {
                return Arc::clone(passed);
            }
            self.0.swap_remove(place);
        }
        let passed: Arc<Vec<bool>> = Arc::new(words.iter().map(passes).chain([false]).collect());
        self.0.push((own, Arc::clone(words), Arc::clone(&passed)));
        passed
    }
}
