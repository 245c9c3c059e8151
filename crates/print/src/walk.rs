//! Visits the headers of a frame in order.

use crate::connections::Connections;
use crate::text::Text;
use crate::{Options, arp, icmp, icmpv6, igmp, ip, link, llc, names, routing, sctp, tcp, tunnel, udp};
use linerate_headers::{Layer, Layers, Link, Number, Protocol, Stop, dissect};

/// Line of a frame in progress.
pub(crate) struct LinePrinter<'a, 'o> {
    pub text: Text<'o>,
    pub frame: &'a [u8],
    pub options: &'a Options,
    pub layers: &'a Layers,
    pub connections: &'a mut Connections,
    /// Current IP packet.
    pub packet: Option<Packet>,
    /// End of the frame or packet, captured or not.
    pub end: usize,
    /// True for a packet quoted by an error.
    pub is_quoted: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Packet {
    pub is_v6: bool,
    /// IPv4 addresses are mapped to IPv6.
    pub source: [u8; 16],
    pub destination: [u8; 16],
    /// The last destination of a routing header, else `destination`.
    pub last_destination: [u8; 16],
    /// True for a fragment.
    pub is_fragment: bool,
    /// True if ports are written next to the addresses.
    pub has_ports: bool,
}

impl<'a, 'o> LinePrinter<'a, 'o> {
    pub(crate) fn new(
        text: Text<'o>,
        frame: &'a [u8],
        wire: usize,
        options: &'a Options,
        layers: &'a Layers,
        connections: &'a mut Connections,
    ) -> Self {
        LinePrinter { text, frame, options, layers, connections, packet: None, end: wire, is_quoted: false }
    }

    /// Writes the whole line.
    pub(crate) fn run(mut self) {
        self.headers();
        self.text.end();
    }

    fn headers(&mut self) {
        let layers = self.layers;
        for (index, layer) in layers.as_slice().iter().enumerate() {
            self.header(index, layer);
            if self.text.is_full() {
                return;
            }
        }
        self.rest();
    }

    fn header(&mut self, index: usize, layer: &Layer) {
        match layer.protocol {
            Protocol::Ethernet => link::ethernet(self, index, layer),
            Protocol::Llc => llc::header(self, layer),
            Protocol::Vlan => link::vlan(self, layer),
            Protocol::Mpls => link::mpls(self, layer),
            Protocol::Pppoe => link::pppoe(self, layer),
            Protocol::Sll | Protocol::Sll2 => link::cooked(self, layer),
            // Identified by the following header.
            Protocol::Ppp | Protocol::Null | Protocol::Chdlc | Protocol::Pseudowire => {}
            Protocol::Arp => arp::write(self, layer),
            Protocol::Ipv4 => ip::v4(self, index, layer),
            Protocol::Ipv6 => ip::v6(self, index, layer),
            Protocol::HopByHop
            | Protocol::Routing
            | Protocol::Fragment
            | Protocol::DestinationOptions
            | Protocol::Mobility
            | Protocol::Hip
            | Protocol::Shim6
            | Protocol::Ah => ip::extension(self, layer),
            Protocol::Esp => tunnel::esp(self, layer),
            Protocol::Tcp => tcp::write(self, layer),
            Protocol::Udp | Protocol::UdpLite => udp::write(self, index, layer),
            Protocol::Sctp => sctp::write(self, layer),
            Protocol::Icmp => icmp::write(self, layer),
            Protocol::Icmpv6 => icmpv6::write(self, layer),
            Protocol::Igmp => igmp::write(self, layer),
            Protocol::Gre => tunnel::gre(self, layer),
            Protocol::Erspan => tunnel::erspan(self, layer),
            Protocol::Vxlan => tunnel::vxlan(self, layer),
            Protocol::Geneve => tunnel::geneve(self, layer),
            Protocol::GtpU => tunnel::gtp_u(self, layer),
            Protocol::Teredo => self.write_text("Teredo", ": "),
        }
    }

    /// Writes the payload after the last header.
    fn rest(&mut self) {
        match self.layers.stop() {
            Stop::End => {}
            Stop::Unknown(Number::IpProtocol(number)) => routing::write(self, number),
            Stop::Unknown(Number::Sap(_)) => llc::rest(self),
            // The link header line has named it.
            Stop::Unknown(Number::EtherType(_)) if self.layers.as_slice().len() == 1 && !self.is_named() => {}
            Stop::Unknown(number) => {
                match names::of(number) {
                    Some(name) => self.text.str(name),
                    None => crate::text::put!(self.text, "{number}"),
                }
                self.text.str(", length ");
                self.text.dec(self.length() as u64);
            }
            Stop::Truncated(protocol) => {
                self.text.str("[|");
                self.text.str(protocol.name());
                self.text.str("]");
            }
            Stop::Malformed(protocol, flaw) => {
                self.text.str("[");
                self.text.str(protocol.name());
                self.text.str(": ");
                self.text.str(flaw.describe());
                self.text.str("]");
            }
            Stop::Fragment => ip::later_fragment(self),
            Stop::TooDeep => self.text.str("[more headers]"),
        }
    }

    /// Returns whether the payload after the last header has a name.
    fn is_named(&self) -> bool {
        matches!(self.layers.stop(), Stop::Unknown(number) if names::of(number).is_some())
    }

    /// Writes our own text, and sets the following separator.
    pub(crate) fn write_text(&mut self, text: &str, gap: &'static str) {
        self.text.str(text);
        self.text.gap(gap);
    }

    /// Returns the bytes from a header on, within its packet and as captured.
    pub(crate) fn from(&self, layer: &Layer) -> &'a [u8] {
        self.between(layer.offset as usize, self.end)
    }

    /// Returns the bytes after a header, within its packet and as captured.
    pub(crate) fn behind(&self, layer: &Layer) -> &'a [u8] {
        self.between(layer.end() as usize, self.end)
    }

    pub(crate) fn between(&self, start: usize, end: usize) -> &'a [u8] {
        self.frame.get(start..end.min(self.frame.len())).unwrap_or_default()
    }

    /// Returns the length after a header, captured or not.
    pub(crate) fn length_after(&self, layer: &Layer) -> usize {
        self.end.saturating_sub(layer.end() as usize)
    }

    /// Returns the length after the last header.
    pub(crate) fn length(&self) -> usize {
        self.layers.as_slice().last().map_or(self.end, |layer| self.length_after(layer))
    }

    /// Returns the captured bytes after the last header.
    pub(crate) fn remaining(&self) -> &'a [u8] {
        self.layers.as_slice().last().map_or(self.frame, |layer| self.behind(layer))
    }

    /// Returns whether a message at this offset was captured in full, within this packet.
    pub(crate) fn is_whole(&self, offset: usize) -> bool {
        let is_fragment = self.packet.is_some_and(|packet| packet.is_fragment);
        !is_fragment && self.end <= self.frame.len() && offset <= self.end
    }

    /// Writes the packet that an error quotes.
    pub(crate) fn quote(&mut self, packet: &[u8]) {
        if self.is_quoted {
            return;
        }
        let mut layers = Layers::new();
        dissect(Link::RawIp, packet, &mut layers);
        let mut connections = Connections::new(true);
        let options = Options { link: false, verbose: false, ..*self.options };
        let mut out = Vec::new();
        let text = Text::new(&mut out);
        let mut quoted = LinePrinter::new(text, packet, packet.len(), &options, &layers, &mut connections);
        quoted.is_quoted = true;
        quoted.headers();
        self.text.line(&out);
    }
}
