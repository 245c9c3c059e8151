//! Result of a dissection: the headers of a frame, and the reason why it stopped.

use crate::{Flaw, Malformed, Number, Protocol, Role};
use std::fmt;

/// Maximum number of layers of a frame: two tags, a label stack, a tunnel in a tunnel, and the packet in them. The
/// deepest of 100,000 real frames has 10.
pub const MAX_LAYERS: usize = 16;

/// One header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Offset of its first byte in the frame.
    pub offset: u32,
    /// Bytes of the header, options included. 0 only for [`Protocol::Teredo`] without indications.
    pub length: u16,
    /// Its protocol.
    pub protocol: Protocol,
}

impl Layer {
    const NONE: Layer = Layer { offset: 0, length: 0, protocol: Protocol::Ethernet };

    #[inline(always)]
    pub(crate) fn new(offset: usize, length: usize, protocol: Protocol) -> Self {
        Layer { offset: offset as u32, length: length as u16, protocol }
    }

    /// Returns the offset of the first byte after the header.
    #[inline]
    pub fn end(&self) -> u32 {
        self.offset + u32::from(self.length)
    }
}

/// Reason why a dissection stopped. The headers before are complete and in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Everything was decoded, up to the payload (which may be empty).
    End,
    /// The next protocol is unknown.
    Unknown(Number),
    /// The frame ends inside this header: it was truncated by the capture, or by the sender.
    Truncated(Protocol),
    /// This header is inconsistent, or does not fit in the length given by the headers before it.
    Malformed(Protocol, Flaw),
    /// A later fragment of a payload that began in another packet follows.
    Fragment,
    /// There are more than [`MAX_LAYERS`] headers.
    TooDeep,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Stop::End => f.write_str("decoded to the payload"),
            Stop::Unknown(number) => write!(f, "{number} unknown, stopped here"),
            Stop::Truncated(protocol) => write!(f, "truncated inside the {} header", protocol.name()),
            Stop::Malformed(protocol, flaw) => write!(f, "malformed, {}", Malformed { protocol, flaw }),
            Stop::Fragment => f.write_str("not the first fragment, stopped here"),
            Stop::TooDeep => write!(f, "more than {MAX_LAYERS} headers, stopped here"),
        }
    }
}

/// The headers of one frame, outermost first, and the reason why there are not more. Created once and reused for each
/// frame.
#[derive(Clone, Debug)]
pub struct Layers {
    pub(crate) layers: [Layer; MAX_LAYERS],
    pub(crate) count: usize,
    pub(crate) payload_end: u32,
    pub(crate) l3: u8,
    pub(crate) l4: u8,
    pub(crate) stop: Stop,
}

impl Layers {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Layers {
            layers: [Layer::NONE; MAX_LAYERS],
            count: 0,
            payload_end: 0,
            l3: u8::MAX,
            l4: u8::MAX,
            stop: Stop::End,
        }
    }

    /// Returns the headers, outermost first: contiguous, from offset 0.
    #[inline]
    pub fn as_slice(&self) -> &[Layer] {
        self.layers.get(..self.count).unwrap_or(&self.layers)
    }

    /// Returns the reason why the dissection stopped.
    #[inline]
    pub fn stop(&self) -> Stop {
        self.stop
    }

    /// Returns the outermost header of `protocol`.
    #[inline]
    pub fn find(&self, protocol: Protocol) -> Option<&Layer> {
        self.as_slice().iter().find(|layer| layer.protocol == protocol)
    }

    /// Returns the outermost IP header.
    #[inline]
    pub fn network(&self) -> Option<&Layer> {
        self.as_slice().iter().find(|layer| layer.protocol.role() == Role::Network)
    }

    /// Returns the transport header of the outermost IP packet: only extension headers are between the two.
    #[inline]
    pub fn transport(&self) -> Option<&Layer> {
        let outermost = self.as_slice().iter().position(|layer| layer.protocol.role() == Role::Network)?;
        self.transport_after(outermost)
    }

    /// Returns the innermost IP header: without tunnels the same as [`Layers::network`].
    #[inline]
    pub fn inner_network(&self) -> Option<&Layer> {
        self.as_slice().iter().rfind(|layer| layer.protocol.role() == Role::Network)
    }

    /// Returns the transport header of the innermost IP packet.
    #[inline]
    pub fn inner_transport(&self) -> Option<&Layer> {
        let innermost = self.as_slice().iter().rposition(|layer| layer.protocol.role() == Role::Network)?;
        self.transport_after(innermost)
    }

    /// Returns the offset of [`Layers::network`] as in descriptors: 255 if absent, or beyond 254.
    #[inline]
    pub fn l3(&self) -> u8 {
        self.l3
    }

    /// Returns the offset of [`Layers::transport`] as in descriptors: 255 if absent, or beyond 254.
    #[inline]
    pub fn l4(&self) -> u8 {
        self.l4
    }

    /// Returns the payload of the innermost header: the part of `frame` (the frame that was dissected) up to the
    /// innermost length field's end, or the end of the frame.
    #[inline]
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let start = self.as_slice().last().map_or(0, Layer::end);
        frame.get(start as usize..self.payload_end as usize).unwrap_or_default()
    }

    /// Sets the offsets for descriptors.
    pub(crate) fn note_offsets(&mut self) {
        let outermost = self.as_slice().iter().position(|layer| layer.protocol.role() == Role::Network);
        self.l3 = short_offset(outermost.and_then(|index| self.layers.get(index)));
        self.l4 = short_offset(outermost.and_then(|index| self.transport_after(index)));
    }

    /// Returns the transport header of the packet whose IP header has this index.
    fn transport_after(&self, network: usize) -> Option<&Layer> {
        let mut behind = self.as_slice().iter().skip(network + 1);
        let first = behind.find(|layer| layer.protocol.role() != Role::Extension)?;
        (first.protocol.role() == Role::Transport).then_some(first)
    }
}

impl Default for Layers {
    fn default() -> Self {
        Layers::new()
    }
}

#[inline]
fn short_offset(layer: Option<&Layer>) -> u8 {
    layer.and_then(|layer| u8::try_from(layer.offset).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_beyond_a_descriptor_are_none() {
        let layer = |offset| Layer { offset, ..Layer::NONE };
        assert_eq!(short_offset(Some(&layer(254))), 254);
        assert_eq!(short_offset(Some(&layer(255))), 255);
        assert_eq!(short_offset(Some(&layer(256))), 255);
    }

    #[test]
    fn the_transport_belongs_to_its_own_ip_header() {
        use Protocol::*;
        let of = |protocols: &[Protocol]| {
            let mut layers = Layers { count: protocols.len(), ..Layers::new() };
            for (index, protocol) in protocols.iter().enumerate() {
                layers.layers[index] = Layer { offset: index as u32, length: 1, protocol: *protocol };
            }
            let inner = (short_offset(layers.inner_network()), short_offset(layers.inner_transport()));
            ((short_offset(layers.network()), short_offset(layers.transport())), inner)
        };
        let tunnel = [Ethernet, Vlan, Ipv6, HopByHop, Fragment, Udp, Vxlan, Ethernet, Ipv4, Ah, Tcp];
        assert_eq!(of(&tunnel), ((2, 5), (8, 10)));
        assert_eq!(of(&[Ipv4, Ipv6, Tcp]), ((0, 255), (1, 2)), "a tunnel has no transport");
        assert_eq!(of(&[Ipv4, Gre, Ipv4, Esp]), ((0, 255), (2, 3)));
        assert_eq!(of(&[Ipv6, DestinationOptions, Vlan, Tcp]), ((0, 255), (0, 255)));
        assert_eq!(of(&[Ethernet, Vlan, Tcp]), ((255, 255), (255, 255)));
    }
}
