//! Actions of a rule, in order.

/// Port of the switch, from 1 on.
pub type PortNo = u16;

/// Ring whose reader decides about frames, from 0 on.
pub type RingNo = u16;

/// Action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends the frame to a port, unless it is the input port, with at most `most` bytes.
    Output {
        /// Port.
        port: PortNo,
        /// Length to cut the frame to, in bytes.
        most: Option<u32>,
    },
    /// Sends the frame to its input port.
    InPort,
    /// Forwards like a learning bridge, with VLANs.
    Normal,
    /// Sends the frame to every port except the input port, for any VLAN.
    Flood,
    /// Like `Flood`; no port is excluded from floods here.
    All,
    /// Sets the source MAC.
    SetSource(u64),
    /// Sets the destination MAC.
    SetDestination(u64),
    /// Sets the VLAN; a frame without a tag gets one.
    SetVlan(u16),
    /// Sets the priority (PCP); a frame without a tag gets one.
    SetPriority(u8),
    /// Removes the outer tag.
    StripVlan,
    /// Adds an outer tag of this type.
    PushVlan(u16),
    /// Sets the IPv4 source address.
    SetV4Source(u32),
    /// Sets the IPv4 destination address.
    SetV4Destination(u32),
    /// Sets the IPv6 source address.
    SetV6Source(u128),
    /// Sets the IPv6 destination address.
    SetV6Destination(u128),
    /// Sets the upper six bits of the type of service, or traffic class.
    SetTos(u8),
    /// Sets the lower two bits of it.
    SetEcn(u8),
    /// Sets the time to live, or hop limit.
    SetTtl(u8),
    /// Decrements it; the frame is dropped when it expires.
    DecTtl,
    /// Sets the source port.
    SetSourcePort(u16),
    /// Sets the destination port.
    SetDestinationPort(u16),
    /// Applies later actions to only one in this number of frames.
    Sample(u32),
    /// Lets the reader of this ring decide about the frame in its current state; later actions apply when it comes
    /// back.
    Inspect(RingNo),
}

/// Reason for dropping a frame, or for stopping its actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is shorter than an Ethernet header, or its tag is truncated.
    Malformed,
    /// No rule matches.
    NoRule,
    /// Its rule has no actions.
    Rule,
    /// Its rule sends it to its input port.
    SamePort,
    /// The input port is not in its VLAN.
    Vlan,
    /// It is only for the next bridge (IEEE 802.1Q table 8-1), and such frames are not forwarded.
    Reserved,
    /// Its time to live expired.
    Ttl,
    /// Its destination is at the input port.
    Local,
    /// No other port can take it.
    NoPort,
    /// It was not in a sample.
    Sample,
    /// Its flow was blocked by the reader of an inspection ring.
    Listed,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 11] = [
        Reason::Malformed,
        Reason::NoRule,
        Reason::Rule,
        Reason::SamePort,
        Reason::Vlan,
        Reason::Reserved,
        Reason::Ttl,
        Reason::Local,
        Reason::NoPort,
        Reason::Sample,
        Reason::Listed,
    ];
}
