//! Frames of received streams on a device: how they are filled, and their destination when finished.
//!
//! [`open`] returns the two ends. One goes into [`Frames`](linerate_transport::frames::Frames) or
//! [`Datagrams`](linerate_transport::datagrams::Datagrams): host memory in which frames are filled and from which they
//! are copied ([`Route::Copy`]), or a receiver of blocks that are then placed on the device. The other is a
//! [`Destination`]. They use the same device, in any threads. A frame has the same number on both sides, and is reused
//! once the destination has finished with it: until then there is less room, and senders are slowed down as on the
//! host.

mod shared;

use self::shared::{BlockOwner, SharedDevice, State};
use crate::contract::{Device, DeviceError, DeviceInfo, FrameLocation, Route, Shape, Ticket};
use crate::form::Form;
use crate::list::Guard;
use crate::verify::{ExpectedBytes, is_right};
use linerate_burst::pool::OwnedBytes;
use linerate_transport::destination::{Destination, DestinationError, DestinationTotals};
use linerate_transport::frames::{Batch, Config, Frame, Missing, RemoteMemory};
use linerate_transport::pattern::Pattern;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Options of frames on a device.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Configuration of the frames.
    pub frames: Config,
    /// Format of the bytes on the device.
    pub form: Form,
    /// Route of the bytes to the device.
    pub route: Route,
    /// Bytes per block handed to the device.
    pub block: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// Expected contents of streams: each frame is verified.
    pub pattern: Option<Pattern>,
}

impl Options {
    /// Returns the shape of the frames on the device.
    pub fn shape(&self) -> Shape {
        let Config { size, frames, granule, .. } = self.frames;
        Shape { frames: frames as u32, bytes: size, form: self.form, granule }
    }
}

/// The memory in which frames are filled.
#[derive(Debug)]
pub enum Memory {
    /// Host memory, for [`Frames::over`](linerate_transport::frames::Frames::over).
    Here(Vec<OwnedBytes>),
    /// Device memory, for [`Frames::beyond`](linerate_transport::frames::Frames::beyond).
    RemoteMemory(Box<dyn RemoteMemory>),
}

/// A frame on the device, for its user there.
#[derive(Debug)]
pub struct DeviceFrame<'a> {
    /// Metadata of the frame; it has bytes on the host only with [`Route::Copy`].
    pub frame: &'a Frame,
    /// The CRC-32C of its bytes on the device.
    pub crc32c: u32,
    /// Its location. Bytes after those of the stream are undefined.
    pub at: FrameLocation,
    /// Its size in bytes on the device.
    pub bytes: u64,
    /// The device.
    pub facts: &'a DeviceInfo,
    /// While this or a clone of it lives the frame does not change, even after the taker has returned; the stream waits
    /// until then.
    pub hold: Arc<()>,
}

/// Uses frames on the device. Work that it starts there must be done when it returns, or a clone of [`DeviceFrame::hold`]
/// kept.
pub type FrameCallback = Box<dyn FnMut(&DeviceFrame<'_>) -> Result<(), DeviceError> + Send>;

/// Returns both ends of frames on a device.
///
/// # Errors
/// If the options contradict each other, or the device fails.
pub fn open(mut device: Box<dyn Device>, options: Options) -> Result<(Memory, DeviceDestination), DeviceError> {
    let shape = options.shape();
    let is_many = options.frames.frames > u32::MAX as usize || options.blocks == 0;
    if is_many || !(1..=1 << 30).contains(&options.block) {
        return Err(DeviceError::Shape("invalid blocks; expected at least one, of 1 byte to 1 GiB"));
    }
    if options.route == Route::Copy && options.form != Form::Raw {
        return Err(DeviceError::Cannot(
            "bytes are converted on the device, when they are placed: use another route than copy",
        ));
    }
    if options.form != Form::Raw && options.frames.missing == Missing::Left {
        return Err(DeviceError::Cannot("converted numbers start at zero, so gaps cannot be left"));
    }
    device.allocate(shape)?;
    let facts = device.facts().clone();
    let mut free = Vec::new();
    let here = match options.route {
        Route::Copy => (0..shape.frames).map(|_| device.block(shape.bytes)).collect::<Result<Vec<_>, _>>()?,
        Route::Place | Route::Gather => {
            for _ in 0..options.blocks {
                free.push(Batch { block: device.block(options.block)?, ..Batch::default() });
            }
            Vec::new()
        }
    };
    let state = State {
        device,
        guard: Guard::new(shape),
        route: options.route,
        free,
        out: VecDeque::new(),
        whose: VecDeque::new(),
        back: VecDeque::new(),
        failed: None,
    };
    let both = SharedDevice::new(state);
    let memory = match options.route {
        Route::Copy => Memory::Here(here),
        Route::Place | Route::Gather => Memory::RemoteMemory(Box::new(both.clone())),
    };
    Ok((memory, DeviceDestination { both, options, facts, taker: None, stored: DestinationTotals::default() }))
}

/// Receives finished frames that are on the device, or copies them there.
pub struct DeviceDestination {
    both: SharedDevice,
    options: Options,
    facts: DeviceInfo,
    taker: Option<FrameCallback>,
    stored: DestinationTotals,
}

/// Bytes per copy.
const PIECE: usize = 4 << 20;
/// Number of polls of the device before this thread sleeps between polls, and the time that it sleeps.
const LOOKS: usize = 2000;
const NAP: Duration = Duration::from_micros(20);

/// The reason why a frame was not accepted.
enum RejectReason {
    Device(DeviceError),
    Wrong(DestinationError),
}

impl From<DeviceError> for RejectReason {
    fn from(error: DeviceError) -> Self {
        RejectReason::Device(error)
    }
}

impl DeviceDestination {
    /// Sets the taker, which gets each frame.
    #[must_use]
    pub fn taker(mut self, taker: FrameCallback) -> Self {
        self.taker = Some(taker);
        self
    }

    /// Hands over a block of which bytes were only noted ([`Frames::lend`](linerate_transport::frames::Frames::lend)),
    /// with the noted list; before the frames are finished that need it. [`DeviceDestination::returned`] returns it.
    ///
    /// # Errors
    /// If the list is invalid, or the device has failed.
    pub fn place(&self, batch: Batch) -> Result<Ticket, DeviceError> {
        let mut state = self.both.lock();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        state.guard.take(&batch.list, batch.used)?;
        state.place(batch, BlockOwner::Lent)
    }

    /// Returns a block that the device no longer needs, among those handed over by [`DeviceDestination::place`].
    pub fn returned(&self) -> Option<Batch> {
        let mut state = self.both.lock();
        state.collect();
        state.back.pop_front()
    }

    /// Allocates host memory for blocks to hand over.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn block(&self, bytes: usize) -> Result<OwnedBytes, DeviceError> {
        self.both.lock().device.block(bytes)
    }

    /// Returns the properties of the device.
    pub fn facts(&self) -> &DeviceInfo {
        &self.facts
    }

    fn take(&mut self, frame: &Frame, place: u32) -> Result<(), RejectReason> {
        let (len, form) = (frame.meta.len, self.options.form);
        let ticket = self.complete(frame, place)?;
        self.wait(ticket)?;
        let (found, at) = {
            let mut state = self.both.lock();
            (state.device.examined(), state.device.export(place)?)
        };
        let lost = |what: &str| self.differs(frame, what.to_owned(), "its results".to_owned());
        let found = found.filter(|found| found.frame == place).ok_or_else(|| lost("no results"))?;
        if found.presence != frame.presence().words() {
            let ones = |words: &[u64]| words.iter().map(|word| word.count_ones()).sum::<u32>();
            let parts = |words| format!("{} complete parts", ones(words));
            return Err(self.differs(frame, parts(&found.presence), parts(frame.presence().words())).into());
        }
        self.verify(frame, place, found.crc32c)?;
        if let Some(taker) = &mut self.taker {
            let hold = Arc::new(());
            let bytes = form.bytes(len) as u64;
            let placed =
                DeviceFrame { frame, crc32c: found.crc32c, at, bytes, facts: &self.facts, hold: Arc::clone(&hold) };
            taker(&placed)?;
            drop(placed);
            while Arc::strong_count(&hold) > 1 {
                thread::sleep(NAP);
            }
        }
        let mut state = self.both.lock();
        if form != Form::Raw {
            // Numbers are sums, which start at zero.
            state.device.clear(place, 0..form.bytes(self.options.frames.size))?;
        }
        state.guard.release(place);
        Ok(())
    }

    /// Completes a frame on the device, and queues its examination.
    fn complete(&self, frame: &Frame, place: u32) -> Result<Ticket, DeviceError> {
        let Options { route, form, frames, .. } = self.options;
        let mut state = self.both.lock();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        if route == Route::Copy {
            for (index, piece) in frame.bytes().chunks(PIECE).enumerate() {
                state.device.copy(piece, place, index * PIECE)?;
            }
            state.device.mark(place, &frame.there().collect::<Vec<_>>())?;
        } else if frames.missing == Missing::Zeroed && form == Form::Raw {
            for gap in frame.missing() {
                state.device.clear(place, gap.start as usize..gap.end as usize)?;
            }
        }
        state.device.examine(place, frame.meta.len)
    }

    /// Waits without blocking the other end's access to the device.
    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        for look in 0_usize.. {
            if self.both.lock().device.reached()? >= ticket {
                break;
            }
            if look < LOOKS { thread::yield_now() } else { thread::sleep(NAP) }
        }
        Ok(())
    }

    /// Compares the frame on the device with the host's knowledge of it.
    fn verify(&self, frame: &Frame, place: u32, found: u32) -> Result<(), RejectReason> {
        let wanted = ExpectedBytes { form: self.options.form, missing: self.options.frames.missing };
        let Some(crc) = wanted.crc32c(frame, self.options.pattern.as_ref()) else { return Ok(()) };
        if crc == found {
            return Ok(());
        }
        let bytes = self.both.lock().device.read(place, 0..self.options.form.bytes(frame.meta.len))?;
        if let (Some(pattern), Form::Raw) = (&self.options.pattern, self.options.form) {
            is_right(frame, &bytes, pattern).map_err(|mismatch| {
                RejectReason::Wrong(DestinationError::Mismatch { stream: frame.meta.stream, mismatch })
            })?;
        }
        Err(self.differs(frame, format!("CRC-32C {found:08x}"), format!("{crc:08x}")).into())
    }

    fn differs(&self, frame: &Frame, found: String, wanted: String) -> DeviceError {
        DeviceError::Differs { name: self.facts.name.clone(), id: frame.meta.id, found, wanted }
    }
}

impl Destination for DeviceDestination {
    fn accept(&mut self, frame: &Frame) -> Result<(), DestinationError> {
        // The notice of an end has no memory.
        if let Some(place) = frame.place() {
            self.take(frame, place).map_err(|refused| match refused {
                RejectReason::Device(error) => DestinationError::Elsewhere(Box::new(error)),
                RejectReason::Wrong(error) => error,
            })?;
        }
        self.stored.frames += 1;
        self.stored.bytes += frame.meta.len as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), DestinationError> {
        let failed = self.both.lock().failed.clone();
        failed.map_or(Ok(()), |error| Err(DestinationError::Elsewhere(Box::new(error))))
    }

    fn stored(&self) -> DestinationTotals {
        self.stored
    }
}
