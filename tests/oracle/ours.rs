//! The endpoint, in time that is made up, and a consumer that reads or does not.

use crate::oracle::peer::{Reply, Rig, Seg, config};
use linerate_receive::place::Ending;
use linerate_receive::tcp::Config;
use std::time::Duration;

/// Room that a consumer has, about that of the kernel's socket when it is new.
const ROOM: u64 = 60_000;
/// Every step takes so long: delayed acknowledgements are made, and challenges are not too many.
const STEP: Duration = Duration::from_millis(250);

/// The endpoint with one connection.
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

    /// Lets time go by.
    pub(super) fn wait(&mut self) -> Vec<Reply> {
        self.step(None)
    }

    /// Takes a segment, or none, and says all that it has to say.
    pub(super) fn step(&mut self, segment: Option<&Seg>) -> Vec<Reply> {
        let mut replies = segment.map_or_else(Vec::new, |segment| self.rig.send(segment));
        if self.reads {
            self.rig.memory.streams.values_mut().for_each(|stream| stream.room = stream.edge + ROOM);
        }
        replies.extend(self.rig.pass(STEP));
        replies
    }

    /// Which bytes of the stream are there.
    pub(super) fn there(&self) -> &[bool] {
        self.rig.memory.streams.values().next().map_or(&[], |stream| &stream.is_there)
    }

    /// The stream as far as it came, and how it ended.
    pub(super) fn got(&self) -> (Vec<u8>, Option<Ending>) {
        let Some(stream) = self.rig.memory.streams.values().next() else { return (Vec::new(), None) };
        (stream.bytes[..stream.edge as usize].to_vec(), stream.ending)
    }
}
