//! Endpoints of a decoded flow: addresses, protocol, ports, ICMP types.

use super::super::column::icmp_request;
use super::super::elements::Number;
use super::Record;
use linerate_headers::registry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const UDP_PORTS: [Number; 2] = [Number::UdpSource, Number::UdpDestination];
const TCP_PORTS: [Number; 2] = [Number::TcpSource, Number::TcpDestination];

impl Record {
    /// Sets addresses and ports. Exporters with one template for both IP versions send 0 for the addresses of the other
    /// version.
    pub(super) fn set_ends(&mut self) -> Option<()> {
        let [of_4, of_6] = [[0, 1], [2, 3]].map(|places| places.map(|place| self.addresses[place].map(|(_, it)| it)));
        let specified =
            |pair: [Option<IpAddr>; 2]| pair.iter().flatten().filter(|address| !address.is_unspecified()).count();
        let is_named_6 =
            match [Number::IpVersion, Number::EtherType, Number::Protocol].map(|number| self.numbers.of(number)) {
                [version, ..] if version > 0 => Some(version == 6),
                [_, ether_type @ (0x0800 | 0x86dd), _] => Some(ether_type == 0x86dd),
                [.., protocol] if protocol == u64::from(registry::ICMPV6) => Some(true),
                _ => None,
            };
        let is_6 = match [of_4, of_6].map(specified) {
            [0, 0] if is_none(of_4) != is_none(of_6) => is_none(of_4),
            [count_4, count_6] if (count_4 == 0) != (count_6 == 0) => count_4 == 0,
            [count_4, count_6] => is_named_6.unwrap_or(count_6 > count_4),
        };
        let (best, rest) = if is_6 { (of_6, of_4) } else { (of_4, of_6) };
        // Records with one endpoint only, as aggregated by source, leave the other unknown.
        if is_none(best) && is_none(rest) {
            return None;
        }
        let unknown = if is_6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        for (end, (best, rest)) in self.flow.ends.iter_mut().zip(best.into_iter().zip(rest)) {
            end.address = best.or(rest.filter(|address| !address.is_unspecified())).unwrap_or(unknown);
        }
        self.flow.protocol = match self.numbers.of(Number::Protocol) {
            0 => self.implied_protocol(is_6),
            protocol => protocol as u8,
        };
        self.set_ports();
        Some(())
    }

    /// Sets ports from elements for any protocol, else from those of the record's protocol, else from those of another
    /// one.
    fn set_ports(&mut self) {
        let pair = |numbers: [Number; 2]| numbers.map(|number| self.numbers.of(number));
        let [udp, tcp] = [UDP_PORTS, TCP_PORTS].map(pair);
        let is_tcp = self.flow.protocol == registry::TCP;
        let of_protocol = if tcp != [0; 2] && (is_tcp || udp == [0; 2]) { tcp } else { udp };
        let ports = pair([Number::SourcePort, Number::DestinationPort]);
        for (end, (port, of_protocol)) in self.flow.ends.iter_mut().zip(ports.into_iter().zip(of_protocol)) {
            end.port = if port > 0 { port } else { of_protocol } as u16;
        }
    }

    /// Some exporters omit the protocol, as other elements imply it.
    fn implied_protocol(&self, is_6: bool) -> u8 {
        let has = |ports: [Number; 2]| ports.iter().any(|number| self.numbers.of(*number) > 0);
        let icmp = if is_6 { registry::ICMPV6 } else { registry::ICMP };
        let is_icmp =
            |number| self.numbers.of(number) > 0 || self.numbers.has(number) && !self.numbers.has(Number::Protocol);
        match () {
            () if has(UDP_PORTS) => registry::UDP,
            () if has(TCP_PORTS) => registry::TCP,
            () if [Number::Icmp4, Number::IcmpType4, Number::Icmp6, Number::IcmpType6].into_iter().any(is_icmp) => icmp,
            () => 0,
        }
    }

    /// Sets the ports of ICMP: the originator's is the type that it sends, the responder's the code.
    pub(super) fn set_icmp(&mut self, is_reversed: bool) {
        let protocol = self.flow.protocol;
        let of_4 = [Number::Icmp4, Number::IcmpType4, Number::IcmpCode4];
        let of_6 = [Number::Icmp6, Number::IcmpType6, Number::IcmpCode6];
        let both = match protocol {
            registry::ICMP => [of_4, of_6],
            registry::ICMPV6 => [of_6, of_4],
            _ => return,
        };
        let numbers = &self.numbers;
        let [source, destination] = self.flow.ends.map(|end| end.port);
        // Without ICMP elements NetFlow v9 has type and code in the destination port.
        let by_port = (source == 0 && destination > 0).then_some(destination.to_be_bytes());
        let messages = both.map(|[whole, kind, code]| match numbers.of(whole) as u16 {
            0 => [numbers.of(kind) as u8, numbers.of(code) as u8],
            whole => whole.to_be_bytes(),
        });
        let is_present = both.iter().flatten().any(|number| numbers.has(*number));
        let found =
            messages.into_iter().find(|message| *message != [0; 2]).or(by_port).or(is_present.then_some([0; 2]));
        let Some([kind, code]) = found else { return };
        let kind = if is_reversed { icmp_request(protocol, kind) } else { kind };
        let ports: [u16; 2] = [kind.into(), code.into()];
        // Swapped together with the endpoints.
        let ports = if is_reversed { [ports[1], ports[0]] } else { ports };
        self.flow.ends.iter_mut().zip(ports).for_each(|(end, port)| end.port = port);
    }
}

fn is_none(pair: [Option<IpAddr>; 2]) -> bool {
    pair == [None; 2]
}
