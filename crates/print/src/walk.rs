//! From one header of a frame to the next.

use crate::connections::Connections;
use crate::text::Text;
use crate::{Options, arp, icmp, icmpv6, igmp, ip, link, llc, names, routing, sctp, tcp, tunnel, udp};
use linerate_wire::{Layer, Layers, Link, Number, Protocol, Stop, dissect};

/// The line of a frame on its way.
pub(crate) struct Walk<'a, 'o> {
    pub text: Text<'o>,
    pub frame: &'a [u8],
    pub options: &'a Options,
    pub layers: &'a Layers,
    pub connections: &'a mut Connections,
    /// The IP packet that is being looked at.
    pub packet: Option<Packet>,
    /// Where all ends, by what was captured or not: the frame, the packet.
    pub end: usize,
    /// Whether an error quotes this packet.
    pub is_quoted: bool,
}

/// An IP packet.
#[derive(Clone, Copy)]
pub(crate) struct Packet {
    pub is_v6: bool,
    /// IPv4 addresses as IPv6 embeds them.
    pub source: [u8; 16],
    pub destination: [u8; 16],
    /// It has other parts.
    pub is_fragment: bool,
    /// Ports stand beside the addresses.
    pub has_ports: bool,
}

impl<'a, 'o> Walk<'a, 'o> {
    pub(crate) fn new(
        text: Text<'o>,
        frame: &'a [u8],
        wire: usize,
        options: &'a Options,
        layers: &'a Layers,
        connections: &'a mut Connections,
    ) -> Self {
        Walk { text, frame, options, layers, connections, packet: None, end: wire, is_quoted: false }
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
            // What they say follows from what is behind them.
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
            Protocol::Teredo => self.say("Teredo", ": "),
        }
    }

    /// What is said where there are no more headers.
    fn rest(&mut self) {
        match self.layers.stop() {
            Stop::End => {}
            Stop::Unknown(Number::IpProtocol(number)) => routing::write(self, number),
            Stop::Unknown(Number::Sap(_)) => llc::rest(self),
            // Its header has said it.
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

    /// Whether what is behind the last header has a name.
    fn is_named(&self) -> bool {
        matches!(self.layers.stop(), Stop::Unknown(number) if names::of(number).is_some())
    }

    /// Text of ours, and what goes between it and what follows.
    pub(crate) fn say(&mut self, text: &str, gap: &'static str) {
        self.text.str(text);
        self.text.gap(gap);
    }

    /// The bytes from a header on, as far as they are there and within its packet.
    pub(crate) fn from(&self, layer: &Layer) -> &'a [u8] {
        self.between(layer.offset as usize, self.end)
    }

    /// The bytes behind a header, in the same way.
    pub(crate) fn behind(&self, layer: &Layer) -> &'a [u8] {
        self.between(layer.end() as usize, self.end)
    }

    pub(crate) fn between(&self, start: usize, end: usize) -> &'a [u8] {
        self.frame.get(start..end.min(self.frame.len())).unwrap_or_default()
    }

    /// How much there is behind a header, captured or not.
    pub(crate) fn length_behind(&self, layer: &Layer) -> usize {
        self.end.saturating_sub(layer.end() as usize)
    }

    /// How much there is behind the last header.
    pub(crate) fn length(&self) -> usize {
        self.layers.as_slice().last().map_or(self.end, |layer| self.length_behind(layer))
    }

    /// What is behind the last header, as far as it is there.
    pub(crate) fn remaining(&self) -> &'a [u8] {
        self.layers.as_slice().last().map_or(self.frame, |layer| self.behind(layer))
    }

    /// Whether all of a message that begins there was captured, in this packet alone.
    pub(crate) fn is_whole(&self, offset: usize) -> bool {
        let is_fragment = self.packet.is_some_and(|packet| packet.is_fragment);
        !is_fragment && self.end <= self.frame.len() && offset <= self.end
    }

    /// The line of a packet that an error quotes.
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
        let mut quoted = Walk::new(text, packet, packet.len(), &options, &layers, &mut connections);
        quoted.is_quoted = true;
        quoted.headers();
        self.text.line(&out);
    }
}
