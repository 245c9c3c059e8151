//! One row a backend.

use crate::inventory::Found;
use crate::{faulty, mem, packet, pcap, shm, xdp, xdp_live};
use linerate_port::spec::parse_offset;
use linerate_port::{PortError, RxOptions, RxPort, Spec, TxOptions, TxPort};

/// Says whether a backend works on an interface, or why not.
pub type Judge = fn(&Found) -> Result<(), String>;

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
    pub on_interface: Option<Judge>,
    /// Whether frames leave at the moment they are sent. Where they do not, as in a file, they lie there with the times
    /// they have, and nobody need wait until those come.
    pub leaves_when_sent: fn(&Spec) -> bool,
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
        leaves_when_sent: |_| true,
    },
    Backend {
        scheme: "xdp",
        target: "interface",
        sentence: "AF_XDP: takes frames from the driver, away from the host; the fastest way in",
        open_rx: xdp::open_rx,
        open_tx: xdp::open_tx,
        on_interface: Some(xdp::on_interface),
        leaves_when_sent: |_| true,
    },
    Backend {
        scheme: "xdp-live",
        target: "interface",
        sentence: "sending by the kernel itself: frames made or copied by an XDP program; the fastest way out",
        open_rx: xdp_live::open_rx,
        open_tx: xdp_live::open_tx,
        on_interface: Some(xdp_live::on_interface),
        leaves_when_sent: |_| true,
    },
    Backend {
        scheme: "pcap",
        target: "file or -",
        sentence: "capture files: reads pcap and pcapng, writes pcapng or nanosecond pcap",
        open_rx: pcap::open_rx,
        open_tx: pcap::open_tx,
        on_interface: None,
        leaves_when_sent: |_| false,
    },
    Backend {
        scheme: "mem",
        target: "name",
        sentence: "memory of this process: what is sent to a name is received from it",
        open_rx: mem::open_rx,
        open_tx: mem::open_tx,
        on_interface: None,
        leaves_when_sent: |spec| spec.option("stamp") == Some("now"),
    },
    Backend {
        scheme: "shm",
        target: "ring name or socket",
        sentence: "shared memory: the ordered stream that another process captures and shares; or a ring to send into",
        open_rx: shm::open_rx,
        open_tx: shm::open_tx,
        on_interface: None,
        leaves_when_sent: |_| true,
    },
    Backend {
        scheme: "faulty",
        target: "port",
        sentence: "any port behind a wire that drops, repeats, reorders, damages and delays by plan, from a seed",
        open_rx: faulty::open_rx,
        open_tx: faulty::open_tx,
        on_interface: None,
        leaves_when_sent: faulty::leaves_when_sent,
    },
];

/// Opens a port to receive from. Whatever the backend, `offset=` sets the clock of the port right: `offset=-1.5us`
/// for one whose stamps are 1.5 us too late.
pub fn open_rx(spec: &Spec, options: &RxOptions) -> Result<RxPort, PortError> {
    let backend = backend(spec)?;
    let Some(text) = spec.option("offset") else { return (backend.open_rx)(spec, options) };
    let offset_ns = parse_offset(text).ok_or_else(|| {
        let reason = format!("offset={text} is no span of time (as in 250, -1.5us, 3ms; nanoseconds where no unit is)");
        PortError::wrong(spec.to_string(), reason)
    })?;
    let mut spec = spec.clone();
    spec.options.retain(|(key, _)| key != "offset");
    let mut port = (backend.open_rx)(&spec, options)?;
    port.offset_ns = offset_ns;
    port.notes.push(format!("{offset_ns} ns are added to the times of its frames"));
    Ok(port)
}

/// Opens a port to send to.
pub fn open_tx(spec: &Spec, options: &TxOptions) -> Result<TxPort, PortError> {
    (backend(spec)?.open_tx)(spec, options)
}

/// Each backend that has to do with interfaces: whether it works on this one, or the reason why not.
pub fn on_interface(found: &Found) -> Vec<(&'static str, Result<(), String>)> {
    BACKENDS.iter().filter_map(|backend| Some((backend.scheme, backend.on_interface?(found)))).collect()
}

/// Whether frames sent to a port leave at that moment; those sent to a file or to memory lie there with their times.
pub fn leaves_when_sent(spec: &Spec) -> bool {
    backend(spec).map_or(true, |backend| (backend.leaves_when_sent)(spec))
}

/// Whether frames sent to ports of this scheme leave through an interface of this machine.
pub fn sends_into_interface(scheme: &str) -> bool {
    BACKENDS.iter().any(|backend| backend.scheme == scheme && backend.on_interface.is_some())
}

fn backend(spec: &Spec) -> Result<&'static Backend, PortError> {
    BACKENDS.iter().find(|backend| backend.scheme == spec.scheme).ok_or_else(|| {
        let known: Vec<&str> = BACKENDS.iter().map(|backend| backend.scheme).collect();
        PortError::wrong(spec.to_string(), format!("no backend {:?}; there are {}", spec.scheme, known.join(", ")))
    })
}
