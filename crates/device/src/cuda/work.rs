//! Work that is queued for a GPU, and the resources that it needs until it is done.
//!
//! Unsafe because work reads and writes memory after the call that queued it: that memory stays in [`PendingWork`] until
//! its event was seen.
#![allow(unsafe_code)]

use super::Cuda;
use super::driver::{Context, Event, Kernel, Memory, Word};
use super::host::{mapped, pinned};
use crate::contract::{DeviceError, ExamineResult, Route, Shape, Ticket};
use crate::crc::finish;
use crate::form::Form;
use linerate_burst::pool::OwnedBytes;
use linerate_transport::frames::{Batch, Entry};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of an entry in the kernel's layout.
const ENTRY: usize = 24;
const _: () = assert!(size_of::<Entry>() == ENTRY);
/// Form number with which `linerate_place` only counts bytes.
const NOTHING: u32 = 4;
/// Threads per block, and per warp.
const THREADS: u32 = 256;
const WARP: u32 = 32;
/// Maximum number of thread blocks that entries are divided among.
const MOST: u32 = 4096;
/// Lines of 128 bytes that a warp sums.
const ROWS: Range<u64> = 8..4096;

#[derive(Debug)]
pub(super) struct Kernels {
    pub place: Kernel,
    pub examine: Kernel,
    pub report: Kernel,
}

/// The frames, and buffers for their results.
#[derive(Debug)]
pub(super) struct Frames {
    pub shape: Shape,
    pub memory: Memory,
    /// Handle of the memory for other processes.
    pub handle: Option<[u8; 64]>,
    pub counts: Memory,
    /// For each frame its remainder, then its bitmap, zeroed before it is examined; `found` is the destination on the
    /// host.
    pub results: Memory,
    pub found: Vec<HostBuffer>,
    /// For checksums.
    pub tables: Memory,
    pub powers: Memory,
}

/// Host memory that kernels read and write, and its GPU address.
#[derive(Debug)]
pub(super) struct HostBuffer {
    pub here: OwnedBytes,
    pub at: u64,
}

impl HostBuffer {
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<HostBuffer, DeviceError> {
        let here = pinned(context, bytes)?;
        let at = mapped(&here).ok_or(DeviceError::Cannot("the driver has no address for host memory"))?;
        Ok(HostBuffer { here, at })
    }
}

/// Device memory for a whole block, and for a list.
#[derive(Debug)]
pub(super) struct StagingBuffers {
    pub block: Memory,
    pub list: HostBuffer,
}

/// Queued work, and the resources that it needs.
#[derive(Debug)]
pub(super) struct PendingWork {
    pub ticket: u64,
    pub event: Event,
    /// Recorded after the block was copied.
    pub copied: Option<Event>,
    pub room: Option<StagingBuffers>,
    pub batch: Option<Batch>,
    /// The examined frame, and its bytes of a stream.
    pub examines: Option<(u32, usize)>,
}

impl Cuda {
    pub(super) fn event(&mut self) -> Result<Event, DeviceError> {
        self.events.pop().map_or_else(|| Event::new(&self.context), Ok)
    }

    /// Keeps a failure permanently.
    pub(super) fn sticky<T>(&mut self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        if let Err(error) = &result {
            self.failed.get_or_insert_with(|| error.clone());
        }
        result
    }

    /// Assigns a ticket to queued work, which is kept until it is done.
    pub(super) fn queued(&mut self, mut pending: PendingWork) -> Result<Ticket, DeviceError> {
        let recorded = self.work.record(&pending.event);
        self.queued += 1;
        pending.ticket = self.queued;
        self.pending.push_back(pending);
        self.sticky(recorded).map(|()| Ticket(self.queued))
    }

    /// Like [`Cuda::queued`], for work without resources.
    pub(super) fn plain(&mut self, result: Result<(), DeviceError>) -> Result<Ticket, DeviceError> {
        self.sticky(result)?;
        let event = self.event()?;
        self.queued(PendingWork { ticket: 0, event, copied: None, room: None, batch: None, examines: None })
    }

    /// Releases the resources of finished work.
    pub(super) fn poll(&mut self) -> Result<(), DeviceError> {
        while let Some(first) = self.pending.front() {
            let done = first.event.is_done();
            if !self.sticky(done)? {
                break;
            }
            let Some(done) = self.pending.pop_front() else { break };
            self.reached = done.ticket;
            self.events.extend([done.event].into_iter().chain(done.copied));
            self.rooms.extend(done.room);
            self.returned.extend(done.batch);
            if let Some((frame, len)) = done.examines {
                let found = self.frames()?.found(frame, len);
                self.examined.push_back(found);
            }
        }
        Ok(())
    }

    /// Returns a buffer for a list of `entries` and a block of `block` bytes.
    fn room(&mut self, block: usize, entries: usize, is_queue_empty: bool) -> Result<StagingBuffers, DeviceError> {
        let list = entries * ENTRY;
        if let Some(at) = self.rooms.iter().position(|room| room.block.len() >= block && room.list.here.len() >= list) {
            return Ok(self.rooms.swap_remove(at));
        }
        // Buffers that are too small now only take memory: release them.
        self.rooms.clear();
        let [block, list] = [block, list].map(|bytes| bytes.next_power_of_two().max(4096));
        // Zeroed before its first block arrives, because that uses the same queue.
        let through = if is_queue_empty { &self.work } else { &self.blocks };
        Ok(StagingBuffers {
            block: Memory::new(&self.context, block, through)?,
            list: HostBuffer::new(&self.context, list)?,
        })
    }

    /// Queues a list. `how` is the route of a block; without a block bytes are only counted.
    pub(super) fn run(
        &mut self,
        batch: Option<Batch>,
        list: &[Entry],
        how: Option<Route>,
    ) -> Result<Ticket, DeviceError> {
        let used = batch.as_ref().map_or(0, |batch| batch.used.min(batch.block.len()));
        let here = match (how, &batch) {
            (Some(Route::Gather), Some(batch)) => mapped(&batch.block),
            _ => None,
        };
        // Memory that is not registered is copied as a whole.
        let staged = if here.is_some() { 0 } else { used };
        let is_queue_empty = self.pending.is_empty();
        let needed = self.event().and_then(|event| {
            let copied = if staged == 0 || is_queue_empty { None } else { Some(self.event()?) };
            Ok((event, copied, self.room(staged, list.len(), is_queue_empty)?))
        });
        let (event, copied, mut room) = match self.sticky(needed) {
            Ok(needed) => needed,
            Err(error) => {
                self.returned.extend(batch);
                return Err(error);
            }
        };
        for (to, entry) in room.list.here.bytes_mut().chunks_exact_mut(ENTRY).zip(list) {
            to[..8].copy_from_slice(&entry.at.to_le_bytes());
            to[8..12].copy_from_slice(&entry.from.to_le_bytes());
            to[12..16].copy_from_slice(&entry.len.to_le_bytes());
            to[16..20].copy_from_slice(&entry.frame.to_le_bytes());
        }
        let block = batch.as_ref().map(|batch| &batch.block);
        let result = self.queue(&room, block, here, staged, list.len(), copied.as_ref());
        // Queued parts of it may still read: keep it in any case.
        let pending = PendingWork { ticket: 0, event, copied, room: Some(room), batch, examines: None };
        let ticket = self.queued(pending);
        self.sticky(result)?;
        ticket
    }

    fn queue(
        &self,
        room: &StagingBuffers,
        block: Option<&OwnedBytes>,
        here: Option<u64>,
        staged: usize,
        entries: usize,
        copied: Option<&Event>,
    ) -> Result<(), DeviceError> {
        let frames = self.frames()?;
        let Shape { granule, form, .. } = frames.shape;
        if let Some(block) = block {
            let through = if copied.is_some() { &self.blocks } else { &self.work };
            // SAFETY: the block is kept in `pending` until a later event was seen.
            unsafe { through.send(&block.bytes()[..staged], &room.block, 0) }?;
        }
        if let Some(copied) = copied {
            self.blocks.record(copied)?;
            self.work.follow(copied)?;
        }
        let form = match block {
            None => NOTHING,
            Some(_) => Form::ALL.iter().position(|one| *one == form).unwrap_or_default() as u32,
        };
        let mut arguments = [
            Word::Long(frames.memory.at(0)),
            Word::Long(frames.shape.stride() as u64),
            Word::Long(frames.counts.at(0)),
            Word::Short(frames.shape.granules() as u32),
            Word::Short(granule as u32),
            Word::Long(here.unwrap_or_else(|| room.block.at(0))),
            Word::Long(room.list.at),
            Word::Short(entries as u32),
            Word::Short(form),
        ];
        let grid = (entries as u32).div_ceil(THREADS / WARP).min(MOST);
        // SAFETY: the arguments are those of the kernel. Every entry was checked: it reads inside the block, which is
        // padded to whole words, and writes inside its frame. The list is kept like the block.
        unsafe { self.work.launch(self.kernels.place, grid, THREADS, &mut arguments) }
    }

    /// Queues the examination of a frame: its bitmap and its checksum.
    pub(super) fn look(&self, frame: u32, len: usize) -> Result<(), DeviceError> {
        let frames = self.frames()?;
        let (shape, at) = (frames.shape, frame as usize * frames.result());
        let bytes = shape.form.bytes(len) as u64;
        let granules = shape.granules() as u32;
        let lines = bytes / 128;
        let rows = lines.div_ceil(u64::from(MOST)).clamp(ROWS.start, ROWS.end);
        let warps = lines.div_ceil(rows).max(u64::from(granules.div_ceil(WARP).min(MOST)));
        let mut arguments = [
            Word::Long(frames.counts.at(frame as usize * granules as usize * 4)),
            Word::Short(granules),
            Word::Short(shape.granule as u32),
            Word::Long(len as u64),
            Word::Long(frames.memory.at(frame as usize * shape.stride())),
            Word::Long(bytes),
            Word::Short(rows as u32),
            Word::Long(frames.tables.at(0)),
            Word::Long(frames.powers.at(0)),
            Word::Long(frames.results.at(at)),
        ];
        let grid = warps.div_ceil(u64::from(THREADS / WARP)).max(1) as u32;
        // SAFETY: the arguments are those of the kernel, which reads `bytes` bytes of the frame, resets its counts, and
        // writes the first word of its results and a bit for each part: they have room for these.
        unsafe { self.work.launch(self.kernels.examine, grid, THREADS, &mut arguments) }?;
        let (words, found) = (frames.result() / 4, &frames.found[frame as usize]);
        let mut arguments = [Word::Long(frames.results.at(at)), Word::Short(words as u32), Word::Long(found.at)];
        let grid = words.div_ceil(THREADS as usize) as u32;
        // SAFETY: the arguments are those of the kernel: both sides have this many words. They are read once a later
        // event was seen, and not written otherwise until then: a frame is examined once at a time.
        unsafe { self.work.launch(self.kernels.report, grid, THREADS, &mut arguments) }
    }
}

impl Frames {
    /// Returns the bytes of results of a frame: a remainder, and whole words of 64 bits.
    pub(super) fn result(&self) -> usize {
        8 + self.shape.granules().div_ceil(64) * 8
    }

    /// Returns the results of a frame, once they have arrived.
    fn found(&self, frame: u32, len: usize) -> ExamineResult {
        let (words, _) = self.found[frame as usize].here.bytes().as_chunks::<8>();
        let remainder = words.first().map_or(0, |word| u64::from_le_bytes(*word) as u32);
        let count = len.div_ceil(self.shape.granule).div_ceil(64);
        let presence = words.iter().skip(1).take(count).map(|word| u64::from_le_bytes(*word)).collect();
        ExamineResult { frame, crc32c: finish(remainder, self.shape.form.bytes(len) as u64), presence }
    }
}
