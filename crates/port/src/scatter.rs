//! Frames read one at a time, each straight to its destination.
//!
//! A receive path that the kernel fills (a ring, an area) delivers frames to memory of its own; a consumer that needs
//! the payload elsewhere copies it again. A reader that knows the destination in advance has the kernel copy it there:
//! headers to one buffer, payload to another. It pays off for long frames: super-frames of a stream, up to 64 KiB each.

use crate::contract::PortError;
use linerate_burst::Flags;
use std::io::IoSliceMut;

/// A queue that reads frames this way ([`RxOptions::scatter`](crate::RxOptions::scatter)). Its `fill` returns no
/// frames.
pub trait ScatterQueue {
    /// Reads the next frame into these buffers, one after another; `None` if no frame is ready. Bytes that do not fit
    /// are lost.
    ///
    /// # Errors
    /// Those of [`RxQueue::fill`](crate::RxQueue::fill).
    fn read(&mut self, pieces: &mut [IoSliceMut<'_>]) -> Result<Option<ScatteredFrame>, PortError>;
}

/// A frame that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScatteredFrame {
    /// Bytes in the buffers.
    pub len: usize,
    /// Checksum state, and whether it is a super-frame.
    pub flags: Flags,
    /// Payload bytes of each packet that a super-frame was merged from, or will be segmented into; 0 for others.
    pub segment: u16,
}
