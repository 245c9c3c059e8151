//! Columns of a row group made by several threads at once, and the same bytes as of one.
//!
//! Flows are taken some at a time, so that they stay in a processor's cache, and column after column is made of them: each such piece of work
//! has a number, and threads take the next one. Within a column pieces are written in their order: who comes early waits for the one before,
//! which somebody has taken already, so nobody waits for ever.

use super::{BATCH, io};
use arrow_array::{ArrayRef, new_null_array};
use arrow_schema::Fields;
use linerate_meter::Flow;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, compute_leaves};
use std::io::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often one who waits looks whether anything failed.
const LOOK: Duration = Duration::from_millis(50);

/// A column in the making.
struct Slot {
    /// `None` once it is complete.
    writer: Option<ArrowColumnWriter>,
    /// The piece that comes next.
    next: usize,
    chunk: Option<ArrowColumnChunk>,
}

struct Group<'a, A> {
    flows: &'a [&'a Flow],
    fields: &'a Fields,
    arrays: A,
    /// Columns without a value.
    absent: Vec<bool>,
    slots: Vec<(Mutex<Slot>, Condvar)>,
    /// Pieces that were taken.
    taken: AtomicUsize,
    failed: AtomicBool,
}

/// Columns of these flows. Of each it is asked first whether it has no values at all: then all of it is one piece, which costs next to
/// nothing. `arrays` makes the values of a column for some of the flows, which begin at a row.
///
/// # Errors
/// Those of encoding; no thread is to be had.
pub(super) fn encode<A>(
    flows: &[&Flow],
    fields: &Fields,
    writers: Vec<ArrowColumnWriter>,
    threads: usize,
    (is_absent, arrays): (impl Fn(usize) -> bool, A),
) -> Result<Vec<ArrowColumnChunk>>
where
    A: Fn(usize, usize, &[&Flow]) -> ArrayRef + Sync,
{
    let slot = |writer| (Mutex::new(Slot { writer: Some(writer), next: 0, chunk: None }), Condvar::new());
    let absent = (0..writers.len()).map(is_absent).collect();
    let slots = writers.into_iter().map(slot).collect();
    let (taken, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let group = Group { flows, fields, arrays, absent, slots, taken, failed };
    std::thread::scope(|scope| {
        let begin = |_| std::thread::Builder::new().name("linerate-encode".into()).spawn_scoped(scope, || group.work());
        let others: Vec<_> = (1..threads).map_while(|number| begin(number).ok()).collect();
        let own = group.work();
        others.into_iter().fold(own, |result, other| match other.join() {
            Ok(done) => result.and(done),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let chunk = |(slot, _): (Mutex<Slot>, Condvar)| {
        let slot = slot.into_inner().unwrap_or_else(PoisonError::into_inner);
        slot.chunk.ok_or_else(|| Error::other("a column is not complete"))
    };
    group.slots.into_iter().map(chunk).collect()
}

/// Says to the others that one has failed, also by a panic.
struct Watch<'a>(&'a AtomicBool, bool);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl<A: Fn(usize, usize, &[&Flow]) -> ArrayRef + Sync> Group<'_, A> {
    /// Does pieces until all are taken.
    fn work(&self) -> Result<()> {
        let mut watch = Watch(&self.failed, false);
        let pieces = self.flows.len().div_ceil(BATCH);
        loop {
            let piece = self.taken.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces * self.slots.len() || self.failed.load(Ordering::Relaxed) {
                break;
            }
            let (piece, column) = (piece / self.slots.len(), piece % self.slots.len());
            self.write(column, piece, piece + 1 == pieces)?;
        }
        watch.1 = true;
        Ok(())
    }

    fn write(&self, column: usize, piece: usize, is_last: bool) -> Result<()> {
        let (first, is_absent) = (piece * BATCH, self.absent[column]);
        if is_absent && first > 0 {
            return Ok(());
        }
        let is_last = is_last || is_absent;
        let array = match is_absent {
            true => new_null_array(self.fields[column].data_type(), self.flows.len()),
            false => (self.arrays)(column, first, &self.flows[first..self.flows.len().min(first + BATCH)]),
        };
        let leaves = compute_leaves(&self.fields[column], &array).map_err(io)?;
        let (slot, turn) = &self.slots[column];
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        while slot.next < piece {
            if self.failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            slot = turn.wait_timeout(slot, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        let Slot { writer, next, chunk } = &mut *slot;
        if let Some(writer) = writer {
            leaves.iter().try_for_each(|leaf| writer.write(leaf)).map_err(io)?;
        }
        *next += 1;
        if is_last {
            *chunk = writer.take().map(|writer| writer.close().map_err(io)).transpose()?;
        }
        drop(slot);
        turn.notify_all();
        Ok(())
    }
}
