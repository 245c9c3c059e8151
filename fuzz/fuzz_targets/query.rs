//! Any text is a filter or an error with its position. A filter passes the same records with its parts in any order,
//! and its negation all others; the outlook for many records holds for each.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_burst::Nanos;
use linerate_export::decode::{self, Value};
use linerate_meter::{Flow, Quality};
use linerate_query::columns::{Batch, Id, Values, all};
use linerate_query::{Filter, Key, Measure, Memo, Outlook, PartialAnswer, Question, Range};
use std::sync::{Arc, LazyLock};

/// Flows with all fields or hardly any.
static FLOWS: LazyLock<Vec<Flow>> = LazyLock::new(|| (0..8).map(flow).collect());

fn flow(number: u64) -> Flow {
    let mut flow = decode::nothing();
    for column in all().iter().filter(|_| number % 4 != 3) {
        let Some(set) = decode::set(column.field.path) else { continue };
        let texts = ["tcp", "SF", "idle", "vxlan", "02:00:00:00:00:01", "syn"];
        let address =
            if number % 2 == 0 { [10, 0, 0, number as u8].into() } else { [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into() };
        for value in [
            Value::Number(number * 100),
            Value::Real(number as f64 / 2.0),
            Value::Text(texts[number as usize % texts.len()]),
            Value::Address(address),
            Value::List(&[number, 2]),
            Value::Quality(Quality(number as u16)),
        ] {
            set(&mut flow, column.side, value);
        }
    }
    flow
}

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let ids: Vec<Id> = (0..all().len()).collect();
    let batch = Batch::of_flows(&FLOWS, &ids);
    match Filter::parse(&text, Nanos(1_700_000_000_000_000_000)) {
        Err(mistake) => {
            assert!(mistake.at <= text.len() && !mistake.what.is_empty());
            assert!(mistake.within(&text).len() < 400 + 4 * text.len());
        }
        Ok(filter) => {
            let chosen = filter.choose(&batch, &mut Memo::default());
            let not = Filter::Not(Box::new(filter.clone()));
            let others = not.choose(&batch, &mut Memo::default());
            assert!(chosen.iter().zip(&others).all(|(one, other)| one != other));
            let mut parts = filter.clone().parts();
            parts.reverse();
            assert_eq!(Filter::All(parts).choose(&batch, &mut Memo::default()), chosen);
            let Outlook { may, must } = filter.outlook(&|id| range(batch.get(id)?));
            assert!(may || !chosen.contains(&true), "{text}");
            assert!(!must || !chosen.contains(&false), "{text}");
            assert!(filter.columns().iter().all(|id| *id < all().len()));
        }
    }
    if let (Ok(keys), Ok(measures)) = (Key::parse(&text), Measure::parse("records,bytes,bps")) {
        let question = Arc::new(Question { keys, measures, sort: 1, most_groups: 4, ..Question::new(Filter::every()) });
        let mut asked = PartialAnswer::new(&question, 1);
        asked.take(&batch);
        assert_eq!(asked.answer().records, FLOWS.len() as u64);
    }
    let _ = Measure::parse(&text);
    let _ = linerate_query::step(&text);
});

/// Returns the range of values, as in the statistics of a file.
fn range(values: &Values) -> Option<Range> {
    let rows = FLOWS.len();
    if (0..rows).all(|row| values.is_absent(row)) {
        return Some(Range::Nothing);
    }
    let present = (0..rows).filter(|row| !values.is_absent(*row));
    let is_whole = present.clone().count() == rows;
    match values {
        Values::Numbers(numbers, _) => {
            let (least, most) =
                (present.clone().map(|row| numbers[row]).min()?, present.map(|row| numbers[row]).max()?);
            Some(Range::Numbers(least, most, is_whole))
        }
        Values::Words(places, words) => {
            let text = |row: usize| match &words[places[row] as usize] {
                linerate_query::columns::Word::Address(address) => address.to_string().into_bytes(),
                linerate_query::columns::Word::Text(text) => text.as_bytes().to_vec(),
            };
            Some(Range::Texts(present.clone().map(text).min()?, present.map(text).max()?))
        }
        Values::Reals(..) | Values::Lists(_) => None,
    }
}
