//! Devices of the configuration, and the destination MAC addresses of their flows.

use super::Tester;
use linerate_headers::MacAddr;
use linerate_otg::control::Neighbors;
use linerate_otg::device::{Ethernet, Gateway};
use linerate_otg::read::Faults;
use std::net::IpAddr;

/// Bytes of a destination MAC address.
const MAC: usize = 6;

/// Gateway of an interface.
pub struct Neighbor<'a> {
    /// Name of the interface.
    pub ethernet: &'a str,
    /// IP address of the gateway.
    pub ip: IpAddr,
    /// MAC address, if resolved.
    pub mac: Option<MacAddr>,
}

impl Tester {
    /// Enables the devices of a new configuration.
    pub(super) fn enable_devices(&self) {
        for (place, port) in self.ports.iter().enumerate() {
            let own = || self.config.devices.iter().filter(|one| self.device_index(one) == Some(place));
            let gateways = own().flat_map(|one| &one.addresses).map(|address| address.gateway);
            let hops = gateways.filter(|gateway| gateway.mac.is_none()).map(|gateway| gateway.hop);
            port.listener.reception().devices.set(own().flat_map(Ethernet::own).collect(), hops.collect());
        }
    }

    /// Enables or disables all devices.
    pub fn switch_devices(&self, is_on: bool) {
        self.ports.iter().for_each(|port| port.listener.reception().devices.switch(is_on));
    }

    fn device_index(&self, ethernet: &Ethernet) -> Option<usize> {
        self.place_of(&ethernet.port)
    }

    fn place_of(&self, port: &str) -> Option<usize> {
        let at = self.config.ports.iter().position(|known| known.name == port)?;
        self.places.get(at).copied()
    }

    fn find(&self, port: &str, gateway: &Gateway) -> Option<MacAddr> {
        gateway.mac.or_else(|| self.ports.get(self.place_of(port)?)?.listener.reception().devices.find(&gateway.hop))
    }

    /// Returns the gateways of interfaces with their MAC addresses.
    ///
    /// # Errors
    /// An interface name is unknown.
    pub fn neighbors(&self, wanted: &Neighbors) -> Result<Vec<Neighbor<'_>>, Faults> {
        let mut faults = Faults::default();
        for name in &wanted.ethernets {
            if !self.config.devices.iter().any(|ethernet| ethernet.name == *name) {
                faults.add("ethernet_names", format_args!("unknown interface {name:?}"));
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let is_wanted = |one: &&Ethernet| wanted.ethernets.is_empty() || wanted.ethernets.contains(&one.name);
        let of = |ethernet: &'_ Ethernet| {
            let own = ethernet.addresses.iter().filter(|address| address.ip.is_ipv4() == wanted.is_v4);
            own.map(|address| (address.gateway.hop.target(), self.find(&ethernet.port, &address.gateway)))
                .collect::<Vec<_>>()
        };
        let row = |ethernet| {
            let all = of(ethernet);
            all.into_iter().map(|(ip, mac)| Neighbor { ethernet: &ethernet.name, ip, mac })
        };
        Ok(self.config.devices.iter().filter(is_wanted).flat_map(row).collect())
    }

    /// Sets the destination MAC addresses of starting flows to those of their gateways.
    ///
    /// # Errors
    /// A gateway is not resolved.
    pub(super) fn address(&mut self, flows: &[usize]) -> Result<(), Faults> {
        let mut faults = Faults::default();
        for at in flows {
            let flow = &self.config.flows[*at];
            let Some(gateway) = flow.gateway else { continue };
            let Some(mac) = self.find(&flow.tx, &gateway) else {
                let port = &flow.tx;
                let what = "unresolved gateway";
                let next = "start protocols and poll the neighbours until it replies";
                faults.add(&flow.name, format_args!("{what} {gateway} at {port}; {next}"));
                continue;
            };
            for variant in &mut self.config.flows[*at].stream.variants {
                variant.frame[..MAC].copy_from_slice(&mac.0);
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}
