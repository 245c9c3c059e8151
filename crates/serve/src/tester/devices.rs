//! Devices of the configuration, and the MAC addresses that their flows are sent to.

use super::Tester;
use linerate_otg::control::Neighbors;
use linerate_otg::device::{Ethernet, Gateway};
use linerate_otg::read::Faults;
use linerate_wire::MacAddr;
use std::net::IpAddr;

/// Bytes of the destination of an Ethernet frame.
const MAC: usize = 6;

/// A gateway of an interface.
pub struct Neighbor<'a> {
    /// The name of the interface.
    pub ethernet: &'a str,
    /// Its address.
    pub ip: IpAddr,
    /// Where it is, if that is known.
    pub mac: Option<MacAddr>,
}

impl Tester {
    /// Those of a new configuration are there from now on.
    pub(super) fn place_devices(&self) {
        for (place, port) in self.ports.iter().enumerate() {
            let own = || self.config.devices.iter().filter(|one| self.device_place(one) == Some(place));
            let gateways = own().flat_map(|one| &one.addresses).map(|address| address.gateway);
            let hops = gateways.filter(|gateway| gateway.mac.is_none()).map(|gateway| gateway.hop);
            port.listener.heard().devices.set(own().flat_map(Ethernet::own).collect(), hops.collect());
        }
    }

    /// Has all of them there, or none.
    pub fn switch_devices(&self, is_on: bool) {
        self.ports.iter().for_each(|port| port.listener.heard().devices.switch(is_on));
    }

    fn device_place(&self, ethernet: &Ethernet) -> Option<usize> {
        self.place_of(&ethernet.port)
    }

    fn place_of(&self, port: &str) -> Option<usize> {
        let at = self.config.ports.iter().position(|known| known.name == port)?;
        self.places.get(at).copied()
    }

    fn find(&self, port: &str, gateway: &Gateway) -> Option<MacAddr> {
        gateway.mac.or_else(|| self.ports.get(self.place_of(port)?)?.listener.heard().devices.find(&gateway.hop))
    }

    /// Gateways of interfaces, and where they are.
    ///
    /// # Errors
    /// Names that no interface has.
    pub fn neighbors(&self, wanted: &Neighbors) -> Result<Vec<Neighbor<'_>>, Faults> {
        let mut faults = Faults::default();
        for name in &wanted.ethernets {
            if !self.config.devices.iter().any(|ethernet| ethernet.name == *name) {
                faults.add("ethernet_names", format_args!("no interface is called {name:?}"));
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

    /// Flows that begin have the MAC addresses of their gateways as destination.
    ///
    /// # Errors
    /// Gateways that have not answered.
    pub(super) fn address(&mut self, flows: &[usize]) -> Result<(), Faults> {
        let mut faults = Faults::default();
        for at in flows {
            let flow = &self.config.flows[*at];
            let Some(gateway) = flow.gateway else { continue };
            let Some(mac) = self.find(&flow.tx, &gateway) else {
                let port = &flow.tx;
                let what = "nobody has answered for the gateway";
                let next = "ask for neighbours until it has, and see that protocols are started";
                faults.add(&flow.name, format_args!("{what} {gateway} at {port} yet: {next}"));
                continue;
            };
            for variant in &mut self.config.flows[*at].stream.variants {
                variant.frame[..MAC].copy_from_slice(&mac.0);
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}
