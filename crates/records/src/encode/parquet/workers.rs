//! Columns of a row group made by several threads at once, and the same bytes as of one.
//!
//! Flows are taken some at a time, so that they stay in a processor's cache, and column after column is made of them: each such piece of work
//! has a number, and threads take the next one. Within a column pieces are written in their order: who comes early waits for the one before,
//! which somebody has taken already, so nobody waits for ever.

use super::{BATCH, io};
use crate::fields::Has;
use arrow_array::{ArrayRef, new_null_array};
use arrow_schema::Fields;
use linerate_meter::Flow;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, ArrowLeafColumn, compute_leaves};
use std::io::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How often one who waits looks whether anything failed.
const LOOK: Duration = Duration::from_millis(50);

/// A column in the making.
struct Slot {
    /// `None` once it is complete.
    writer: Option<ArrowColumnWriter>,
    /// The piece that comes next.
    next: usize,
    /// Rows without a value that are not written yet: many at once cost next to nothing.
    absent: usize,
    chunk: Option<ArrowColumnChunk>,
}

struct Group<'a, A> {
    flows: &'a [&'a Flow],
    fields: &'a Fields,
    arrays: A,
    /// What the flows of each piece have.
    has: Vec<OnceLock<Has>>,
    slots: Vec<(Mutex<Slot>, Condvar)>,
    /// Pieces that were taken.
    taken: AtomicUsize,
    failed: AtomicBool,
}

/// Columns of these flows. `arrays` makes the values of a column for some of the flows, which begin at a row and have no more than it
/// is told; `None` where there are none.
///
/// # Errors
/// Those of encoding; no thread is to be had.
pub(super) fn encode<A>(
    flows: &[&Flow],
    fields: &Fields,
    writers: Vec<ArrowColumnWriter>,
    threads: usize,
    arrays: A,
) -> Result<Vec<ArrowColumnChunk>>
where
    A: Fn(usize, usize, &[&Flow], Has) -> Option<ArrayRef> + Sync,
{
    let slot = |writer| (Mutex::new(Slot { writer: Some(writer), next: 0, absent: 0, chunk: None }), Condvar::new());
    let slots = writers.into_iter().map(slot).collect();
    let has = flows.chunks(BATCH).map(|_| OnceLock::new()).collect();
    let (taken, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let group = Group { flows, fields, arrays, has, slots, taken, failed };
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

impl<A: Fn(usize, usize, &[&Flow], Has) -> Option<ArrayRef> + Sync> Group<'_, A> {
    /// Does pieces until all are taken.
    fn work(&self) -> Result<()> {
        let mut watch = Watch(&self.failed, false);
        let pieces = self.has.len();
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
        let first = piece * BATCH;
        let flows = &self.flows[first..self.flows.len().min(first + BATCH)];
        let has = *self.has[piece].get_or_init(|| Has::any(flows));
        let array = (self.arrays)(column, first, flows, has);
        let leaves = array.map(|array| self.leaves(column, &array)).transpose()?;
        let (slot, turn) = &self.slots[column];
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        while slot.next < piece {
            if self.failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            slot = turn.wait_timeout(slot, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        let Slot { writer, next, absent, chunk } = &mut *slot;
        if leaves.is_none() {
            *absent += flows.len();
        }
        if let Some(writer) = writer {
            if *absent > 0 && (leaves.is_some() || is_last) {
                let none = new_null_array(self.fields[column].data_type(), std::mem::take(absent));
                write(writer, &self.leaves(column, &none)?)?;
            }
            write(writer, leaves.as_deref().unwrap_or_default())?;
        }
        *next += 1;
        if is_last {
            *chunk = writer.take().map(|writer| writer.close().map_err(io)).transpose()?;
        }
        drop(slot);
        turn.notify_all();
        Ok(())
    }

    fn leaves(&self, column: usize, array: &ArrayRef) -> Result<Vec<ArrowLeafColumn>> {
        compute_leaves(&self.fields[column], array).map_err(io)
    }
}

fn write(writer: &mut ArrowColumnWriter, leaves: &[ArrowLeafColumn]) -> Result<()> {
    leaves.iter().try_for_each(|leaf| writer.write(leaf)).map_err(io)
}
