//! Source and destination hosts of streams, taken from their frames.

use super::answer::HostAddress;
use crate::exit::usage;
use linerate_generate::answer::Vlans;
use linerate_generate::stream::{Stream, StreamSet};
use linerate_headers::{Layers, Link, MacAddr, Protocol, dissect, ethernet, ipv4, ipv6, vlan};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

/// Number of frames examined per stream.
const LOOKED_AT: u64 = 4096;

/// Source and destination hosts.
#[derive(Default)]
pub(super) struct Hosts {
    /// Distinct senders.
    pub senders: Vec<HostAddress>,
    /// Distinct destinations of the outermost packets.
    pub destinations: BTreeSet<IpAddr>,
    /// The same destinations, with the MAC address to answer with.
    pub receivers: Vec<HostAddress>,
    /// True if frames that were not examined may have other addresses.
    pub is_part: bool,
}

impl Hosts {
    /// Returns the hosts of the first frames of each stream.
    pub(super) fn of(set: &StreamSet, receiver: Option<MacAddr>) -> Self {
        let mut hosts = Hosts::default();
        let (mut seen, mut layers) = (BTreeSet::new(), Layers::new());
        for stream in &set.streams {
            let count = if stream.selectors.is_empty() { 1 } else { stream.count.unwrap_or(u64::MAX) };
            hosts.is_part |=
                count > LOOKED_AT && stream.selectors.iter().any(|selector| !(1..=LOOKED_AT).contains(&selector.count));
            for number in 0..count.min(LOOKED_AT) {
                let frame = stream.frame(number, 0, &set.key);
                let Some((sender, destination)) = ends(&frame, &mut layers) else { continue };
                let is_new = hosts.destinations.insert(destination);
                if let Some(mac) = receiver.filter(|_| is_new && !is_group(destination)) {
                    // A router may have removed their tags.
                    let vlans = [Vlans::NONE, sender.vlans];
                    let kinds = if vlans[0] == vlans[1] { &vlans[..1] } else { &vlans[..] };
                    hosts.receivers.extend(kinds.iter().map(|vlans| HostAddress {
                        mac,
                        ip: destination,
                        vlans: *vlans,
                    }));
                }
                if seen.insert((sender.ip, sender.vlans)) {
                    hosts.senders.push(sender);
                }
            }
        }
        hosts
    }
}

/// Sets the destination MAC address of all frames.
pub(super) fn send_to(set: &mut StreamSet, mac: MacAddr) -> anyhow::Result<()> {
    let varies =
        |stream: &&Stream| stream.variants.iter().flat_map(|variant| &variant.changes).any(|change| change.offset < 6);
    if let Some(stream) = set.streams.iter().find(varies) {
        return Err(usage(format!(
            "stream {:?} varies its destination MAC address; remove that from the packet, or do not use --gateway or --resolve",
            stream.name
        )));
    }
    for variant in set.streams.iter_mut().flat_map(|stream| &mut stream.variants) {
        if let Some(place) = variant.frame.get_mut(..6) {
            place.copy_from_slice(&mac.0);
        }
    }
    Ok(())
}

fn is_group(ip: IpAddr) -> bool {
    ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
}

fn ends(frame: &[u8], layers: &mut Layers) -> Option<(HostAddress, IpAddr)> {
    dissect(Link::Ethernet, frame, layers);
    let mac = ethernet::View::parse(frame).ok()?.source();
    let mut ids = Vec::new();
    for layer in layers.as_slice() {
        let header = &frame[layer.offset as usize..];
        let (source, destination): (IpAddr, IpAddr) = match layer.protocol {
            Protocol::Vlan => {
                ids.push(vlan::View::parse(header).ok()?.id());
                continue;
            }
            Protocol::Ipv4 => {
                let packet = ipv4::View::parse(header).ok()?;
                (packet.source().into(), packet.destination().into())
            }
            Protocol::Ipv6 => {
                let packet = ipv6::View::parse(header).ok()?;
                (packet.source().into(), packet.destination().into())
            }
            _ => continue,
        };
        return Some((HostAddress { mac, ip: source, vlans: Vlans::new(&ids)? }, destination));
    }
    None
}
