//! Options that apply to ports of all backends.

use linerate_burst::LinkType;

/// Options of receiving ports.
#[derive(Clone, Default)]
pub struct RxOptions {
    /// Snapshot length in bytes; 0 for all. Backends that cannot truncate early keep more.
    pub snap: u32,
    /// Receive frames for other hosts too.
    pub promiscuous: bool,
    /// Longest delay between a frame's time stamp and its arrival, and the time that frames of live ports wait for
    /// externally fed ports ([`Feed::others`](crate::Feed::others)); `None` for the backend's default.
    pub lag: Option<std::time::Duration>,
    /// Number of lanes to open if the backend can choose; 0 for its own choice.
    pub lanes: usize,
    /// Size buffers so that nothing is lost, whatever memory that takes.
    pub lossless: bool,
    /// Receive nothing until [`RxQueue::start`](crate::RxQueue::start), if the backend supports it, so that several
    /// ports start together ([`Registry::open_all`](crate::Registry::open_all)).
    pub paused: bool,
    /// Take frames away from the host even on an interface that the host uses.
    pub take: bool,
    /// Frames may be passed to the host as well, because the consumer neither answers nor forwards them. On an
    /// interface that the host uses they are, if the backend supports it.
    pub shared: bool,
    /// Receive the packets that the host sends through the interface too, as tcpdump does, if the backend supports it;
    /// an option of the port (`direction=`) takes precedence. Without it only received frames are delivered: a tester
    /// does not receive those that it sends.
    pub outgoing: bool,
    /// Frames are forwarded or answered: return each as soon as it has arrived, at a higher cost per frame.
    pub prompt: bool,
    /// Only counts of frames and sizes are needed: a backend that can may count frames on arrival and return none
    /// ([`RxQueue::tallied`](crate::RxQueue::tallied)).
    pub tally: bool,
    /// Frames are read straight to their destination ([`RxQueue::scatter`](crate::RxQueue::scatter)): a backend that
    /// can opens for that and returns no frames from `fill`.
    pub scatter: bool,
    /// Filter text for the backend to apply early if that gives exactly the same result as applying it to the returned
    /// frames, except those whose VLAN tag was restored. The port reports the filter that it applies
    /// ([`RxPort::filter`](crate::RxPort::filter)); a consumer applies its own filter unless it is the same text.
    pub filter: String,
}

/// Options of sending ports.
#[derive(Clone, Copy, Default)]
pub struct TxOptions {
    /// Number of queues to open; 0 for one.
    pub queues: usize,
    /// Stamp frames with the time at which they are sent, in ports that would keep their original time, such as memory.
    pub stamped: bool,
    /// Owner (user and group) of files that outlive the port, such as sockets of rings, if the process is root.
    pub owner: Option<(u32, u32)>,
    /// Link type of the frames. Types other than Ethernet are supported by files
    /// ([`Target::File`](crate::Target::File)), and bare IP packets also by tunnels
    /// ([`Target::Tunnel`](crate::Target::Tunnel)): opening any other port fails.
    pub link: LinkType,
}
