//! Building of the columns of a row group on several threads, with the same output as on one.
//!
//! Flows are split into batches that fit into a processor's cache; each column of a batch is a numbered piece of work,
//! and threads take the next one. Within a column pieces are written in order: a thread waits for the previous piece,
//! which another thread has already taken, so that no deadlock is possible.

use super::{BATCH, io};
use crate::fields::PresentParts;
use arrow_array::{ArrayRef, new_null_array};
use arrow_schema::Fields;
use linerate_meter::Flow;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, ArrowLeafColumn, compute_leaves};
use std::io::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Interval at which a waiting thread checks for a failure.
const LOOK: Duration = Duration::from_millis(50);

/// Column under construction.
struct Slot {
    /// `None` after completion.
    writer: Option<ArrowColumnWriter>,
    /// Next piece to write.
    next: usize,
    /// Pending null rows: writing many at once costs almost nothing.
    absent: usize,
    chunk: Option<ArrowColumnChunk>,
}

struct Group<'a, A> {
    flows: &'a [&'a Flow],
    fields: &'a Fields,
    arrays: A,
    /// Parts of the flows of each batch.
    has: Vec<OnceLock<PresentParts>>,
    slots: Vec<(Mutex<Slot>, Condvar)>,
    /// Number of pieces taken.
    taken: AtomicUsize,
    failed: AtomicBool,
}

/// Encodes columns of these flows. `arrays` builds the values of a column for some of the flows, given their first row
/// and the parts that they have at most; `None` if all are absent.
///
/// # Errors
/// Encoding fails, or a thread cannot be started.
pub(super) fn encode<A>(
    flows: &[&Flow],
    fields: &Fields,
    writers: Vec<ArrowColumnWriter>,
    threads: usize,
    arrays: A,
) -> Result<Vec<ArrowColumnChunk>>
where
    A: Fn(usize, usize, &[&Flow], PresentParts) -> Option<ArrayRef> + Sync,
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
        slot.chunk.ok_or_else(|| Error::other("a column is incomplete"))
    };
    group.slots.into_iter().map(chunk).collect()
}

/// Reports a failure or panic to the other threads on drop.
struct FailureGuard<'a>(&'a AtomicBool, bool);

impl Drop for FailureGuard<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl<A: Fn(usize, usize, &[&Flow], PresentParts) -> Option<ArrayRef> + Sync> Group<'_, A> {
    /// Processes pieces until all are taken.
    fn work(&self) -> Result<()> {
        let mut watch = FailureGuard(&self.failed, false);
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
        let has = *self.has[piece].get_or_init(|| PresentParts::any(flows));
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
