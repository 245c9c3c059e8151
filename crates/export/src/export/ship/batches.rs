//! Encoding of flows into batches on several threads, and into the spool in their order.

use super::super::hours::days;
use super::form::FORMS;
use super::journal::{Batch, Id};
use super::{BatchExporter, TICK};
use crate::encode::Origin;
use linerate_burst::Nanos;
use linerate_meter::Flow;
use std::io::Result;
use std::time::{Duration, Instant};

/// Minimum interval between reports of dropped batches.
const TELL: Duration = Duration::from_secs(10);

/// Dropped batches that are not reported yet.
#[derive(Default)]
pub(super) struct DroppedBatches {
    batches: u64,
    records: u64,
    /// Time of the last report.
    reported: Option<Instant>,
}

impl BatchExporter {
    /// Builds batches of flows sorted by time, each spanning few days.
    pub(super) fn put(&mut self, flows: &[&Flow], lane: u16) -> Result<()> {
        let time = |flow: &Flow| flow.first().0 / 1_000_000_000;
        days(flows, time, self.spool.terms.clock.now() / 1_000_000_000)
            .into_iter()
            .try_for_each(|flows| self.put_piece(flows, lane))
    }

    /// Builds several batches at a time and spools them in order.
    fn put_piece(&mut self, mut flows: &[&Flow], lane: u16) -> Result<()> {
        while !flows.is_empty() {
            for (rows, bytes) in self.encode(flows) {
                let (bytes, (own, rest)) = (bytes?, flows.split_at(rows));
                if bytes.len() > self.most && rows > 1 {
                    // Batches after this one get other numbers: their encoding is discarded.
                    self.fits = rows / 2;
                    break;
                }
                if bytes.len() < self.most / 4 {
                    self.fits = self.fits.saturating_mul(2);
                }
                self.add(own, lane, &bytes)?;
                flows = rest;
            }
        }
        Ok(())
    }

    /// Encodes the next batches, at most one per thread: number of flows, and bytes.
    fn encode(&self, flows: &[&Flow]) -> Vec<(usize, Result<Vec<u8>>)> {
        let (form, rows) = (self.form, self.rows.min(self.fits).min(self.spool.most_rows()).max(1));
        let origin =
            |at: usize| Origin { sensor: self.ship.sensor.clone(), run: self.run, batch: self.number + at as u64 };
        let chunks: Vec<&[&Flow]> = flows.chunks(rows).take(self.threads).collect();
        let lengths = chunks.iter().map(|chunk| chunk.len());
        let made: Vec<Result<Vec<u8>>> = std::thread::scope(|scope| {
            let mut others = Vec::new();
            for (at, chunk) in chunks.iter().copied().enumerate().skip(1) {
                let origin = origin(at);
                let encode = move || form.encode(chunk, origin);
                let thread = std::thread::Builder::new().name("linerate-encode".into());
                others.push(thread.spawn_scoped(scope, encode));
            }
            let first = chunks.first().map(|chunk| form.encode(chunk, origin(0)));
            let made = others.into_iter().map(|other| match other?.join() {
                Ok(bytes) => bytes,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            first.into_iter().chain(made).collect()
        });
        lengths.zip(made).collect()
    }

    /// Puts a batch into the spool.
    fn add(&mut self, flows: &[&Flow], lane: u16, bytes: &[u8]) -> Result<()> {
        let times = |of: fn(&Flow) -> Nanos| flows.iter().map(move |flow| of(flow).0);
        let batch = Batch {
            id: Id { run: self.run, number: self.number },
            form: FORMS.iter().position(|form| *form == self.form).unwrap_or_default() as u8,
            lane,
            rows: flows.len() as u32,
            bytes: 0,
            crc: 0,
            first: times(Flow::first).min().unwrap_or_default(),
            last: times(Flow::last).max().unwrap_or_default(),
            made: self.spool.terms.clock.now(),
        };
        let mut full: Option<Instant> = None;
        let has_room = loop {
            if self.spool.add(batch, bytes)? {
                break true;
            }
            full.get_or_insert_with(Instant::now);
            if !self.make_room()? {
                break false;
            }
        };
        self.waited += full.map_or(Duration::ZERO, |since| since.elapsed());
        // A lost batch leaves a gap, which completeness checks detect.
        self.number += 1;
        if has_room {
            self.spooled += flows.len() as u64;
        } else {
            self.no_room += flows.len() as u64;
            (self.notify)(format!("{}: spool full; {} records lost", self.name, flows.len()));
        }
        Ok(())
    }

    /// Waits, or drops the oldest batch; false: it cannot wait.
    fn make_room(&mut self) -> Result<bool> {
        if !self.ship.waits {
            let Some(batch) = self.spool.drop_oldest()? else { return Ok(false) };
            let gone = self.gone.get_or_insert_default();
            (gone.batches, gone.records) = (gone.batches + 1, gone.records + u64::from(batch.rows));
            // Not one report per batch.
            if gone.reported.is_none_or(|reported| reported.elapsed() >= TELL) {
                let DroppedBatches { batches, records, .. } = std::mem::replace(
                    gone,
                    DroppedBatches { reported: Some(Instant::now()), ..DroppedBatches::default() },
                );
                (self.notify)(format!(
                    "{}: spool full; dropped the {batches} oldest batches ({records} records)",
                    self.name
                ));
            }
            return Ok(true);
        }
        self.sender.failure()?;
        self.spool.wait(TICK);
        Ok(!self.over.has_passed())
    }
}
