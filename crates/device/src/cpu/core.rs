//! The thread of a CPU device, and its data.

use super::{CpuConfig, Shared, Work, failed};
use crate::contract::{ExamineResult, Route, Shape};
use crate::form::Form;
use linerate_transport::copy::Crc;
use linerate_transport::frames::{Batch, Entry};
use std::ops::Range;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Data of the thread.
pub(super) struct Core {
    config: CpuConfig,
    drawn: u64,
    shape: Shape,
    memory: Vec<u8>,
    /// Bytes present in each part of each frame.
    counts: Vec<u32>,
    /// Buffer to which whole blocks are copied.
    staging: Vec<u8>,
}

/// Records the end of the thread, in whatever way it ends.
struct ThreadEndGuard<'a>(&'a Shared);

impl Drop for ThreadEndGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.news.notify_all();
    }
}

impl Core {
    pub(super) fn new(config: CpuConfig, shape: Shape) -> Core {
        let memory = vec![0; shape.stride() * shape.frames as usize];
        let counts = vec![0; shape.granules() * shape.frames as usize];
        Core { config, drawn: config.seed | 1, shape, memory, counts, staging: Vec::new() }
    }

    pub(super) fn run(mut self, queue: &Receiver<Work>, shared: &Shared) {
        let _over = ThreadEndGuard(shared);
        let mut has_failed = false;
        for work in queue {
            if self.config.delay > Duration::ZERO {
                std::thread::sleep(self.config.delay.mul_f64((self.draw() % 1000) as f64 / 1000.0));
            }
            let fails =
                !has_failed && self.config.fail_one_in.is_some_and(|one| self.draw().is_multiple_of(one.max(1)));
            has_failed |= fails;
            let (mut batch, mut found, mut spare) = (None, None, None);
            match work {
                Work::Place(full, route) => {
                    if !has_failed {
                        self.place(&full, route);
                    }
                    batch = Some(full);
                }
                _ if has_failed => {}
                Work::Copy(bytes, frame, at) => {
                    self.frame(frame)[at..at + bytes.len()].copy_from_slice(&bytes);
                    spare = Some(bytes);
                }
                Work::Examine(frame, len) => found = Some(self.examine(frame, len)),
                other => self.work(other),
            }
            let mut done = shared.lock();
            done.returned.extend(batch);
            done.examined.extend(found);
            done.spare.extend(spare);
            if fails {
                done.failed = Some(failed("work", "failed on request (fail_one_in)"));
            }
            done.reached += u64::from(!has_failed);
            drop(done);
            shared.news.notify_all();
        }
    }

    /// Returns the next pseudorandom number (Marsaglia, Xorshift RNGs, 2003).
    fn draw(&mut self) -> u64 {
        self.drawn ^= self.drawn << 13;
        self.drawn ^= self.drawn >> 7;
        self.drawn ^= self.drawn << 17;
        self.drawn >> 11
    }

    fn work(&mut self, work: Work) {
        match work {
            Work::Forget(frame) => {
                let granules = self.shape.granules();
                self.counts[frame as usize * granules..][..granules].fill(0);
                if self.shape.form != Form::Raw {
                    self.frame(frame).fill(0);
                }
            }
            Work::Clear(frame, range) => self.frame(frame)[range].fill(0),
            Work::Mark(frame, ranges) => ranges.into_iter().for_each(|range| self.count(frame, range)),
            Work::Read(frame, range, back) => {
                let bytes = self.frame(frame)[range].to_vec();
                // The receiver may be gone.
                let _ = back.send(bytes);
            }
            Work::Place(..) | Work::Copy(..) | Work::Examine(..) => {}
        }
    }

    fn place(&mut self, batch: &Batch, route: Route) {
        let block = &batch.block.bytes()[..batch.used];
        let mut staging = std::mem::take(&mut self.staging);
        let from = match route {
            Route::Gather => block,
            // The whole block, to device memory first.
            Route::Place | Route::Copy => {
                staging.clear();
                staging.extend_from_slice(block);
                &staging
            }
        };
        for Entry { at, from: start, len, frame } in batch.list.iter().copied() {
            let bytes = &from[start as usize..][..len as usize];
            self.put(frame, at, bytes);
            self.count(frame, at..at + u64::from(len));
        }
        self.staging = staging;
    }

    fn put(&mut self, frame: u32, at: u64, bytes: &[u8]) {
        let form = self.shape.form;
        let memory = self.frame(frame);
        if form == Form::Raw {
            memory[at as usize..][..bytes.len()].copy_from_slice(bytes);
            return;
        }
        for (at, byte) in (at..).zip(bytes) {
            let number = &mut memory[at as usize / form.sample() * 4..][..4];
            let sum = f32::from_le_bytes([number[0], number[1], number[2], number[3]]) + form.part(at, *byte);
            number.copy_from_slice(&sum.to_le_bytes());
        }
    }

    fn frame(&mut self, frame: u32) -> &mut [u8] {
        let stride = self.shape.stride();
        &mut self.memory[frame as usize * stride..][..stride]
    }

    fn count(&mut self, frame: u32, range: Range<u64>) {
        let shape = self.shape;
        let counts = &mut self.counts[frame as usize * shape.granules()..];
        let mut at = range.start;
        while at < range.end {
            let part = at / shape.granule as u64;
            let end = ((part + 1) * shape.granule as u64).min(range.end);
            counts[part as usize] += (end - at) as u32;
            at = end;
        }
    }

    fn examine(&mut self, frame: u32, len: usize) -> ExamineResult {
        let shape = self.shape;
        let bytes = shape.form.bytes(len);
        let crc32c = Crc::NEW.with(&self.frame(frame)[..bytes]).value();
        let mut presence = vec![0; len.div_ceil(shape.granule).div_ceil(64)];
        let counts = &mut self.counts[frame as usize * shape.granules()..][..shape.granules()];
        for (part, count) in counts.iter_mut().enumerate() {
            let whole = shape.granule.min(len.saturating_sub(part * shape.granule));
            if whole > 0 && *count as usize == whole {
                presence[part / 64] |= 1 << (part % 64);
            }
            *count = 0;
        }
        ExamineResult { frame, crc32c, presence }
    }
}
