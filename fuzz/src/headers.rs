//! Parses a header of a frame into a value that can be built again.

use linerate_headers::build::{Extension, Header, PayloadInfo, Problem};
use linerate_headers::*;

/// Returns the header of `protocol` at the start of `bytes`; `None` for headers without a value, such as ARP for other
/// networks than Ethernet and IPv4.
pub fn read(protocol: Protocol, bytes: &[u8]) -> Option<Box<dyn Header + '_>> {
    let extension = || Some(ipv6_extension::View::parse(protocol, bytes).ok()?.header());
    Some(match protocol {
        Protocol::Ethernet => Box::new(ethernet::View::parse(bytes).ok()?.header()),
        Protocol::Llc => Box::new(llc::View::parse(bytes).ok()?.header()),
        Protocol::Vlan => Box::new(vlan::View::parse(bytes).ok()?.header()),
        Protocol::Mpls => Box::new(Labels(mpls::View::parse(bytes).ok()?.entries().collect())),
        Protocol::Pseudowire => Box::new(pseudowire::View::parse(bytes).ok()?.header()),
        Protocol::Pppoe => Box::new(pppoe::View::parse(bytes).ok()?.header()),
        Protocol::Ppp => Box::new(ppp::View::parse(bytes).ok()?.header()),
        Protocol::Null => Box::new(null::View::parse(bytes).ok()?.header()),
        Protocol::Sll => Box::new(sll::View::parse(bytes).ok()?.header()),
        Protocol::Sll2 => Box::new(sll2::View::parse(bytes).ok()?.header()),
        Protocol::Chdlc => Box::new(chdlc::View::parse(bytes).ok()?.header()),
        Protocol::Arp => Box::new(arp::View::parse(bytes).ok()?.packet()?),
        Protocol::Ipv4 => Box::new(ipv4::View::parse(bytes).ok()?.header()),
        Protocol::Ipv6 => Box::new(ipv6::View::parse(bytes).ok()?.header()),
        Protocol::HopByHop => Box::new(Extension::HopByHop(extension()?)),
        Protocol::Routing => Box::new(Extension::Routing(extension()?)),
        Protocol::Fragment => Box::new(ipv6_fragment::View::parse(bytes).ok()?.header()),
        Protocol::DestinationOptions => Box::new(Extension::Destination(extension()?)),
        Protocol::Mobility => Box::new(mobility::View::parse(bytes).ok()?.header()),
        Protocol::Hip => Box::new(hip::View::parse(bytes).ok()?.header()),
        Protocol::Shim6 => Box::new(shim6::View::parse(bytes).ok()?.header()),
        Protocol::Ah => Box::new(ah::View::parse(bytes).ok()?.header()),
        Protocol::Esp => Box::new(esp::View::parse(bytes).ok()?.header()),
        Protocol::Tcp => Box::new(tcp::View::parse(bytes).ok()?.header()),
        Protocol::Udp => Box::new(udp::View::parse(bytes).ok()?.header()),
        Protocol::UdpLite => Box::new(udp_lite::View::parse(bytes).ok()?.header()),
        Protocol::Sctp => Box::new(sctp::View::parse(bytes).ok()?.header()),
        Protocol::Icmp => Box::new(icmp::View::parse(bytes).ok()?.header()),
        Protocol::Icmpv6 => Box::new(icmpv6::View::parse(bytes).ok()?.header()),
        Protocol::Igmp => Box::new(igmp::View::parse(bytes).ok()?.header()),
        Protocol::Gre => Box::new(gre::View::parse(bytes).ok()?.header()),
        Protocol::Erspan => Box::new(erspan::View::parse(bytes).ok()?.header()),
        Protocol::Vxlan => Box::new(vxlan::View::parse(bytes).ok()?.header()),
        Protocol::Geneve => Box::new(geneve::View::parse(bytes).ok()?.header()),
        Protocol::GtpU => Box::new(gtp_u::View::parse(bytes).ok()?.header()),
        Protocol::Teredo => Box::new(teredo::View::parse(bytes).ok()?.header()),
    })
}

/// Label stack that owns its entries.
struct Labels(Vec<mpls::Entry>);

impl Header for Labels {
    fn protocol(&self) -> Protocol {
        Protocol::Mpls
    }

    fn numbers(&self) -> &'static [Number] {
        self.0.as_slice().numbers()
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        self.0.as_slice().write(behind, out)
    }
}
