//! Flows as batches of bytes, made by several threads, and into the spool in their order.

use super::super::hours::days;
use super::form::FORMS;
use super::journal::{Batch, Id};
use super::{Ship, TICK};
use crate::encode::Origin;
use linerate_burst::Nanos;
use linerate_meter::Flow;
use std::io::Result;
use std::time::{Duration, Instant};

/// How often it is told that batches give way.
const TELL: Duration = Duration::from_secs(10);

/// What gave way and was not told yet.
#[derive(Default)]
pub(super) struct Gone {
    batches: u64,
    records: u64,
    /// When something was told last.
    told: Option<Instant>,
}

impl Ship {
    /// Makes batches of flows, which are in the order of their times: of few days each.
    pub(super) fn put(&mut self, flows: &[&Flow], lane: u16) -> Result<()> {
        let time = |flow: &Flow| flow.first().0 / 1_000_000_000;
        days(flows, time, self.spool.terms.clock.now() / 1_000_000_000)
            .into_iter()
            .try_for_each(|flows| self.put_piece(flows, lane))
    }

    /// Makes batches of them, several at a time, which go into the spool in their order.
    fn put_piece(&mut self, mut flows: &[&Flow], lane: u16) -> Result<()> {
        while !flows.is_empty() {
            for (rows, bytes) in self.encode(flows) {
                let (bytes, (own, rest)) = (bytes?, flows.split_at(rows));
                if bytes.len() > self.most && rows > 1 {
                    // What was made of those behind it has other numbers now.
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

    /// The next batches of flows, at most one for each thread: how many flows are in each, and its bytes.
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
        // One that is lost leaves a gap, which whoever asks for completeness finds.
        self.number += 1;
        if has_room {
            self.spooled += flows.len() as u64;
        } else {
            self.no_room += flows.len() as u64;
            (self.told)(format!("{}: no room in the spool for {} records: they are lost", self.name, flows.len()));
        }
        Ok(())
    }

    /// Waits, or has the oldest batch give way; false: there is nothing to wait for.
    fn make_room(&mut self) -> Result<bool> {
        if !self.ship.waits {
            let Some(batch) = self.spool.drop_oldest()? else { return Ok(false) };
            let gone = self.gone.get_or_insert_default();
            (gone.batches, gone.records) = (gone.batches + 1, gone.records + u64::from(batch.rows));
            // One a batch would be many.
            if gone.told.is_none_or(|told| told.elapsed() >= TELL) {
                let Gone { batches, records, .. } =
                    std::mem::replace(gone, Gone { told: Some(Instant::now()), ..Gone::default() });
                (self.told)(format!(
                    "{}: {batches} of the oldest batches, of {records} records, gave way: the spool is full",
                    self.name
                ));
            }
            return Ok(true);
        }
        self.sender.failure()?;
        self.spool.wait(TICK);
        Ok(!self.over.is_now())
    }
}
