//! Devices: stations at ports, with addresses to answer for and a gateway each, whose MAC address flows may use.

use crate::pattern::Kind;
use crate::read::{Faults, Node, Object};
use linerate_generate::answer::{AddressRange, Addresses, Hop, Vlans};
use linerate_headers::MacAddr;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of addresses of all devices: each is announced and answered for.
const MOST: usize = 4096;
/// Default MTU, which clients always send.
const USUAL_MTU: u64 = 1500;

/// Interface of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Name of its device.
    pub device: String,
    /// Name of the interface.
    pub name: String,
    /// Name of its port.
    pub port: String,
    /// MAC address.
    pub mac: MacAddr,
    /// VLANs.
    pub vlans: Vlans,
    /// IP addresses.
    pub addresses: Vec<Address>,
}

/// Address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name of the address.
    pub name: String,
    /// IP address.
    pub ip: IpAddr,
    /// Gateway for other destinations.
    pub gateway: Gateway,
}

/// Gateway: the next hop to resolve, and its MAC address if given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Next hop with its source.
    pub hop: Hop,
    /// MAC address, if given.
    pub mac: Option<MacAddr>,
}

/// End of a flow between devices.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Interface.
    pub ethernet: &'a Ethernet,
    /// Address, if one is named.
    pub address: Option<&'a Address>,
}

impl Ethernet {
    /// Returns the addresses to answer for.
    pub fn own(&self) -> impl Iterator<Item = AddressRange> + '_ {
        self.addresses
            .iter()
            .map(|address| AddressRange { vlans: self.vlans, ..AddressRange::one(address.ip, self.mac) })
    }

    fn port(ethernet: &mut Object<'_>, faults: &mut Faults) -> String {
        if let Some(mut connection) = ethernet.object("connection", faults) {
            connection.choice(&["port_name"], faults);
            let port = connection.needed("port_name", faults).to_owned();
            connection.finish(faults);
            return port;
        }
        // Old name, from before there were other connections.
        ethernet.needed("port_name", faults).to_owned()
    }

    fn read(node: &Node<'_>, device: &str, ports: &[&str], faults: &mut Faults) -> Option<Ethernet> {
        let before = faults.count();
        let mut ethernet = node.object(faults);
        let name = ethernet.needed("name", faults).to_owned();
        let port = Ethernet::port(&mut ethernet, faults);
        if !port.is_empty() && !ports.contains(&&*port) {
            faults.add(&ethernet.at("connection.port_name"), format_args!("no such port {port:?}"));
        }
        let mac = station(&mut ethernet, "mac", faults);
        if ethernet.number("mtu", faults).is_some_and(|mtu| mtu != USUAL_MTU) {
            faults.add(
                &ethernet.at("mtu"),
                format_args!("not supported, except {USUAL_MTU}; the MTU of the port applies"),
            );
        }
        let vlans = vlans(&mut ethernet, faults);
        let mut made = Ethernet { device: device.to_owned(), name, port, mac, vlans, addresses: Vec::new() };
        for (list, is_v4) in [("ipv4_addresses", true), ("ipv6_addresses", false)] {
            for node in ethernet.list(list, faults) {
                made.addresses.extend(made.address(&node, is_v4, faults));
            }
        }
        ethernet.finish(faults);
        (faults.count() == before).then_some(made)
    }

    fn address(&self, node: &Node<'_>, is_v4: bool, faults: &mut Faults) -> Option<Address> {
        let before = faults.count();
        let mut address = node.object(faults);
        let name = address.needed("name", faults).to_owned();
        let [ip, gateway] = ["address", "gateway"].map(|field| {
            let Some(node) = address.take(field) else {
                faults.add(&address.at(field), "missing");
                return None;
            };
            Some(match is_v4 {
                true => IpAddr::V4(Ipv4Addr::from_bits(Kind::Ipv4.read(&node, faults)? as u32)),
                false => IpAddr::V6(Ipv6Addr::from_bits(Kind::Ipv6.read(&node, faults)?)),
            })
        });
        let most = if is_v4 { 32 } else { 128 };
        // The network does not matter: the gateway is always asked.
        if address.number("prefix", faults).is_some_and(|prefix| prefix > most) {
            faults.add(&address.at("prefix"), format_args!("too large; expected at most {most}"));
        }
        let mac = address.object("gateway_mac", faults).and_then(|mut mac| {
            let choice = mac.choice(&["auto", "value"], faults);
            mac.ignore(&["auto", "value"]);
            let value = (choice == "value").then(|| station(&mut mac, "value", faults));
            mac.finish(faults);
            value
        });
        address.finish(faults);
        let hop = match Hop::new(gateway?, ip?, self.mac, self.vlans) {
            Ok(hop) => hop,
            Err(wrong) => {
                // A wrong station address is already reported.
                if faults.count() == before {
                    faults.add(&node.path, wrong);
                }
                return None;
            }
        };
        (faults.count() == before).then(|| Address { name, ip: hop.source(), gateway: Gateway { hop, mac } })
    }
}

/// Parses the address of one station; a wrong one is reported and returned as zero.
fn station(object: &mut Object<'_>, field: &'static str, faults: &mut Faults) -> MacAddr {
    let unknown = MacAddr::default();
    let Some(node) = object.take(field) else {
        faults.add(&object.at(field), "missing");
        return unknown;
    };
    let Some(number) = Kind::Mac.read(&node, faults) else { return unknown };
    let bytes = number.to_be_bytes();
    let mac = bytes.last_chunk().map_or(unknown, |last| MacAddr(*last));
    if mac == unknown || mac.is_multicast() {
        faults.add(&node.path, format_args!("invalid MAC address {mac}; expected that of one station (unicast)"));
    }
    mac
}

fn vlans(ethernet: &mut Object<'_>, faults: &mut Faults) -> Vlans {
    let path = ethernet.at("vlans");
    let mut ids = Vec::new();
    for node in ethernet.list("vlans", faults) {
        let mut vlan = node.object(faults);
        let id = vlan.number("id", faults).unwrap_or(1);
        ids.push(u16::try_from(id).unwrap_or(u16::MAX));
        // Answers have the tags of their requests.
        vlan.ignore(&["name", "priority", "tpid"]);
        vlan.finish(faults);
    }
    Vlans::new(&ids).unwrap_or_else(|| {
        faults.add(&path, "invalid tags; expected at most two, each 1 to 4094");
        Vlans::NONE
    })
}

pub(crate) fn read(root: &mut Object<'_>, ports: &[&str], faults: &mut Faults) -> Vec<Ethernet> {
    let (mut all, mut names) = (Vec::new(), BTreeSet::new());
    for node in root.list("devices", faults) {
        let mut device = node.object(faults);
        let name = device.needed("name", faults).to_owned();
        names.extend((!name.is_empty()).then(|| name.clone()));
        for node in device.list("ethernets", faults) {
            all.extend(Ethernet::read(&node, &name, ports, faults));
        }
        device.finish(faults);
    }
    for name in all.iter().flat_map(names_of) {
        if !names.insert(name.to_owned()) {
            faults.add("devices", format_args!("duplicate name {name:?} of devices, interfaces or addresses"));
        }
    }
    if all.iter().map(|one| one.addresses.len()).sum::<usize>() > MOST {
        faults.add("devices", format_args!("too many addresses; expected at most {MOST}"));
    }
    for port in ports {
        let own = all.iter().filter(|one| one.port == *port).flat_map(Ethernet::own).collect();
        if let Err(wrong) = Addresses::new(own) {
            faults.add("devices", format_args!("{port}: {wrong}"));
        }
    }
    all
}

fn names_of(ethernet: &Ethernet) -> impl Iterator<Item = &str> {
    [&*ethernet.name].into_iter().chain(ethernet.addresses.iter().map(|address| &*address.name))
}

/// Returns all ends with a name: that of a device, an interface, or an address.
pub(crate) fn called<'a>(all: &'a [Ethernet], name: &str) -> Vec<End<'a>> {
    let mut found = Vec::new();
    for ethernet in all {
        if ethernet.device == name || ethernet.name == name {
            found.push(End { ethernet, address: None });
        }
        let own = ethernet.addresses.iter().filter(|address| address.name == name);
        found.extend(own.map(|address| End { ethernet, address: Some(address) }));
    }
    found
}

impl<'a> End<'a> {
    /// Returns the gateway for frames of an address family.
    pub(crate) fn gateway(&self, is_v4: bool) -> Option<&'a Gateway> {
        let own = self.ethernet.addresses.iter().find(|address| address.ip.is_ipv4() == is_v4);
        self.address.or(own).map(|address| &address.gateway)
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.hop.target())
    }
}
