//! A CPU thread as a device: the reference for the GPU kernels, and a device for tests on any machine.
//!
//! It behaves like a GPU. Its memory belongs to a thread and is not accessible to others; work waits in a queue and is
//! done some time after it was requested; batches are returned when they are done; it fails when its seed determines
//! so, and stays failed. The thread starts with the first work: it has the privileges that the program has then.

mod core;

use self::core::Core;
use crate::contract::{Device, DeviceError, DeviceInfo, ExamineResult, FrameLocation, Route, Shape, Ticket};
use crate::form::Form;
use crate::list::{check, check_ranges};
use linerate_burst::pool::OwnedBytes;
use linerate_burst::resident;
use linerate_transport::frames::Batch;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Configuration of a CPU device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuConfig {
    /// Bytes of memory for frames.
    pub memory: u64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Fails one piece of work in this many, at random.
    pub fail_one_in: Option<u64>,
    /// Maximum random delay of each piece of work.
    pub delay: Duration,
}

impl Default for CpuConfig {
    fn default() -> Self {
        CpuConfig { memory: 1 << 40, seed: 1, fail_one_in: None, delay: Duration::ZERO }
    }
}

/// A device whose work is done by a thread.
#[derive(Debug)]
pub struct Cpu {
    facts: DeviceInfo,
    config: CpuConfig,
    shape: Option<Shape>,
    queue: Option<Sender<Work>>,
    queued: u64,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    done: Mutex<CpuResults>,
    news: Condvar,
}

/// Results of the thread.
#[derive(Debug, Default)]
struct CpuResults {
    reached: u64,
    failed: Option<DeviceError>,
    is_over: bool,
    returned: VecDeque<Batch>,
    examined: VecDeque<ExamineResult>,
    /// Buffers of finished copies.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
enum Work {
    Clear(u32, Range<usize>),
    Copy(Vec<u8>, u32, usize),
    Mark(u32, Vec<Range<u64>>),
    Place(Batch, Route),
    Forget(u32),
    Examine(u32, usize),
    Read(u32, Range<usize>, Sender<Vec<u8>>),
}

const NAME: &str = "cpu";

impl Cpu {
    /// Opens a device, without frames.
    pub fn open(config: CpuConfig) -> Cpu {
        let facts = DeviceInfo {
            name: NAME.to_owned(),
            model: "CPU thread".to_owned(),
            memory: config.memory,
            number: 0,
            is_cuda: false,
        };
        Cpu { facts, config, shape: None, queue: None, queued: 0, shared: Arc::default(), thread: None }
    }

    fn start(&mut self) -> Result<(), DeviceError> {
        let (queue, work) = mpsc::channel();
        let (config, shape, shared) = (self.config, self.shape()?, Arc::clone(&self.shared));
        let thread = Builder::new()
            .name("device".to_owned())
            .spawn(move || Core::new(config, shape).run(&work, &shared))
            .map_err(|error| failed("thread", error))?;
        (self.queue, self.thread) = (Some(queue), Some(thread));
        Ok(())
    }

    fn put(&mut self, work: Work) -> Result<Ticket, DeviceError> {
        let started = if self.queue.is_none() { self.start() } else { Ok(()) };
        let unsent = match &self.queue {
            Some(queue) => queue.send(work).err().map(|unsent| unsent.0),
            None => Some(work),
        };
        if let Some(unsent) = unsent {
            if let Work::Place(batch, _) = unsent {
                self.shared.lock().returned.push_back(batch);
            }
            return Err(started.err().unwrap_or_else(gone));
        }
        self.queued += 1;
        Ok(Ticket(self.queued))
    }

    fn shape(&self) -> Result<Shape, DeviceError> {
        self.shape.ok_or(DeviceError::Cannot("no frames allocated; allocate frames first"))
    }

    /// Checks that a range is inside a frame, in bytes of device memory.
    fn inside(&self, frame: u32, range: &Range<usize>) -> Result<Shape, DeviceError> {
        let shape = self.shape()?;
        let raw = Shape { bytes: shape.form.bytes(shape.bytes), ..shape };
        check_ranges(frame, std::slice::from_ref(&(range.start as u64..range.end as u64)), &raw)?;
        Ok(shape)
    }
}

impl Device for Cpu {
    fn facts(&self) -> &DeviceInfo {
        &self.facts
    }

    fn allocate(&mut self, shape: Shape) -> Result<(), DeviceError> {
        shape.check()?;
        if self.shape.is_some() {
            return Err(DeviceError::Cannot("frames are already allocated"));
        }
        let too_little = DeviceError::Memory {
            name: self.facts.name.clone(),
            wanted: shape.memory() as u64,
            free: self.config.memory,
        };
        if shape.memory() as u64 > self.config.memory || Vec::<u8>::new().try_reserve_exact(shape.memory()).is_err() {
            return Err(too_little);
        }
        self.shape = Some(shape);
        Ok(())
    }

    fn block(&mut self, bytes: usize) -> Result<OwnedBytes, DeviceError> {
        let too_little = || DeviceError::Memory { name: "the host".to_owned(), wanted: bytes as u64, free: 0 };
        Vec::<u8>::new().try_reserve_exact(bytes + 4096).map_err(|_| too_little())?;
        let mut room = resident(bytes + 4096);
        room.resize(bytes + 4096, 0);
        let start = room.as_ptr().align_offset(4096).min(4096);
        Ok(OwnedBytes::of(room, start..start + bytes))
    }

    fn register(&mut self, piece: OwnedBytes) -> Result<OwnedBytes, DeviceError> {
        Ok(piece)
    }

    fn clear(&mut self, frame: u32, range: Range<usize>) -> Result<Ticket, DeviceError> {
        self.inside(frame, &range)?;
        self.put(Work::Clear(frame, range))
    }

    fn copy(&mut self, from: &[u8], frame: u32, at: usize) -> Result<Ticket, DeviceError> {
        let shape = self.inside(frame, &(at..at.saturating_add(from.len())))?;
        if shape.form != Form::Raw {
            return Err(DeviceError::Cannot("copied bytes cannot be converted; place them by a list"));
        }
        let mut bytes = self.shared.lock().spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(from);
        self.put(Work::Copy(bytes, frame, at))
    }

    fn mark(&mut self, frame: u32, ranges: &[Range<u64>]) -> Result<Ticket, DeviceError> {
        check_ranges(frame, ranges, &self.shape()?)?;
        self.put(Work::Mark(frame, ranges.to_vec()))
    }

    fn place(&mut self, batch: Batch, route: Route) -> Result<Ticket, DeviceError> {
        let used = batch.used.min(batch.block.len());
        let checked = self.shape().and_then(|shape| Ok(check(&batch.list, used, &shape)?));
        if let Err(refused) = checked {
            self.shared.lock().returned.push_back(batch);
            return Err(refused);
        }
        self.put(Work::Place(batch, route))
    }

    fn forget(&mut self, frame: u32) -> Result<Ticket, DeviceError> {
        self.inside(frame, &(0..0))?;
        self.put(Work::Forget(frame))
    }

    fn examine(&mut self, frame: u32, len: usize) -> Result<Ticket, DeviceError> {
        check_ranges(frame, std::slice::from_ref(&(0..len as u64)), &self.shape()?)?;
        self.put(Work::Examine(frame, len))
    }

    fn examined(&mut self) -> Option<ExamineResult> {
        self.shared.lock().examined.pop_front()
    }

    fn fetch(&mut self, frame: u32, at: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        let range = at..at.saturating_add(to.len());
        self.inside(frame, &range)?;
        let (back, bytes) = mpsc::channel();
        let ticket = self.put(Work::Read(frame, range, back))?;
        self.wait(ticket)?;
        to.copy_from_slice(&bytes.recv().map_err(|_| failed("reading", "no data returned"))?);
        Ok(())
    }

    fn reached(&mut self) -> Result<Ticket, DeviceError> {
        let done = self.shared.lock();
        done.failed.clone().map_or(Ok(Ticket(done.reached)), Err)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<(), DeviceError> {
        let mut done = self.shared.lock();
        while done.reached < ticket.0 && done.failed.is_none() && !done.is_over {
            done = self.shared.news.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
        match &done.failed {
            Some(failed) => Err(failed.clone()),
            None if done.reached < ticket.0 => Err(gone()),
            None => Ok(()),
        }
    }

    fn returned(&mut self) -> Option<Batch> {
        self.shared.lock().returned.pop_front()
    }

    fn export(&mut self, frame: u32) -> Result<FrameLocation, DeviceError> {
        let shape = self.inside(frame, &(0..0))?;
        let offset = u64::from(frame) * shape.stride() as u64;
        Ok(FrameLocation { handle: None, offset, address: offset, bytes: shape.form.bytes(shape.bytes) as u64 })
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        self.queue = None;
        // A panic of the thread was reported by the work that failed.
        self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, CpuResults> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(what: &'static str, why: impl ToString) -> DeviceError {
    DeviceError::Failed { name: NAME.to_owned(), what, why: why.to_string() }
}

fn gone() -> DeviceError {
    failed("queue", "the thread has ended")
}
