//! Which records are meant: conditions, and what is known of many records without looking at each.

use crate::columns::{Batch, Id, Kind, Values, Word, all, own};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
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

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// A column of numbers.
    Column(Id),
    /// The sum of two.
    Sum(Id, Id),
    /// Bits per second, of both directions, from the first to the last packet; 0 where that is no time.
    Bps,
    /// Packets per second, likewise.
    Pps,
    /// Bytes per packet.
    Bpp,
}

/// How two numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `=`
    Equal,
    /// `<`
    Less,
    /// `>`
    Greater,
}

/// The number of a comparison: whole where it can be, so that none is rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number.
    Whole(u64),
    /// Any.
    Real(f64),
}

/// Networks of any number, in which an address is found fast.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Networks(BTreeMap<(bool, u8), HashSet<u128>>);

/// An address and so many bits of it.
pub type Network = (IpAddr, u8);

impl Networks {
    /// Adds one.
    pub fn add(&mut self, (address, bits): Network) {
        self.0.entry((address.is_ipv6(), bits)).or_default().insert(masked(address, bits));
    }

    /// Whether an address is in one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        let is_wide = address.is_ipv6();
        self.0.iter().any(|((wide, bits), all)| *wide == is_wide && all.contains(&masked(address, *bits)))
    }

    /// The addresses, if these are all there is.
    fn hosts(&self) -> Option<Vec<IpAddr>> {
        let is_whole = |(wide, bits): &(bool, u8)| *bits == if *wide { 128 } else { 32 };
        self.0.keys().all(is_whole).then(|| {
            let of = |((wide, _), all): (&(bool, u8), &HashSet<u128>)| {
                let wide = *wide;
                all.iter().map(move |bits| address(wide, *bits)).collect::<Vec<_>>()
            };
            self.0.iter().flat_map(of).collect()
        })
    }
}

fn bits_of(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (address.to_bits().into(), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

fn address(is_wide: bool, bits: u128) -> IpAddr {
    if is_wide { IpAddr::V6(bits.into()) } else { IpAddr::V4((bits as u32).into()) }
}

fn masked(address: IpAddr, bits: u8) -> u128 {
    let (number, width) = bits_of(address);
    let low = u32::from(width.saturating_sub(bits));
    number.checked_shr(low).and_then(|kept| kept.checked_shl(low)).unwrap_or(0)
}

/// An address without what is behind so many bits.
pub fn network(of: IpAddr, bits: u8) -> IpAddr {
    address(of.is_ipv6(), masked(of, bits))
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
    const OPEN: Outlook = Outlook { may: true, must: false };
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

/// What is known of the words of a dictionary already: a dictionary comes with many batches.
#[derive(Default)]
pub struct Memo(Vec<(usize, Arc<Vec<Word>>, Arc<Vec<bool>>)>);

impl Memo {
    /// What a test says of each word; of what is absent, no.
    fn of(&mut self, test: &Test, words: &Arc<Vec<Word>>, passes: impl Fn(&Word) -> bool) -> Arc<Vec<bool>> {
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

impl Test {
    /// The columns that it looks at.
    fn columns(&self) -> Vec<Id> {
        match self {
            Test::Compare(quantity, _, _) => quantity.columns(),
            Test::Among(id, _) | Test::Within(id, _) | Test::Text(id, _, _) | Test::Is(id) => vec![*id],
            Test::Version(_) => vec![own("orig_address")],
            Test::Bits(ids, _) => ids.clone(),
        }
    }

    fn choose(&self, batch: &Batch, memo: &mut Memo) -> Vec<bool> {
        let by_word = |id: Id, memo: &mut Memo, passes: &dyn Fn(&Word) -> bool| match batch.get(id) {
            Some(Values::Words(places, words)) => {
                let passed = memo.of(self, words, passes);
                places.iter().map(|place| passed[(*place as usize).min(words.len())]).collect()
            }
            _ => vec![false; batch.rows],
        };
        let by_number = |id: Id, passes: &dyn Fn(u64) -> bool| match batch.get(id) {
            Some(Values::Numbers(numbers, absent)) if absent.is_empty() => {
                numbers.iter().map(|number| passes(*number)).collect()
            }
            Some(Values::Numbers(numbers, absent)) => {
                numbers.iter().zip(absent).map(|(number, is_absent)| !is_absent && passes(*number)).collect()
            }
            _ => vec![false; batch.rows],
        };
        match self {
            Test::Compare(quantity, order, with) => quantity.compare(batch, *order, *with),
            Test::Among(id, all) => by_number(*id, &|number| all.contains(&number)),
            Test::Within(id, networks) => by_word(*id, memo, &|word| match word {
                Word::Address(address) => networks.contains(*address),
                Word::Text(_) => false,
            }),
            Test::Version(is_wide) => by_word(
                own("orig_address"),
                memo,
                &|word| matches!(word, Word::Address(address) if address.is_ipv6() == *is_wide),
            ),
            Test::Text(id, by, texts) => by_word(*id, memo, &|word| match word {
                Word::Text(text) if *by == Match::Whole => texts.contains(&**text),
                Word::Text(text) => texts.iter().any(|part| text.contains(part.as_str())),
                Word::Address(_) => false,
            }),
            Test::Bits(ids, mask) => (0..batch.rows)
                .map(|row| {
                    let all = ids.iter().fold(0, |all, id| match batch.get(*id) {
                        Some(Values::Numbers(numbers, _)) => all | numbers[row],
                        _ => all,
                    });
                    all & mask == *mask
                })
                .collect(),
            Test::Is(id) => match batch.get(*id) {
                Some(Values::Numbers(numbers, _)) if all()[*id].kind() == Kind::Flag => {
                    numbers.iter().map(|number| *number != 0).collect()
                }
                Some(values) => (0..batch.rows).map(|row| !values.is_absent(row)).collect(),
                None => vec![false; batch.rows],
            },
        }
    }

    fn outlook(&self, range: &dyn Fn(Id) -> Option<Range>) -> Outlook {
        const NEVER: Outlook = Outlook { may: false, must: false };
        let known = |id: &Id| match range(*id) {
            None => Err(Outlook::OPEN),
            Some(Range::Nothing) => Err(NEVER),
            Some(range) => Ok(range),
        };
        let found = match self {
            Test::Compare(Quantity::Column(id), order, Number::Whole(with)) => known(id).map(|range| match range {
                Range::Numbers(least, most, is_whole) => order.outlook(least, most, is_whole, *with),
                _ => Outlook::OPEN,
            }),
            Test::Compare(Quantity::Sum(one, other), order, Number::Whole(with)) => {
                match (range(*one), range(*other)) {
                    (Some(Range::Numbers(least, most, one)), Some(Range::Numbers(low, high, other))) => {
                        let (least, most) = (least.saturating_add(low), most.saturating_add(high));
                        Ok(order.outlook(least, most, one && other, *with))
                    }
                    _ => Err(Outlook::OPEN),
                }
            }
            Test::Among(id, all) => known(id).map(|range| match range {
                Range::Numbers(least, most, is_whole) if least <= most => {
                    let may = all.range(least..=most).next().is_some();
                    Outlook { may, must: may && is_whole && least == most }
                }
                _ => Outlook::OPEN,
            }),
            Test::Within(id, networks) => known(id).map(|range| match (range, networks.hosts()) {
                (Range::Texts(least, most), Some(hosts)) => {
                    let is_between = |host: &IpAddr| {
                        let text = host.to_string();
                        least.as_slice() <= text.as_bytes() && text.as_bytes() <= most.as_slice()
                    };
                    Outlook { may: hosts.iter().any(is_between), must: false }
                }
                _ => Outlook::OPEN,
            }),
            Test::Text(id, Match::Whole, texts) => known(id).map(|range| match range {
                Range::Texts(least, most) => {
                    let is_between =
                        |text: &String| least.as_slice() <= text.as_bytes() && text.as_bytes() <= most.as_slice();
                    Outlook { may: texts.iter().any(is_between), must: false }
                }
                _ => Outlook::OPEN,
            }),
            Test::Is(id) => match range(*id) {
                Some(Range::Nothing) => Err(NEVER),
                Some(Range::Numbers(least, most, is_whole)) if all()[*id].kind() == Kind::Flag => {
                    Ok(Outlook { may: most > 0, must: least > 0 && is_whole })
                }
                _ => Err(Outlook::OPEN),
            },
            _ => Err(Outlook::OPEN),
        };
        found.unwrap_or_else(|outlook| outlook)
    }
}

impl Order {
    /// Of numbers from the least to the most one.
    fn outlook(self, least: u64, most: u64, is_whole: bool, with: u64) -> Outlook {
        let (may, must) = match self {
            Order::Equal => (least <= with && with <= most, least == with && most == with),
            Order::Less => (least < with, most < with),
            Order::Greater => (most > with, least > with),
        };
        Outlook { may, must: must && is_whole }
    }
}

impl Quantity {
    /// The columns that it is made of.
    pub fn columns(self) -> Vec<Id> {
        let names: &[&str] = match self {
            Quantity::Column(id) => return vec![id],
            Quantity::Sum(one, other) => return vec![one, other],
            Quantity::Bps => &["orig_frame_bytes", "resp_frame_bytes", "duration_ns"],
            Quantity::Pps => &["orig_packets", "resp_packets", "duration_ns"],
            Quantity::Bpp => &["orig_frame_bytes", "resp_frame_bytes", "orig_packets", "resp_packets"],
        };
        names.iter().map(|name| own(name)).collect()
    }

    fn compare(self, batch: &Batch, order: Order, with: Number) -> Vec<bool> {
        let real = match with {
            Number::Whole(number) => number as f64,
            Number::Real(number) => number,
        };
        let by_real = |number: f64| match order {
            Order::Equal => number == real,
            Order::Less => number < real,
            Order::Greater => number > real,
        };
        let whole = |number: u64| match (with, order) {
            (Number::Whole(with), Order::Equal) => number == with,
            (Number::Whole(with), Order::Less) => number < with,
            (Number::Whole(with), Order::Greater) => number > with,
            (Number::Real(_), _) => by_real(number as f64),
        };
        match self {
            Quantity::Column(id) => match batch.get(id) {
                Some(Values::Reals(reals, absent)) => {
                    reals.iter().zip(absent).map(|(real, is_absent)| !is_absent && by_real(*real)).collect()
                }
                Some(Values::Numbers(numbers, absent)) if absent.is_empty() => {
                    numbers.iter().map(|number| whole(*number)).collect()
                }
                Some(Values::Numbers(numbers, absent)) => {
                    numbers.iter().zip(absent).map(|(number, is_absent)| !is_absent && whole(*number)).collect()
                }
                _ => vec![false; batch.rows],
            },
            Quantity::Sum(one, other) => sums(batch, one, other).into_iter().map(whole).collect(),
            _ => self.reals(batch).into_iter().map(by_real).collect(),
        }
    }

    /// Its value of each record; of what is absent 0.
    pub fn reals(self, batch: &Batch) -> Vec<f64> {
        let sum = |one, other| sums(batch, own(one), own(other));
        let per = |counts: Vec<u64>, by: &[u64], scale: f64| -> Vec<f64> {
            let per = |(count, by): (u64, &u64)| if *by == 0 { 0.0 } else { count as f64 * scale / *by as f64 };
            counts.into_iter().zip(by).map(per).collect()
        };
        let time = || numbers(batch, own("duration_ns"));
        match self {
            Quantity::Column(id) => match batch.get(id) {
                Some(Values::Reals(reals, _)) => reals.clone(),
                _ => numbers(batch, id).iter().map(|number| *number as f64).collect(),
            },
            Quantity::Sum(one, other) => sums(batch, one, other).iter().map(|number| *number as f64).collect(),
            Quantity::Bps => per(sum("orig_frame_bytes", "resp_frame_bytes"), &time(), 8e9),
            Quantity::Pps => per(sum("orig_packets", "resp_packets"), &time(), 1e9),
            Quantity::Bpp => {
                per(sum("orig_frame_bytes", "resp_frame_bytes"), &sum("orig_packets", "resp_packets"), 1.0)
            }
        }
    }
}

/// The numbers of a column; of what is absent 0.
pub(crate) fn numbers(batch: &Batch, id: Id) -> std::borrow::Cow<'_, [u64]> {
    match batch.get(id) {
        Some(Values::Numbers(numbers, _)) => numbers.as_slice().into(),
        _ => vec![0; batch.rows].into(),
    }
}

/// The numbers of two columns together.
pub(crate) fn sums(batch: &Batch, one: Id, other: Id) -> Vec<u64> {
    numbers(batch, one).iter().zip(&*numbers(batch, other)).map(|(one, other)| one.saturating_add(*other)).collect()
}
