//! Evaluation of one test for many records, individually or at once.

use crate::columns::{Batch, Id, Kind, Values, Word, all, own};
use crate::filter::{Match, Memo, Outlook, Range, Test};
use crate::quantity::{Number, Quantity};
use std::net::IpAddr;

impl Test {
    /// Returns the columns that it reads.
    pub(crate) fn columns(&self) -> Vec<Id> {
        match self {
            Test::Compare(quantity, _, _) => quantity.columns(),
            Test::Among(id, _) | Test::Within(id, _) | Test::Text(id, _, _) | Test::Is(id) => vec![*id],
            Test::Version(_) => vec![own("orig_address")],
            Test::Bits(ids, _) => ids.clone(),
        }
    }

    pub(crate) fn choose(&self, batch: &Batch, memo: &mut Memo) -> Vec<bool> {
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

    pub(crate) fn outlook(&self, range: &dyn Fn(Id) -> Option<Range>) -> Outlook {
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
