//! Complete packets built from values, with the layers that they must be dissected into.

use linerate_headers::{
    Layer, MacAddr, Protocol, Pseudo, ethernet, icmp, icmpv6, ipv4, ipv6, ipv6_extension, ipv6_fragment,
    options::Options, registry, tcp, udp, vlan,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Parts of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub tags: Vec<(u16, u16)>,
    pub network: Network,
    pub transport: Transport,
    pub payload: Vec<u8>,
    /// Bytes after the packet, as Ethernet pads short frames.
    pub padding: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Network {
    V4 { options: Vec<u8>, fragment: u16, addresses: [u32; 2] },
    V6 { extensions: Vec<(Protocol, usize)>, addresses: [u128; 2] },
}

#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Tcp {
        options: Vec<u8>,
        header: [u32; 2],
        ports: [u16; 2],
    },
    Udp {
        ports: [u16; 2],
    },
    Icmp,
    Icmpv6,
    /// An unassigned IP protocol.
    Unknown,
}

pub(crate) const UNKNOWN: u8 = 253;

pub(crate) fn packet() -> impl Strategy<Value = Packet> {
    let tpid = prop::sample::select(vec![vlan::CUSTOMER, vlan::SERVICE, vlan::OLD_SERVICE]);
    let v4 = (vec(1u8..2, 0..=40), prop_oneof![2 => Just(0u16), 1 => 0u16..100], any::<[u32; 2]>())
        .prop_map(|(options, fragment, addresses)| Network::V4 { options, fragment: fragment * 8, addresses });
    let extension = (
        prop::sample::select(vec![
            Protocol::HopByHop,
            Protocol::Routing,
            Protocol::Fragment,
            Protocol::DestinationOptions,
        ]),
        1usize..5,
    );
    let v6 = (vec(extension, 0..4), any::<[u128; 2]>())
        .prop_map(|(extensions, addresses)| Network::V6 { extensions, addresses });
    let transport = prop_oneof![
        (vec(1u8..2, 0..=40), any::<[u32; 2]>(), any::<[u16; 2]>())
            .prop_map(|(options, header, ports)| Transport::Tcp { options, header, ports }),
        any::<[u16; 2]>().prop_map(|ports| Transport::Udp { ports }),
        Just(Transport::Icmp),
        Just(Transport::Icmpv6),
        Just(Transport::Unknown),
    ];
    (vec((tpid, 0u16..4096), 0..3), prop_oneof![v4, v6], transport, vec(any::<u8>(), 1..80), 0usize..20)
        .prop_map(|(tags, network, transport, payload, padding)| Packet { tags, network, transport, payload, padding })
}

impl Packet {
    /// The frame, and its layers.
    pub(crate) fn build(&self) -> (Vec<u8>, Vec<Layer>) {
        let (mut message, length, protocol, number) = self.message();
        match self.pseudo() {
            _ if length == 0 => {}
            pseudo => self.fill_checksum(&mut message, &pseudo),
        }
        let mut headers = self.link();
        let (network, later_fragment) = self.network(message.len(), number);
        headers.extend(network);
        if let (Some(protocol), false) = (protocol, later_fragment) {
            headers.push((protocol, message[..length].to_vec()));
            message.drain(..length);
        }
        let (mut frame, mut layers) = (Vec::new(), Vec::new());
        for (protocol, bytes) in headers {
            layers.push(Layer { offset: frame.len() as u32, length: bytes.len() as u16, protocol });
            frame.extend(bytes);
        }
        frame.extend(message);
        frame.extend(vec![0xee; self.padding]);
        (frame, layers)
    }

    pub(crate) fn pseudo(&self) -> Pseudo {
        match self.network {
            Network::V4 { addresses: [source, destination], .. } => {
                Pseudo::V4 { source: source.into(), destination: destination.into() }
            }
            Network::V6 { addresses: [source, destination], .. } => {
                Pseudo::V6 { source: source.into(), destination: destination.into() }
            }
        }
    }

    fn link(&self) -> Vec<(Protocol, Vec<u8>)> {
        let inner = if matches!(self.network, Network::V4 { .. }) { ethernet::IPV4 } else { ethernet::IPV6 };
        let mut types: Vec<u16> = self.tags.iter().map(|tag| tag.0).collect();
        types.push(inner);
        let header = ethernet::Header {
            destination: MacAddr([1, 2, 3, 4, 5, 6]),
            source: MacAddr([2, 2, 3, 4, 5, 7]),
            ether_type: types[0],
        };
        let mut headers = vec![(Protocol::Ethernet, emitted(|out| header.emit(out)))];
        for (index, (_, id)) in self.tags.iter().enumerate() {
            let tag = vlan::Header { id: *id, priority: 5, drop_eligible: id % 2 == 0, ether_type: types[index + 1] };
            headers.push((Protocol::Vlan, emitted(|out| tag.emit(out))));
        }
        headers
    }

    /// The headers, and true if their payload begins in another packet.
    fn network(&self, payload: usize, number: u8) -> (Vec<(Protocol, Vec<u8>)>, bool) {
        match &self.network {
            Network::V4 { options, fragment, addresses: [source, destination] } => {
                let header = ipv4::Header {
                    options: Options::new(options).unwrap(),
                    fragment_offset: *fragment,
                    source: (*source).into(),
                    destination: (*destination).into(),
                    ..ipv4::Header::new(number)
                };
                (vec![(Protocol::Ipv4, emitted(|out| header.emit(payload, out)))], *fragment != 0)
            }
            Network::V6 { extensions, addresses: [source, destination] } => {
                let mut numbers: Vec<u8> = extensions.iter().map(|(protocol, _)| number_of(*protocol)).collect();
                numbers.push(number);
                let mut headers = Vec::new();
                for (index, (protocol, units)) in extensions.iter().enumerate() {
                    headers.push((*protocol, extension(*protocol, numbers[index + 1], *units)));
                }
                let length = payload + headers.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
                let header = ipv6::Header {
                    source: (*source).into(),
                    destination: (*destination).into(),
                    ..ipv6::Header::new(numbers[0])
                };
                headers.insert(0, (Protocol::Ipv6, emitted(|out| header.emit(length, out))));
                (headers, false)
            }
        }
    }

    /// Transport header and payload, the header's length, and its protocol.
    fn message(&self) -> (Vec<u8>, usize, Option<Protocol>, u8) {
        let (header, protocol, number) = match &self.transport {
            Transport::Tcp { options, header: [sequence, acknowledgement], ports: [source_port, destination_port] } => {
                let header = tcp::Header {
                    source_port: *source_port,
                    destination_port: *destination_port,
                    sequence: *sequence,
                    acknowledgement: *acknowledgement,
                    flags: tcp::Flags::ACK | tcp::Flags::PSH,
                    window: 77,
                    urgent: 3,
                    options: Options::new(options).unwrap(),
                };
                (emitted(|out| header.emit(out)), Some(Protocol::Tcp), registry::TCP)
            }
            Transport::Udp { ports: [source_port, destination_port] } => {
                let header = udp::Header { source_port: *source_port, destination_port: *destination_port };
                (emitted(|out| header.emit(self.payload.len(), out)), Some(Protocol::Udp), registry::UDP)
            }
            Transport::Icmp => {
                let header = icmp::Header { kind: icmp::ECHO_REQUEST, code: 0, rest: [1, 2, 3, 4] };
                (emitted(|out| header.emit(out)), Some(Protocol::Icmp), registry::ICMP)
            }
            Transport::Icmpv6 => {
                let header = icmpv6::Header { kind: icmpv6::ECHO_REQUEST, code: 0 };
                (emitted(|out| header.emit(out)), Some(Protocol::Icmpv6), registry::ICMPV6)
            }
            Transport::Unknown => (Vec::new(), None, UNKNOWN),
        };
        let length = header.len();
        ([header, self.payload.clone()].concat(), length, protocol, number)
    }

    fn fill_checksum(&self, message: &mut [u8], pseudo: &Pseudo) {
        match self.transport {
            Transport::Tcp { .. } => tcp::fill_checksum(message, pseudo).unwrap(),
            Transport::Udp { .. } => udp::fill_checksum(message, pseudo).unwrap(),
            Transport::Icmp => icmp::fill_checksum(message).unwrap(),
            Transport::Icmpv6 => icmpv6::fill_checksum(message, pseudo).unwrap(),
            Transport::Unknown => {}
        }
    }
}

fn number_of(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::HopByHop => registry::HOP_BY_HOP,
        Protocol::Routing => registry::ROUTING,
        Protocol::Fragment => registry::FRAGMENT,
        _ => registry::DESTINATION_OPTIONS,
    }
}

fn extension(protocol: Protocol, next_header: u8, units: usize) -> Vec<u8> {
    if protocol == Protocol::Fragment {
        let header =
            ipv6_fragment::Header { next_header, fragment_offset: 0, more_fragments: false, identification: 9 };
        return emitted(|out| header.emit(out));
    }
    let data = vec![0; units * ipv6_extension::UNIT - 2];
    emitted(|out| ipv6_extension::Header { next_header, data: &data }.emit(out))
}

fn emitted<E: std::fmt::Debug>(emit: impl Fn(&mut [u8]) -> Result<usize, E>) -> Vec<u8> {
    let mut bytes = vec![0xdd; 128];
    let length = emit(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}
