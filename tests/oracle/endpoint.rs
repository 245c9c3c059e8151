//! linerate's endpoint in simulated time, with a consumer that can stop reading.

use crate::oracle::peer::{Reply, Rig, Seg, config};
use linerate_transport::stream_memory::Ending;
use linerate_transport::tcp::Config;
use std::time::Duration;

/// Receive buffer of the consumer in bytes, about that of a new kernel socket.
const ROOM: u64 = 60_000;
/// Time per step: delayed acknowledgements are sent, and challenges stay below their limit.
const STEP: Duration = Duration::from_millis(250);

/// Endpoint with one connection.
pub(super) struct Ours {
    rig: Rig,
    reads: bool,
}

impl Ours {
    pub(super) fn new() -> Ours {
        let mut rig = Rig::new(Config { window: 1 << 20, ..config() });
        rig.memory.room = ROOM;
        Ours { rig, reads: true }
    }

    pub(super) fn read(&mut self, reads: bool) {
        self.reads = reads;
    }

    /// Advances time by a step.
    pub(super) fn wait(&mut self) -> Vec<Reply> {
        self.step(None)
    }

    /// Processes a segment, if any, and returns all answers.
    pub(super) fn step(&mut self, segment: Option<&Seg>) -> Vec<Reply> {
        let mut replies = segment.map_or_else(Vec::new, |segment| self.rig.send(segment));
        if self.reads {
            self.rig.memory.streams.values_mut().for_each(|stream| stream.room = stream.edge + ROOM);
        }
        replies.extend(self.rig.pass(STEP));
        replies
    }

    /// Returns a flag for each byte of the stream: received or missing.
    pub(super) fn received(&self) -> &[bool] {
        self.rig.memory.streams.values().next().map_or(&[], |stream| &stream.is_there)
    }

    /// Returns the contiguous bytes received so far, and how the stream ended.
    pub(super) fn got(&self) -> (Vec<u8>, Option<Ending>) {
        let Some(stream) = self.rig.memory.streams.values().next() else { return (Vec::new(), None) };
        (stream.bytes[..stream.edge as usize].to_vec(), stream.ending)
    }
}
