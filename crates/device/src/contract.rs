//! What a device does for frames, whatever it is.
//!
//! A device has memory that the host does not reach, and a queue. Work is put into the queue, done in order, some time later; each
//! piece of work has a [`Ticket`], and once a ticket is reached all work up to it is done. What the device reads belongs to it
//! meanwhile: a [`Batch`] is handed over, and comes back ([`Device::returned`]).

use crate::form::Form;
use crate::list::BadList;
use linerate_burst::pool::Piece;
use linerate_receive::frames::Batch;
use std::fmt;
use std::ops::Range;

/// How bytes come to frames of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Route {
    /// The processor puts them to their place in frames of the host, and finished frames are copied.
    Copy,
    /// Blocks are copied as they lie, and the device puts bytes to their place by a list.
    Place,
    /// The device reads them where they lie in memory of the host, by a list, and puts them to their place; blocks in memory that it
    /// cannot read as for [`Route::Place`].
    Gather,
}

impl Route {
    /// All of them.
    pub const ALL: [Route; 3] = [Route::Copy, Route::Place, Route::Gather];

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Route::Copy => "copy",
            Route::Place => "place",
            Route::Gather => "gather",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Route> {
        Route::ALL.into_iter().find(|route| route.name() == name)
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A piece of work, by the order in which they were queued, from 1 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// As users write it: `cpu`, `cuda:0`.
    pub name: String,
    /// What it calls itself.
    pub model: String,
    /// Bytes of memory it has.
    pub memory: u64,
    /// Its number as DLPack counts devices of its kind.
    pub number: i32,
    /// Whether it is a GPU of CUDA.
    pub is_cuda: bool,
}

/// The frames of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many.
    pub frames: u32,
    /// Bytes of a stream in each.
    pub bytes: usize,
    /// What they become there.
    pub form: Form,
    /// Bytes of a stream to a bit of the bitmap.
    pub granule: usize,
}

impl Shape {
    /// Bytes of device memory from one frame to the next.
    pub fn stride(&self) -> usize {
        self.form.bytes(self.bytes).next_multiple_of(4096)
    }

    /// Bits of the bitmap of a frame.
    pub fn granules(&self) -> usize {
        self.bytes.div_ceil(self.granule)
    }

    /// Bytes of device memory for all frames, and for what is counted beside them.
    pub fn memory(&self) -> usize {
        (self.stride() + self.granules() * 4) * self.frames as usize
    }

    /// Whether there can be such frames.
    ///
    /// # Errors
    /// If they are none, too many, or cut samples.
    pub fn check(&self) -> Result<(), DeviceError> {
        let most = 1 << 44;
        let fits = (1..=64 << 30).contains(&self.bytes) && self.granule > 0 && self.granule <= u32::MAX as usize;
        if !fits || self.frames == 0 || self.bytes.saturating_mul(4).saturating_mul(self.frames as usize) > most {
            return Err(DeviceError::Shape("frames of 1 byte to 64 GiB, at least one, and at most 4 TiB in all"));
        }
        match self.bytes.is_multiple_of(self.form.sample()) {
            true => Ok(()),
            false => Err(DeviceError::Shape("samples of two bytes need frames of an even number of bytes")),
        }
    }
}

/// What a device found in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examined {
    /// Which frame.
    pub frame: u32,
    /// The CRC-32C of its bytes as they lie in device memory.
    pub crc32c: u32,
    /// Which parts of it came, a bit for each, as [`Presence`](linerate_receive::frames::Presence) has them.
    pub presence: Vec<u64>,
}

/// Where a frame lies, for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// What another process opens by `cuIpcOpenMemHandle`: the memory of all frames. `None` of a device that has no such thing.
    pub handle: Option<[u8; 64]>,
    /// Where in that memory the frame begins.
    pub offset: u64,
    /// Its address on the device, in this process. Nothing of the host's.
    pub address: u64,
    /// Bytes of it.
    pub bytes: u64,
}

/// A device does not do what it is to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// No driver.
    #[error("no CUDA device: {0}; --to device:cpu does the same on the processor, to try it")]
    NoDriver(String),
    /// No device of this number.
    #[error("no CUDA device {0}: this machine has {1} (from 0 on)")]
    NoDevice(u32, u32),
    /// Frames that cannot be.
    #[error("{0}")]
    Shape(&'static str),
    /// Less memory than asked for.
    #[error("{name}: {wanted} bytes of frames, and {free} are free there: take fewer frames, or smaller ones")]
    Memory {
        /// Of which device.
        name: String,
        /// Bytes asked for.
        wanted: u64,
        /// Bytes there.
        free: u64,
    },
    /// A list that would write elsewhere. Nothing of it was done.
    #[error("a list of places was refused: {0}")]
    List(#[from] BadList),
    /// The device failed; nothing it holds can be relied on.
    #[error("{name}: {what}: {why}")]
    Failed {
        /// Which device.
        name: String,
        /// What it was to do.
        what: &'static str,
        /// What it said.
        why: String,
    },
    /// What lies on the device is not what was sent there.
    #[error(
        "{name}: frame {id} has {found} there, not {wanted}: the memory of the device or the way to it is not sound"
    )]
    Differs {
        /// Which device.
        name: String,
        /// The running number of the frame.
        id: u64,
        /// What is there.
        found: String,
        /// What is to be there.
        wanted: String,
    },
    /// This device cannot do that.
    #[error("{0}")]
    Cannot(&'static str),
}

/// A device. Errors are for good: after one it does nothing more, but gives back what it was handed.
pub trait Device: Send {
    /// What it is.
    fn facts(&self) -> &Facts;

    /// Takes memory for frames, all bytes zero. Once.
    ///
    /// # Errors
    /// If there can be no such frames, or there is not as much memory.
    fn allocate(&mut self, shape: Shape) -> Result<(), DeviceError>;

    /// Memory of the host that the device reads fastest, from a multiple of 4096 on.
    ///
    /// # Errors
    /// If there is no such memory.
    fn block(&mut self, bytes: usize) -> Result<Piece, DeviceError>;

    /// Memory that is there already, such as a block of a ring or the region of a port: the same piece, which the device reads as fast
    /// as a [block](Device::block) of its own as long as it lives. Its pages stay in memory meanwhile.
    ///
    /// # Errors
    /// If the driver does not take it: pages of some devices, memory that is only to be read where the GPU can write alone, or that
    /// was registered before.
    fn register(&mut self, piece: Piece) -> Result<Piece, DeviceError>;

    /// Makes bytes of a frame zero.
    ///
    /// # Errors
    /// If the range is outside the frame.
    fn clear(&mut self, frame: u32, range: Range<usize>) -> Result<Ticket, DeviceError>;

    /// Copies bytes to a frame as they are; returns once `from` is needed no more. They count as there only when [marked](Device::mark).
    ///
    /// # Errors
    /// If they end outside the frame, or bytes are to be converted.
    fn copy(&mut self, from: &[u8], frame: u32, at: usize) -> Result<Ticket, DeviceError>;

    /// Counts bytes as there: ranges that do not overlap with each other or others.
    ///
    /// # Errors
    /// If they are outside the frame.
    fn mark(&mut self, frame: u32, ranges: &[Range<u64>]) -> Result<Ticket, DeviceError>;

    /// Puts the bytes of a block to their places, which it then counts as there; [`Route::Copy`] does as [`Route::Place`]. The
    /// batch comes back by [`Device::returned`], also after an error. Overlaps are looked for by who makes lists
    /// ([`Guard`](crate::list::Guard)).
    ///
    /// # Errors
    /// If a place is outside its frame, or bytes are outside the block: nothing is done then.
    fn place(&mut self, batch: Batch, route: Route) -> Result<Ticket, DeviceError>;

    /// Forgets what came of a frame: it is used for another one, unexamined. Numbers are zero again.
    ///
    /// # Errors
    /// If there is no such frame.
    fn forget(&mut self, frame: u32) -> Result<Ticket, DeviceError>;

    /// Finds out the CRC-32C of a frame that ends with byte `len` of a stream, and which parts of it came, and forgets the latter.
    ///
    /// # Errors
    /// If it is longer than its memory.
    fn examine(&mut self, frame: u32, len: usize) -> Result<Ticket, DeviceError>;

    /// What was found, in the order in which it was asked for.
    fn examined(&mut self) -> Option<Examined>;

    /// Copies bytes of a frame back, from `at` on, once all work before is done. Waits.
    ///
    /// # Errors
    /// If they are outside the frame.
    fn fetch(&mut self, frame: u32, at: usize, to: &mut [u8]) -> Result<(), DeviceError>;

    /// The same, to memory of their own.
    ///
    /// # Errors
    /// If they are outside the frame, of which nobody has more than [`Exported::bytes`].
    fn read(&mut self, frame: u32, range: Range<usize>) -> Result<Vec<u8>, DeviceError> {
        if range.end as u64 > self.export(frame)?.bytes || range.start > range.end {
            return Err(DeviceError::List(BadList::Place(0)));
        }
        let mut bytes = vec![0; range.len()];
        self.fetch(frame, range.start, &mut bytes).map(|()| bytes)
    }

    /// How far it is.
    ///
    /// # Errors
    /// If it failed.
    fn reached(&mut self) -> Result<Ticket, DeviceError>;

    /// Waits until it is as far.
    ///
    /// # Errors
    /// If it failed.
    fn wait(&mut self, ticket: Ticket) -> Result<(), DeviceError>;

    /// A batch that it needs no more.
    fn returned(&mut self) -> Option<Batch>;

    /// Where a frame lies.
    ///
    /// # Errors
    /// If there is no such frame.
    fn export(&mut self, frame: u32) -> Result<Exported, DeviceError>;
}
