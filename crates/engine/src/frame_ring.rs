//! Frames passed to another process in shared memory, and received from one.
//!
//! ```text
//!  endpoint ──> frames ──> offer ──> linerate_share::frame_ring ──> take ──> a destination
//!     ^ window opens          <── returned, one by one ──            in another process
//! ```

mod reader;
mod sharing;

pub use self::reader::{FrameRingReader, FrameRingReport};
pub(crate) use self::sharing::SharedFrames;
pub use self::sharing::{FrameRingState, FrameSharing, FrameSharingOptions, FrameSharingWatch};

use linerate_share::frame_ring::{Ending, FrameMetadata, TakenFrame};
use linerate_transport::frames::{Frame, FrameMeta, MetaMismatch};
use linerate_transport::stream_memory::{self, Ends, StreamId};

/// Returns a frame's entry in the table of a ring.
fn about(frame: &Frame) -> FrameMetadata {
    let meta = &frame.meta;
    FrameMetadata {
        id: meta.id,
        stream: meta.stream.0,
        from: meta.ends.from,
        to: meta.ends.to,
        number: meta.number,
        offset: meta.offset,
        len: meta.len as u64,
        missing: meta.missing,
        crc32c: meta.crc32c,
        first: meta.first,
        last: meta.last,
        repeated: meta.repeated,
        late: meta.late,
        ending: meta.ending.map(|ending| match ending {
            stream_memory::Ending::Complete => Ending::Complete,
            stream_memory::Ending::Reset => Ending::Reset,
            stream_memory::Ending::Silent => Ending::Silent,
            stream_memory::Ending::Stopped => Ending::Stopped,
        }),
        offered: 0,
        is_coarse: false,
    }
}

/// Converts a frame taken from a ring to one for destinations. It is returned when dropped.
fn frame(taken: TakenFrame) -> Result<Frame, MetaMismatch> {
    let FrameMetadata {
        id,
        stream,
        from,
        to,
        number,
        offset,
        len,
        missing,
        crc32c,
        first,
        last,
        repeated,
        late,
        ending,
        ..
    } = taken.about;
    let meta = FrameMeta {
        id,
        stream: StreamId(stream),
        ends: Ends { from, to },
        number,
        offset,
        len: len as usize,
        missing,
        crc32c,
        first,
        last,
        repeated,
        late,
        ending: ending.map(|ending| match ending {
            Ending::Complete => stream_memory::Ending::Complete,
            Ending::Reset => stream_memory::Ending::Reset,
            Ending::Silent => stream_memory::Ending::Silent,
            Ending::Stopped => stream_memory::Ending::Stopped,
        }),
    };
    let (gaps, granule) = (taken.gaps.clone(), taken.granule() as usize);
    Frame::shown(taken.into_memory(), meta, gaps, granule)
}
