//! Headers in front of an IP packet: its link layer and its tunnel.

use crate::flow::MPLS_LABELS;
use crate::key::TunnelKind;
use linerate_headers::{Layer, MacAddr, Protocol, Role, ethernet, geneve, gre, gtp_u, mpls, vlan, vxlan};

/// The headers between a packet and the one around it, or the beginning of the frame.
#[derive(Default)]
pub(super) struct OuterHeaders {
    /// Source and destination of the Ethernet header next to the packet.
    pub macs: Option<[MacAddr; 2]>,
    /// VLAN IDs of the outermost two tags.
    pub vlans: [u16; 2],
    /// The uppermost labels, outermost first, without explicit null (0), which stands for no label.
    pub labels: [u32; MPLS_LABELS],
}

impl OuterHeaders {
    /// Finds them in `layers`, all those in front of the packet.
    pub(super) fn find(frame: &[u8], layers: &[Layer], macs: bool) -> OuterHeaders {
        let behind = layers.iter().rposition(|layer| layer.protocol.role() != Role::Link);
        let layers = &layers[behind.map_or(0, |last| last + 1)..];
        let mut front = OuterHeaders::default();
        let (mut tags, mut labels) = (front.vlans.iter_mut(), front.labels.iter_mut());
        for layer in layers {
            let header = frame.get(layer.offset as usize..).unwrap_or_default();
            match layer.protocol {
                Protocol::Ethernet if macs => {
                    front.macs = ethernet::View::parse(header).ok().map(|view| [view.source(), view.destination()]);
                }
                Protocol::Vlan => {
                    let id = vlan::View::parse(header).ok().map(|view| view.id());
                    id.into_iter().zip(tags.by_ref()).for_each(|(id, tag)| *tag = id);
                }
                Protocol::Mpls => {
                    let entries = mpls::View::parse(header).into_iter().flat_map(|view| view.entries());
                    let entries = entries.filter(|entry| entry.label != 0);
                    entries.zip(labels.by_ref()).for_each(|(entry, label)| *label = entry.label);
                }
                _ => {}
            }
        }
        front
    }
}

/// The innermost of the tunnels between two packets.
pub(super) struct TunnelHeader {
    pub kind: TunnelKind,
    /// Id common to both directions; 0 if the protocol has none.
    pub id: u32,
    /// True if the ports of the outer packets are the same both ways. They are not where the source port is derived
    /// from the inner packet (RFC 7348, 5; RFC 8926, 3.3; 3GPP TS 29.281, 4.4.2.3).
    pub has_ports: bool,
    pub teid: Option<u32>,
}

impl TunnelHeader {
    /// `between` are the headers of the outer packet.
    pub(super) fn find(frame: &[u8], between: &[Layer]) -> TunnelHeader {
        let through = |kind, id| TunnelHeader { kind, id, has_ports: true, teid: None };
        let Some(layer) = between.iter().rfind(|layer| layer.protocol.role() == Role::Tunnel) else {
            return through(TunnelKind::Ip, 0);
        };
        let header = frame.get(layer.offset as usize..).unwrap_or_default();
        let without_ports = |kind, id| TunnelHeader { has_ports: false, ..through(kind, id) };
        match layer.protocol {
            Protocol::Gre | Protocol::Erspan => through(TunnelKind::Gre, gre_key(header).unwrap_or(0)),
            Protocol::Vxlan => {
                without_ports(TunnelKind::Vxlan, vxlan::View::parse(header).map_or(0, |view| view.vni()))
            }
            Protocol::Geneve => {
                without_ports(TunnelKind::Geneve, geneve::View::parse(header).map_or(0, |view| view.vni()))
            }
            Protocol::GtpU => {
                let teid = gtp_u::View::parse(header).ok().map(|view| view.teid());
                TunnelHeader { teid, ..without_ports(TunnelKind::GtpU, 0) }
            }
            Protocol::Teredo => through(TunnelKind::Teredo, 0),
            _ => through(TunnelKind::Other, 0),
        }
    }
}

fn gre_key(header: &[u8]) -> Option<u32> {
    match gre::View::parse(header).ok()?.header() {
        gre::Header::Routing(routing) => routing.key,
        gre::Header::Pptp(_) => None,
    }
}
