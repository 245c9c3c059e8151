//! Packets one by one.

use crate::error::Error;
use crate::summary::Summary;
use linerate_burst::{Desc, Flags, Interface, Nanos};
use linerate_engine::frames::FrameBuffer;
use linerate_engine::stepped::SteppedRun;
use linerate_engine::{Receive, Selection};
use linerate_headers::{Layers, Link, dissect};

/// Packets of a run, in order of time over all its ports.
///
/// While the caller works on a packet, further ones wait in the buffers of the ports. What does not fit there is lost,
/// and counted in the [`Summary`].
pub struct Packets {
    run: SteppedRun<FrameBuffer>,
    /// Number of packets of the last round that were returned.
    returned: usize,
}

/// One packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    interface: &'a Interface,
    desc: &'a Desc,
    bytes: &'a [u8],
}

impl Packets {
    pub(crate) fn new(receive: Receive, selection: Selection) -> Self {
        Packets { run: SteppedRun::start(receive, FrameBuffer::new(selection)), returned: 0 }
    }

    /// Returns the next packet, and waits for it; `None` once all ports have ended, or what ends the run was reached.
    ///
    /// # Errors
    /// The failure of a port, after all packets that arrived before it.
    #[expect(clippy::should_implement_trait, reason = "a packet is lent: the next call replaces it")]
    pub fn next(&mut self) -> Result<Option<Packet<'_>>, Error> {
        while self.returned == self.run.consumer().len() {
            self.returned = 0;
            self.run.consumer().clear();
            if !self.run.step() && self.run.consumer().is_empty() {
                return self.run.take_failure().map_or(Ok(None), |failure| Err(failure.into()));
            }
        }
        self.returned += 1;
        let (interface, desc, bytes) = self.run.consumer().get(self.returned - 1);
        Ok(Some(Packet { interface, desc, bytes }))
    }

    /// Ends the run and returns its result.
    ///
    /// # Errors
    /// The failure of a port.
    pub fn finish(self) -> Result<Summary, Error> {
        Summary::of(self.run.finish().0)
    }
}

impl<'a> Packet<'a> {
    /// Returns the time at which it was seen, UTC.
    pub fn time(&self) -> Nanos {
        self.desc.time
    }

    /// Returns the captured bytes, from the link-layer header on, without FCS.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns its length on the wire in bytes, without FCS.
    pub fn wire_length(&self) -> u32 {
        self.desc.wire
    }

    /// Returns the interface that it was seen at: its name and link type.
    pub fn interface(&self) -> &'a Interface {
        self.interface
    }

    /// Returns its flags, such as a restored VLAN tag or the direction.
    pub fn flags(&self) -> Flags {
        self.desc.flags
    }

    /// Returns the position of each of its headers; none for unknown link types.
    pub fn layers(&self) -> Layers {
        let mut layers = Layers::new();
        if let Some(link) = Link::from_linktype(self.interface.link.0) {
            dissect(link, self.bytes, &mut layers);
        }
        layers
    }

    /// Returns it as a frame to print, in the format of tcpdump.
    pub fn frame(&self) -> linerate_print::Frame<'a> {
        linerate_print::Frame {
            time: self.desc.time.0,
            interface: "",
            link: self.interface.link.0,
            bytes: self.bytes,
            wire: self.desc.wire,
        }
    }
}
