//! Interfaces: name, link type and source of timestamps.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The type of the first header of a frame: a number of the tcpdump.org link-layer header type registry (`LINKTYPE_*`),
/// as capture files record it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet (`LINKTYPE_ETHERNET`).
    pub const ETHERNET: LinkType = LinkType(1);
    /// An IPv4 or IPv6 packet without a link header (`LINKTYPE_RAW`).
    pub const RAW: LinkType = LinkType(101);
}

impl Default for LinkType {
    fn default() -> Self {
        LinkType::ETHERNET
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LinkType::ETHERNET => f.write_str("ethernet"),
            LinkType::RAW => f.write_str("raw ip"),
            LinkType(other) => write!(f, "link type {other}"),
        }
    }
}

/// The clock that took the timestamps of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StampSource {
    /// The network card.
    Hardware,
    /// The kernel, when the frame entered the network stack.
    Kernel,
    /// An XDP program, before the network stack.
    Xdp,
    /// This process, when it first saw the frame.
    User,
    /// Unknown: read from a capture file.
    File,
}

impl StampSource {
    /// Returns the name used in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            StampSource::Hardware => "hardware",
            StampSource::Kernel => "kernel",
            StampSource::Xdp => "xdp",
            StampSource::User => "user",
            StampSource::File => "file",
        }
    }
}

/// An interface on which frames are seen: one of this machine, or one recorded in a file. Comparison ignores the
/// origin.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Name, such as `eth0`; empty if a file names none.
    pub name: String,
    /// Free text; may be empty.
    pub description: String,
    /// Link type of its frames.
    pub link: LinkType,
    /// Longest captured length, in bytes; 0 for no limit.
    pub snap: u32,
    /// Source of its timestamps.
    pub stamp: StampSource,
    /// Further data of its source, for a sink that understands that source: the options, comments and statistics of a
    /// capture file. Opaque to everything else.
    pub origin: Option<Arc<dyn Any + Send + Sync>>,
}

impl PartialEq for Interface {
    fn eq(&self, other: &Self) -> bool {
        let parts = |this: &Self| (this.link, this.snap, this.stamp);
        parts(self) == parts(other) && self.name == other.name && self.description == other.description
    }
}

impl Eq for Interface {}

impl Interface {
    /// Returns an interface with this name, link type and stamp source, and without a snap length.
    pub fn new(name: impl Into<String>, link: LinkType, stamp: StampSource) -> Self {
        Interface { name: name.into(), description: String::new(), link, snap: 0, stamp, origin: None }
    }
}
