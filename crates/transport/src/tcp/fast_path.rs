//! Fast path: the next segment of a stream, with only data, in a few comparisons.

use super::connection::{Connection, State};
use super::segment::Segment;
use super::template::{ACK, PSH};
use super::{AckPolicy, Config, Endpoint, options};
use crate::stream_memory::Place;
use linerate_burst::{Count, Nanos};

/// An ACK is sent before the end of a burst after this fraction of the window, so that the sender does not stall.
const PART_OF_WINDOW: u64 = 4;

impl Endpoint {
    /// Processes a segment if it is the expected one. Returns whether it was.
    #[inline]
    pub(super) fn receive_expected(
        &mut self,
        slot: u32,
        segment: &Segment<'_>,
        now: Nanos,
        place: &mut impl Place,
    ) -> bool {
        let Some(connection) = self.table.get_mut(slot) else { return false };
        let edge = connection.ranges.edge();
        let end = edge + segment.payload.len() as u64;
        let is_expected = segment.flags & !PSH == ACK
            && connection.state == State::Established
            && segment.sequence == connection.sequence_of(edge)
            && segment.ack == connection.sequence()
            && end > edge
            && end <= connection.promise
            && end < connection.fin
            && connection.ranges.beyond().is_empty()
            && connection.template.is_reverse_of(segment.link);
        if !is_expected {
            return false;
        }
        if connection.agreed.stamps {
            match options::stamp(segment.options) {
                Some(value) if value.wrapping_sub(connection.ts_recent) as i32 >= 0 => {
                    connection.stamp(value, edge as i64, now);
                }
                _ => return false,
            }
        }
        // It cannot exceed the maximum of gaps: no gaps exist.
        let _ = connection.ranges.insert(edge..end, usize::MAX, |_| {});
        place.place(connection.stream, edge, segment.payload, now);
        connection.heard = now;
        connection.pending += 1;
        connection.is_pushed = segment.flags & PSH != 0;
        connection.touch(slot, &mut self.touched);
        self.last_data = (slot, segment.headers);
        self.counts[Count::TcpBytes] += end - edge;
        if end >= connection.ack_from || connection.pending >= connection.ack_segments {
            self.acknowledge(slot, now, place);
        }
        true
    }
}

/// Sets the edge and the number of segments from which an ACK does not wait for the end of the burst.
pub(super) fn set_limits(connection: &mut Connection, config: &Config) {
    let most = (connection.agreed.window / PART_OF_WINDOW).max(1);
    let (bytes, segments) = match config.acks {
        _ if connection.young > 0 => (2 * u64::from(config.segment(connection.key.is_v6())), u32::MAX),
        AckPolicy::Bytes(bytes) => (bytes, u32::MAX),
        AckPolicy::Segments(segments) => (most, segments),
        AckPolicy::Adaptive | AckPolicy::Burst => (most, u32::MAX),
    };
    (connection.ack_from, connection.ack_segments) = (connection.acked + bytes.min(most), segments);
}
