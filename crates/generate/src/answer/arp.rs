//! ARP requests (RFC 826), probes among them (RFC 5227).

use super::addresses::{Addresses, is_host, is_station};
use super::outbox::Outbox;
use super::received::Received;
use linerate_burst::Count;
use linerate_headers::{MacAddr, arp};
use std::net::{IpAddr, Ipv4Addr};

/// Parses the packet of a frame.
pub(super) fn parse(received: &Received<'_>) -> Result<arp::Packet, Count> {
    let packet = arp::View::parse(received.payload).ok().and_then(|view| view.packet());
    let packet = packet.ok_or(Count::AnswerMalformed)?;
    // A probe has no sender address.
    let known = packet.sender_ip.is_unspecified() || is_host(IpAddr::V4(packet.sender_ip));
    if known && is_station(packet.sender_mac) { Ok(packet) } else { Err(Count::AnswerMartian) }
}

/// Answers a request for one of `own`.
pub(super) fn answer(
    received: &Received<'_>,
    request: &arp::Packet,
    own: &Addresses,
    outbox: &mut Outbox,
) -> Result<Count, Count> {
    // A request for the sender's own address is an announcement (RFC 5227 section 1.1): it gets no answer.
    if request.operation != arp::REQUEST || request.sender_ip == request.target_ip {
        return Err(Count::AnswerOther);
    }
    let mac = received.asked(own, IpAddr::V4(request.target_ip), &[MacAddr::BROADCAST])?;
    if request.sender_mac == mac {
        return Err(Count::AnswerMartian);
    }
    let reply = arp::Packet {
        operation: arp::REPLY,
        sender_mac: mac,
        sender_ip: request.target_ip,
        target_mac: request.sender_mac,
        target_ip: request.sender_ip,
    };
    outbox.answer(&received.link.between(mac, request.sender_mac), &[&reply], &[])?;
    Ok(Count::AnsweredArp)
}

/// Returns a request for `target`.
pub(super) fn request(target: Ipv4Addr, sender_ip: Ipv4Addr, sender_mac: MacAddr) -> arp::Packet {
    arp::Packet { operation: arp::REQUEST, sender_mac, sender_ip, target_mac: MacAddr::default(), target_ip: target }
}
