//! Link state of an interface: packets that did not arrive while the link was down are not lost.

use crate::REGISTRY;
use crate::inventory::find;
use crate::netns::within;
use crate::rtnl::{self, IFF_UP, Rtnetlink};
use linerate_port::{InterfaceInfo, Spec};
use std::time::{Duration, Instant};

/// `IFLA_CARRIER` and `IFLA_CARRIER_DOWN_COUNT` (linux/if_link.h).
const CARRIER: u16 = 33;
const DOWN_COUNT: u16 = 48;

/// Queries the link of an interface, also after privileges are dropped and from outside its network namespace.
#[derive(Debug)]
pub struct Carrier {
    index: u32,
    netlink: Rtnetlink,
    downs: Option<u32>,
}

/// Longest wait for a link that a driver has reset: negotiation takes up to 3 s.
const RESET_LIMIT: Duration = Duration::from_secs(6);
const RESET_NAP: Duration = Duration::from_millis(10);

/// Waits until the link of an interface is up after its driver has reset it, as many do when a program is attached.
/// Returns a note, or `None` if it did not go down, or was down before. Call it inside the interface's network
/// namespace.
pub(crate) fn wait_until_up(found: &InterfaceInfo) -> Option<String> {
    let carrier = Carrier { index: found.index, netlink: Rtnetlink::new().ok()?, downs: None };
    if !found.running || carrier.is_up() {
        return None;
    }
    let started = Instant::now();
    while started.elapsed() < RESET_LIMIT {
        std::thread::sleep(RESET_NAP);
        if carrier.is_up() {
            let time = started.elapsed().as_secs_f64();
            return Some(format!("the driver took the link down for {time:.1} s to attach the program"));
        }
    }
    let limit = RESET_LIMIT.as_secs();
    Some(format!("the link is still down {limit} s after the driver attached the program; check the cable"))
}

impl Carrier {
    /// Opens the interface that a port uses; `None` if it uses none, or not an Ethernet interface.
    pub fn of(spec: &Spec) -> Option<Self> {
        let at = REGISTRY.interface(spec)?;
        let open = || Ok((find(&at.target)?.index, Rtnetlink::new()?));
        let (index, netlink) = within(at.option("netns"), open).ok()?;
        let mut carrier = Carrier { index, netlink, downs: None };
        carrier.downs = carrier.downs();
        Some(carrier)
    }

    /// Returns whether the link is up.
    pub fn is_up(&self) -> bool {
        let carrier = self.netlink.link(self.index).and_then(|link| Some(*rtnl::attribute(&link, CARRIER)?.first()?));
        carrier != Some(0) && self.netlink.flags(self.index).is_some_and(|flags| flags & IFF_UP != 0)
    }

    /// Returns whether the link was down since this was opened, however briefly.
    pub fn was_down(&self) -> bool {
        !self.is_up() || self.downs() != self.downs
    }

    fn downs(&self) -> Option<u32> {
        rtnl::number(rtnl::attribute(&self.netlink.link(self.index)?, DOWN_COUNT)?)
    }
}
