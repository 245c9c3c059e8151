//! Selected frames of a round, copied for a caller that asks for them one by one.

use crate::consumer::{Consumer, Demand, FrameOrder, Round, RunEnd};
use crate::error::ReceiveError;
use crate::select::{Selection, Selector};
use linerate_burst::{Desc, FrameIndex, Interface, Ledger, Stage};

/// Keeps the selected frames of the last round, in order of time.
///
/// A copy costs less than keeping the round of a port open while other code runs: the port's buffers are free for
/// further frames at once.
pub struct FrameBuffer {
    selector: Selector,
    picks: Vec<FrameIndex>,
    /// Each frame, and the position of its first byte in `bytes`.
    frames: Vec<(Desc, usize)>,
    bytes: Vec<u8>,
    interfaces: Vec<Interface>,
}

impl FrameBuffer {
    /// Creates an empty one for the selected frames.
    pub fn new(selection: Selection) -> Self {
        FrameBuffer {
            selector: Selector::new(Selection { slice: None, ..selection }),
            picks: Vec::new(),
            frames: Vec::new(),
            bytes: Vec::new(),
            interfaces: Vec::new(),
        }
    }

    /// Returns the number of frames of the last round.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns whether the last round had none.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Forgets the frames of the last round.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.bytes.clear();
    }

    /// Returns a frame of the last round: its interface, desc and bytes.
    ///
    /// # Panics
    /// If the round had fewer.
    pub fn get(&self, index: usize) -> (&Interface, &Desc, &[u8]) {
        let (desc, start) = &self.frames[index];
        (&self.interfaces[usize::from(desc.interface)], desc, &self.bytes[*start..][..desc.captured as usize])
    }
}

impl Consumer for FrameBuffer {
    fn name(&self) -> &'static str {
        "frames"
    }

    fn order(&self) -> FrameOrder {
        FrameOrder::Merged
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        self.clear();
        let learned = self.selector.learn(round.interfaces);
        if self.interfaces.len() < round.interfaces.len() {
            self.interfaces = round.interfaces.to_vec();
        }
        for pick in self.selector.choose(round, &mut self.picks) {
            let burst = &round.bursts[pick.lane()];
            let (desc, frame) = (&burst.descs()[pick.index()], burst.frame(pick.index()));
            self.frames.push((round.placed(pick.lane(), desc), self.bytes.len()));
            self.bytes.extend_from_slice(frame);
        }
        learned
    }

    fn counters(&self, ledger: &mut Ledger) {
        self.selector.counters(ledger.account(Stage::Select, ""));
    }

    fn demand(&self) -> Demand {
        if self.selector.is_full() { Demand::Enough } else { Demand::More }
    }

    fn finish(&mut self, end: &mut RunEnd<'_>) {
        self.selector.counters(end.ledger.account(Stage::Select, ""));
    }
}
