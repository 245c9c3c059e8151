//! Keys that have no effect beside others are refused: what was written is sent, or is an error.

use super::read::{Fault, Table};
use crate::Rate;
use crate::stream::{Mark, Next, Order, StreamSet};
use crate::wrong::Wrong;

/// Finds the first key without an effect.
pub(super) fn check(table: &Table<'_>, tables: &[Table<'_>], set: &StreamSet) -> Result<(), Fault> {
    let is_sequence = set.order == Order::Sequential;
    let (is_one, has_rate) = (set.streams.len() == 1, set.rate.is_some());
    if set.streams.iter().all(|stream| stream.mark != Mark::Trailer) {
        refuse(
            table,
            "key",
            "no stream has a trailer, which alone has a key: leave it out, or write check = \"trailer\"",
        )?;
    }
    for (table, stream) in tables.iter().zip(&set.streams) {
        if !is_sequence {
            refuse(
                table,
                "next",
                "streams that are sent all at once have no next: write order = \"sequential\" above them",
            )?;
        } else if stream.count.is_none() {
            refuse(table, "next", "a stream without an end has no next: give it a count")?;
        }
        if has_rate && is_sequence {
            refuse(table, "rate", "in a sequence each stream has the rate of all: leave out one of the two")?;
        }
        if has_rate && is_one && !is_sequence {
            for key in ["rate", "burst"] {
                refuse(table, key, "the only stream has the rate of all, evenly: leave out the one above [[stream]]")?;
            }
        }
        if table.flag("poisson") && (has_rate && is_one || set.rate.unwrap_or(stream.rate) == Rate::Top) {
            refuse(table, "poisson", "it shapes a rate of the stream: write rate in its [[stream]], and none above")?;
        }
    }
    let unreached = if is_sequence { unreached(set) } else { None };
    match unreached {
        Some(index) => {
            let what = "no stream leads to this one: see the next of those before it".to_owned();
            Err(Fault { key: tables[index].name.clone(), wrong: Wrong::new(tables[index].at.clone(), what) })
        }
        None => Ok(()),
    }
}

fn refuse(table: &Table<'_>, key: &str, why: &str) -> Result<(), Fault> {
    table.given(key).map_or(Ok(()), |at| Err(table.fault(key, at, why.to_owned())))
}

/// The first stream of a sequence that never begins.
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
