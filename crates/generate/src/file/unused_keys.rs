//! Refusal of keys without effect: what is written is sent, or is an error.

use super::read::{Fault, Table};
use crate::Rate;
use crate::stream::{Mark, Next, Order, StreamSet};
use crate::text_error::TextError;

/// Finds the first key without an effect.
pub(super) fn check(table: &Table<'_>, tables: &[Table<'_>], set: &StreamSet) -> Result<(), Fault> {
    let is_sequence = set.order == Order::Sequential;
    let (is_one, has_rate) = (set.streams.len() == 1, set.rate.is_some());
    if set.streams.iter().all(|stream| stream.mark != Mark::Trailer) {
        refuse(table, "key", "no stream has a trailer, so the key is unused; remove it or set check = \"trailer\"")?;
    }
    for (table, stream) in tables.iter().zip(&set.streams) {
        if !is_sequence {
            refuse(table, "next", "interleaved streams have no next; set order = \"sequential\" above [[stream]]")?;
        } else if stream.count.is_none() {
            refuse(table, "next", "an endless stream has no next; set a count")?;
        }
        if has_rate && is_sequence {
            refuse(table, "rate", "streams in a sequence use the common rate; remove one of the two")?;
        }
        if has_rate && is_one && !is_sequence {
            for key in ["rate", "burst"] {
                refuse(table, key, "a single stream uses the common rate, evenly; remove that above [[stream]]")?;
            }
        }
        if table.flag("poisson") && (has_rate && is_one || set.rate.unwrap_or(stream.rate) == Rate::Top) {
            refuse(table, "poisson", "needs a rate in its [[stream]]; set one, and none above [[stream]]")?;
        }
    }
    let unreached = if is_sequence { unreached(set) } else { None };
    match unreached {
        Some(index) => {
            let what = "unreachable stream; check next of the streams before it".to_owned();
            Err(Fault { key: tables[index].name.clone(), wrong: TextError::new(tables[index].at.clone(), what) })
        }
        None => Ok(()),
    }
}

fn refuse(table: &Table<'_>, key: &str, why: &str) -> Result<(), Fault> {
    table.given(key).map_or(Ok(()), |at| Err(table.fault(key, at, why.to_owned())))
}

/// Returns the first stream of a sequence that never begins.
fn unreached(set: &StreamSet) -> Option<usize> {
    let mut is_reached = vec![false; set.streams.len()];
    let mut from = vec![0];
    while let Some(at) = from.pop() {
        let Some(stream) = set.streams.get(at) else { continue };
        if std::mem::replace(&mut is_reached[at], true) {
            continue;
        }
        match stream.next {
            Next::Stop => {}
            Next::Following => from.push(at + 1),
            Next::Goto { stream, times: None } => from.push(stream),
            Next::Goto { stream, .. } => from.extend([stream, at + 1]),
        }
    }
    is_reached.iter().position(|is| !is)
}
