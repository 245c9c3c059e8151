//! Interfaces of all ports, as lanes report them.

use super::{LaneFrames, Port};
use crate::clock::Time;
use linerate_burst::{Interface, Nanos, StampSource};
use linerate_headers::Link;
use linerate_port::PortError;

/// Interfaces of all ports, extended while lanes are filled.
pub(crate) struct Table<'a> {
    pub(super) ports: &'a mut Vec<Port>,
    pub(super) interfaces: &'a mut Vec<Interface>,
    pub(super) failure: &'a mut Option<PortError>,
    pub(super) time: &'a Time,
    pub(super) is_merged: bool,
    pub(super) is_live: &'a mut bool,
    pub(super) above: u64,
}

/// Maximum number of interfaces that descs can distinguish.
const MOST_INTERFACES: usize = u16::MAX as usize + 1;

impl Table<'_> {
    /// Returns an upper bound of the times of frames returned so far, if their times are right. Must be called after
    /// `fill`, since frames may arrive while lanes are filled.
    #[inline]
    pub(crate) fn ceiling(&self) -> Nanos {
        if *self.is_live { Nanos(self.time.utc().0.saturating_add(self.above)) } else { Nanos::MAX }
    }

    /// Adds interfaces that a lane reports for the first time.
    pub(crate) fn learn(&mut self, shown: &LaneFrames<'_>) {
        let port = &mut self.ports[shown.port];
        for interface in &shown.interfaces[port.map.len().min(shown.interfaces.len())..] {
            port.links.push(Link::from_linktype(interface.link.0));
            if self.interfaces.len() == MOST_INTERFACES {
                port.map.push(u16::MAX);
                self.failure.get_or_insert_with(|| {
                    let reason = format!(
                        "more than {MOST_INTERFACES} interfaces in one run: frames of further ones are assigned to the \
                         last; read fewer files at a time"
                    );
                    PortError::broken(&port.name, reason)
                });
                continue;
            }
            // A ring of this machine may contain frames of its clock too.
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

    /// Returns the index in the list of all for each interface of a lane.
    pub(crate) fn map(&self, shown: &LaneFrames<'_>) -> &[u16] {
        &self.ports[shown.port].map
    }

    /// Returns the link type of each interface of a lane.
    pub(crate) fn links(&self, shown: &LaneFrames<'_>) -> &[Option<Link>] {
        &self.ports[shown.port].links
    }

    pub(crate) fn interfaces(&self) -> &[Interface] {
        self.interfaces
    }

    /// Returns the filter that the lane's backend has applied; empty if none.
    #[inline]
    pub(crate) fn filter(&self, shown: &LaneFrames<'_>) -> &str {
        &self.ports[shown.port].filter
    }
}
