//! Frames of received streams on a device: what fills them, and where they go when they are finished.
//!
//! [`open`] gives the two ends. One goes into [`Frames`](linerate_receive::frames::Frames) or
//! [`Datagrams`](linerate_receive::datagrams::Datagrams): memory of the host that frames are filled in and copied from
//! ([`Route::Copy`]), or what takes blocks and has them placed. The other is a [`Destination`]. Both use the same device, in any
//! threads. A frame has the same number on both sides, and is used again once the destination is through with it: as long as it is
//! not there is less room, and senders wait as they do for the host.

mod shared;

use self::shared::{Both, State, Whose};
use crate::contract::{Device, DeviceError, Exported, Facts, Route, Shape, Ticket};
use crate::form::Form;
use crate::list::Guard;
use crate::verify::{Wanted, is_right};
use linerate_burst::pool::Piece;
use linerate_receive::destination::{Destination, DestinationError, Stored};
use linerate_receive::frames::{Batch, Beyond, Config, Frame, Missing};
use linerate_receive::pattern::Pattern;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How frames come to a device.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How they are.
    pub frames: Config,
    /// What bytes become there.
    pub form: Form,
    /// By which way they come there.
    pub route: Route,
    /// Bytes of a block that goes there at a time.
    pub block: usize,
    /// How many blocks there are.
    pub blocks: usize,
    /// What streams have to be: each frame is verified.
    pub pattern: Option<Pattern>,
}

impl Options {
    /// What frames are like on the device.
    pub fn shape(&self) -> Shape {
        let Config { size, frames, granule, .. } = self.frames;
        Shape { frames: frames as u32, bytes: size, form: self.form, granule }
    }
}

/// What frames are filled in.
#[derive(Debug)]
pub enum Memory {
    /// Memory of the host, for [`Frames::over`](linerate_receive::frames::Frames::over).
    Here(Vec<Piece>),
    /// That of the device, for [`Frames::beyond`](linerate_receive::frames::Frames::beyond).
    Beyond(Box<dyn Beyond>),
}

/// A frame on the device, for who uses it there.
#[derive(Debug)]
pub struct Placed<'a> {
    /// What is known of it; it has bytes of its own only on [`Route::Copy`].
    pub frame: &'a Frame,
    /// The CRC-32C of its bytes as they lie on the device.
    pub crc32c: u32,
    /// Where it lies. Bytes behind those of the stream are of no meaning.
    pub at: Exported,
    /// Bytes of it there.
    pub bytes: u64,
    /// Of which device.
    pub facts: &'a Facts,
    /// While this or a clone of it lives the frame stays as it is, also after the taker has returned; the stream waits meanwhile.
    pub hold: Arc<()>,
}

/// Uses frames where they lie. What it started on the device has to be done when it returns, or a clone of [`Placed::hold`] kept.
pub type Taker = Box<dyn FnMut(&Placed<'_>) -> Result<(), DeviceError> + Send>;

/// Both ends of frames on a device.
pub fn open(mut device: Box<dyn Device>, options: Options) -> Result<(Memory, OnDevice), DeviceError> {
    let shape = options.shape();
    let is_many = options.frames.frames > u32::MAX as usize || options.blocks == 0;
    if is_many || !(1..=1 << 30).contains(&options.block) {
        return Err(DeviceError::Shape("blocks of 1 byte to 1 GiB, at least one"));
    }
    if options.route == Route::Copy && options.form != Form::Raw {
        return Err(DeviceError::Cannot(
            "bytes become numbers where they are placed on the device: take another route than copy",
        ));
    }
    if options.form != Form::Raw && options.frames.missing == Missing::Left {
        return Err(DeviceError::Cannot("numbers are sums that begin with zero: gaps cannot be left"));
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
    let both = Both::new(state);
    let memory = match options.route {
        Route::Copy => Memory::Here(here),
        Route::Place | Route::Gather => Memory::Beyond(Box::new(both.clone())),
    };
    Ok((memory, OnDevice { both, options, facts, taker: None, stored: Stored::default() }))
}

/// Takes finished frames that are on the device, or has them copied there.
pub struct OnDevice {
    both: Both,
    options: Options,
    facts: Facts,
    taker: Option<Taker>,
    stored: Stored,
}

/// A copy is of so many bytes at a time.
const PIECE: usize = 4 << 20;
/// How often it is looked whether the device is as far, before this thread sleeps in between, and for how long then.
const LOOKS: usize = 2000;
const NAP: Duration = Duration::from_micros(20);

/// Why a frame was not taken.
enum Refused {
    Device(DeviceError),
    Wrong(DestinationError),
}

impl From<DeviceError> for Refused {
    fn from(error: DeviceError) -> Self {
        Refused::Device(error)
    }
}

impl OnDevice {
    /// Hands each frame to this.
    #[must_use]
    pub fn taker(mut self, taker: Taker) -> Self {
        self.taker = Some(taker);
        self
    }

    /// Hands over a block of which bytes were only noted ([`Frames::lend`](linerate_receive::frames::Frames::lend)), with what was
    /// noted; before frames are finished that wait for it. [`OnDevice::returned`] gives it back.
    ///
    /// # Errors
    /// If the list was refused, or the device has failed.
    pub fn place(&self, batch: Batch) -> Result<Ticket, DeviceError> {
        let mut state = self.both.lock();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        state.guard.take(&batch.list, batch.used)?;
        state.place(batch, Whose::Lent)
    }

    /// A block that the device needs no more, of those that have no part in filling frames.
    pub fn returned(&self) -> Option<Batch> {
        let mut state = self.both.lock();
        state.collect();
        state.back.pop_front()
    }

    /// Memory of the host for blocks that are to be handed over.
    ///
    /// # Errors
    /// If there is none.
    pub fn block(&self, bytes: usize) -> Result<Piece, DeviceError> {
        self.both.lock().device.block(bytes)
    }

    /// What the device is.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    fn take(&mut self, frame: &Frame, place: u32) -> Result<(), Refused> {
        let (len, form) = (frame.meta.len, self.options.form);
        let ticket = self.complete(frame, place)?;
        self.wait(ticket)?;
        let (found, at) = {
            let mut state = self.both.lock();
            (state.device.examined(), state.device.export(place)?)
        };
        let lost = |what: &str| self.differs(frame, what.to_owned(), "what was examined".to_owned());
        let found = found.filter(|found| found.frame == place).ok_or_else(|| lost("nothing"))?;
        if found.presence != frame.presence().words() {
            let ones = |words: &[u64]| words.iter().map(|word| word.count_ones()).sum::<u32>();
            let parts = |words| format!("{} whole parts", ones(words));
            return Err(self.differs(frame, parts(&found.presence), parts(frame.presence().words())).into());
        }
        self.verify(frame, place, found.crc32c)?;
        if let Some(taker) = &mut self.taker {
            let hold = Arc::new(());
            let bytes = form.bytes(len) as u64;
            let placed = Placed { frame, crc32c: found.crc32c, at, bytes, facts: &self.facts, hold: Arc::clone(&hold) };
            taker(&placed)?;
            drop(placed);
            while Arc::strong_count(&hold) > 1 {
                thread::sleep(NAP);
            }
        }
        let mut state = self.both.lock();
        if form != Form::Raw {
            // Numbers are sums, which begin with nothing.
            state.device.clear(place, 0..form.bytes(self.options.frames.size))?;
        }
        state.guard.release(place);
        Ok(())
    }

    /// Has what is still missing of a frame done, and the frame looked at.
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

    /// Waits without keeping the other end from the device.
    fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
        for look in 0_usize.. {
            if self.both.lock().device.reached()? >= ticket {
                break;
            }
            if look < LOOKS { thread::yield_now() } else { thread::sleep(NAP) }
        }
        Ok(())
    }

    /// Compares what lies on the device with what the host knows of it.
    fn verify(&self, frame: &Frame, place: u32, found: u32) -> Result<(), Refused> {
        let wanted = Wanted { form: self.options.form, missing: self.options.frames.missing };
        let Some(crc) = wanted.crc32c(frame, self.options.pattern.as_ref()) else { return Ok(()) };
        if crc == found {
            return Ok(());
        }
        let bytes = self.both.lock().device.read(place, 0..self.options.form.bytes(frame.meta.len))?;
        if let (Some(pattern), Form::Raw) = (&self.options.pattern, self.options.form) {
            is_right(frame, &bytes, pattern).map_err(|mismatch| {
                Refused::Wrong(DestinationError::Mismatch { stream: frame.meta.stream, mismatch })
            })?;
        }
        Err(self.differs(frame, format!("the CRC-32C {found:08x}"), format!("{crc:08x}")).into())
    }

    fn differs(&self, frame: &Frame, found: String, wanted: String) -> DeviceError {
        DeviceError::Differs { name: self.facts.name.clone(), id: frame.meta.id, found, wanted }
    }
}

impl Destination for OnDevice {
    fn accept(&mut self, frame: &Frame) -> Result<(), DestinationError> {
        // The news of an end has no memory.
        if let Some(place) = frame.place() {
            self.take(frame, place).map_err(|refused| match refused {
                Refused::Device(error) => DestinationError::Elsewhere(Box::new(error)),
                Refused::Wrong(error) => error,
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

    fn stored(&self) -> Stored {
        self.stored
    }
}
