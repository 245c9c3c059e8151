//! Where a sender's frames come from.

use crate::made::{Changes, Made};
use linerate_burst::{Block, Burst, Horizon, LinkType, Nanos};
use linerate_generate::stream::StreamSet;
use linerate_generate::{Pacing, Split, UdpTemplate};
use linerate_port::{LiveControl, PortError, RxPort, RxQueue, TxPort};
use std::sync::Arc;

/// Opens the recording from its beginning.
pub type Open = Box<dyn FnMut() -> Result<RxPort, PortError> + Send>;

/// A source of frames to send.
pub enum Source {
    /// A recording, a number of times over.
    Replay(Box<Replay>),
    /// One frame, a number of times over.
    Template(Box<Repeat>),
    /// Frames of a stream, made one by one.
    Made(Box<Made>),
    /// Streams that a port has taken: its first queue makes the frames.
    Live(Arc<dyn LiveControl>),
}

/// What a source has to send.
pub enum Offer<'a> {
    /// These frames, oldest first; not empty.
    Frames(Burst<'a>),
    /// A new pass over the recording begins.
    Restart,
    /// Nothing right now.
    Nothing,
    /// Nothing more.
    Ended,
}

impl Source {
    /// Replays what `open` opens, `loops` times (0: without end), the part that `split` holds.
    pub fn replay(mut open: Open, loops: u64, split: Split) -> Result<Self, PortError> {
        let queue = first_queue(open()?)?;
        Ok(Source::Replay(Box::new(Replay {
            open,
            queue,
            left: loops,
            endless: loops == 0,
            split,
            passed: 0,
            took: false,
        })))
    }

    /// Repeats a template, `frames` times (0: without end).
    pub fn template(template: &UdpTemplate, frames: u64) -> Self {
        Source::Template(Box::new(Repeat {
            block: template.block(REPEATED),
            left: if frames == 0 { u64::MAX } else { frames },
        }))
    }

    /// Repeats a template with what changes in it through a port, which makes the frames itself if it can. Call it
    /// with the privileges that opening the port needed.
    pub fn template_on(
        port: &mut TxPort,
        template: &UdpTemplate,
        changes: Changes,
        frames: u64,
        pacing: Pacing,
    ) -> Result<Self, PortError> {
        // Recorded gaps are those of time stamps, which a template has not.
        let Pacing::Fixed(rate) = pacing else { return Ok(Source::template(template, frames)) };
        let mut set = changes.streams(template, (frames > 0).then_some(frames), rate)?;
        Ok(match Source::live(port, &set) {
            Err(PortError::Unable { reason, .. }) if reason.sends_made() => None,
            live => live?,
        }
        .unwrap_or_else(|| match changes == Changes::default() {
            true => Source::template(template, frames),
            false => Source::Made(Box::new(Made::new(set.streams.remove(0), set.key))),
        }))
    }

    /// Hands streams to a port; `None` where it makes no frames itself.
    pub fn live(port: &mut TxPort, set: &StreamSet) -> Result<Option<Self>, PortError> {
        let live = port.queues.first_mut().and_then(|queue| queue.live());
        live.map(|live| live.prepare(set).map(Source::Live)).transpose()
    }

    /// What is there to send.
    pub fn offer(&mut self, now: Nanos) -> Result<Offer<'_>, PortError> {
        match self {
            Source::Replay(replay) => replay.offer(now),
            Source::Template(repeat) => Ok(repeat.offer()),
            Source::Made(made) => {
                let burst = made.offer(now).burst();
                Ok(if burst.is_empty() { Offer::Ended } else { Offer::Frames(burst) })
            }
            Source::Live(_) => Ok(Offer::Ended),
        }
    }

    /// Done with the first frames offered.
    pub fn consume(&mut self, frames: usize) {
        match self {
            Source::Replay(replay) => replay.queue.consume(frames),
            Source::Template(repeat) => repeat.left -= frames as u64,
            Source::Made(made) => made.consume(frames),
            Source::Live(_) => {}
        }
    }
}

/// How many copies of a template are offered at a time.
const REPEATED: usize = 256;

/// Copies of one frame.
pub struct Repeat {
    block: Block,
    left: u64,
}

impl Repeat {
    fn offer(&self) -> Offer<'_> {
        match self.left.min(REPEATED as u64) as usize {
            0 => Offer::Ended,
            frames => Offer::Frames(self.block.burst().slice(0..frames)),
        }
    }
}

/// A recording being replayed.
pub struct Replay {
    open: Open,
    queue: Box<dyn RxQueue>,
    left: u64,
    endless: bool,
    split: Split,
    /// Frames of other parts of the split, passed over.
    passed: u64,
    /// Whether this pass had a frame.
    took: bool,
}

impl Replay {
    fn offer(&mut self, now: Nanos) -> Result<Offer<'_>, PortError> {
        if !self.skip_foreign(now)? {
            return self.restart();
        }
        let split = self.split;
        let head = self.queue.fill(now)?;
        let own = match split {
            Split::WHOLE => head.burst.len(),
            _ => head.burst.iter().take_while(|(_, frame)| split.holds(frame)).count(),
        };
        self.took |= own > 0;
        Ok(if own == 0 { Offer::Nothing } else { Offer::Frames(head.burst.slice(0..own)) })
    }

    /// Passes over frames of other parts; false at the end of the recording.
    fn skip_foreign(&mut self, now: Nanos) -> Result<bool, PortError> {
        loop {
            let head = self.queue.fill(now)?;
            if let Some(other) = head.interfaces.iter().find(|interface| interface.link != LinkType::ETHERNET) {
                let reason = format!("frames of {} cannot be replayed, only those of ethernet", other.link);
                return Err(PortError::broken("replay", reason));
            }
            if head.burst.is_empty() {
                return Ok(head.horizon != Horizon::Ended);
            }
            if self.split == Split::WHOLE {
                return Ok(true);
            }
            let foreign = head.burst.iter().take_while(|(_, frame)| !self.split.holds(frame)).count();
            let rest = head.burst.len() - foreign;
            self.queue.consume(foreign);
            self.passed += foreign as u64;
            if rest > 0 {
                return Ok(true);
            }
        }
    }

    fn restart(&mut self) -> Result<Offer<'_>, PortError> {
        self.left = self.left.saturating_sub(1);
        // A recording without a frame of this part would be opened for ever.
        if !self.endless && self.left == 0 || !self.took {
            return Ok(Offer::Ended);
        }
        self.queue = first_queue((self.open)()?)?;
        self.took = false;
        Ok(Offer::Restart)
    }
}

fn first_queue(port: RxPort) -> Result<Box<dyn RxQueue>, PortError> {
    let RxPort { name, queues, .. } = port;
    queues.into_iter().next().ok_or_else(|| PortError::broken(name, "has no queue"))
}
