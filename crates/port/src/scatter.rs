//! Frames read one at a time, each straight to where its reader wants its bytes.
//!
//! A receive path that the kernel fills (a ring, an area) brings frames to memory of its own, from where whoever wants the payload
//! elsewhere copies it once more. Who knows beforehand where it belongs has the kernel copy it there: headers to one place, payload
//! to another. It pays where frames are long: super-frames of a stream, up to 64 KiB each.

use crate::contract::PortError;
use linerate_burst::Flags;
use std::io::IoSliceMut;

/// A queue that reads so ([`RxOptions::scatter`](crate::RxOptions::scatter)). It shows no frames.
pub trait Scatter {
    /// Reads the next frame into these pieces, one after another; none if there is none now. What the pieces have no room for is
    /// lost.
    ///
    /// # Errors
    /// As those of [`RxQueue::fill`](crate::RxQueue::fill).
    fn read(&mut self, pieces: &mut [IoSliceMut<'_>]) -> Result<Option<Scattered>, PortError>;
}

/// A frame that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scattered {
    /// Bytes in the pieces.
    pub len: usize,
    /// What is known of it: about its checksum, and whether it is a super-frame.
    pub flags: Flags,
    /// Payload bytes of each packet that a super-frame was put together from, or will be cut into; 0 for others.
    pub segment: u16,
}
