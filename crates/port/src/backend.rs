//! What a backend is: a row of facts, and two functions that open its ports.

use crate::{PortError, Registry, RxOptions, RxPort, Spec, TxOptions, TxPort};

/// One backend. Whoever wants to know something of a port asks for these facts, not for its scheme.
#[derive(Clone, Copy, Debug)]
pub struct Backend {
    /// The word in front of the colon: small letters and `-`.
    pub scheme: &'static str,
    /// What its target is called in help.
    pub placeholder: &'static str,
    /// One sentence.
    pub sentence: &'static str,
    /// What its target is.
    pub target: Target,
    /// The options behind the `?` that it knows when it receives. Those of a wrapper are its own affair.
    pub rx_options: &'static [&'static str],
    /// Those that it knows when it sends.
    pub tx_options: &'static [&'static str],
    /// Opens a port to receive from. A wrapper opens what it wraps by the registry.
    pub open_rx: fn(&Spec, &RxOptions, &Registry) -> Result<RxPort, PortError>,
    /// Opens a port to send to.
    pub open_tx: fn(&Spec, &TxOptions, &Registry) -> Result<TxPort, PortError>,
    /// Whether frames leave at the moment they are sent. Where they do not, as in a file, they lie there with the times
    /// they have, and nobody need wait until those come. Of a wrapper, what it wraps is asked.
    pub leaves_when_sent: fn(&Spec, &TxOptions) -> bool,
}

/// What the target of a backend is.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// An interface of this machine.
    Interface {
        /// Says whether the backend works on one, or why not.
        works: Works,
        /// Whether the host does not see the frames that it receives.
        takes_away: bool,
        /// Whether it only sends.
        only_sends: bool,
    },
    /// A way in and out that is no interface of this machine: what is sent there does not come in again.
    Device,
    /// An interface of this machine that the run makes, and this process is behind: what is sent there does not come in again. It
    /// takes IP packets without a link header as well as Ethernet frames.
    Tunnel,
    /// The path of a file, which may hold any character. It is opened with the rights of whoever the program becomes, and
    /// takes frames of the link type that it was opened for.
    File,
    /// Memory of this process: what is sent to it is received from it.
    Memory,
    /// A ring in shared memory, or the path of its socket, which is removed in the end.
    Ring,
    /// Another port: this is a wrapper. Takes it apart: what it wraps.
    Port(fn(&Spec) -> Result<Spec, PortError>),
}

/// Returns what limits a backend on an interface where it works (empty: nothing), or why it does not work.
pub type Works = fn(&Found) -> Result<String, String>;

/// One interface as found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Its number in its network namespace.
    pub index: u32,
    /// The driver's name; empty for interfaces without one, as `lo`.
    pub driver: String,
    /// MAC address as text; empty where there is none.
    pub address: String,
    /// Longest network packet, in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it has a carrier.
    pub running: bool,
    /// Speed in Mb/s where the driver knows it.
    pub speed_mbps: Option<u64>,
    /// Receive and send queues.
    pub queues: (u32, u32),
    /// `ARPHRD_*` number: 1 for Ethernet, 772 for loopback (linux/if_arp.h).
    pub hardware: u32,
    /// Offloads that are on, by their ethtool names.
    pub offloads: Vec<String>,
    /// The network namespace it was looked up in; empty for this process's own.
    pub netns: String,
}
