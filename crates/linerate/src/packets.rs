//! Packets one by one.

use crate::error::Error;
use crate::summary::Summary;
use linerate_burst::{Desc, Flags, Interface, Nanos};
use linerate_engine::frames::FrameBuffer;
use linerate_engine::stepped::SteppedRun;
use linerate_engine::{Receive, Selection};
use linerate_headers::{Layers, Link, Protocol, dissect, ipv4, ipv6};
use linerate_print::{Frame, Options, Printer};
use std::fmt;
use std::net::IpAddr;

/// Packets of a run, in order of time over all its ports.
///
/// While the caller works on a packet, further ones wait in the buffers of the ports. What does not fit there is lost,
/// and counted in the [`Summary`].
pub struct Packets {
    run: SteppedRun<FrameBuffer>,
    /// Number of packets of the last round that were returned, and of all.
    returned: usize,
    total: u64,
    has_failed: bool,
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
        Packets {
            run: SteppedRun::start(receive, FrameBuffer::new(selection)),
            returned: 0,
            total: 0,
            has_failed: false,
        }
    }

    /// Returns the next packet, and waits for it; `None` once all ports have ended, or a limit was reached. It is lent:
    /// the next call replaces it, which an [`Iterator`] cannot express.
    ///
    /// # Errors
    /// [`Error::Run`] if a port failed, after all packets that arrived before it.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> Result<Option<Packet<'_>>, Error> {
        while self.returned == self.run.consumer().len() {
            self.returned = 0;
            self.run.consumer().clear();
            if !self.run.step() && self.run.consumer().is_empty() {
                let failure = self.run.take_failure();
                self.has_failed |= failure.is_some();
                return failure.map_or(Ok(None), |error| Err(Error::Run { error, summary: None }));
            }
        }
        self.returned += 1;
        self.total += 1;
        let (interface, desc, bytes) = self.run.consumer().get(self.returned - 1);
        Ok(Some(Packet { interface, desc, bytes }))
    }

    /// Ends the run and returns its result; also after a failure, which [`next`](Packets::next) has returned.
    ///
    /// # Errors
    /// [`Error::Run`] if a port failed since.
    pub fn finish(self) -> Result<Summary, Error> {
        let report = self.run.finish().0;
        Summary::of(report, Some(self.total)).map(|summary| summary.failed(self.has_failed))
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

    /// Returns the position of each of its headers; none for unknown link types. Keep it in a variable to use a layer:
    ///
    /// ```no_run
    /// # let mut packets = linerate::open("eth0")?.packets()?;
    /// # let packet = packets.next()?.unwrap();
    /// let layers = packet.layers();
    /// if let Some(transport) = layers.transport() {
    ///     println!("{:?} at byte {}", transport.protocol, transport.offset);
    /// }
    /// # Ok::<(), linerate::Error>(())
    /// ```
    pub fn layers(&self) -> Layers {
        let mut layers = Layers::new();
        if let Some(link) = Link::from_linktype(self.interface.link.0) {
            dissect(link, self.bytes, &mut layers);
        }
        layers
    }

    /// Returns the source and the destination address of the outermost IP packet; `None` if it is not IP.
    pub fn addresses(&self) -> Option<[IpAddr; 2]> {
        let layers = self.layers();
        let network = layers.network()?;
        let bytes = self.bytes.get(network.offset as usize..)?;
        Some(match network.protocol {
            Protocol::Ipv4 => {
                let header = ipv4::View::parse(bytes).ok()?;
                [header.source().into(), header.destination().into()]
            }
            Protocol::Ipv6 => {
                let header = ipv6::View::parse(bytes).ok()?;
                [header.source().into(), header.destination().into()]
            }
            _ => return None,
        })
    }

    /// Returns the source and the destination port of TCP, UDP, UDP-Lite and SCTP; `None` for other protocols, and for
    /// fragments without that header.
    pub fn ports(&self) -> Option<[u16; 2]> {
        let layers = self.layers();
        let transport = layers.transport()?;
        let has_ports =
            matches!(transport.protocol, Protocol::Tcp | Protocol::Udp | Protocol::UdpLite | Protocol::Sctp);
        // All of them begin with the two ports.
        let bytes = self.bytes.get(transport.offset as usize..)?.first_chunk::<4>()?;
        has_ports.then(|| [u16::from_be_bytes([bytes[0], bytes[1]]), u16::from_be_bytes([bytes[2], bytes[3]])])
    }

    /// Returns it as input of a [`Printer`], which can print bytes, and sequence numbers relative to their connection.
    pub fn frame(&self) -> Frame<'a> {
        Frame {
            time: self.desc.time.0,
            interface: "",
            link: self.interface.link.0,
            bytes: self.bytes,
            wire: self.desc.wire,
        }
    }
}

/// One line, as `tcpdump -nS` prints it.
impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = Vec::new();
        Printer::new(Options { absolute: true, ..Options::default() }).line(&self.frame(), &mut line);
        f.write_str(String::from_utf8_lossy(&line).trim_end())
    }
}
