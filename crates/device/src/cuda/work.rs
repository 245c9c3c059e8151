//! Work that is queued for a GPU, and what it needs until it is done.
//!
//! Unsafe because it reads and writes memory after the call that queued it: what that is stays in [`Pending`] until its event was seen.
#![allow(unsafe_code)]

use super::Cuda;
use super::driver::{Context, Event, Kernel, Memory, Word};
use super::host::{mapped, pinned};
use crate::contract::{DeviceError, Examined, Route, Shape, Ticket};
use crate::crc::finish;
use crate::form::Form;
use linerate_burst::pool::Piece;
use linerate_receive::frames::{Batch, Entry};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of an entry as the kernel has it.
const ENTRY: usize = 24;
const _: () = assert!(size_of::<Entry>() == ENTRY);
/// What `linerate_place` does with bytes that it only counts.
const NOTHING: u32 = 4;
/// Threads of a block, and of a warp.
const THREADS: u32 = 256;
const WARP: u32 = 32;
/// The most blocks of threads that entries are divided among.
const MOST: u32 = 4096;
/// Lines of 128 bytes that a warp sums.
const ROWS: Range<u64> = 8..4096;

#[derive(Debug)]
pub(super) struct Kernels {
    pub place: Kernel,
    pub examine: Kernel,
    pub report: Kernel,
}

/// The frames, and what is found out of them.
#[derive(Debug)]
pub(super) struct Frames {
    pub shape: Shape,
    pub memory: Memory,
    /// What another process opens that by.
    pub handle: Option<[u8; 64]>,
    pub counts: Memory,
    /// Of each frame its remainder, then its bitmap, zero before it is looked at; and where these go on the host.
    pub results: Memory,
    pub found: Vec<Found>,
    /// For sums.
    pub tables: Memory,
    pub powers: Memory,
}

/// Memory of the host that kernels read and write, and the address by which they do.
#[derive(Debug)]
pub(super) struct Found {
    pub here: Piece,
    pub at: u64,
}

impl Found {
    pub(super) fn new(context: &Arc<Context>, bytes: usize) -> Result<Found, DeviceError> {
        let here = pinned(context, bytes)?;
        let at = mapped(&here).ok_or(DeviceError::Cannot("the driver has no address for memory of the host"))?;
        Ok(Found { here, at })
    }
}

/// Device memory for a block as it lies, and a list.
#[derive(Debug)]
pub(super) struct Room {
    pub block: Memory,
    pub list: Found,
}

/// Work that is queued, and what it needs.
#[derive(Debug)]
pub(super) struct Pending {
    pub ticket: u64,
    pub event: Event,
    /// That the block was copied.
    pub copied: Option<Event>,
    pub room: Option<Room>,
    pub batch: Option<Batch>,
    /// Of which frame, and how many bytes of a stream.
    pub examines: Option<(u32, usize)>,
}

impl Cuda {
    pub(super) fn event(&mut self) -> Result<Event, DeviceError> {
        self.events.pop().map_or_else(|| Event::new(&self.context), Ok)
    }

    /// Keeps a failure, for good.
    pub(super) fn sticky<T>(&mut self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        if let Err(error) = &result {
            self.failed.get_or_insert_with(|| error.clone());
        }
        result
    }

    /// What was queued has a ticket, and is kept until it is done.
    pub(super) fn queued(&mut self, mut pending: Pending) -> Result<Ticket, DeviceError> {
        let recorded = self.work.record(&pending.event);
        self.queued += 1;
        pending.ticket = self.queued;
        self.pending.push_back(pending);
        self.sticky(recorded).map(|()| Ticket(self.queued))
    }

    /// As the one above for what needs nothing.
    pub(super) fn plain(&mut self, result: Result<(), DeviceError>) -> Result<Ticket, DeviceError> {
        self.sticky(result)?;
        let event = self.event()?;
        self.queued(Pending { ticket: 0, event, copied: None, room: None, batch: None, examines: None })
    }

    /// Takes back what work that is done has needed.
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

    /// A room for a list of so many entries and a block of so many bytes.
    fn room(&mut self, block: usize, entries: usize, is_alone: bool) -> Result<Room, DeviceError> {
        let list = entries * ENTRY;
        if let Some(at) = self.rooms.iter().position(|room| room.block.len() >= block && room.list.here.len() >= list) {
            return Ok(self.rooms.swap_remove(at));
        }
        // Too small for what comes now, they would be in nobody's way but take memory.
        self.rooms.clear();
        let [block, list] = [block, list].map(|bytes| bytes.next_power_of_two().max(4096));
        // It is zero before its first block comes: in the same queue.
        let through = if is_alone { &self.work } else { &self.blocks };
        Ok(Room { block: Memory::new(&self.context, block, through)?, list: Found::new(&self.context, list)? })
    }

    /// Has a list done. The block is memory of the host, or none if bytes are only counted.
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
        // Memory that the driver does not know goes over as it lies.
        let staged = if here.is_some() { 0 } else { used };
        let is_alone = self.pending.is_empty();
        let needed = self.event().and_then(|event| {
            let copied = if staged == 0 || is_alone { None } else { Some(self.event()?) };
            Ok((event, copied, self.room(staged, list.len(), is_alone)?))
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
        // Whatever was queued of it may still read: it is kept in any case.
        let pending = Pending { ticket: 0, event, copied, room: Some(room), batch, examines: None };
        let ticket = self.queued(pending);
        self.sticky(result)?;
        ticket
    }

    fn queue(
        &self,
        room: &Room,
        block: Option<&Piece>,
        here: Option<u64>,
        staged: usize,
        entries: usize,
        copied: Option<&Event>,
    ) -> Result<(), DeviceError> {
        let frames = self.frames()?;
        let Shape { granule, form, .. } = frames.shape;
        if let Some(block) = block {
            let through = if copied.is_some() { &self.blocks } else { &self.work };
            // SAFETY: the block is kept in `pending` until an event behind this was seen.
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
        // SAFETY: the arguments are those of the kernel. Every entry was looked at: it reads inside the block, which is padded to whole
        // words, and writes inside its frame. The list is kept as the block is.
        unsafe { self.work.launch(self.kernels.place, grid, THREADS, &mut arguments) }
    }

    /// Has it found out what a frame has, and its sum.
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
        // SAFETY: the arguments are those of the kernel, which reads so many bytes of the frame, forgets its counts, and writes the first
        // word of its results and a bit for each part of it: they have room for these.
        unsafe { self.work.launch(self.kernels.examine, grid, THREADS, &mut arguments) }?;
        let (words, found) = (frames.result() / 4, &frames.found[frame as usize]);
        let mut arguments = [Word::Long(frames.results.at(at)), Word::Short(words as u32), Word::Long(found.at)];
        let grid = words.div_ceil(THREADS as usize) as u32;
        // SAFETY: the arguments are those of the kernel: as many words are on both sides. They are read once an event behind this was
        // seen, and written by nobody else meanwhile: a frame is looked at once at a time.
        unsafe { self.work.launch(self.kernels.report, grid, THREADS, &mut arguments) }
    }
}

impl Frames {
    /// Bytes of results of a frame: a remainder, and whole words of 64 bits.
    pub(super) fn result(&self) -> usize {
        8 + self.shape.granules().div_ceil(64) * 8
    }

    /// What was found of a frame, once it is there.
    fn found(&self, frame: u32, len: usize) -> Examined {
        let (words, _) = self.found[frame as usize].here.bytes().as_chunks::<8>();
        let remainder = words.first().map_or(0, |word| u64::from_le_bytes(*word) as u32);
        let count = len.div_ceil(self.shape.granule).div_ceil(64);
        let presence = words.iter().skip(1).take(count).map(|word| u64::from_le_bytes(*word)).collect();
        Examined { frame, crc32c: finish(remainder, self.shape.form.bytes(len) as u64), presence }
    }
}
