//! The interface of devices that hold frames.
//!
//! A device has memory that the host does not reach, and a queue. Work is queued and done in order, some time later;
//! each piece of work has a [`Ticket`], and once a ticket is reached all work up to it is done. Memory that the device
//! reads belongs to it until then: a [`Batch`] is handed over, and returned ([`Device::returned`]).

use crate::form::Form;
use crate::list::ListError;
use linerate_burst::pool::OwnedBytes;
use linerate_transport::frames::Batch;
use std::fmt;
use std::ops::Range;

/// The route of bytes to the frames of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Route {
    /// The CPU places bytes in frames of the host, and finished frames are copied.
    Copy,
    /// Whole blocks are copied, and the device places their bytes by a list.
    Place,
    /// The device reads bytes from host memory, by a list, and places them; blocks in memory that it cannot read are
    /// handled as by [`Route::Place`].
    Gather,
}

impl Route {
    /// All routes.
    pub const ALL: [Route; 3] = [Route::Copy, Route::Place, Route::Gather];

    /// Returns the name in options.
    pub fn name(self) -> &'static str {
        match self {
            Route::Copy => "copy",
            Route::Place => "place",
            Route::Gather => "gather",
        }
    }

    /// Returns the route of this name.
    pub fn named(name: &str) -> Option<Route> {
        Route::ALL.into_iter().find(|route| route.name() == name)
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A piece of work, numbered in the order of queueing, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name in options: `cpu`, `cuda:0`.
    pub name: String,
    /// Model name reported by the device.
    pub model: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Device number in DLPack.
    pub number: i32,
    /// True for a CUDA GPU.
    pub is_cuda: bool,
}

/// Number, size and format of the frames of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of frames.
    pub frames: u32,
    /// Bytes of a stream per frame.
    pub bytes: usize,
    /// Format of the bytes on the device.
    pub form: Form,
    /// Bytes of a stream per bit of the bitmap.
    pub granule: usize,
}

impl Shape {
    /// Returns the bytes of device memory from one frame to the next.
    pub fn stride(&self) -> usize {
        self.form.bytes(self.bytes).next_multiple_of(4096)
    }

    /// Returns the number of bits in the bitmap of a frame.
    pub fn granules(&self) -> usize {
        self.bytes.div_ceil(self.granule)
    }

    /// Returns the bytes of device memory for all frames, including their counts.
    pub fn memory(&self) -> usize {
        (self.stride() + self.granules() * 4) * self.frames as usize
    }

    /// Checks that such frames are possible.
    ///
    /// # Errors
    /// If there are none, too many, or if they would split samples.
    pub fn check(&self) -> Result<(), DeviceError> {
        let most = 1 << 44;
        let fits = (1..=64 << 30).contains(&self.bytes) && self.granule > 0 && self.granule <= u32::MAX as usize;
        if !fits || self.frames == 0 || self.bytes.saturating_mul(4).saturating_mul(self.frames as usize) > most {
            return Err(DeviceError::Shape(
                "invalid frames; expected at least one, of 1 byte to 64 GiB, and at most 4 TiB in total",
            ));
        }
        match self.bytes.is_multiple_of(self.form.sample()) {
            true => Ok(()),
            false => Err(DeviceError::Shape("samples of two bytes need frames of an even number of bytes")),
        }
    }
}

/// Result of examining a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExamineResult {
    /// The frame.
    pub frame: u32,
    /// The CRC-32C of its bytes in device memory.
    pub crc32c: u32,
    /// A bit for each of its parts that is complete, as in [`Presence`](linerate_transport::frames::Presence).
    pub presence: Vec<u64>,
}

/// Location of a frame, for other users of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLocation {
    /// Handle of the memory of all frames, which another process opens with `cuIpcOpenMemHandle`; `None` if the device
    /// has no such handles.
    pub handle: Option<[u8; 64]>,
    /// Offset of the frame in that memory.
    pub offset: u64,
    /// Its address on the device, in this process. It is not a host address.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A failure of a device, or an operation that it rejects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The driver is missing or too old.
    #[error("no CUDA device: {0}; use --to device:cpu to try it on the CPU")]
    NoDriver(String),
    /// The device number does not exist.
    #[error("no CUDA device {0}: this machine has {1}, numbered from 0")]
    NoDevice(u32, u32),
    /// The frames are impossible.
    #[error("{0}")]
    Shape(&'static str),
    /// There is too little memory.
    #[error("{name}: frames need {wanted} bytes and {free} are free; use fewer or smaller frames")]
    Memory {
        /// The device.
        name: String,
        /// Bytes requested.
        wanted: u64,
        /// Bytes free.
        free: u64,
    },
    /// The list would write outside of frames. Nothing of it was done.
    #[error("invalid placement list: {0}")]
    List(#[from] ListError),
    /// The device failed; its contents are unreliable.
    #[error("{name}: {what}: {why}")]
    Failed {
        /// The device.
        name: String,
        /// The failed operation.
        what: &'static str,
        /// The driver's message.
        why: String,
    },
    /// The contents of the device differ from those sent.
    #[error("{name}: frame {id} has {found} instead of {wanted}: the device memory or the path to it is faulty")]
    Differs {
        /// The device.
        name: String,
        /// Sequence number of the frame.
        id: u64,
        /// Contents found.
        found: String,
        /// Contents expected.
        wanted: String,
    },
    /// The device does not support the operation.
    #[error("{0}")]
    Cannot(&'static str),
}

/// A device. Errors are permanent: after one it does no more work, but returns the batches that it holds.
pub trait Device: Send {
    /// Returns its properties.
    fn facts(&self) -> &DeviceInfo;

    /// Allocates memory for frames, all zero. May be called once.
    ///
    /// # Errors
    /// If the frames are impossible, or there is too little memory.
    fn allocate(&mut self, shape: Shape) -> Result<(), DeviceError>;

    /// Allocates the kind of host memory that the device reads fastest, aligned to 4096.
    ///
    /// # Errors
    /// If there is too little memory.
    fn block(&mut self, bytes: usize) -> Result<OwnedBytes, DeviceError>;

    /// Registers existing memory, such as a block of a ring or the region of a port. Returns the same piece, which the
    /// device reads as fast as its own [block](Device::block)s while it lives. Its pages are locked in memory until
    /// then.
    ///
    /// # Errors
    /// If the driver rejects it: pages of some devices, read-only memory if the GPU only takes writable memory, or
    /// memory that was registered before.
    fn register(&mut self, piece: OwnedBytes) -> Result<OwnedBytes, DeviceError>;

    /// Zeroes bytes of a frame.
    ///
    /// # Errors
    /// If the range exceeds the frame.
    fn clear(&mut self, frame: u32, range: Range<usize>) -> Result<Ticket, DeviceError>;

    /// Copies bytes to a frame unchanged; returns once `from` may be reused. They count as present only when
    /// [marked](Device::mark).
    ///
    /// # Errors
    /// If they exceed the frame, or bytes must be converted.
    fn copy(&mut self, from: &[u8], frame: u32, at: usize) -> Result<Ticket, DeviceError>;

    /// Marks bytes as present: ranges that overlap neither each other nor marked ones.
    ///
    /// # Errors
    /// If they exceed the frame.
    fn mark(&mut self, frame: u32, ranges: &[Range<u64>]) -> Result<Ticket, DeviceError>;

    /// Places the bytes of a block and marks them as present; [`Route::Copy`] acts like [`Route::Place`].
    /// [`Device::returned`] returns the batch, even after an error. The maker of a list prevents overlaps
    /// ([`Guard`](crate::list::Guard)).
    ///
    /// # Errors
    /// If an entry exceeds its frame or the block: then nothing is done.
    fn place(&mut self, batch: Batch, route: Route) -> Result<Ticket, DeviceError>;

    /// Resets a frame that is reused without having been examined: converted numbers are zeroed.
    ///
    /// # Errors
    /// If the frame does not exist.
    fn forget(&mut self, frame: u32) -> Result<Ticket, DeviceError>;

    /// Computes the CRC-32C of a frame that ends with byte `len` of a stream, and determines its complete parts; resets
    /// the latter.
    ///
    /// # Errors
    /// If it exceeds the frame's memory.
    fn examine(&mut self, frame: u32, len: usize) -> Result<Ticket, DeviceError>;

    /// Returns the next result, in the order of the requests.
    fn examined(&mut self) -> Option<ExamineResult>;

    /// Copies bytes of a frame to the host, from `at` on, after all previous work. Blocks.
    ///
    /// # Errors
    /// If they exceed the frame.
    fn fetch(&mut self, frame: u32, at: usize, to: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies bytes of a frame to a new vector. Blocks.
    ///
    /// # Errors
    /// If they exceed [`FrameLocation::bytes`].
    fn read(&mut self, frame: u32, range: Range<usize>) -> Result<Vec<u8>, DeviceError> {
        if range.end as u64 > self.export(frame)?.bytes || range.start > range.end {
            return Err(DeviceError::List(ListError::Place(0)));
        }
        let mut bytes = vec![0; range.len()];
        self.fetch(frame, range.start, &mut bytes).map(|()| bytes)
    }

    /// Returns the last ticket whose work is done.
    ///
    /// # Errors
    /// If the device failed.
    fn reached(&mut self) -> Result<Ticket, DeviceError>;

    /// Waits until the work of a ticket is done.
    ///
    /// # Errors
    /// If the device failed.
    fn wait(&mut self, ticket: Ticket) -> Result<(), DeviceError>;

    /// Returns a batch that the device no longer needs.
    fn returned(&mut self) -> Option<Batch>;

    /// Returns the location of a frame.
    ///
    /// # Errors
    /// If the frame does not exist.
    fn export(&mut self, frame: u32) -> Result<FrameLocation, DeviceError>;
}
