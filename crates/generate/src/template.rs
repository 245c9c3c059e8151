//! Frames made from fields; in this form one UDP datagram.

use linerate_burst::{Block, Desc, Nanos};
use linerate_wire::{MacAddr, Pseudo, Unfit, ethernet, ipv4, ipv6, registry, udp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ethernet's least frame, without FCS (IEEE 802.3, clause 3.2.8).
const LEAST_FRAME: usize = 60;
const FCS: usize = 4;
/// The longest IPv4 packet; an IPv6 payload may have as much.
const MOST_BYTES: usize = 65_535;

/// One UDP datagram in an Ethernet frame, with lengths and checksums computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpTemplate {
    frame: Vec<u8>,
    datagram: usize,
}

/// A template that cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    /// One address is IPv4, the other IPv6.
    #[error("source {0} and destination {1} are not of the same family")]
    Families(IpAddr, IpAddr),
    /// The headers do not fit, or the frame is longer than any interface sends.
    #[error("a UDP frame over {family} has {least} to {most} bytes with FCS, not {size}")]
    Size {
        /// IPv4 or IPv6.
        family: &'static str,
        /// Headers alone, padded to the least Ethernet allows.
        least: usize,
        /// The longest.
        most: usize,
        /// What was asked for.
        size: usize,
    },
    /// A header cannot be written.
    #[error(transparent)]
    Unfit(Unfit),
}

impl UdpTemplate {
    /// A frame of `size` bytes with FCS (which is not part of it) between these MAC addresses, IP addresses
    /// and ports, source first.
    pub fn new(
        macs: (MacAddr, MacAddr),
        ips: (IpAddr, IpAddr),
        ports: (u16, u16),
        size: usize,
    ) -> Result<Self, BadTemplate> {
        let (family, ip, ether_type) = match ips {
            (IpAddr::V4(source), IpAddr::V4(destination)) => ("IPv4", Ip::V4(source, destination), ethernet::IPV4),
            (IpAddr::V6(source), IpAddr::V6(destination)) => ("IPv6", Ip::V6(source, destination), ethernet::IPV6),
            (source, destination) => return Err(BadTemplate::Families(source, destination)),
        };
        let headers = ethernet::LEN + ip.header() + udp::LEN;
        let (least, most) = (headers.max(LEAST_FRAME) + FCS, ethernet::LEN + MOST_BYTES + FCS);
        if !(least..=most).contains(&size) {
            return Err(BadTemplate::Size { family, least, most, size });
        }
        let mut frame = vec![0; size - FCS];
        let link = ethernet::Header { source: macs.0, destination: macs.1, ether_type };
        let (head, packet) = frame.split_at_mut(ethernet::LEN);
        link.emit(head).map_err(BadTemplate::Unfit)?;
        ip.fill(packet, ports).map_err(BadTemplate::Unfit)?;
        Ok(UdpTemplate { frame, datagram: ethernet::LEN + ip.header() })
    }

    /// Where the UDP header begins; it is followed by payload to the end of the frame.
    pub fn datagram(&self) -> usize {
        self.datagram
    }

    /// The frame, without FCS.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// A block of `copies` frames.
    pub fn block(&self, copies: usize) -> Block {
        let mut block = Block::new(copies * (self.frame.len() + linerate_burst::block::RECORD_HEADER), copies);
        let length = self.frame.len() as u32;
        for _ in 0..copies {
            let pushed = block.push(&Desc::new(Nanos::ZERO, 0, length), &self.frame);
            debug_assert!(pushed, "the block was made for so many");
        }
        block
    }
}

/// Two addresses of one family, source first.
enum Ip {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl Ip {
    fn header(&self) -> usize {
        match self {
            Ip::V4(..) => ipv4::LEN,
            Ip::V6(..) => ipv6::LEN,
        }
    }

    /// Writes a UDP datagram that fills `packet` behind the IP header.
    fn fill(&self, packet: &mut [u8], (source_port, destination_port): (u16, u16)) -> Result<(), Unfit> {
        let (head, datagram) = packet.split_at_mut(self.header());
        let pseudo = match *self {
            Ip::V4(source, destination) => {
                ipv4::Header { source, destination, ..ipv4::Header::new(registry::UDP) }.emit(datagram.len(), head)?;
                Pseudo::V4 { source, destination }
            }
            Ip::V6(source, destination) => {
                ipv6::Header { source, destination, ..ipv6::Header::new(registry::UDP) }.emit(datagram.len(), head)?;
                Pseudo::V6 { source, destination }
            }
        };
        udp::Header { source_port, destination_port }.emit(datagram.len() - udp::LEN, datagram)?;
        udp::fill_checksum(datagram, &pseudo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_wire::{Layers, Link, Protocol, Stop, dissect};

    const MACS: (MacAddr, MacAddr) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));

    fn ips(source: &str, destination: &str) -> (IpAddr, IpAddr) {
        (source.parse().unwrap(), destination.parse().unwrap())
    }

    #[test]
    fn frames_are_what_they_say_with_right_checksums() {
        for (addresses, ip) in
            [(ips("198.18.0.1", "198.18.0.2"), Protocol::Ipv4), (ips("2001:db8::1", "2001:db8::2"), Protocol::Ipv6)]
        {
            for size in [68, 70, 1518, 9000] {
                let template = UdpTemplate::new(MACS, addresses, (5, 9), size).unwrap();
                assert_eq!(template.frame().len(), size - 4);
                let mut layers = Layers::new();
                dissect(Link::Ethernet, template.frame(), &mut layers);
                let protocols: Vec<_> = layers.as_slice().iter().map(|layer| layer.protocol).collect();
                assert_eq!(protocols, [Protocol::Ethernet, ip, Protocol::Udp]);
                assert_eq!(layers.stop(), Stop::End);
                let pseudo = match addresses {
                    (IpAddr::V4(source), IpAddr::V4(destination)) => Pseudo::V4 { source, destination },
                    (IpAddr::V6(source), IpAddr::V6(destination)) => Pseudo::V6 { source, destination },
                    _ => unreachable!(),
                };
                let datagram = udp::View::parse(&template.frame()[usize::from(layers.l4())..]).unwrap();
                assert!(datagram.is_checksum_right(&pseudo));
                assert_eq!((datagram.source_port(), datagram.destination_port()), (5, 9));
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let build = |source, destination, size| UdpTemplate::new(MACS, ips(source, destination), (1, 2), size);
        assert!(build("10.0.0.1", "10.0.0.2", 64).is_ok());
        let error = build("10.0.0.1", "10.0.0.2", 63).unwrap_err().to_string();
        assert_eq!(error, "a UDP frame over IPv4 has 64 to 65553 bytes with FCS, not 63");
        assert!(build("10.0.0.1", "10.0.0.2", 65_553).is_ok() && build("10.0.0.1", "10.0.0.2", 65_554).is_err());
        assert!(matches!(build("::1", "10.0.0.2", 64), Err(BadTemplate::Families(..))));
    }

    #[test]
    fn a_block_holds_as_many_copies_as_asked_for() {
        let template = UdpTemplate::new(MACS, ips("10.0.0.1", "10.0.0.2"), (1, 2), 1518).unwrap();
        let block = template.block(300);
        assert!(block.len() == 300 && block.burst().iter().all(|(_, frame)| frame == template.frame()));
    }
}
