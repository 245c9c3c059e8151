//! Received streams: ports -> endpoint -> frames in memory -> a destination; and acknowledgements back.
//!
//! ```text
//! a round's bursts ─┐             ┌─> frames ──> delivery ──> a destination, in a separate thread
//! or frames read ───┴> endpoint ──┤     ^            │
//! in place                        └─> outlet         └── returned: the window opens
//! ```
//!
//! Frames arrive in bursts, as for any consumer, and their payload is copied once; or a queue reads each straight to
//! where the next bytes of the stream are expected ([`ScatterQueue`](linerate_port::ScatterQueue)), and the kernel's copy is the
//! only one.

mod delivery;
mod protocol;
mod watch;

pub use self::protocol::Protocol;
pub use self::watch::{ReceptionProgress, ReceptionWatch, StreamProgress, Totals};

use self::delivery::Delivery;
use crate::consumer::{Consumer, Demand, FrameOrder, Round, RunEnd, ScatterQueues};
use crate::control::Stop;
use crate::error::ReceiveError;
use crate::frame_ring::{FrameSharing, FrameSharingWatch};
use crate::reply_port::{Done, ReplyPort, Sent};
use linerate_burst::{Flags, Ledger, Nanos, Stage};
use linerate_generate::answer::Answerer;
use linerate_headers::{Link, Sum};
use linerate_port::{ScatteredFrame, TxPort};
use linerate_transport::destination::Destination;
use linerate_transport::frames::{Frame, Frames};
use linerate_transport::tcp::{Arrival, Checksum, Endpoint, ReceiveOutcome};
use std::time::{Duration, Instant};

/// Number of frames read from a lane before others get their turn.
const READS: usize = 256;
/// Bytes read before the payload if the next frame is unknown: Ethernet, IPv4 and TCP with timestamps.
const HEADERS: usize = 14 + 20 + 32;
/// Prefetch distance for the headers of frames in a burst.
const AHEAD: usize = 8;
/// Wait before checking again whether the port takes more.
const BUSY_NAP: Duration = Duration::from_micros(50);
/// Longest time at the end for frames to leave.
const STOP_LIMIT: Duration = Duration::from_secs(1);
/// Time for peers to acknowledge the ends of their streams, once the requested number has ended.
const CLOSING_LIMIT: Duration = Duration::from_secs(10);

/// Receives streams, as the only consumer of a run.
pub struct Reception {
    protocol: Protocol,
    answerer: Answerer,
    outlet: ReplyPort,
    acks: Done,
    answers: Done,
    delivery: Delivery,
    watch: ReceptionWatch,
    /// Number of ended streams after which the run ends.
    streams: Option<u64>,
    /// Time when that many streams had ended.
    ended_at: Option<Nanos>,
    /// True if the peers have acknowledged these ends, or the time for that is over.
    is_over: bool,
    /// Buffer for bytes before the payload, and for linearised frames.
    headers: Vec<u8>,
    whole: Vec<u8>,
}

impl Reception {
    /// Receives by this protocol; its frames in memory are passed to `destination`, answers and acknowledgements to
    /// `to`.
    pub fn new(protocol: Protocol, answerer: Answerer, to: TxPort, destination: Box<dyn Destination>) -> Reception {
        Reception {
            protocol,
            answerer,
            outlet: ReplyPort::new(to),
            acks: Done::default(),
            answers: Done::default(),
            delivery: Delivery::here(destination),
            watch: ReceptionWatch::default(),
            streams: None,
            ended_at: None,
            is_over: false,
            headers: vec![0; HEADERS],
            whole: Vec::new(),
        }
    }

    /// Runs the destination in a separate thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn apart(mut self) -> Result<Self, ReceiveError> {
        self.delivery = self.delivery.apart().map_err(ReceiveError::Worker)?;
        Ok(self)
    }

    /// Passes frames to another process instead of the destination: those in this memory. `stop` is that of the run;
    /// `watch` publishes their state.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn shared(mut self, frames: FrameSharing, stop: Stop, watch: FrameSharingWatch) -> Result<Self, ReceiveError> {
        self.delivery = Delivery::shared(frames.open(stop, watch).map_err(ReceiveError::Acceptor)?);
        Ok(self)
    }

    /// Ends the run after this number of streams has ended.
    #[must_use]
    pub fn streams(mut self, streams: Option<u64>) -> Self {
        self.streams = streams;
        self
    }

    /// Publishes the progress in `watch`.
    #[must_use]
    pub fn watch(mut self, watch: ReceptionWatch) -> Self {
        self.watch = watch;
        self
    }

    /// Returns the destination after the run.
    pub fn done(self) -> Option<Box<dyn Destination>> {
        self.delivery.into_destination()
    }

    /// Processes a contiguous frame.
    fn receive_frame(&mut self, link: Link, frame: &[u8], flags: Flags, now: Nanos) {
        match link {
            _ if self.protocol.receive_frame(link, frame, flags, now) => {}
            Link::Ethernet => self.answerer.receive(frame, now),
            Link::RawIp => self.answerer.receive_packet(frame, now),
            _ => {}
        }
    }

    /// Takes the frames of a lane; returns whether it is drained.
    fn read_lane(&mut self, lane: usize, link: Link, reads: &mut ScatterQueues<'_>) -> bool {
        for _ in 0..READS {
            let Protocol::Tcp { endpoint, frames } = &mut self.protocol else { return true };
            let expected = endpoint.expected();
            let head = expected.map_or(HEADERS, |expected| expected.headers);
            let place = expected.map(|expected| (expected.stream, expected.next));
            self.headers.resize(head, 0);
            let mut read = None;
            let result = frames.read(place, &mut self.headers, |pieces| {
                read = reads.read(lane, pieces);
                read.map(|read| read.len).ok_or(())
            });
            let (Ok(_), Some(read)) = (result, read) else { return true };
            let now = reads.now();
            let (rest, outcome) = receive_read(endpoint, frames, &self.headers, link, read, now);
            if outcome == ReceiveOutcome::Taken {
                endpoint.burst_end(false, now, &mut **frames);
            } else {
                let mut whole = std::mem::take(&mut self.whole);
                whole.clear();
                whole.extend_from_slice(&self.headers[..read.len - rest]);
                whole.extend_from_slice(frames.read_whole(0..rest));
                self.receive_frame(link, &whole, read.flags, now);
                self.whole = whole;
            }
            self.deliver_frames(now);
        }
        false
    }

    /// Passes on finished frames to the destination, acknowledgements and answers to their senders. Returns whether
    /// none is left.
    fn deliver_frames(&mut self, now: Nanos) -> bool {
        self.protocol.flush();
        let mut opens = false;
        while let Some(frame) = self.delivery.returned() {
            self.protocol.return_frame(frame);
            opens = true;
        }
        // The others wait where newer ones may replace them.
        while self.delivery.has_room()
            && let Some(frame) = self.protocol.full()
        {
            opens |= self.deliver(frame);
        }
        if let (true, Protocol::Tcp { endpoint, frames }) = (opens, &mut self.protocol) {
            endpoint.burst_end(false, now, &mut **frames);
        }
        self.send(now)
    }

    /// Passes a frame on; returns whether it was returned at once.
    fn deliver(&mut self, frame: Frame) -> bool {
        self.watch.finished(&frame);
        let returned = self.delivery.hand_over(frame);
        let is_back = returned.is_some();
        returned.into_iter().for_each(|frame| self.protocol.return_frame(frame));
        is_back
    }

    fn own_counters(&self, ledger: &mut Ledger) {
        self.answerer.counters(ledger.account(Stage::Answer, self.outlet.name()));
        self.protocol.counters(ledger);
    }

    fn send(&mut self, now: Nanos) -> bool {
        let Reception { protocol, answerer, outlet, acks, answers, .. } = self;
        let mut is_done = true;
        let mut went = |sent: Sent, clear: &mut dyn FnMut(usize)| match sent {
            Sent::Done { unsent, flushed } => {
                clear(unsent);
                is_done &= flushed;
            }
            Sent::Waits => is_done = false,
        };
        if let Protocol::Tcp { endpoint, .. } = protocol
            && !endpoint.frames().is_empty()
        {
            let sent = outlet.send(acks, endpoint.frames(), now);
            went(sent, &mut |unsent| endpoint.clear(unsent));
        }
        if !answerer.frames().is_empty() {
            let sent = outlet.send(answers, answerer.frames(), now);
            went(sent, &mut |unsent| answerer.clear(unsent));
        }
        is_done
    }

    /// Does the work that is due at the end of a burst, and by time.
    fn settle(&mut self, is_dry: bool, now: Nanos) -> bool {
        self.protocol.settle(is_dry, now);
        self.answerer.tick(now);
        self.delivery.tick();
        let is_done = self.deliver_frames(now);
        self.watch.settle(&self.protocol);
        if self.streams.is_some_and(|most| self.watch.totals().ended >= most) {
            // If the acknowledgement of a FIN is lost, the peer retransmits the FIN; the run must still be there to answer it.
            let ended_at = *self.ended_at.get_or_insert(now);
            self.is_over = !self.protocol.is_closing() || now.since(ended_at) > CLOSING_LIMIT;
        }
        is_done
    }
}

/// Processes a frame whose first bytes are in `headers`, and `len` others at their destination.
fn receive_read(
    endpoint: &mut Endpoint,
    frames: &mut Frames,
    headers: &[u8],
    link: Link,
    read: ScatteredFrame,
    now: Nanos,
) -> (usize, ReceiveOutcome) {
    let rest = read.len.saturating_sub(headers.len());
    let is_sound = read.flags.contains(Flags::CHECKSUM_PARTIAL) || read.flags.contains(Flags::CHECKSUM_VALID);
    let checksum = match rest {
        _ if is_sound => Checksum::Trusted,
        0 => Checksum::Verify,
        rest => Checksum::Rest(sum(frames.read_bytes(0..rest))),
    };
    let arrival = Arrival { headers: &headers[..read.len - rest], rest, link, checksum, now };
    (rest, endpoint.receive(&arrival, frames))
}

impl Consumer for Reception {
    fn name(&self) -> &'static str {
        "receive"
    }

    fn order(&self) -> FrameOrder {
        FrameOrder::Any
    }

    fn is_sole(&self) -> bool {
        true
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        for (lane, burst) in round.bursts.iter().enumerate() {
            for (index, (desc, frame)) in burst.iter().enumerate() {
                if index + AHEAD < burst.len() {
                    burst.prefetch(index + AHEAD);
                }
                // Ports deliver Ethernet or IP frames. A truncated one is detected by its own lengths, and counted.
                let link = round.links[lane].get(usize::from(desc.interface)).copied().flatten();
                self.receive_frame(link.unwrap_or(Link::Ethernet), frame, desc.flags, round.now);
            }
        }
        let is_done = self.settle(true, round.now);
        let may_wait = round.draining.is_none_or(|since| since < STOP_LIMIT);
        // Frames returned by the destination open a window, but do not wake this thread.
        let awaits = round.draining.is_none() && self.delivery.out() > 0 && self.protocol.lacks_frames();
        if !is_done && may_wait || awaits {
            round.keep_busy();
        }
        Ok(())
    }

    fn read(&mut self, reads: &mut ScatterQueues<'_>) -> Result<(), ReceiveError> {
        let mut is_dry = true;
        for lane in 0..reads.lanes() {
            if let Some(link) = reads.link(lane) {
                is_dry &= self.read_lane(lane, link, reads);
            }
        }
        let now = reads.now();
        self.settle(is_dry, now);
        Ok(())
    }

    fn demand(&self) -> Demand {
        match () {
            () if self.delivery.has_failed() || self.outlet.has_failed() => Demand::Failed,
            () if self.is_over => Demand::Enough,
            () => Demand::More,
        }
    }

    fn counters(&self, ledger: &mut Ledger) {
        self.outlet.counters(ledger);
        self.own_counters(ledger);
    }

    fn finish(&mut self, end: &mut RunEnd<'_>) {
        let now = crate::clock::now();
        let began = Instant::now();
        loop {
            let is_stopped = self.protocol.stop(now);
            self.protocol.flush();
            while let Some(frame) = self.protocol.full() {
                self.deliver(frame);
            }
            while !self.send(now) && began.elapsed() < STOP_LIMIT {
                std::thread::sleep(BUSY_NAP);
            }
            if is_stopped || began.elapsed() >= STOP_LIMIT {
                break;
            }
        }
        self.watch.settle(&self.protocol);
        if let Protocol::Tcp { endpoint, .. } = &mut self.protocol {
            endpoint.clear(self.acks.give_up(endpoint.frames()));
        }
        self.answerer.clear(self.answers.give_up(self.answerer.frames()));
        self.delivery.finish(end);
        self.outlet.finish(end.ledger);
        self.own_counters(end.ledger);
        self.protocol.report_dropped_oldest(end);
        if let Some(failure) = self.outlet.take_failure() {
            end.fail(failure);
        }
    }
}

/// Returns the one's complement sum of bytes in pieces; after one of odd length bytes are swapped (RFC 1071 section 2).
fn sum<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> u16 {
    let mut sum = Sum::ZERO;
    let mut is_odd = false;
    for piece in pieces {
        let own = Sum::of(piece).folded();
        sum = sum.with_word(if is_odd { own.swap_bytes() } else { own });
        is_odd ^= piece.len() % 2 == 1;
    }
    sum.folded()
}
