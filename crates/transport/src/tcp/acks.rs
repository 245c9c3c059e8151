//! Acknowledgements: at the end of a burst, and on timers.

use super::connection::{AckUrgency, State};
use super::fast_path::set_limits;
use super::template::{ACK, FIN, SegmentFields};
use super::{AckPolicy, Endpoint};
use crate::stream_memory::{Ending, Payload, Place};
use linerate_burst::{Count, Nanos};
use std::time::Duration;

/// Delayed ACK timeout (RFC 9293 section 3.8.6.3 allows 500 ms).
const DELAY: Duration = Duration::from_millis(40);
/// The same for [`AckPolicy::Adaptive`]: the queue was not dry, so more data is about to arrive.
const SHORT_DELAY: Duration = Duration::from_millis(1);
/// Interval of checks for free room, per connection, clamped to `LEAST_LOOK` and `MOST_LOOK`.
const LOOK: Duration = Duration::from_micros(20);
const LEAST_LOOK: Duration = Duration::from_micros(200);
const MOST_LOOK: Duration = Duration::from_millis(10);
/// Bytes in a burst that are acknowledged even if the queue is not dry.
const MUCH: u64 = 512 << 10;
/// Initial retransmission timeout of SYN and FIN; doubled with each retry (RFC 6298).
const RETRY: Duration = Duration::from_secs(1);
/// Maximum number of transmissions of these.
const TRIES: u8 = 6;
/// Minimum challenge ACKs per second; up to as many more are allowed at random.
const CHALLENGES: u8 = 5;

impl Endpoint {
    /// Ends a burst; `is_dry`: the queue is empty. Places are advanced to the new edges of their streams, and
    /// acknowledgements that are due are sent. Call it without a burst too: it announces room that has become free.
    pub fn burst_end(&mut self, is_dry: bool, now: Nanos, place: &mut impl Place) {
        let mut touched = std::mem::take(&mut self.touched);
        for slot in touched.drain(..) {
            self.burst_ended(slot, is_dry, now, place);
        }
        // Connections touched here belong to the next burst.
        touched.append(&mut self.touched);
        self.touched = touched;
        if self.timers.first().is_some_and(|(when, _)| when <= now) {
            self.tick(now, place);
        }
    }

    /// Runs expired timers.
    pub fn tick(&mut self, now: Nanos, place: &mut impl Place) {
        let mut most = self.table.len();
        while let Some((when, slot)) = self.timers.first().filter(|(when, _)| *when <= now && most > 0) {
            most -= 1;
            self.expire(slot, when.max(now), place);
            // It must not expire again at the same time.
            if let Some(connection) = self.table.get(slot) {
                let next = connection.deadline(self.config.idle).max(now.after(Duration::from_nanos(1)));
                self.timers.set(slot, next);
            }
        }
    }

    /// Returns the next deadline, if any timer is set.
    pub fn deadline(&self) -> Option<Nanos> {
        self.timers.first().map(|(when, _)| when)
    }

    /// Stops all streams and sends a RST to each peer. Returns false if the outbox is full: call it again after
    /// sending the frames.
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

    /// Acknowledges all data received and announces the receive window.
    pub(super) fn acknowledge(&mut self, slot: u32, now: Nanos, place: &mut impl Place) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        if connection.state == State::Established {
            connection.advance(now, place);
            self.open(slot, now, place);
        }
        let Some(connection) = self.table.get_mut(slot) else { return };
        let said = connection.said(now);
        if !self.outbox.put(&connection.template, &said, Some(slot), now) {
            // Retry later.
            connection.ask(AckUrgency::Now);
            connection.touch(slot, &mut self.touched);
            self.counts[Count::TcpUnsent] += 1;
            return;
        }
        connection.acked = connection.next();
        connection.acked_window = connection.window().1;
        (connection.pending, connection.due, connection.again) = (0, AckUrgency::Later, None);
        connection.young = connection.young.saturating_sub(1);
        connection.ack_at = Nanos::MAX;
        set_limits(connection, &self.config);
        self.counts[Count::TcpAcks] += 1;
        self.counts[Count::TcpZeroWindows] += u64::from(said.window == 0 && connection.state == State::Established);
        self.schedule_window_check(slot, now);
    }

    /// Extends the promised window to the free room and stores bytes kept beyond it. Returns whether any were stored.
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

    /// Sends a challenge ACK for a segment that may be forged, rate limited (RFC 5961 section 7). The limit is per
    /// connection and random, so an attacker cannot measure it (side channel).
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

    /// Sends our FIN, which also acknowledges the peer's.
    pub(super) fn send_fin(&mut self, slot: u32, now: Nanos) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let said = SegmentFields { flags: ACK | FIN, sequence: connection.iss.wrapping_add(1), ..connection.said(now) };
        let is_out = self.outbox.put(&connection.template, &said, Some(slot), now);
        self.counts[Count::TcpUnsent] += u64::from(!is_out);
        self.counts[Count::TcpRetransmitted] += u64::from(connection.tries > 0);
        connection.acked = connection.next();
        (connection.pending, connection.due, connection.again) = (0, AckUrgency::Later, None);
        self.schedule_retry(slot, is_out, now);
    }

    /// Schedules the retransmission of our SYN or FIN.
    pub(super) fn schedule_retry(&mut self, slot: u32, is_out: bool, now: Nanos) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        connection.retry_at = now.after(if is_out { RETRY * (1 << connection.tries) } else { SHORT_DELAY });
        connection.tries += u8::from(is_out);
        let deadline = connection.deadline(self.config.idle);
        self.timers.set(slot, deadline);
    }

    fn send_reset(&mut self, slot: u32, now: Nanos) {
        let Some(connection) = self.table.get(slot) else { return };
        let said = SegmentFields::reset(connection.sequence(), Some(connection.sequence_of(connection.next())));
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
        let waiting = connection.next() - connection.acked;
        let is_due = connection.due > AckUrgency::Later
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
            // Check it again once the queue is dry, even if no more segments arrive.
            connection.touch(slot, &mut self.touched);
        }
        if waiting > 0 && connection.ack_at == Nanos::MAX {
            let is_short = self.config.acks == AckPolicy::Adaptive;
            connection.ack_at = now.after(if is_short { SHORT_DELAY } else { DELAY });
            let deadline = connection.deadline(self.config.idle);
            self.timers.set(slot, deadline);
        }
    }

    fn expire(&mut self, slot: u32, now: Nanos, place: &mut impl Place) {
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

    /// Sends a window update if the window has grown enough.
    fn look(&mut self, slot: u32, now: Nanos, place: &mut impl Place) {
        let has_taken = self.open(slot, now, place);
        let Some(connection) = self.table.get_mut(slot) else { return };
        connection.look_at = Nanos::MAX;
        let (known, now_there) = (connection.known_window(), connection.window().1);
        if has_taken || now_there > 0 && now_there >= 2 * known {
            self.counts[Count::TcpWindowUpdates] += 1;
            self.acknowledge(slot, now, place);
        } else {
            self.schedule_window_check(slot, now);
        }
    }

    /// Schedules a check for free room if the window known to the peer is less than half of the possible one.
    fn schedule_window_check(&mut self, slot: u32, now: Nanos) {
        let after = (LOOK * self.table.len() as u32).clamp(LEAST_LOOK, MOST_LOOK);
        let Some(connection) = self.table.get_mut(slot) else { return };
        let is_short = connection.known_window() < connection.max_window() / 2;
        let look_at = if is_short && connection.state == State::Established { now.after(after) } else { Nanos::MAX };
        if look_at != Nanos::MAX || connection.look_at != Nanos::MAX {
            connection.look_at = look_at;
            let deadline = connection.deadline(self.config.idle);
            self.timers.set(slot, deadline);
        }
    }
}
