//! Protocols of frames.

use linerate_burst::LinkType;
use linerate_headers::{Layers, Link, Protocol, Stop, dissect};

/// Number of frames by protocol: one frame counts once for each protocol in it.
#[derive(Clone, Debug, Default)]
pub struct Mix {
    /// By the number of the protocol.
    rows: Vec<Option<(Protocol, u64)>>,
    /// Number of frames not dissected completely.
    unknown: u64,
}

impl Mix {
    /// Returns the protocols that occurred, each with its frames, outer ones first.
    pub fn protocols(&self) -> impl Iterator<Item = (Protocol, u64)> + '_ {
        self.rows.iter().flatten().copied()
    }

    /// Returns the number of frames not dissected completely: with an unknown protocol, malformed, truncated, or of an
    /// unknown link type.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Adds another mix.
    pub fn add(&mut self, other: &Mix) {
        other.protocols().for_each(|(protocol, frames)| self.count(protocol, frames));
        self.unknown += other.unknown;
    }

    /// Adds one frame; `layers` is the dissector.
    pub(crate) fn count_frame(&mut self, link: LinkType, frame: &[u8], layers: &mut Layers) {
        let Some(link) = Link::from_linktype(link.0) else {
            self.unknown += 1;
            return;
        };
        dissect(link, frame, layers);
        let found = layers.as_slice();
        for (at, layer) in found.iter().enumerate() {
            if found[..at].iter().all(|outer| outer.protocol != layer.protocol) {
                self.count(layer.protocol, 1);
            }
        }
        self.unknown += u64::from(!matches!(layers.stop(), Stop::End | Stop::Fragment));
    }

    fn count(&mut self, protocol: Protocol, frames: u64) {
        let at = protocol as usize;
        if at >= self.rows.len() {
            self.rows.resize(at + 1, None);
        }
        self.rows[at].get_or_insert((protocol, 0)).1 += frames;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ether_type: u16, payload: &[u8]) -> Vec<u8> {
        [&[2; 12], &ether_type.to_be_bytes()[..], payload].concat()
    }

    #[test]
    fn a_frame_counts_once_for_each_protocol_it_has() {
        let mut ipv4 = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        ipv4.extend([0, 1, 0, 2, 0, 8, 0, 0]);
        let tagged = frame(0x8100, &[&[0, 1, 0x81, 0, 0, 2, 8, 0][..], &ipv4].concat());
        let (mut one, mut layers) = (Mix::default(), Layers::new());
        one.count_frame(LinkType::ETHERNET, &frame(0x0800, &ipv4), &mut layers);
        one.count_frame(LinkType::ETHERNET, &tagged, &mut layers);
        one.count_frame(LinkType(9999), &tagged, &mut layers);
        let mut mix = Mix::default();
        mix.count_frame(LinkType::ETHERNET, &frame(0x1234, &[]), &mut layers);
        mix.add(&one);
        let found: Vec<_> = mix.protocols().map(|(protocol, frames)| (protocol.name(), frames)).collect();
        assert_eq!(found, [("ethernet", 3), ("vlan", 1), ("ipv4", 2), ("udp", 2)]);
        assert_eq!(mix.unknown(), 2);
    }
}
