//! The segment that was expected: the next of its stream, with nothing but data. A few comparisons, and no more.

use super::connection::{Due, State};
use super::segment::Segment;
use super::template::{ACK, PSH};
use super::{AckPolicy, Endpoint, options};
use crate::place::Place;
use linerate_burst::{Count, Nanos};

/// Where data is not acknowledged before the end of a burst, it is after this part of the window, so that the sender can go on.
const PART_OF_WINDOW: u64 = 4;

impl Endpoint {
    /// Takes a segment if it is the one that was expected.
    #[inline]
    pub(super) fn expected_came(
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
            && end <= connection.promise.min(connection.fin)
            && connection.ranges.beyond().is_empty()
            && connection.template.is_way_of(segment.link);
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
        // It cannot be one gap too many: there is none.
        let _ = connection.ranges.insert(edge..end, usize::MAX, |_| {});
        place.place(connection.stream, edge, segment.payload, now);
        connection.heard = now;
        connection.pending += 1;
        connection.is_pushed = segment.flags & PSH != 0;
        connection.touch(slot, &mut self.touched);
        self.last_data = (slot, segment.headers);
        self.counts[Count::TcpBytes] += end - edge;
        if end - connection.told >= self.acks_after(slot) || self.has_many(slot) {
            self.acknowledge(slot, now, place);
        }
        true
    }

    /// After how many bytes an acknowledgement cannot wait for the end of the burst.
    #[inline]
    pub(super) fn acks_after(&self, slot: u32) -> u64 {
        let Some(connection) = self.table.get(slot) else { return u64::MAX };
        if connection.young > 0 {
            return 2 * u64::from(self.config.segment(connection.key.is_v6()));
        }
        let most = (connection.agreed.window / PART_OF_WINDOW).max(1);
        match self.config.acks {
            AckPolicy::Bytes(bytes) => bytes.min(most),
            _ => most,
        }
    }

    #[inline]
    fn has_many(&self, slot: u32) -> bool {
        let Some(connection) = self.table.get(slot) else { return false };
        connection.due == Due::Now
            || matches!(self.config.acks, AckPolicy::Segments(most) if connection.pending >= most)
    }
}
