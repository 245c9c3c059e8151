//! When something is said: at the end of a burst, and when its time has come.

use super::connection::{Due, State};
use super::fast::set_limits;
use super::template::{ACK, FIN, Said};
use super::{AckPolicy, Endpoint};
use crate::place::{Ending, Payload, Place};
use linerate_burst::{Count, Nanos};
use std::time::Duration;

/// The longest that data waits to be acknowledged (RFC 9293 section 3.8.6.3 allows 500 ms).
const DELAY: Duration = Duration::from_millis(40);
/// The same where the queue was not dry, and more is about to come.
const SHORT_DELAY: Duration = Duration::from_millis(1);
/// How often somebody looks whether there is room again: so long for each connection, within limits.
const LOOK: Duration = Duration::from_micros(20);
const LEAST_LOOK: Duration = Duration::from_micros(200);
const MOST_LOOK: Duration = Duration::from_millis(10);
/// So much a burst is acknowledged though the queue is not dry.
const MUCH: u64 = 512 << 10;
/// The first wait for an answer to our SYN or FIN; the next are twice as long each (RFC 6298).
const RETRY: Duration = Duration::from_secs(1);
/// How often these are sent.
const TRIES: u8 = 6;
/// Challenges a second, and as many more as cannot be foreseen.
const CHALLENGES: u8 = 5;

impl Endpoint {
    /// A burst of frames has been received, and the queue has run dry or not: places learn how far their streams are, and
    /// acknowledgements that are due are made. To be called also when there was nothing to receive: room that has become free is told of.
    pub fn burst_end(&mut self, is_dry: bool, now: Nanos, place: &mut impl Place) {
        let mut touched = std::mem::take(&mut self.touched);
        for slot in touched.drain(..) {
            self.burst_ended(slot, is_dry, now, place);
        }
        // What was touched meanwhile is for the next burst.
        touched.append(&mut self.touched);
        self.touched = touched;
        if self.timers.first().is_some_and(|(when, _)| when <= now) {
            self.tick(now, place);
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Nanos, place: &mut impl Place) {
        let mut most = self.table.len();
        while let Some((when, slot)) = self.timers.first().filter(|(when, _)| *when <= now && most > 0) {
            most -= 1;
            self.came_due(slot, when.max(now), place);
            // Whatever was done, it is not due again at the same time.
            if let Some(connection) = self.table.get(slot) {
                let next = connection.deadline(self.config.idle).max(now.after(Duration::from_nanos(1)));
                self.timers.set(slot, next);
            }
        }
    }

    /// When something is due next, without a frame.
    pub fn deadline(&self) -> Option<Nanos> {
        self.timers.first().map(|(when, _)| when)
    }

    /// The run ends: streams as well, and their senders get a reset. False if there are more than can be told at once: to be
    /// called again when the frames are sent.
    pub fn stop(&mut self, now: Nanos, place: &mut impl Place) -> bool {
        for slot in self.table.slots() {
            if self.outbox.is_full() {
                return false;
            }
            if self.table.get(slot).is_some_and(|connection| connection.state != State::LastAck) {
                self.send_reset(slot, now);
            }
            self.end(slot, Ending::Stopped, now, place);
        }
        true
    }

    /// Acknowledges all that is there, and offers what room there is.
    pub(super) fn acknowledge(&mut self, slot: u32, now: Nanos, place: &mut impl Place) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        if connection.state == State::Established {
            connection.advance(now, place);
            self.open(slot, now, place);
        }
        let Some(connection) = self.table.get_mut(slot) else { return };
        let said = connection.said(now);
        if !self.outbox.put(&connection.template, &said, Some(slot), now) {
            // It stays due.
            connection.ask(Due::Now);
            connection.touch(slot, &mut self.touched);
            self.counts[Count::TcpUnsent] += 1;
            return;
        }
        connection.told = connection.next();
        connection.told_window = connection.window().1;
        (connection.pending, connection.due, connection.again) = (0, Due::Later, None);
        connection.young = connection.young.saturating_sub(1);
        connection.ack_at = Nanos::MAX;
        set_limits(connection, &self.config);
        self.counts[Count::TcpAcks] += 1;
        self.counts[Count::TcpZeroWindows] += u64::from(said.window == 0 && connection.state == State::Established);
        self.look_later(slot, now);
    }

    /// Promises what room there is, and takes what was kept until there is some; whether it did.
    fn open(&mut self, slot: u32, now: Nanos, place: &mut impl Place) -> bool {
        let Some(connection) = self.table.get_mut(slot) else { return false };
        let (stream, before) = (connection.stream, connection.promise);
        connection.open(place.room(stream), self.config.segment(connection.key.is_v6()).into());
        let Some(kept) = connection.kept.take_if(|_| connection.promise > before) else { return false };
        let to = (before + kept.len() as u64).min(connection.promise).min(connection.fin).max(before);
        let mut fresh = 0;
        let taken = connection.ranges.insert(before..to, self.config.max_gaps, |piece| {
            fresh += piece.end - piece.start;
            let bytes = &kept[(piece.start - before) as usize..(piece.end - before) as usize];
            place.place(stream, piece.start, Payload::Bytes(bytes), now);
        });
        self.counts[Count::TcpBytes] += fresh;
        connection.advance(now, place);
        taken.is_ok() && fresh > 0
    }

    /// An acknowledgement for what may be forged, not too often (RFC 5961 section 7); how often is not to be foreseen from outside,
    /// and what others cause does not count.
    pub(super) fn challenge(&mut self, slot: u32, now: Nanos, place: &mut impl Place) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        if now >= connection.challenges_until || connection.challenges_until > now.after(Duration::from_secs(2)) {
            let chance = self.secret.seal(&[connection.iss.into(), now.0]);
            connection.challenges = CHALLENGES + (chance % 6) as u8;
            connection.challenges_until = now.after(Duration::from_millis(1000 + (chance >> 32) % 128));
        }
        if connection.challenges == 0 {
            self.counts[Count::TcpUnchallenged] += 1;
            return;
        }
        connection.challenges -= 1;
        self.counts[Count::TcpChallenges] += 1;
        self.acknowledge(slot, now, place);
    }

    /// Our end of a connection: acknowledges theirs, too.
    pub(super) fn send_fin(&mut self, slot: u32, now: Nanos) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let said = Said { flags: ACK | FIN, sequence: connection.iss.wrapping_add(1), ..connection.said(now) };
        let is_out = self.outbox.put(&connection.template, &said, Some(slot), now);
        self.counts[Count::TcpUnsent] += u64::from(!is_out);
        self.counts[Count::TcpSentAgain] += u64::from(connection.tries > 0);
        connection.told = connection.next();
        (connection.pending, connection.due, connection.again) = (0, Due::Later, None);
        self.try_again(slot, is_out, now);
    }

    /// When our SYN or FIN is sent again.
    pub(super) fn try_again(&mut self, slot: u32, is_out: bool, now: Nanos) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        connection.retry_at = now.after(if is_out { RETRY * (1 << connection.tries) } else { SHORT_DELAY });
        connection.tries += u8::from(is_out);
        let deadline = connection.deadline(self.config.idle);
        self.timers.set(slot, deadline);
    }

    fn send_reset(&mut self, slot: u32, now: Nanos) {
        let Some(connection) = self.table.get(slot) else { return };
        let said = Said::reset(connection.sequence(), Some(connection.sequence_of(connection.next())));
        let is_out = self.outbox.put(&connection.template, &said, Some(slot), now);
        self.counts[if is_out { Count::TcpResetsSent } else { Count::TcpUnsent }] += 1;
    }

    fn burst_ended(&mut self, slot: u32, is_dry: bool, now: Nanos, place: &mut impl Place) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        connection.is_touched = false;
        connection.eager = 0;
        if connection.state == State::SynReceived {
            return;
        }
        if connection.state == State::Established {
            connection.advance(now, place);
        }
        let waiting = connection.next() - connection.told;
        let is_due = connection.due > Due::Later
            || waiting > 0
                && match self.config.acks {
                    AckPolicy::Burst => true,
                    AckPolicy::Adaptive => is_dry || waiting >= MUCH.min(connection.agreed.window / 8),
                    AckPolicy::Bytes(_) | AckPolicy::Segments(_) => is_dry && connection.is_pushed,
                };
        if is_due {
            return self.acknowledge(slot, now, place);
        }
        if waiting > 0 && !is_dry {
            // So that it is looked at again when the queue has run dry, though nothing more came.
            connection.touch(slot, &mut self.touched);
        }
        if waiting > 0 && connection.ack_at == Nanos::MAX {
            let is_short = self.config.acks == AckPolicy::Adaptive;
            connection.ack_at = now.after(if is_short { SHORT_DELAY } else { DELAY });
            let deadline = connection.deadline(self.config.idle);
            self.timers.set(slot, deadline);
        }
    }

    fn came_due(&mut self, slot: u32, now: Nanos, place: &mut impl Place) {
        let idle = self.config.idle;
        let Some(connection) = self.table.get_mut(slot) else { return };
        if connection.retry_at <= now {
            return self.retry(slot, now, place);
        }
        if connection.ack_at <= now {
            connection.ack_at = Nanos::MAX;
            self.acknowledge(slot, now, place);
        } else if connection.look_at <= now {
            self.look(slot, now, place);
        } else if idle.is_some_and(|idle| connection.heard.after(idle) <= now) && connection.state == State::Established
        {
            self.send_reset(slot, now);
            self.end(slot, Ending::Silent, now, place);
        }
    }

    fn retry(&mut self, slot: u32, now: Nanos, place: &impl Place) {
        let Some(connection) = self.table.get(slot) else { return };
        let is_begun = connection.state != State::SynReceived;
        if connection.tries >= TRIES {
            self.counts[Count::TcpHalfOpen] += u64::from(!is_begun);
            self.remove(slot);
        } else if is_begun {
            self.send_fin(slot, now);
        } else {
            self.send_syn(slot, now, place);
        }
    }

    /// Says that there is room again, if that is worth saying.
    fn look(&mut self, slot: u32, now: Nanos, place: &mut impl Place) {
        let has_taken = self.open(slot, now, place);
        let Some(connection) = self.table.get_mut(slot) else { return };
        connection.look_at = Nanos::MAX;
        let (known, now_there) = (connection.known_window(), connection.window().1);
        if has_taken || now_there > 0 && now_there >= 2 * known {
            self.counts[Count::TcpWindowUpdates] += 1;
            self.acknowledge(slot, now, place);
        } else {
            self.look_later(slot, now);
        }
    }

    /// Where the window that the other end knows of is less than half of what it could be, somebody looks again.
    fn look_later(&mut self, slot: u32, now: Nanos) {
        let after = (LOOK * self.table.len() as u32).clamp(LEAST_LOOK, MOST_LOOK);
        let Some(connection) = self.table.get_mut(slot) else { return };
        let is_short = connection.known_window() < connection.usual_window() / 2;
        let look_at = if is_short && connection.state == State::Established { now.after(after) } else { Nanos::MAX };
        if look_at != Nanos::MAX || connection.look_at != Nanos::MAX {
            connection.look_at = look_at;
            let deadline = connection.deadline(self.config.idle);
            self.timers.set(slot, deadline);
        }
    }
}
