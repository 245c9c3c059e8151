//! Echo requests: ICMP (RFC 792) and ICMPv6 (RFC 4443 section 4).

use super::addresses::{Addresses, is_host};
use super::outbox::Outbox;
use super::received::Received;
use linerate_burst::Count;
use linerate_headers::{icmp, icmpv6, ipv4, ipv6, registry};
use std::net::IpAddr;

/// Answers an ICMP echo request to one of `own`. Fragments are not reassembled.
pub(super) fn answer_v4(received: &Received<'_>, own: &Addresses, outbox: &mut Outbox) -> Result<Count, Count> {
    let packet = ipv4::View::parse(received.payload).map_err(|_| Count::AnswerMalformed)?;
    if packet.protocol() != registry::ICMP {
        return Err(Count::AnswerOther);
    }
    let mac = received.asked(own, IpAddr::V4(packet.destination()), &[])?;
    // A length of 0 is that of a packet before segmentation.
    if packet.is_fragment() || packet.is_cut() || packet.total_len() == 0 || !packet.is_checksum_right() {
        return Err(Count::AnswerMalformed);
    }
    let message = icmp::View::parse(packet.payload()).map_err(|_| Count::AnswerMalformed)?;
    if (message.kind(), message.code()) != (icmp::ECHO_REQUEST, 0) {
        return Err(Count::AnswerOther);
    }
    if !is_host(IpAddr::V4(packet.source())) {
        return Err(Count::AnswerMartian);
    }
    if !message.is_checksum_right() {
        return Err(Count::AnswerMalformed);
    }
    let network = ipv4::Header {
        traffic_class: packet.traffic_class(),
        dont_fragment: true,
        source: packet.destination(),
        destination: packet.source(),
        ..ipv4::Header::new(registry::ICMP)
    };
    let reply = icmp::Header { kind: icmp::ECHO_REPLY, ..message.header() };
    outbox.answer(&received.link.between(mac, received.source()), &[&network, &reply], message.payload())?;
    Ok(Count::AnsweredEcho)
}

/// Answers an ICMPv6 echo request to one of `own`; `message` is the payload of `packet`, with a right checksum.
pub(super) fn answer_v6(
    received: &Received<'_>,
    packet: &ipv6::View<'_>,
    message: &icmpv6::View<'_>,
    own: &Addresses,
    outbox: &mut Outbox,
) -> Result<Count, Count> {
    let mac = received.asked(own, IpAddr::V6(packet.destination()), &[])?;
    // Identifier and sequence number (section 4.1).
    if message.body().len() < 4 || message.code() != 0 {
        return Err(Count::AnswerMalformed);
    }
    if !is_host(IpAddr::V6(packet.source())) {
        return Err(Count::AnswerMartian);
    }
    let network = ipv6::Header {
        traffic_class: packet.traffic_class(),
        source: packet.destination(),
        destination: packet.source(),
        ..ipv6::Header::new(registry::ICMPV6)
    };
    let reply = icmpv6::Header { kind: icmpv6::ECHO_REPLY, code: 0 };
    outbox.answer(&received.link.between(mac, received.source()), &[&network, &reply], message.body())?;
    Ok(Count::AnsweredEcho)
}
