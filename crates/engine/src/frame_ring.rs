//! Frames passed to another process in shared memory, and received from one.
//!
//! ```text
//!  endpoint ──> frames ──> offer ──> linerate_share::frame_ring ──> take ──> a destination
//!     ^ window opens          <── returned, one by one ──            in another process
//! ```

mod offer;
mod take;

pub(crate) use self::offer::SharedFrames;
pub use self::offer::{FrameRingState, FrameSharing, FrameSharingOptions, FrameSharingWatch};
pub use self::take::{FrameRingReader, FrameRingReport};

use linerate_share::frame_ring::{Ending, FrameMetadata, TakenFrame};
use linerate_transport::frames::{Frame, FrameMeta, MetaMismatch};
use linerate_transport::place::{self, Ends, StreamId};

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
            place::Ending::Complete => Ending::Complete,
            place::Ending::Reset => Ending::Reset,
            place::Ending::Silent => Ending::Silent,
            place::Ending::Stopped => Ending::Stopped,
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
            Ending::Complete => place::Ending::Complete,
            Ending::Reset => place::Ending::Reset,
            Ending::Silent => place::Ending::Silent,
            Ending::Stopped => place::Ending::Stopped,
        }),
    };
    let (gaps, granule) = (taken.gaps.clone(), taken.granule() as usize);
    Frame::shown(taken.into_memory(), meta, gaps, granule)
}
