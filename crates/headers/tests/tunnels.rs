//! Packets within packets, built from values by the rules of the registry, are dissected into the same headers.

use linerate_headers::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// A packet or frame under construction: its bytes, and its headers from the outermost inwards.
#[derive(Clone, Debug)]
struct PacketBuilder {
    bytes: Vec<u8>,
    headers: Vec<(Protocol, usize)>,
    kind: Kind,
}

/// First header of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Ethernet,
    V4,
    V6,
}

/// Encapsulation of a packet. Numbers select among alternatives.
#[derive(Clone, Copy, Debug)]
enum Wrap {
    /// Ethernet around IP: plain, tagged, LLC and SNAP, a label stack, PPPoE. Nothing around Ethernet.
    Frame(u8),
    /// IP around anything, by one of the tunnels that can carry it.
    Tunnel { v6: bool, by: u8 },
    /// IP around the same packet, with an extension header between its own header and its payload.
    Extend(u8),
}

fn emitted(emit: impl Fn(&mut [u8]) -> Result<usize, EmitError>) -> Vec<u8> {
    let mut bytes = vec![0; 2048];
    let length = emit(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

impl PacketBuilder {
    /// A UDP packet with some payload, or of another protocol without anything after its header.
    fn innermost(v6: bool, transport: u8, payload: &[u8]) -> PacketBuilder {
        let ports = udp::Header { source_port: 7, destination_port: 9 };
        let (protocol, number, header) = match transport % 5 {
            0 => (Protocol::Tcp, registry::TCP, emitted(|out| tcp::Header::default().emit(out))),
            1 => (Protocol::Sctp, registry::SCTP, emitted(|out| sctp::Header::default().emit(out))),
            2 => (Protocol::UdpLite, registry::UDP_LITE, emitted(|out| udp_lite::Header::default().emit(out))),
            3 => (Protocol::Esp, registry::ESP, emitted(|out| esp::Header { spi: 1, sequence: 2 }.emit(out))),
            _ => (Protocol::Udp, registry::UDP, emitted(|out| ports.emit(payload.len(), out))),
        };
        let message = PacketBuilder { bytes: payload.to_vec(), headers: Vec::new(), kind: Kind::V4 };
        message.behind(protocol, header).ip(v6, number)
    }

    /// Returns this with a header before it.
    fn behind(mut self, protocol: Protocol, header: Vec<u8>) -> PacketBuilder {
        self.headers.insert(0, (protocol, header.len()));
        self.bytes.splice(0..0, header);
        self
    }

    fn ip(self, v6: bool, number: u8) -> PacketBuilder {
        let length = self.bytes.len();
        if v6 {
            let header = emitted(|out| ipv6::Header::new(number).emit(length, out));
            PacketBuilder { kind: Kind::V6, ..self.behind(Protocol::Ipv6, header) }
        } else {
            let header = emitted(|out| ipv4::Header::new(number).emit(length, out));
            PacketBuilder { kind: Kind::V4, ..self.behind(Protocol::Ipv4, header) }
        }
    }

    fn udp(self, v6: bool, destination_port: u16) -> PacketBuilder {
        let header = udp::Header { source_port: 50_000, destination_port };
        let length = self.bytes.len();
        self.behind(Protocol::Udp, emitted(|out| header.emit(length, out))).ip(v6, registry::UDP)
    }

    fn ethernet(self, ether_type: u16) -> PacketBuilder {
        let header = ethernet::Header { destination: MacAddr([2; 6]), source: MacAddr([6; 6]), ether_type };
        PacketBuilder { kind: Kind::Ethernet, ..self.behind(Protocol::Ethernet, emitted(|out| header.emit(out))) }
    }

    fn mpls(self, labels: u8) -> PacketBuilder {
        let stack = vec![mpls::Entry { label: 99, traffic_class: 1, ttl: 4 }; usize::from(labels) + 1];
        self.behind(Protocol::Mpls, emitted(|out| mpls::emit(&stack, out))).ethernet(mpls::UNICAST)
    }

    /// Returns the EtherType of its first header.
    fn ether_type(&self) -> u16 {
        match self.kind {
            Kind::Ethernet => gre::ETHERNET,
            Kind::V4 => ethernet::IPV4,
            Kind::V6 => ethernet::IPV6,
        }
    }

    fn wrap(self, wrap: Wrap) -> PacketBuilder {
        match (wrap, self.kind) {
            (Wrap::Frame(_), Kind::Ethernet) => {
                let word = pseudowire::Header::Data { flags: 0, sequence: 3 };
                self.behind(Protocol::Pseudowire, emitted(|out| word.emit(out))).mpls(1)
            }
            (Wrap::Frame(by), _) => self.frame(by),
            (Wrap::Tunnel { v6, by }, Kind::Ethernet) => self.tunnel_ethernet(v6, by),
            (Wrap::Tunnel { v6, by }, _) => self.tunnel_ip(v6, by),
            (Wrap::Extend(by), _) => self.tunnel_extended(by),
        }
    }

    fn frame(self, by: u8) -> PacketBuilder {
        let ether_type = self.ether_type();
        match by % 5 {
            0 => self.ethernet(ether_type),
            1 => {
                let tag = vlan::Header { id: 5, priority: 0, drop_eligible: false, ether_type };
                self.behind(Protocol::Vlan, emitted(|out| tag.emit(out))).ethernet(vlan::SERVICE)
            }
            2 if self.bytes.len() < 1400 => {
                let snap = llc::Snap { organization: [0; 3], protocol: ether_type };
                let framed = self.behind(Protocol::Llc, emitted(|out| snap.emit(out)));
                let length = framed.bytes.len() as u16;
                framed.ethernet(length)
            }
            3 => {
                let protocol = if self.kind == Kind::V6 { ppp::IPV6 } else { ppp::IPV4 };
                let header = ppp::Header { framed: false, compressed: false, protocol };
                let inner = self.behind(Protocol::Ppp, emitted(|out| header.emit(out)));
                let (header, length) = (pppoe::Header { code: 0, session: 4 }, inner.bytes.len());
                inner.behind(Protocol::Pppoe, emitted(|out| header.emit(length, out))).ethernet(pppoe::SESSION)
            }
            _ => self.mpls(by),
        }
    }

    fn tunnel_ethernet(self, v6: bool, by: u8) -> PacketBuilder {
        let session = erspan::Session { number: 5, ..erspan::Session::default() };
        let with = |sequence, protocol| {
            gre::Header::Routing(gre::Routing { protocol, sequence, key: Some(9), ..gre::Routing::default() })
        };
        let (header, protocol, gre) = match by % 5 {
            0 => {
                return self
                    .behind(Protocol::Vxlan, emitted(|out| vxlan::Header::new(7).emit(out)))
                    .udp(v6, vxlan::PORT);
            }
            1 => return self.geneve(v6),
            2 => {
                let header = erspan::Header::Type2 { session, index: 4 };
                (emitted(|out| header.emit(out)), Some(Protocol::Erspan), with(Some(1), erspan::TYPE_2))
            }
            3 => {
                let header =
                    erspan::Header::Type3 { session, timestamp: 4, group: 5, flags: 0, platform: Some([by; 8]) };
                (emitted(|out| header.emit(out)), Some(Protocol::Erspan), with(None, erspan::TYPE_3))
            }
            _ => (Vec::new(), None, with(None, gre::ETHERNET)),
        };
        let inner = match protocol {
            Some(protocol) => self.behind(protocol, header),
            None => self,
        };
        inner.behind(Protocol::Gre, emitted(|out| gre.emit(0, out))).ip(v6, registry::GRE)
    }

    fn tunnel_ip(self, v6: bool, by: u8) -> PacketBuilder {
        let ether_type = self.ether_type();
        let number = if self.kind == Kind::V6 { registry::IPV6 } else { registry::IPV4 };
        match by % 5 {
            0 => self.ip(v6, number),
            1 => self.geneve(v6),
            2 => {
                let extension = [1, by, 0, 0];
                let header = gtp_u::Header {
                    message: gtp_u::USER_DATA,
                    first_extension: 0x85,
                    extensions: &extension,
                    ..gtp_u::Header::default()
                };
                let length = self.bytes.len();
                self.behind(Protocol::GtpU, emitted(|out| header.emit(length, out))).udp(v6, gtp_u::PORT)
            }
            3 if self.kind == Kind::V6 => {
                let mut inner = self;
                inner.bytes[8..12].copy_from_slice(&teredo::PREFIX);
                let origin = by.is_multiple_of(2).then_some(teredo::Origin { port: 9, address: [1, 2, 3, 4].into() });
                let header = teredo::Header { authentication: None, origin };
                inner.behind(Protocol::Teredo, emitted(|out| header.emit(out))).udp(v6, teredo::PORT)
            }
            _ => {
                let header = gre::Header::Routing(gre::Routing {
                    protocol: ether_type,
                    checksum: true,
                    ..gre::Routing::default()
                });
                let mut packet = self.behind(Protocol::Gre, emitted(|out| header.emit(0, out)));
                gre::fill_checksum(&mut packet.bytes).unwrap();
                packet.ip(v6, registry::GRE)
            }
        }
    }

    fn geneve(self, v6: bool) -> PacketBuilder {
        let header =
            geneve::Header { protocol: self.ether_type(), vni: 6, options: &[7; 8], ..geneve::Header::default() };
        self.behind(Protocol::Geneve, emitted(|out| header.emit(out))).udp(v6, geneve::PORT)
    }

    /// IPv6 around this, with an extension header between.
    fn tunnel_extended(self, by: u8) -> PacketBuilder {
        let next_header = match self.kind {
            Kind::Ethernet => registry::ETHERNET,
            Kind::V4 => registry::IPV4,
            Kind::V6 => registry::IPV6,
        };
        let plain = ipv6_extension::Header { next_header, data: &[0; 14] };
        let (protocol, number, header) = match by % 6 {
            0 => (Protocol::HopByHop, registry::HOP_BY_HOP, emitted(|out| plain.emit(out))),
            1 => (Protocol::Routing, registry::ROUTING, emitted(|out| plain.emit(out))),
            2 => (Protocol::DestinationOptions, registry::DESTINATION_OPTIONS, emitted(|out| plain.emit(out))),
            3 => {
                let header = ah::Header { next_header, spi: 3, sequence: 4, check: &[by; 12] };
                (Protocol::Ah, registry::AH, emitted(|out| header.emit(out)))
            }
            4 => {
                let header = shim6::Header::Data { next_header, tag: 5 };
                (Protocol::Shim6, registry::SHIM6, emitted(|out| header.emit(out)))
            }
            _ => {
                let (fragment_offset, more_fragments) = (0, false);
                let header = ipv6_fragment::Header { next_header, fragment_offset, more_fragments, identification: 1 };
                (Protocol::Fragment, registry::FRAGMENT, emitted(|out| header.emit(out)))
            }
        };
        self.behind(protocol, header).ip(true, number)
    }

    fn layers(&self) -> Vec<Layer> {
        let mut offset = 0;
        let mut layers = Vec::new();
        for (protocol, length) in &self.headers {
            layers.push(Layer { offset, length: *length as u16, protocol: *protocol });
            offset += *length as u32;
        }
        layers
    }

    fn link(&self) -> Link {
        if self.kind == Kind::Ethernet { Link::Ethernet } else { Link::RawIp }
    }
}

fn made() -> impl Strategy<Value = (PacketBuilder, Vec<u8>)> {
    let wrap = prop_oneof![
        2 => any::<u8>().prop_map(Wrap::Frame),
        3 => any::<(bool, u8)>().prop_map(|(v6, by)| Wrap::Tunnel { v6, by }),
        1 => any::<u8>().prop_map(Wrap::Extend),
    ];
    (any::<bool>(), any::<u8>(), vec(any::<u8>(), 0..40), vec(wrap, 0..6)).prop_map(
        |(v6, transport, payload, wraps)| {
            let made = wraps.into_iter().fold(PacketBuilder::innermost(v6, transport, &payload), PacketBuilder::wrap);
            (made, payload)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tunnels_are_walked_to_the_innermost_packet((made, payload) in made()) {
        let mut layers = Layers::new();
        dissect(made.link(), &made.bytes, &mut layers);
        let expected = made.layers();
        if expected.len() > MAX_LAYERS {
            prop_assert_eq!(layers.as_slice(), &expected[..MAX_LAYERS]);
            prop_assert_eq!(layers.stop(), Stop::TooDeep);
            return Ok(());
        }
        prop_assert_eq!(layers.as_slice(), &expected[..]);
        prop_assert_eq!((layers.stop(), layers.payload(&made.bytes)), (Stop::End, &payload[..]));
        prop_assert_eq!(layers.inner_transport(), expected.last());
        prop_assert_eq!(layers.inner_network(), expected.iter().rfind(|layer| layer.protocol.role() == Role::Network));
    }

    #[test]
    fn truncation_only_removes_headers((made, _) in made(), length in any::<prop::sample::Index>()) {
        let cut = &made.bytes[..length.index(made.bytes.len() + 1)];
        let mut layers = Layers::new();
        dissect(made.link(), cut, &mut layers);
        prop_assert!(made.layers().starts_with(layers.as_slice()), "{:?} of {:?}", layers, made.layers());
    }

    #[test]
    fn damage_keeps_layers_inside_the_frame(
        (made, _) in made(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut frame = made.bytes.clone();
        for (at, byte) in damage {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        for link in Link::ALL {
            let mut layers = Layers::new();
            dissect(link, &frame, &mut layers);
            let mut end = 0;
            for layer in layers.as_slice() {
                prop_assert_eq!(layer.offset, end);
                end = layer.end();
            }
            prop_assert!(end as usize + layers.payload(&frame).len() <= frame.len());
        }
    }
}

#[test]
fn implausible_data_after_a_port_is_payload() {
    for port in [vxlan::PORT, vxlan::OLD_PORT, vxlan::GPE_PORT, geneve::PORT, gtp_u::PORT, teredo::PORT] {
        for payload in [&[][..], &[0; 3], &[0; 100], &[0xff; 100], b"GET / HTTP/1.1", &[0x45; 60]] {
            let made = PacketBuilder { bytes: payload.to_vec(), headers: Vec::new(), kind: Kind::V4 }.udp(false, port);
            let mut layers = Layers::new();
            dissect(Link::RawIp, &made.bytes, &mut layers);
            assert_eq!(layers.as_slice(), made.layers(), "{port} {payload:02x?}");
            assert_eq!((layers.stop(), layers.payload(&made.bytes)), (Stop::End, payload));
        }
    }
}
