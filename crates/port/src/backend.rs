//! Description of a backend: static facts, and two functions that open its ports.

use crate::{PortError, Registry, RxOptions, RxPort, Spec, TxOptions, TxPort};

/// One backend. Code that depends on properties of a port uses these facts, not the scheme.
#[derive(Clone, Copy, Debug)]
pub struct Backend {
    /// Word before the colon: lower-case letters and `-`.
    pub scheme: &'static str,
    /// Name of the target in help.
    pub placeholder: &'static str,
    /// Description in one sentence.
    pub sentence: &'static str,
    /// Kind of target.
    pub target: Target,
    /// Options after the `?` for receiving. A wrapper checks its options itself.
    pub rx_options: &'static [&'static str],
    /// Options for sending.
    pub tx_options: &'static [&'static str],
    /// Opens a port to receive from. A wrapper opens the inner port by the registry.
    pub open_rx: fn(&Spec, &RxOptions, &Registry) -> Result<RxPort, PortError>,
    /// Opens a port to send to.
    pub open_tx: fn(&Spec, &TxOptions, &Registry) -> Result<TxPort, PortError>,
    /// Returns whether frames leave at the moment they are sent. In a file they do not: they are stored with their
    /// times, and the sender need not wait for those. A wrapper asks its inner port.
    pub leaves_when_sent: fn(&Spec, &TxOptions) -> bool,
}

/// Kind of target of a backend.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// An interface of this machine.
    Interface {
        /// Returns the backend's limits on an interface, or why it does not work.
        works: InterfaceCheck,
        /// True if the host does not see the frames that it receives.
        takes_away: bool,
        /// True if it only sends.
        only_sends: bool,
    },
    /// A device that is not an interface of this machine: what is sent there is not received again.
    Device,
    /// An interface of this machine that the run creates and this process serves: what is sent there is not received
    /// again. It takes IP packets without a link header as well as Ethernet frames.
    Tunnel,
    /// Path of a file, which may contain any character. It is opened after privileges are dropped, and takes frames of
    /// the link type that it was opened for.
    File,
    /// Memory of this process: sent frames are received again.
    Memory,
    /// A ring in shared memory, or the path of its socket, which is removed at the end.
    Ring,
    /// Another port: this is a wrapper. The function returns the inner port.
    Port(fn(&Spec) -> Result<Spec, PortError>),
}

/// Returns the limits of a backend on an interface where it works (empty: none), or why it does not work.
pub type InterfaceCheck = fn(&InterfaceInfo) -> Result<String, String>;

/// Properties of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceInfo {
    /// Interface name.
    pub name: String,
    /// Index in its network namespace.
    pub index: u32,
    /// Driver name; empty for interfaces without one, such as `lo`.
    pub driver: String,
    /// MAC address as text; empty if it has none.
    pub address: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// True if it is administratively up.
    pub up: bool,
    /// True if it has a carrier.
    pub running: bool,
    /// Speed in Mb/s, if the driver reports it.
    pub speed_mbps: Option<u64>,
    /// Number of receive and send queues.
    pub queues: (u32, u32),
    /// `ARPHRD_*` number: 1 for Ethernet, 772 for loopback (linux/if_arp.h).
    pub hardware: u32,
    /// Enabled offloads, by their ethtool names.
    pub offloads: Vec<String>,
    /// Network namespace that it was looked up in; empty for that of this process.
    pub netns: String,
}
