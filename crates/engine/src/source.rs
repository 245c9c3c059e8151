//! Where a sender's frames come from.

use crate::made::{Changes, Made};
use linerate_burst::{Block, Burst, Nanos};
use linerate_generate::{Pacing, Rate, UdpTemplate};
use linerate_port::live::{Gap, Plan};
use linerate_port::{LiveControl, PortError, TxPort};
use linerate_burst::{Block, Burst, Horizon, LinkType, Nanos};
use linerate_generate::stream::StreamSet;
use linerate_generate::{Pacing, Split, UdpTemplate};
use linerate_port::{LiveControl, PortError, RxPort, RxQueue, TxPort};
use std::sync::Arc;

/// A source of frames to send.
pub enum Source {
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
    /// Nothing more.
    Ended,
}

impl Source {
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
