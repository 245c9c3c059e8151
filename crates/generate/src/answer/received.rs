//! Received frames up to their payload, and the link headers of answers.

use super::addresses::{Addresses, Vlans, is_station};
use linerate_burst::Count;
use linerate_headers::{MacAddr, ethernet, vlan};
use std::net::IpAddr;

/// An Ethernet header and its tags.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub ethernet: ethernet::Header,
    tags: [vlan::Header; Vlans::MOST],
    count: usize,
    /// True for packets of a tunnel, which have no link header.
    pub is_bare: bool,
}

impl Link {
    /// Creates a header from `source` to `destination`, in these VLANs.
    pub(super) fn new(source: MacAddr, destination: MacAddr, vlans: Vlans) -> Self {
        let mut link = Link {
            ethernet: ethernet::Header { destination, source, ether_type: vlan::CUSTOMER },
            tags: [vlan::Header { id: 0, priority: 0, drop_eligible: false, ether_type: 0 }; Vlans::MOST],
            count: vlans.as_slice().len(),
            is_bare: false,
        };
        for (tag, id) in link.tags.iter_mut().zip(vlans.as_slice()) {
            tag.id = *id;
        }
        if link.count > 1 {
            (link.ethernet.ether_type, link.tags[0].ether_type) = (vlan::SERVICE, vlan::CUSTOMER);
        }
        link
    }

    /// Returns a header with the same tags, between other stations.
    pub(super) fn between(&self, source: MacAddr, destination: MacAddr) -> Self {
        Link { ethernet: ethernet::Header { source, destination, ..self.ethernet }, ..*self }
    }

    /// Returns the tags, outermost first.
    pub(super) fn tags(&self) -> &[vlan::Header] {
        &self.tags[..self.count]
    }

    /// Returns the VLANs, without tags that only give a priority (identifier 0).
    fn vlans(&self) -> Option<Vlans> {
        let mut ids = [0; Vlans::MOST];
        let tagged = self.tags().iter().map(|tag| tag.id).filter(|id| *id != 0);
        let count = ids.iter_mut().zip(tagged).map(|(to, id)| *to = id).count();
        Vlans::new(&ids[..count])
    }
}

/// Frame from another station.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received<'a> {
    pub link: Link,
    pub vlans: Vlans,
    /// Type of the payload.
    pub ether_type: u16,
    pub payload: &'a [u8],
}

impl<'a> Received<'a> {
    /// Parses a frame; if it can get no answer, returns its counter.
    pub(super) fn parse(frame: &'a [u8]) -> Result<Self, Count> {
        let view = ethernet::View::parse(frame).map_err(|_| Count::AnswerMalformed)?;
        let (mut link, mut payload) = (Link::new(view.source(), view.destination(), Vlans::NONE), view.payload());
        let mut ether_type = view.ether_type();
        link.ethernet.ether_type = ether_type;
        while matches!(ether_type, vlan::CUSTOMER | vlan::SERVICE | vlan::OLD_SERVICE) {
            let tag = vlan::View::parse(payload).map_err(|_| Count::AnswerMalformed)?;
            *link.tags.get_mut(link.count).ok_or(Count::AnswerOther)? = tag.header();
            link.count += 1;
            (ether_type, payload) = (tag.ether_type(), tag.payload());
        }
        if !is_station(link.ethernet.source) {
            return Err(Count::AnswerMartian);
        }
        let vlans = link.vlans().ok_or(Count::AnswerOther)?;
        Ok(Received { link, vlans, ether_type, payload })
    }

    /// Parses an IP packet of a tunnel, which has no station.
    pub(super) fn of_packet(packet: &'a [u8]) -> Result<Self, Count> {
        let ether_type = match packet.first().map(|first| first >> 4) {
            Some(4) => ethernet::IPV4,
            Some(6) => ethernet::IPV6,
            _ => return Err(Count::AnswerMalformed),
        };
        let no_station = MacAddr([0; 6]);
        let link = Link { is_bare: true, ..Link::new(no_station, no_station, Vlans::NONE) };
        Ok(Received { link, vlans: Vlans::NONE, ether_type, payload: packet })
    }

    /// Returns the MAC address of the sender.
    pub(super) fn source(&self) -> MacAddr {
        self.link.ethernet.source
    }

    /// Returns the MAC address of `ip`, if it is one of `own` and the frame was sent to that station, or to one of its
    /// groups.
    pub(super) fn asked(&self, own: &Addresses, ip: IpAddr, groups: &[MacAddr]) -> Result<MacAddr, Count> {
        let mac = own.find(ip, self.vlans).ok_or(Count::AnswerOther)?;
        let destination = self.link.ethernet.destination;
        if self.link.is_bare {
            return Ok(mac);
        }
        if destination != mac && !groups.contains(&destination) {
            return Err(Count::AnswerOther);
        }
        if self.source() == mac { Err(Count::AnswerMartian) } else { Ok(mac) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    #[test]
    fn tags_are_in_order_outermost_first() {
        let link = |ids: &[u16]| Link::new(A, B, Vlans::new(ids).unwrap());
        assert!(link(&[]).tags().is_empty());
        let tagged = link(&[7, 100]);
        let tags: Vec<(u16, u16)> = tagged.tags().iter().map(|tag| (tag.id, tag.ether_type)).collect();
        assert_eq!((tagged.ethernet.ether_type, tags), (vlan::SERVICE, vec![(7, vlan::CUSTOMER), (100, 0)]));
        let back = tagged.between(B, A);
        assert_eq!((back.ethernet.source, back.tags()), (B, tagged.tags()));
    }

    #[test]
    fn a_priority_tag_has_no_vlan_and_three_tags_are_too_many() {
        let head = [&A.0[..], &B.0].concat();
        let frame = |rest: &[u8]| [&head, rest].concat();
        let priority = frame(&[0x81, 0, 0xa0, 0, 8, 6, 9]);
        let received = Received::parse(&priority).unwrap();
        assert_eq!((received.vlans, received.ether_type, received.payload), (Vlans::NONE, 0x0806, &[9][..]));
        assert_eq!((received.link.tags()[0].priority, received.source()), (5, B));
        let two = frame(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 100, 8, 0]);
        assert_eq!(Received::parse(&two).unwrap().vlans, Vlans::new(&[7, 100]).unwrap());
        let three = frame(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 100, 0x81, 0, 0, 1, 8, 0]);
        assert_eq!(Received::parse(&three).unwrap_err(), Count::AnswerOther);
        assert_eq!(Received::parse(&two[..17]).unwrap_err(), Count::AnswerMalformed);
        assert_eq!(Received::parse(&frame(&[0x81, 0, 0x0f, 0xff, 8, 0])).unwrap_err(), Count::AnswerOther);
        let group = [&A.0[..], &[1, 0, 0, 0, 0, 2], &[8, 6]].concat();
        assert_eq!(Received::parse(&group).unwrap_err(), Count::AnswerMartian);
    }
}
