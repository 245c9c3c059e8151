//! Extracts the UDP datagram of a frame.

use super::Datagrams;
use crate::stream_memory::Ends;
use linerate_burst::{Flags, Nanos};
use linerate_headers::{Layers, Link, Protocol, dissect, ipv4, ipv6, udp};
use std::net::{IpAddr, SocketAddr};

/// IP protocol number of UDP.
const UDP: u8 = 17;

/// Reasons why a datagram is not accepted.
enum DatagramFault {
    Fragment,
    /// Truncated, or with contradictory lengths.
    Malformed,
    /// Wrong UDP or IPv4 header checksum.
    Checksum,
    /// Several datagrams merged by offload (a super-frame); their boundaries are lost.
    Joined,
}

impl Datagrams {
    /// Processes the datagram of a frame, if it is UDP and `wanted` accepts its addresses. Returns whether it was. All
    /// fragments are counted, for any address, and not reassembled; no IPv6 extension headers are followed. `flags`
    /// give the state of its checksums, and whether it is a super-frame.
    pub fn receive_frame(
        &mut self,
        link: Link,
        frame: &[u8],
        flags: Flags,
        wanted: impl FnOnce(&Ends) -> bool,
        now: Nanos,
    ) -> bool {
        let is_trusted = flags.contains(Flags::CHECKSUM_PARTIAL) || flags.contains(Flags::CHECKSUM_VALID);
        let Some((ends, mut payload)) = datagram(link, frame, is_trusted) else { return false };
        if flags.contains(Flags::SUPER_FRAME) {
            payload = Err(DatagramFault::Joined);
        }
        if ends.is_some_and(|ends| !wanted(&ends)) {
            return false;
        }
        match (ends, payload) {
            (Some(ends), Ok(payload)) => self.receive(&ends, payload, now),
            (_, Err(bad)) => {
                self.counts.received += 1;
                match bad {
                    DatagramFault::Fragment => self.counts.fragments += 1,
                    DatagramFault::Malformed => self.counts.malformed += 1,
                    DatagramFault::Checksum => self.counts.bad_checksum += 1,
                    DatagramFault::Joined => self.counts.joined += 1,
                }
            }
            (None, Ok(_)) => {}
        }
        true
    }
}

/// Addresses, if known, and payload.
type ParsedDatagram<'a> = (Option<Ends>, Result<&'a [u8], DatagramFault>);

/// Returns addresses and payload; `None` if it is not UDP.
fn datagram(link: Link, frame: &[u8], is_trusted: bool) -> Option<ParsedDatagram<'_>> {
    let mut layers = Layers::new();
    dissect(link, frame, &mut layers);
    let network = layers.network()?;
    let bytes = frame.get(network.offset as usize..)?;
    let (from, to, udp_bytes, pseudo, is_cut): (IpAddr, IpAddr, _, _, _) = match network.protocol {
        Protocol::Ipv4 => {
            let ip = ipv4::View::parse(bytes).ok().filter(|ip| ip.protocol() == UDP)?;
            if ip.is_fragment() {
                return Some((None, Err(DatagramFault::Fragment)));
            }
            if !is_trusted && !ip.is_checksum_right() {
                return Some((None, Err(DatagramFault::Checksum)));
            }
            (ip.source().into(), ip.destination().into(), ip.payload(), ip.pseudo(), ip.is_cut())
        }
        Protocol::Ipv6 => {
            let ip = ipv6::View::parse(bytes).ok()?;
            if let Some(fragment) = layers.find(Protocol::Fragment) {
                if frame.get(fragment.offset as usize) != Some(&UDP) {
                    return None;
                }
                return Some((None, Err(DatagramFault::Fragment)));
            }
            if ip.next_header() != UDP {
                return None;
            }
            (ip.source().into(), ip.destination().into(), ip.payload(), ip.pseudo(), ip.is_cut())
        }
        _ => return None,
    };
    let Ok(view) = udp::View::parse(udp_bytes) else { return Some((None, Err(DatagramFault::Malformed))) };
    let end = SocketAddr::new;
    let ends = Some(Ends { from: end(from, view.source_port()), to: end(to, view.destination_port()) });
    Some((
        ends,
        match () {
            () if is_cut || view.is_cut() => Err(DatagramFault::Malformed),
            () if !is_trusted && !view.is_checksum_right(&pseudo) => Err(DatagramFault::Checksum),
            () => Ok(view.payload()),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FORM, config, datagram as payload};
    use super::*;
    use linerate_headers::Sum;

    fn taken(frame: &[u8], is_trusted: bool) -> (bool, [u64; 4]) {
        let mut datagrams = Datagrams::new(config(FORM, 3)).unwrap();
        let flags = if is_trusted { Flags::CHECKSUM_PARTIAL } else { Flags::NONE };
        let taken = datagrams.receive_frame(Link::Ethernet, frame, flags, |ends| ends.to.port() == 9, Nanos(1));
        let counts = datagrams.counts();
        (taken, [counts.placed, counts.malformed, counts.bad_checksum, counts.fragments])
    }

    /// Builds Ethernet, IPv4 and UDP headers around a payload.
    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut ip = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        ip[2..4].copy_from_slice(&(28 + payload.len() as u16).to_be_bytes());
        let sum = Sum::of(&ip).checksum();
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut datagram = [&[0, 7, 0, 9][..], &(8 + payload.len() as u16).to_be_bytes(), &[0, 0], payload].concat();
        let pseudo = ipv4::View::parse(&[&ip[..], &datagram].concat()).unwrap().pseudo();
        udp::fill_checksum(&mut datagram, &pseudo).unwrap();
        let padding = [0; 20];
        [&[2; 12][..], &[8, 0], &ip, &datagram, &padding].concat()
    }

    /// Fragments of TCP belong to other consumers.
    #[test]
    fn ipv6_fragments_of_datagrams_are_counted() {
        for (next, wanted) in [(UDP, (true, [0, 0, 0, 1])), (6, (false, [0; 4]))] {
            let ip = [&[0x60, 0, 0, 0, 0, 28, 44, 64][..], &[0xfe; 32]].concat();
            let fragment = [next, 0, 0, 1, 0, 0, 0, 9];
            let frame = [&[2; 12][..], &[0x86, 0xdd], &ip, &fragment, &[0; 20]].concat();
            assert_eq!(taken(&frame, false), wanted);
        }
    }

    #[test]
    fn datagrams_are_extracted_from_frames() {
        let good = frame(&payload(1));
        assert_eq!(taken(&good, false), (true, [1, 0, 0, 0]));
        let mut changed = good.clone();
        // Data, then the address in the IP header.
        changed[50] ^= 1;
        assert_eq!(taken(&changed, false), (true, [0, 0, 1, 0]));
        assert_eq!(taken(&changed, true), (true, [1, 0, 0, 0]));
        changed.clone_from(&good);
        changed[29] ^= 1;
        assert_eq!(taken(&changed, false), (true, [0, 0, 1, 0]));
        // One of several fragments, and one whose end is missing.
        changed.clone_from(&good);
        changed[20] = 0x20;
        assert_eq!(taken(&changed, false), (true, [0, 0, 0, 1]));
        assert_eq!(taken(&good[..50], false), (true, [0, 1, 0, 0]));
        // To another port, and no UDP at all.
        changed.clone_from(&good);
        changed[37] = 8;
        assert_eq!(taken(&changed, true), (false, [0; 4]));
        changed[23] = 6;
        assert_eq!(taken(&changed, true), (false, [0; 4]));
        assert_eq!(taken(&[], true), (false, [0; 4]));
    }
}
