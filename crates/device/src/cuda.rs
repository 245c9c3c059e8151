//! NVIDIA GPUs.
//!
//! There are two queues: blocks are copied in one, everything else is done in the other, which waits for a block before
//! it places its bytes. So the next block is on the bus while the one before is placed. A block that finds no pending
//! work is copied in the second queue, since one queue waiting for the other takes time. Lists and results are host
//! memory that kernels access over the bus: a copy of a few KiB takes as long as one of 100. Each piece of work has an
//! event; the host data that it needs is kept with it until the event was seen.
//!
//! Unsafe because work reads and writes memory after the call that queued it.
#![allow(unsafe_code)]

mod driver;
mod host;
mod work;

use self::driver::{Context, Event, Memory, Stream, kernels};
use self::host::{pinned, registered};
use self::work::{Frames, HostBuffer, Kernels, PendingWork, StagingBuffers};
use crate::contract::{Device, DeviceError, DeviceInfo, ExamineResult, FrameLocation, Route, Shape, Ticket};
use crate::crc::{POWERS, tables};
use crate::form::Form;
use crate::list::{check, check_ranges, split};
use linerate_burst::pool::OwnedBytes;
use linerate_transport::frames::{Batch, Entry};
use std::collections::VecDeque;
use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;

/// The kernels, terminated by 0.
const PTX: &str = concat!(include_str!("kernels.ptx"), "\0");

/// Bytes that a warp places: 16 words for each of its threads. A block of 2 MiB that arrived in order is work for a
/// thousand warps.
const PIECE: u32 = 2048;

/// A GPU. Fields are dropped in order: queues first, which wait for their work.
#[derive(Debug)]
pub struct Cuda {
    blocks: Stream,
    work: Stream,
    pending: VecDeque<PendingWork>,
    frames: Option<Frames>,
    /// Buffers for lists and blocks that are not in use.
    rooms: Vec<StagingBuffers>,
    events: Vec<Event>,
    kernels: Kernels,
    facts: DeviceInfo,
    context: Arc<Context>,
    queued: u64,
    reached: u64,
    failed: Option<DeviceError>,
    returned: VecDeque<Batch>,
    examined: VecDeque<ExamineResult>,
}

impl Cuda {
    /// Opens the GPU of this number; loads the driver.
    ///
    /// # Errors
    /// If no usable driver is found, or the GPU does not exist.
    pub fn open(number: u32) -> Result<Cuda, DeviceError> {
        let context = Context::open(number)?;
        context.bind()?;
        let ptx = CStr::from_bytes_with_nul(PTX.as_bytes())
            .map_err(|_| DeviceError::Cannot("the kernels are not a NUL-terminated text"))?;
        let names = [c"linerate_place", c"linerate_examine", c"linerate_report"];
        let [place, examine, report] = kernels(&context, ptx, names)?;
        let facts = DeviceInfo {
            name: context.name.clone(),
            model: context.model.clone(),
            memory: context.memory,
            number: number as i32,
            is_cuda: true,
        };
        Ok(Cuda {
            blocks: Stream::new(&context)?,
            work: Stream::new(&context)?,
            pending: VecDeque::new(),
            frames: None,
            rooms: Vec::new(),
            events: Vec::new(),
            kernels: Kernels { place, examine, report },
            facts,
            context,
            queued: 0,
            reached: 0,
            failed: None,
            returned: VecDeque::new(),
            examined: VecDeque::new(),
        })
    }

    /// Prepares for work: checks for an earlier failure, and selects this GPU.
    fn ready(&self) -> Result<(), DeviceError> {
        self.failed.clone().map_or(Ok(()), Err)?;
        self.context.bind()
    }

    fn frames(&self) -> Result<&Frames, DeviceError> {
        self.frames.as_ref().ok_or(DeviceError::Cannot("no frames allocated; allocate frames first"))
    }

    /// Checks that a range is inside a frame, in bytes of device memory; returns the offset of its first byte.
    fn inside(&self, frame: u32, range: &Range<usize>) -> Result<usize, DeviceError> {
        let shape = self.frames()?.shape;
        let raw = Shape { bytes: shape.form.bytes(shape.bytes), ..shape };
        check_ranges(frame, std::slice::from_ref(&(range.start as u64..range.end as u64)), &raw)?;
        Ok(frame as usize * shape.stride() + range.start)
    }
}

impl Device for Cuda {
    fn facts(&self) -> &DeviceInfo {
        &self.facts
    }

    fn allocate(&mut self, shape: Shape) -> Result<(), DeviceError> {
        shape.check()?;
        self.ready()?;
        if self.frames.is_some() {
            return Err(DeviceError::Cannot("frames are already allocated"));
        }
        let free = self.context.free()?;
        if shape.memory() as u64 > free {
            return Err(DeviceError::Memory { name: self.facts.name.clone(), wanted: shape.memory() as u64, free });
        }
        let memory = |bytes| Memory::new(&self.context, bytes, &self.work);
        let words = |words: &[u32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let there = memory(bytes.len())?;
            // SAFETY: completed in the next line.
            unsafe { self.work.send(&bytes, &there, 0) }?;
            self.work.finish().map(|()| there)
        };
        let count = shape.frames as usize;
        let all = memory(shape.stride() * count)?;
        let mut frames = Frames {
            shape,
            handle: all.handle(),
            memory: all,
            counts: memory(shape.granules() * 4 * count)?,
            results: memory((8 + shape.granules().div_ceil(64) * 8) * count)?,
            found: Vec::new(),
            tables: words(&tables())?,
            powers: words(&POWERS)?,
        };
        for _ in 0..count {
            frames.found.push(HostBuffer::new(&self.context, frames.result())?);
        }
        self.frames = Some(frames);
        self.work.finish()
    }

    fn block(&mut self, bytes: usize) -> Result<OwnedBytes, DeviceError> {
        self.ready()?;
        pinned(&self.context, bytes)
    }

    fn register(&mut self, piece: OwnedBytes) -> Result<OwnedBytes, DeviceError> {
        self.ready()?;
        registered(&self.context, piece)
    }

    fn clear(&mut self, frame: u32, range: Range<usize>) -> Result<Ticket, DeviceError> {
        self.ready()?;
        let (at, len) = (self.inside(frame, &range)?, range.len());
        let result = self.work.clear(&self.frames()?.memory, at..at + len);
        self.plain(result)
    }

    fn copy(&mut self, from: &[u8], frame: u32, at: usize) -> Result<Ticket, DeviceError> {
        self.ready()?;
        let to = self.inside(frame, &(at..at.saturating_add(from.len())))?;
        if self.frames()?.shape.form != Form::Raw {
            return Err(DeviceError::Cannot("copied bytes cannot be converted; place them by a list"));
        }
        // SAFETY: completed below in any case.
        let result = unsafe { self.work.send(from, &self.frames()?.memory, to) };
        let ticket = self.plain(result);
        let through = self.work.finish();
        self.sticky(through)?;
        ticket
    }

    fn mark(&mut self, frame: u32, ranges: &[Range<u64>]) -> Result<Ticket, DeviceError> {
        self.ready()?;
        check_ranges(frame, ranges, &self.frames()?.shape)?;
        // A range may exceed the maximum length of an entry.
        let longest = 1 << 31;
        let pieces = ranges.iter().flat_map(|range| {
            let starts = (range.start..range.end).step_by(longest as usize);
            starts.map(|at| Entry { at, from: 0, len: (range.end - at).min(longest) as u32, frame })
        });
        let list: Vec<Entry> = pieces.collect();
        self.run(None, &list, None)
    }

    fn place(&mut self, mut batch: Batch, route: Route) -> Result<Ticket, DeviceError> {
        let used = batch.used.min(batch.block.len());
        let checked = self.ready().and_then(|()| Ok(check(&batch.list, used, &self.frames()?.shape)?));
        if let Err(refused) = checked {
            self.returned.push_back(batch);
            return Err(refused);
        }
        let list = split(&std::mem::take(&mut batch.list), PIECE);
        self.run(Some(batch), &list, Some(route))
    }

    fn forget(&mut self, frame: u32) -> Result<Ticket, DeviceError> {
        self.ready()?;
        let at = self.inside(frame, &(0..0))?;
        let frames = self.frames()?;
        let (shape, counts) = (frames.shape, frame as usize * frames.shape.granules() * 4);
        let mut result = self.work.clear(&frames.counts, counts..counts + shape.granules() * 4);
        if shape.form != Form::Raw {
            result = result.and_then(|()| self.work.clear(&frames.memory, at..at + shape.stride()));
        }
        self.plain(result)
    }

    fn examine(&mut self, frame: u32, len: usize) -> Result<Ticket, DeviceError> {
        self.ready()?;
        check_ranges(frame, std::slice::from_ref(&(0..len as u64)), &self.frames()?.shape)?;
        // A frame has room for one result.
        if let Some(before) = self.pending.iter().rfind(|one| one.examines.is_some_and(|(other, _)| other == frame)) {
            let before = Ticket(before.ticket);
            self.wait(before)?;
        }
        let event = self.event()?;
        let looked = self.look(frame, len);
        self.sticky(looked)?;
        let examines = Some((frame, len));
        self.queued(PendingWork { ticket: 0, event, copied: None, room: None, batch: None, examines })
    }

    fn examined(&mut self) -> Option<ExamineResult> {
        self.examined.pop_front()
    }

    fn fetch(&mut self, frame: u32, at: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.ready()?;
        let at = self.inside(frame, &(at..at.saturating_add(to.len())))?;
        // SAFETY: completed below in any case.
        let fetched = unsafe { self.work.fetch(&self.frames()?.memory, at, to) };
        let through = self.work.finish();
        self.sticky(fetched.and(through))
    }

    fn reached(&mut self) -> Result<Ticket, DeviceError> {
        self.ready()?;
        self.poll()?;
        Ok(Ticket(self.reached))
    }

    fn wait(&mut self, ticket: Ticket) -> Result<(), DeviceError> {
        self.ready()?;
        while self.reached < ticket.0 {
            let Some(first) = self.pending.front() else {
                return Err(DeviceError::Cannot("no queued work has this ticket"));
            };
            let done = first.event.wait();
            self.sticky(done)?;
            self.poll()?;
        }
        Ok(())
    }

    fn returned(&mut self) -> Option<Batch> {
        // The waiting caller reports a failure; after it no work is done, and all batches are returned.
        if self.ready().and_then(|()| self.poll()).is_err() && self.failed.is_some() {
            let _ = self.context.bind().and_then(|()| self.blocks.finish()).and(self.work.finish());
            self.returned.extend(self.pending.drain(..).filter_map(|pending| pending.batch));
        }
        self.returned.pop_front()
    }

    fn export(&mut self, frame: u32) -> Result<FrameLocation, DeviceError> {
        self.ready()?;
        let at = self.inside(frame, &(0..0))?;
        let frames = self.frames()?;
        let bytes = frames.shape.form.bytes(frames.shape.bytes) as u64;
        Ok(FrameLocation { handle: frames.handle, offset: at as u64, address: frames.memory.at(at), bytes })
    }
}
