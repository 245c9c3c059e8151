//! Selects the connection of a segment among those with the same endpoints.
//!
//! A SYN with another sequence number than its connection may start a new connection, or be late or forged: hosts only
//! answer it by a challenge ACK (RFC 9293, 3.10.7.4; RFC 5961, 4). A passive observer cannot tell. So the SYN starts a
//! connection, and the previous one stays too: each segment is assigned by its numbers.

use super::segment::{Key, Segment};
use super::side::Side;
use super::table::{Connection, List, Table};
use linerate_headers::tcp;

impl Table {
    /// Returns the connection of a segment; `None` if it belongs to none.
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
        // While the previous connection is open, numbers within its window are its own: its receiver accepts them. Not
        // if another handshake is complete.
        let is_replaced = other.is_opened() || (one.distance(segment) > 0 && other.is_completed_by(segment));
        let is_its_own = one.list != List::Closed && one.is_answered() && !is_replaced && one.is_near(segment);
        let is_before = is_its_own || one.distance(segment) <= other.distance(segment);
        Some(if is_before { before } else { latest })
    }

    /// Returns which of two connections between these endpoints a third one replaces: an ended one, else the one with
    /// less evidence.
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
    /// Returns whether a SYN may belong to this connection.
    fn agrees(&self, segment: &Segment<'_>) -> bool {
        let [from, to] = [&self.sides[segment.side], &self.sides[1 - segment.side]];
        let is_answer = |acknowledgement| from.is_begun() || to.is_near(acknowledgement);
        from.agrees(segment.sequence) && segment.acknowledgement.is_none_or(is_answer)
    }

    /// Returns whether each side has acknowledged what the other sent. Until then a number may be stale or forged.
    fn is_answered(&self) -> bool {
        self.has_sent != [true; 2] || self.sides.iter().all(|side| !side.is_begun() || side.is_acknowledged())
    }

    /// Returns whether both SYNs were seen and acknowledged.
    fn is_opened(&self) -> bool {
        self.has_sent == [true; 2] && self.sides.iter().all(|side| side.is_begun() && side.is_acknowledged())
    }

    /// Returns whether a segment acknowledges a SYN-ACK, with both numbers exact.
    fn is_completed_by(&self, segment: &Segment<'_>) -> bool {
        let is_begun = self.has_sent == [true; 2] && self.sides.iter().all(Side::is_begun);
        is_begun && acknowledged(segment).is_some() && self.distance(segment) == 0
    }

    /// Returns the distance of a segment from the state of the connection, by both of its numbers.
    fn distance(&self, segment: &Segment<'_>) -> u64 {
        let [from, to] = [&self.sides[segment.side], &self.sides[1 - segment.side]];
        from.distance(segment.sequence) + acknowledged(segment).map_or(0, |number| to.distance(number))
    }

    /// Returns whether both numbers are near it, and not after its end.
    fn is_near(&self, segment: &Segment<'_>) -> bool {
        let [from, to] = [&self.sides[segment.side], &self.sides[1 - segment.side]];
        from.is_near(segment.sequence) && acknowledged(segment).is_none_or(|number| to.is_near(number))
    }
}

/// Firewalls and old stacks acknowledge arbitrary numbers in a RST.
fn acknowledged(segment: &Segment<'_>) -> Option<u32> {
    segment.acknowledgement.filter(|_| !segment.has(tcp::Flags::RST))
}
