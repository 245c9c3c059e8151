//! Filters: conditions on records, and their outcome for many records without reading each.

use crate::columns::{Batch, Id, Word, own};
use crate::networks::Networks;
use crate::quantity::{Number, Order, Quantity};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A condition on records.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// All of these; empty for every record.
    All(Vec<Filter>),
    /// At least one of these.
    Any(Vec<Filter>),
    /// Negation.
    Not(Box<Filter>),
    /// A single test.
    Is(Test),
}

/// A test of a record. An absent value passes none of them.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// A quantity compared with a number.
    Compare(Quantity, Order, Number),
    /// A number that is one of these.
    Among(Id, BTreeSet<u64>),
    /// An address in one of these networks.
    Within(Id, Networks),
    /// An IPv6 address (true), or an IPv4 one.
    Version(bool),
    /// A text that equals one of these, or includes one of these.
    Text(Id, Match, BTreeSet<String>),
    /// All of these bits are set in one of the columns.
    Bits(Vec<Id>, u64),
    /// The value is present; a flag is set.
    Is(Id),
}

/// Comparison of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// The whole text.
    Whole,
    /// A part of it.
    Part,
}

/// Possible outcomes of a filter for many records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// At least one of them may pass.
    pub may: bool,
    /// All of them pass.
    pub must: bool,
}

impl Outlook {
    /// Nothing is known.
    pub(crate) const OPEN: Outlook = Outlook { may: true, must: false };
}

/// Minimum and maximum of a column, of many records.
#[derive(Clone, Debug, PartialEq)]
pub enum Range {
    /// Numbers; true if none is absent.
    Numbers(u64, u64, bool),
    /// Texts, by their bytes.
    Texts(Vec<u8>, Vec<u8>),
    /// The value is absent in all records.
    Nothing,
}

impl Filter {
    /// Returns a filter that every record passes.
    pub fn every() -> Self {
        Filter::All(Vec::new())
    }

    /// Combines this filter with another.
    pub fn and(self, other: Filter) -> Filter {
        Filter::All([self, other].into_iter().flat_map(Filter::parts).collect())
    }

    /// Returns the conditions that must all hold.
    pub fn parts(self) -> Vec<Filter> {
        match self {
            Filter::All(parts) => parts.into_iter().flat_map(Filter::parts).collect(),
            one => vec![one],
        }
    }

    /// Returns a filter for records with a packet from `since` on, and before `until`, in ns since 1970.
    pub fn active(since: u64, until: u64) -> Filter {
        let compare =
            |name, order, time| Filter::Is(Test::Compare(Quantity::Column(own(name)), order, Number::Whole(time)));
        let is_early = Filter::Not(Box::new(compare("last_time", Order::Less, since)));
        let mut parts = if since > 0 { vec![is_early] } else { Vec::new() };
        parts.extend((until < u64::MAX).then(|| compare("first_time", Order::Less, until)));
        Filter::All(parts)
    }

    /// Returns the columns that it reads.
    pub fn columns(&self) -> BTreeSet<Id> {
        match self {
            Filter::All(parts) | Filter::Any(parts) => parts.iter().flat_map(Filter::columns).collect(),
            Filter::Not(part) => part.columns(),
            Filter::Is(test) => test.columns().into_iter().collect(),
        }
    }

    /// Returns which of these records pass.
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

    /// Returns the possible outcomes for records whose columns are only known by `range`.
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

/// A test, words, and its outcome for each.
type Outcomes = (usize, Arc<Vec<Word>>, Arc<Vec<bool>>);

/// Outcomes of tests for the words of a dictionary: a dictionary belongs to many batches.
#[derive(Default)]
pub struct Memo(Vec<Outcomes>);

impl Memo {
    /// Returns the outcome of a test for each word, followed by false for an absent value.
    pub(crate) fn of(&mut self, test: &Test, words: &Arc<Vec<Word>>, passes: impl Fn(&Word) -> bool) -> Arc<Vec<bool>> {
        // Its address identifies it, as long as the filter is in use.
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
