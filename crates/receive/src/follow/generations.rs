//! Which connection of the same ends a segment belongs to.
//!
//! A SYN of another number than the connection has may come from a new connection, or be late or forged: hosts that have a connection do not
//! take it for more than a reason to ask back (RFC 9293, 3.10.7.4; RFC 5961, 4). Who looks on cannot tell. So it begins a connection, and the one
//! before stays beside it: whoever goes on is heard, by its numbers.

use super::segment::{Key, Segment};
use super::side::Side;
use super::table::{Connection, List, Table};
use linerate_wire::tcp;

impl Table {
    /// The connection of a segment; `None` if it belongs to none that is known.
    #[inline]
    pub(super) fn choose(&mut self, segment: &Segment<'_>) -> Option<u32> {
        let latest = self.find(&segment.key)?;
        let is_syn = segment.has(tcp::Flags::SYN) && !segment.has(tcp::Flags::RST);
        let predecessor = self.get(latest)?.predecessor;
        if is_syn {
            let agrees = |place: &u32| self.get(*place).is_some_and(|connection| connection.agrees(segment));
            return [Some(latest), predecessor].into_iter().flatten().find(agrees);
        }
        let Some(before) = predecessor else { return Some(latest) };
        let (one, other) = (self.get(before)?, self.get(latest)?);
        // Where the one before is open, numbers within its window are its own: its receiver takes them. Not if another handshake is complete.
        let is_replaced = other.is_opened() || (one.distance(segment) > 0 && other.is_completed_by(segment));
        let is_its_own = one.list != List::Closed && one.is_answered() && !is_replaced && one.is_near(segment);
        let is_before = is_its_own || one.distance(segment) <= other.distance(segment);
        Some(if is_before { before } else { latest })
    }

    /// Where there are two connections of these ends, the one that gives way to a third: one that is over, else the one that less speaks for.
    pub(super) fn least_of(&mut self, key: &Key) -> Option<u32> {
        let latest = self.find(key)?;
        let before = self.get(latest)?.predecessor?;
        let evidence = |place: u32| {
            let connection = self.get(place)?;
            let is_answered = connection.has_sent == [true; 2];
            Some((connection.list != List::Closed, is_answered, connection.list == List::Open))
        };
        Some(if evidence(latest) < evidence(before) { latest } else { before })
    }
}

impl Connection {
    /// Whether a SYN may be one of this connection's.
    fn agrees(&self, segment: &Segment<'_>) -> bool {
        let [from, to] = [&self.sides[segment.side], &self.sides[1 - segment.side]];
        let is_answer = |acknowledgement| from.is_begun() || to.is_near(acknowledgement);
        from.agrees(segment.sequence) && segment.acknowledgement.is_none_or(is_answer)
    }

    /// Whether each side has acknowledged what the other side sent. Until then a number may be stale or forged.
    fn is_answered(&self) -> bool {
        self.has_sent != [true; 2] || self.sides.iter().all(|side| !side.is_begun() || side.is_heard())
    }

    /// Whether each side has sent its first number, and each was acknowledged.
    fn is_opened(&self) -> bool {
        self.has_sent == [true; 2] && self.sides.iter().all(|side| side.is_begun() && side.is_heard())
    }

    /// Whether a segment acknowledges the answer to a SYN, with both numbers as they must be.
    fn is_completed_by(&self, segment: &Segment<'_>) -> bool {
        let is_begun = self.has_sent == [true; 2] && self.sides.iter().all(Side::is_begun);
        is_begun && acknowledged(segment).is_some() && self.distance(segment) == 0
    }

    /// How far a segment is from where the connection is, by both of its numbers.
    fn distance(&self, segment: &Segment<'_>) -> u64 {
        let [from, to] = [&self.sides[segment.side], &self.sides[1 - segment.side]];
        from.distance(segment.sequence) + acknowledged(segment).map_or(0, |number| to.distance(number))
    }

    /// Whether both are near to it, and not behind what is the end.
    fn is_near(&self, segment: &Segment<'_>) -> bool {
        let [from, to] = [&self.sides[segment.side], &self.sides[1 - segment.side]];
        from.is_near(segment.sequence) && acknowledged(segment).is_none_or(|number| to.is_near(number))
    }
}

/// Firewalls and old stacks acknowledge anything when they reset.
fn acknowledged(segment: &Segment<'_>) -> Option<u32> {
    segment.acknowledgement.filter(|_| !segment.has(tcp::Flags::RST))
}
