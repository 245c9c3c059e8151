//! Neighbor solicitations and advertisements (RFC 4861 section 7), including duplicate address detection (RFC 4862
//! section 5.4).

use super::addresses::{Addresses, Vlans, is_host, is_station};
use super::outbox::Outbox;
use super::received::{Link, Received};
use linerate_burst::Count;
use linerate_headers::ndp::{ADVERTISEMENT, ALL_NODES, Advertisement, HOP_LIMIT, SOLICITATION, Solicitation};
use linerate_headers::ndp::{multicast_mac, solicited_node};
use linerate_headers::{MacAddr, icmpv6, ipv6, registry};
use std::net::{IpAddr, Ipv6Addr};

/// Length of a body with one MAC address.
const BODY: usize = 28;

/// Answers a solicitation for one of `own`; `message` is the payload of `packet`, with a right checksum.
pub(super) fn answer(
    received: &Received<'_>,
    packet: &ipv6::View<'_>,
    message: &icmpv6::View<'_>,
    own: &Addresses,
    outbox: &mut Outbox,
) -> Result<Count, Count> {
    let asked = Solicitation::parse(message.body()).map_err(|_| Count::AnswerMalformed)?;
    let group = solicited_node(asked.target);
    let mac = received.asked(own, IpAddr::V6(asked.target), &[multicast_mac(group)])?;
    // Section 7.1.1; duplicate address detection has no source address yet, and uses the group.
    let (source, probe) = (packet.source(), packet.source().is_unspecified());
    let right_place = packet.destination() == group || (packet.destination() == asked.target && !probe);
    let source_mac = asked.source_mac;
    if packet.hop_limit() != HOP_LIMIT || message.code() != 0 || !right_place || (probe && source_mac.is_some()) {
        return Err(Count::AnswerMalformed);
    }
    let back = source_mac.unwrap_or(received.source());
    if !probe && (!is_host(IpAddr::V6(source)) || !is_station(back) || back == mac) {
        return Err(Count::AnswerMartian);
    }
    let answer =
        Advertisement { router: false, solicited: !probe, replace: true, target: asked.target, target_mac: Some(mac) };
    let (back, destination) = if probe { (multicast_mac(ALL_NODES), ALL_NODES) } else { (back, source) };
    let mut body = [0; BODY];
    answer.emit(&mut body).map_err(|_| Count::AnswerMalformed)?;
    let network = header(asked.target, destination);
    let message = icmpv6::Header { kind: ADVERTISEMENT, code: 0 };
    outbox.answer(&received.link.between(mac, back), &[&network, &message], &body)?;
    Ok(Count::AnsweredNeighbor)
}

/// Announces an address to all nodes on the link; false if the queue is full.
pub(super) fn announce(target: Ipv6Addr, mac: MacAddr, vlans: Vlans, outbox: &mut Outbox) -> bool {
    let announcement = Advertisement { router: false, solicited: false, replace: true, target, target_mac: Some(mac) };
    let link = Link::new(mac, multicast_mac(ALL_NODES), vlans);
    let mut body = [0; BODY];
    let message = icmpv6::Header { kind: ADVERTISEMENT, code: 0 };
    announcement.emit(&mut body).is_ok() && outbox.put(&link, &[&header(target, ALL_NODES), &message], &body)
}

/// Parses an advertisement; `message` is the payload of `packet`, with a right checksum.
pub(super) fn advertised(packet: &ipv6::View<'_>, message: &icmpv6::View<'_>) -> Result<(Ipv6Addr, MacAddr), Count> {
    let advertisement = Advertisement::parse(message.body()).map_err(|_| Count::AnswerMalformed)?;
    // Section 7.1.2.
    let unasked = packet.destination().is_multicast() && advertisement.solicited;
    if packet.hop_limit() != HOP_LIMIT || message.code() != 0 || unasked {
        return Err(Count::AnswerMalformed);
    }
    let mac = advertisement.target_mac.ok_or(Count::AnswerOther)?;
    if is_station(mac) && is_host(IpAddr::V6(advertisement.target)) {
        Ok((advertisement.target, mac))
    } else {
        Err(Count::AnswerMartian)
    }
}

/// Sends a solicitation to the group of `target`; false if the queue is full.
pub(super) fn ask(target: Ipv6Addr, link: impl FnOnce(MacAddr) -> Link, ip: Ipv6Addr, outbox: &mut Outbox) -> bool {
    let group = solicited_node(target);
    let link = link(multicast_mac(group));
    let mut body = [0; BODY];
    // A sender without an address yet does not give its MAC address.
    let source_mac = Some(link.ethernet.source).filter(|_| !ip.is_unspecified());
    let Ok(length) = (Solicitation { target, source_mac }).emit(&mut body) else { return false };
    let message = icmpv6::Header { kind: SOLICITATION, code: 0 };
    outbox.put(&link, &[&header(ip, group), &message], &body[..length])
}

fn header(source: Ipv6Addr, destination: Ipv6Addr) -> ipv6::Header {
    ipv6::Header { hop_limit: HOP_LIMIT, source, destination, ..ipv6::Header::new(registry::ICMPV6) }
}
