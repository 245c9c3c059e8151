//! One row a backend.

use crate::backends::{mem, packet, pcap};
use crate::{PortError, RxPort, Spec, TxPort};
use linerate_filter::Filter;

/// What every receiving port may be asked for.
#[derive(Clone, Default)]
pub struct RxOptions {
    /// Most bytes of a frame to keep; 0 for all. Backends that cannot cut early keep more.
    pub snap: u32,
    /// Take in frames for other hosts too.
    pub promiscuous: bool,
    /// How long after its time stamp a frame may show up; `None` for the backend's own default.
    pub lag: Option<std::time::Duration>,
    /// Filter text for the backend to apply early where that gives exactly the same result as applying it
    /// to the frames handed out. See [`crate::contract::RxQueue`]; whoever reads the port applies it again.
    pub filter: String,
}

/// What every sending port may be asked for.
#[derive(Clone, Copy, Default)]
pub struct TxOptions {
    /// How many queues to open; 0 for one.
    pub queues: usize,
}

/// One backend.
pub struct Backend {
    /// The word in front of the colon.
    pub scheme: &'static str,
    /// What its target is, for help.
    pub target: &'static str,
    /// One sentence.
    pub sentence: &'static str,
    /// Opens a port to receive from.
    pub open_rx: fn(&Spec, &RxOptions) -> Result<RxPort, PortError>,
    /// Opens a port to send to.
    pub open_tx: fn(&Spec, &TxOptions) -> Result<TxPort, PortError>,
    /// Whether it works on an interface of this machine, and if not, why; `None` for backends that have
    /// nothing to do with interfaces.
    pub on_interface: Option<fn(&crate::inventory::Found) -> Result<(), String>>,
}

/// Every backend there is.
pub const BACKENDS: &[Backend] = &[
    Backend {
        scheme: "packet",
        target: "interface",
        sentence: "AF_PACKET: sees what the interface sees, takes nothing away; every Linux driver",
        open_rx: packet::open_rx,
        open_tx: packet::open_tx,
        on_interface: Some(packet::on_interface),
    },
    Backend {
        scheme: "pcap",
        target: "file or -",
        sentence: "capture files: reads pcap and pcapng, writes pcapng or nanosecond pcap",
        open_rx: pcap::open_rx,
        open_tx: pcap::open_tx,
        on_interface: None,
    },
    Backend {
        scheme: "mem",
        target: "name",
        sentence: "memory of this process: what is sent to a name is received from it",
        open_rx: mem::open_rx,
        open_tx: mem::open_tx,
        on_interface: None,
    },
];

/// Opens a port to receive from.
pub fn open_rx(spec: &Spec, options: &RxOptions) -> Result<RxPort, PortError> {
    (backend(spec)?.open_rx)(spec, options)
}

/// Opens a port to send to.
pub fn open_tx(spec: &Spec, options: &TxOptions) -> Result<TxPort, PortError> {
    (backend(spec)?.open_tx)(spec, options)
}

/// Compiles filter text for one link type; empty text selects everything.
pub(crate) fn compile(spec: &Spec, text: &str, link: u16) -> Result<Option<Filter>, PortError> {
    if text.is_empty() {
        return Ok(None);
    }
    let filter = Filter::compile(text, link).map_err(|error| PortError::broken(spec.to_string(), error.to_string()))?;
    Ok(Some(filter))
}

fn backend(spec: &Spec) -> Result<&'static Backend, PortError> {
    BACKENDS.iter().find(|backend| backend.scheme == spec.scheme).ok_or_else(|| {
        let known: Vec<&str> = BACKENDS.iter().map(|backend| backend.scheme).collect();
        PortError::broken(spec.to_string(), format!("no backend {:?}; there are {}", spec.scheme, known.join(", ")))
    })
}
