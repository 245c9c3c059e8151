//! What a rule does with a frame, in the order that it says.

/// A port of the switch, from 1 on.
pub type PortNo = u16;

/// A ring whose reader decides about frames, from 0 on.
pub type RingNo = u16;

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Out of a port, unless the frame came by it; no more bytes than `most`.
    Output {
        /// Which.
        port: PortNo,
        /// The frame is cut to so many bytes.
        most: Option<u32>,
    },
    /// Out of the port that it came by.
    InPort,
    /// As a bridge that learns, with VLANs.
    Normal,
    /// Out of every port but the one that it came by, whatever the VLAN.
    Flood,
    /// As `Flood`; no port is left out of floods here.
    All,
    /// Another source MAC.
    SetSource(u64),
    /// Another destination MAC.
    SetDestination(u64),
    /// Another VLAN; a frame without a tag gets one.
    SetVlan(u16),
    /// Another priority (PCP); a frame without a tag gets one.
    SetPriority(u8),
    /// Without its outer tag.
    StripVlan,
    /// With another tag outside, of this type.
    PushVlan(u16),
    /// Another source address.
    SetV4Source(u32),
    /// Another destination address.
    SetV4Destination(u32),
    /// Another source address.
    SetV6Source(u128),
    /// Another destination address.
    SetV6Destination(u128),
    /// The upper six bits of the type of service, or traffic class.
    SetTos(u8),
    /// The lower two.
    SetEcn(u8),
    /// Another time to live, or hop limit.
    SetTtl(u8),
    /// One less; at the end of its life the frame goes nowhere any more.
    DecTtl,
    /// Another source port.
    SetSourcePort(u16),
    /// Another destination port.
    SetDestinationPort(u16),
    /// What comes behind is done to one frame in so many alone.
    Sample(u32),
    /// Who reads this ring decides about the frame, as it is by then; what comes behind is done to it when it comes back.
    Inspect(RingNo),
}

/// Why a frame, or the rest of what was to be done with it, went nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is shorter than a header of Ethernet, or its tag is cut.
    Malformed,
    /// No rule is about it.
    NoRule,
    /// Its rule says so, by having no action.
    Rule,
    /// Its rule sends it where it came from.
    SamePort,
    /// The port that it came by is not in its VLAN.
    Vlan,
    /// It is for the next bridge alone (IEEE 802.1Q table 8-1), and was not to be forwarded.
    Reserved,
    /// Its time to live is over.
    Ttl,
    /// Whom it is for is behind the port that it came by.
    Local,
    /// There is no other port that it could go to.
    NoPort,
    /// It was not one of those in a sample.
    Sample,
    /// Who decides about frames has said of its flow that it is blocked.
    Listed,
}

impl Reason {
    /// All of them.
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
