//! What ports may be asked for, whatever their backend.

use linerate_burst::LinkType;

/// What every receiving port may be asked for.
#[derive(Clone, Default)]
pub struct RxOptions {
    /// Most bytes of a frame to keep; 0 for all. Backends that cannot cut early keep more.
    pub snap: u32,
    /// Take in frames for other hosts too.
    pub promiscuous: bool,
    /// How long after its time stamp a frame may show up, and how long frames of live ports wait for one that others feed
    /// ([`Feed::others`](crate::Feed::others)); `None` for the backend's own default.
    pub lag: Option<std::time::Duration>,
    /// How many lanes to open where the backend can choose; 0 for its own choice.
    pub lanes: usize,
    /// Choose buffers so that nothing is lost, whatever memory that takes.
    pub lossless: bool,
    /// Take nothing in until [`RxQueue::start`](crate::RxQueue::start), where that is to be had: so that several ports begin
    /// together ([`Registry::open_all`](crate::Registry::open_all)).
    pub paused: bool,
    /// Take frames away from the host even on an interface that it uses itself.
    pub take: bool,
    /// Frames may go on to the host as well: who looks at them does not answer, nor send them on. Where the host uses the interface
    /// itself they do, if the backend can do that.
    pub shared: bool,
    /// Take in the packets that the host sends through the interface too, as tcpdump does, if the backend can do that; an option of
    /// the port (`direction=`) takes precedence. Without it only received frames come: a tester does not get those that it sends.
    pub outgoing: bool,
    /// How many frames come, and of which sizes, is all that is wanted: whoever can may count them where they arrive and show none
    /// ([`RxQueue::tallied`](crate::RxQueue::tallied)).
    pub tally: bool,
    /// Each frame is to be read straight to where its reader wants it ([`RxQueue::scatter`](crate::RxQueue::scatter)): whoever can
    /// opens for that, and shows no frames then.
    pub scatter: bool,
    /// Filter text for the backend to apply early where that gives exactly the same result as applying it
    /// to the frames handed out, but those whose VLAN tag was put back. The port reports the filter that it applies ([`RxPort::filter`](crate::RxPort::filter));
    /// a consumer applies its own filter unless it is the same text.
    pub filter: String,
}

/// What every sending port may be asked for.
#[derive(Clone, Copy, Default)]
pub struct TxOptions {
    /// How many queues to open; 0 for one.
    pub queues: usize,
    /// Give frames the time at which they are sent where they would lie with those they came with, as in memory.
    pub stamped: bool,
    /// The user and group with whose rights what stays in the file system is made (sockets of rings), where this is root.
    pub owner: Option<(u32, u32)>,
    /// What its frames begin with. Other than Ethernet only files take ([`Target::File`](crate::Target::File)), and IP packets
    /// alone also tunnels ([`Target::Tunnel`](crate::Target::Tunnel)): opening any other port fails.
    pub link: LinkType,
}
