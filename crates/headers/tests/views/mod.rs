//! Every view over arbitrary bytes; also used by the fuzzer.

use linerate_headers::*;
use std::hint::black_box;

/// Parses the same bytes with every view and calls every getter that could fail.
pub(crate) fn view_all(bytes: &[u8]) {
    let pseudo = Pseudo::V6 { source: 1.into(), destination: 2.into() };
    view_links(bytes);
    view_networks(bytes, &pseudo);
    view_transports(bytes, &pseudo);
    view_tunnels(bytes);
}

fn view_links(bytes: &[u8]) {
    let _ = black_box(ethernet::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(llc::View::parse(bytes).map(|view| (view.header(), view.header_len(), view.payload())));
    let _ = black_box(vlan::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(arp::View::parse(bytes).map(|view| (view.packet(), view.header_len())));
    let _ = black_box(mpls::View::parse(bytes).map(|view| (view.entries().count(), view.payload())));
    let _ = black_box(pseudowire::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(pppoe::View::parse(bytes).map(|view| (view.header(), view.tags().count(), view.payload())));
    let _ = black_box(ppp::View::parse(bytes).map(|view| (view.header(), view.header_len(), view.payload())));
    let _ = black_box(null::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(sll::View::parse(bytes).map(|view| (view.header(), view.address(), view.payload())));
    let _ = black_box(sll2::View::parse(bytes).map(|view| (view.header(), view.address(), view.payload())));
    let _ = black_box(chdlc::View::parse(bytes).map(|view| (view.header(), view.payload())));
}

fn view_networks(bytes: &[u8], pseudo: &Pseudo) {
    if let Ok(view) = ipv4::View::parse(bytes) {
        black_box((view.header(), view.is_checksum_right(), view.options().count()));
    }
    let _ = black_box(ipv6::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(ipv6_fragment::View::parse(bytes).map(|view| (view.header(), view.payload())));
    if let Ok(view) = ipv6_extension::View::parse(Protocol::Routing, bytes) {
        black_box((view.header(), view.segments_left(), view.routing_type()));
    }
    let _ = black_box(mobility::View::parse(bytes).map(|view| (view.header(), view.is_checksum_right(pseudo))));
    let _ = black_box(hip::View::parse(bytes).map(|view| (view.header(), view.is_checksum_right(pseudo))));
    let _ = black_box(shim6::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(ah::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(esp::View::parse(bytes).map(|view| (view.header(), view.payload())));
}

fn view_transports(bytes: &[u8], pseudo: &Pseudo) {
    if let Ok(view) = tcp::View::parse(bytes) {
        black_box((view.header(), view.is_checksum_right(pseudo)));
        for option in view.options() {
            if let Ok(tcp_option::TcpOption::Sack(blocks)) = option {
                black_box(blocks.iter().count());
            }
        }
    }
    let _ = black_box(udp::View::parse(bytes).map(|view| (view.header(), view.is_checksum_right(pseudo))));
    let _ = black_box(udp_lite::View::parse(bytes).map(|view| (view.header(), view.is_checksum_right(pseudo))));
    let _ = black_box(sctp::View::parse(bytes).map(|view| (view.is_checksum_right(), view.chunks().count())));
    let _ = black_box(icmp::View::parse(bytes).map(|view| (view.header(), view.is_checksum_right())));
    let _ = black_box(icmpv6::View::parse(bytes).map(|view| (view.header(), view.is_checksum_right(pseudo))));
    if let Ok(view) = igmp::View::parse(bytes) {
        black_box((view.is_checksum_right(), view.sources().count(), view.records().count()));
    }
}

fn view_tunnels(bytes: &[u8]) {
    let _ = black_box(gre::View::parse(bytes).map(|view| (view.header(), view.is_checksum_right(), view.payload())));
    let _ = black_box(erspan::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(vxlan::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(geneve::View::parse(bytes).map(|view| (view.header(), view.options().count())));
    let _ = black_box(gtp_u::View::parse(bytes).map(|view| (view.header(), view.extensions().count())));
    let _ = black_box(teredo::View::parse(bytes).map(|view| (view.header(), view.payload())));
}
