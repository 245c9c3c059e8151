//! Truncation of frames.

use linerate_headers::{Layer, Layers, Link, Role, dissect};
use std::fmt;
use std::str::FromStr;

/// Part of a frame to keep, as text `96`, `l3` or `l4+64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// At most this many bytes.
    Bytes(u32),
    /// Up to the end of a header, plus this number of bytes.
    Header(Header, u32),
}

/// A header of the outermost packet, after which to truncate. A frame without such a header is truncated after the
/// headers before it: `Transport` keeps all of an ARP packet, and the IP header of a later fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// All headers before the IP packet: Ethernet, tags, labels, PPPoE; without an IP packet, all headers of that kind.
    Link,
    /// IP, with extension headers.
    Network,
    /// TCP, UDP and others, with options.
    Transport,
}

/// Error in the text of a slice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid slice {0:?}; expected a number of bytes above 0, or l2, l3, l4 for the end of that header, or l4+64 for 64 bytes more"
)]
pub struct SliceError(String);

impl Slice {
    /// Returns the number of bytes of a frame to keep, at most its length. `layers` is overwritten.
    #[inline]
    pub fn length(self, link: Option<Link>, frame: &[u8], layers: &mut Layers) -> usize {
        let length = match self {
            Slice::Bytes(bytes) => bytes as usize,
            Slice::Header(header, more) => header.end(link, frame, layers) + more as usize,
        };
        length.min(frame.len())
    }
}

impl Header {
    /// Returns the end of the header; 0 for an unknown link type.
    fn end(self, link: Option<Link>, frame: &[u8], layers: &mut Layers) -> usize {
        let Some(link) = link else { return 0 };
        dissect(link, frame, layers);
        let layers = layers.as_slice();
        let run = |from: usize, role| layers[from..].iter().take_while(|layer| layer.protocol.role() == role).count();
        let link = run(0, Role::Link);
        let is = |index: usize, role| layers.get(index).is_some_and(|layer: &Layer| layer.protocol.role() == role);
        let count = match self {
            Header::Link => link,
            _ if !is(link, Role::Network) => link,
            Header::Network => link + 1 + run(link + 1, Role::Extension),
            Header::Transport => {
                let network = link + 1 + run(link + 1, Role::Extension);
                network + usize::from(is(network, Role::Transport))
            }
        };
        layers[..count].last().map_or(0, |layer| layer.end() as usize)
    }
}

impl FromStr for Slice {
    type Err = SliceError;

    fn from_str(text: &str) -> Result<Self, SliceError> {
        let (base, more) = match text.split_once('+') {
            Some((base, more)) => (base, more.parse().ok()),
            None => (text, Some(0)),
        };
        let header = match base {
            "l2" => Some(Header::Link),
            "l3" => Some(Header::Network),
            "l4" => Some(Header::Transport),
            _ => None,
        };
        let slice = match (header, more) {
            (Some(header), Some(more)) => Some(Slice::Header(header, more)),
            (None, Some(0)) => base.parse().ok().filter(|bytes| *bytes > 0).map(Slice::Bytes),
            _ => None,
        };
        slice.ok_or_else(|| SliceError(text.to_owned()))
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (header, more) = match *self {
            Slice::Bytes(bytes) => return write!(f, "{bytes}"),
            Slice::Header(header, more) => (header, more),
        };
        f.write_str(match header {
            Header::Link => "l2",
            Header::Network => "l3",
            Header::Transport => "l4",
        })?;
        if more == 0 { Ok(()) } else { write!(f, "+{more}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_headers::build::{Frame, Header as Part};
    use linerate_headers::{MacAddr, arp, ethernet, gre, ipv4, ipv6, ipv6_fragment, options::Options, tcp, udp, vlan};

    #[test]
    fn text_round_trips() {
        for text in ["1", "96", "l2", "l3", "l4", "l4+64", "l2+1"] {
            assert_eq!(text.parse::<Slice>().unwrap().to_string(), text);
        }
        for text in ["", "0", "-1", "l5", "l4+", "l4+x", "l4-1", "96+1", "+5", "L4"] {
            let error = text.parse::<Slice>().unwrap_err().to_string();
            assert!(error.contains("l4+64"), "{text}: {error}");
        }
    }

    /// Returns the lengths that `l2`, `l3`, `l4` keep of a frame with these headers.
    fn kept(headers: &[&dyn Part], payload: &[u8]) -> [usize; 3] {
        let frame = Frame::new(headers, payload).to_vec().unwrap();
        kept_lengths(Some(Link::Ethernet), &frame)
    }

    fn kept_lengths(link: Option<Link>, frame: &[u8]) -> [usize; 3] {
        let mut layers = Layers::new();
        [Header::Link, Header::Network, Header::Transport].map(|header| {
            let length = Slice::Header(header, 0).length(link, frame, &mut layers);
            let more = Slice::Header(header, 7).length(link, frame, &mut layers);
            assert_eq!(more, (length + 7).min(frame.len()));
            length
        })
    }

    #[test]
    fn frames_are_truncated_after_the_requested_header() {
        let link = ethernet::Header { destination: MacAddr::BROADCAST, source: MacAddr([2; 6]), ether_type: 0 };
        let tag = vlan::Header { id: 7, priority: 0, drop_eligible: false, ether_type: 0 };
        let (v4, v6) = (ipv4::Header::new(0), ipv6::Header::new(0));
        let segment = tcp::Header { options: Options::new(&[1; 12]).unwrap(), ..tcp::Header::default() };
        let datagram = udp::Header { source_port: 7, destination_port: 9 };
        let fragment =
            ipv6_fragment::Header { next_header: 0, fragment_offset: 0, more_fragments: true, identification: 1 };
        let later = ipv6_fragment::Header { fragment_offset: 8, ..fragment };
        let routing = gre::Header::Routing(gre::Routing::default());
        let question = arp::Packet {
            operation: arp::REQUEST,
            sender_mac: MacAddr([2; 6]),
            sender_ip: [10, 0, 0, 1].into(),
            target_mac: MacAddr([0; 6]),
            target_ip: [10, 0, 0, 2].into(),
        };
        let data = [9; 100];
        assert_eq!(kept(&[&link, &v4, &segment], &data), [14, 34, 66]);
        assert_eq!(kept(&[&link, &tag, &tag, &v4, &datagram], &data), [22, 42, 50]);
        assert_eq!(kept(&[&link, &v6, &fragment, &datagram], &data), [14, 62, 70]);
        assert_eq!(kept(&[&link, &v6, &later, &datagram], &data), [14, 62, 62], "a later fragment has no transport");
        assert_eq!(
            kept(&[&link, &v4, &routing, &v6, &datagram], &data),
            [14, 34, 34],
            "the tunnel counts, not its load"
        );
        assert_eq!(kept(&[&link, &question], &[0; 18]), [42; 3]);
        assert_eq!(kept(&[&ethernet::Header { ether_type: 0x88cc, ..link }], &data), [14; 3]);
        let whole = Frame::new(&[&link, &v4, &segment], &data).to_vec().unwrap();
        assert_eq!(kept_lengths(Some(Link::Ethernet), &whole[..50]), [14, 34, 34], "no header that is cut itself");
        assert_eq!(kept_lengths(Some(Link::RawIp), &whole[14..]), [0, 20, 52]);
        assert_eq!(kept_lengths(Some(Link::Ethernet), &[]), [0; 3]);
        assert_eq!(kept_lengths(None, &whole), [0; 3]);
        assert_eq!(Slice::Bytes(20).length(None, &whole, &mut Layers::new()), 20);
        assert_eq!(Slice::Bytes(2000).length(None, &whole, &mut Layers::new()), whole.len());
    }
}
