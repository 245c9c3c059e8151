//! The interfaces of all ports, as lanes show them.

use super::{Port, Shown};
use crate::clock::Time;
use linerate_burst::{Interface, Nanos, StampSource};
use linerate_port::PortError;
use linerate_wire::Link;

/// The interfaces of all ports, growing while lanes are shown.
pub(crate) struct Table<'a> {
    pub(super) ports: &'a mut Vec<Port>,
    pub(super) interfaces: &'a mut Vec<Interface>,
    pub(super) failure: &'a mut Option<PortError>,
    pub(super) time: &'a Time,
    pub(super) is_merged: bool,
    pub(super) is_live: &'a mut bool,
    pub(super) above: u64,
}

/// As many interfaces as descs can tell apart.
const MOST_INTERFACES: usize = u16::MAX as usize + 1;

impl Table<'_> {
    /// No frame that lanes have shown is later than this, if its time is right. To be asked behind `fill`: frames may have
    /// come while lanes were filled.
    #[inline]
    pub(crate) fn ceiling(&self) -> Nanos {
        if *self.is_live { Nanos(self.time.utc().0.saturating_add(self.above)) } else { Nanos::MAX }
    }

    /// Takes up interfaces that a lane shows for the first time.
    pub(crate) fn learn(&mut self, shown: &Shown<'_>) {
        let port = &mut self.ports[shown.port];
        for interface in &shown.interfaces[port.map.len().min(shown.interfaces.len())..] {
            port.links.push(Link::from_linktype(interface.link.0));
            if self.interfaces.len() == MOST_INTERFACES {
                port.map.push(u16::MAX);
                self.failure.get_or_insert_with(|| {
                    let reason = format!(
                        "more than {MOST_INTERFACES} interfaces in one run, and frames of the others count as those \
                         of the last: read fewer files at a time"
                    );
                    PortError::broken(&port.name, reason)
                });
                continue;
            }
            // A ring of this machine may bring frames of its clock too.
            let by_clock = matches!(interface.stamp, StampSource::Hardware | StampSource::Kernel | StampSource::Xdp);
            *self.is_live |= self.is_merged && by_clock;
            port.map.push(self.interfaces.len() as u16);
            let mut interface = interface.clone();
            if interface.description.is_empty() {
                interface.description.clone_from(&port.name);
            }
            self.interfaces.push(interface);
        }
    }

    /// The place of each interface of a lane in the list of all.
    pub(crate) fn map(&self, shown: &Shown<'_>) -> &[u16] {
        &self.ports[shown.port].map
    }

    /// What frames of each interface of a lane begin with.
    pub(crate) fn links(&self, shown: &Shown<'_>) -> &[Option<Link>] {
        &self.ports[shown.port].links
    }

    /// The interfaces of all ports.
    pub(crate) fn interfaces(&self) -> &[Interface] {
        self.interfaces
    }

    /// The filter that the lane's backend has applied; empty if none.
    #[inline]
    pub(crate) fn filter(&self, shown: &Shown<'_>) -> &str {
        &self.ports[shown.port].filter
    }
}
