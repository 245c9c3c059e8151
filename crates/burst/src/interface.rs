//! Where a frame was seen: the interface, its link type and the source of its time stamps.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What the first byte of a frame means: a number of the tcpdump.org link-layer header type registry
/// (`LINKTYPE_*`), as capture files record it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet (`LINKTYPE_ETHERNET`).
    pub const ETHERNET: LinkType = LinkType(1);
    /// An IPv4 or IPv6 packet with nothing in front (`LINKTYPE_RAW`).
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

/// Who took the time stamps of an interface.
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
    /// A capture file: whoever wrote it knows.
    File,
}

impl StampSource {
    /// The name used in text and JSON.
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

/// One place where frames are seen: an interface of the machine, or one recorded in a file. Two are equal
/// if all but their origin is.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Name, as in `eth0`; empty where a file names none.
    pub name: String,
    /// Free text; empty where there is none.
    pub description: String,
    /// What the first byte of its frames means.
    pub link: LinkType,
    /// Longest captured length, in bytes; 0 for no limit.
    pub snap: u32,
    /// Who took its time stamps.
    pub stamp: StampSource,
    /// What its source knows beyond this, for a sink that understands that source: the options, comments
    /// and statistics of a capture file. Nobody else looks inside.
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
    /// An interface with a name and a link type and no other limits.
    pub fn new(name: impl Into<String>, link: LinkType, stamp: StampSource) -> Self {
        Interface { name: name.into(), description: String::new(), link, snap: 0, stamp, origin: None }
    }
}
