//! `tun:name`: an interface of this host, with this process at its other end. Packets that the host sends there are
//! received; packets that are sent are received by the host: IP packets, without a link header.
//!
//! The interface is created by the run and removed with it, unless it existed before (`ip tuntap add`). Both directions
//! share one descriptor per queue: a receiving and a sending port of one process with the same name share the
//! interface.
//!
//! TCP packets of the host arrive as super-frames of up to 64 KiB with incomplete checksums, as between two processes
//! of one host: the header that the kernel prepends to each (`crate::virtio`) marks them, and frames are flagged
//! accordingly. For packets as on a wire, `?offloads=no` makes the kernel segment and complete them. They can be read
//! directly to their destination (`RxOptions::scatter`): one copy in all, made by the kernel. Packets that are sent
//! need complete checksums.
//!
//! The kernel queues as many frames as the interface's queue holds (`?queue=`, 1,000) and counts the rest as dropped
//! (`ring_full`). After `detach` at most that many are read: all that had arrived, but not an endless stream.
//! Timestamps are read times.
//!
//! With `?mode=tap` the interface has Ethernet frames.

mod device;
mod receive;
mod send;

use self::device::{Device, TunConfig};
use self::receive::TunRx;
use self::send::TunTx;
use linerate_burst::LinkType;
use linerate_port::{
    Backend, Feed, PortError, Registry, RxOptions, RxPort, RxQueue, Spec, Target, TxOptions, TxPort, TxQueue,
};
use std::io;

const OPTIONS: &[&str] = &["netns", "address", "mtu", "queue", "offloads", "mode"];

/// Describes this backend.
pub const BACKEND: Backend = Backend {
    scheme: "tun",
    placeholder: "name",
    sentence: "an interface that the run creates: IP packets exchanged with this host",
    target: Target::Tunnel,
    rx_options: OPTIONS,
    tx_options: OPTIONS,
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| true,
};

/// Opens the interface to receive packets of the host.
fn open_rx(spec: &Spec, options: &RxOptions, _: &Registry) -> Result<RxPort, PortError> {
    let config = TunConfig::read(spec, options.lanes)?;
    let device = Device::open(spec, &config).map_err(|error| explain(spec, &config, &error))?;
    let mut queues: Vec<Box<dyn RxQueue>> = Vec::new();
    for queue in device.queues(config.queues).map_err(|reason| PortError::wrong(spec.to_string(), reason))? {
        let subject = format!("tun:{}@{}", spec.target, queue.number);
        let rx = TunRx::new(subject, device.clone(), queue, options);
        queues.push(Box::new(rx.ok_or_else(|| PortError::broken(spec.to_string(), "already open for receiving"))?));
    }
    Ok(RxPort::new(spec.to_string(), queues, Feed::Clock))
}

/// Opens the interface to send packets to the host.
fn open_tx(spec: &Spec, options: &TxOptions, _: &Registry) -> Result<TxPort, PortError> {
    let config = TunConfig::read(spec, options.queues)?;
    if config.is_ethernet && options.link != LinkType::ETHERNET {
        let reason = format!("mode=tap needs ethernet frames, not {}; omit mode=tap to send packets", options.link);
        return Err(PortError::wrong(spec.to_string(), reason));
    }
    let device = Device::open(spec, &config).map_err(|error| explain(spec, &config, &error))?;
    let strips = !config.is_ethernet && options.link == LinkType::ETHERNET;
    let queues = device.queues(config.queues).map_err(|reason| PortError::wrong(spec.to_string(), reason))?;
    let open = |queue: device::Queue| {
        let subject = format!("tun:{}@{}", spec.target, queue.number);
        Box::new(TunTx::new(subject, device.clone(), queue, strips)) as Box<dyn TxQueue>
    };
    Ok(TxPort { name: spec.to_string(), queues: queues.into_iter().map(open).collect(), monitor: None })
}

/// Explains why it cannot be opened, with a remedy.
fn explain(spec: &Spec, config: &TunConfig, error: &io::Error) -> PortError {
    let reason = match error.raw_os_error() {
        Some(libc::EACCES) => {
            "cannot open /dev/net/tun: permission denied; run as root or grant access to that file".to_owned()
        }
        Some(libc::EPERM) => "needs root, CAP_NET_ADMIN, or an existing interface of that name that belongs to you \
                              (ip tuntap add ... user NAME)"
            .to_owned(),
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => "/dev/net/tun is missing; run modprobe tun".to_owned(),
        Some(libc::EBUSY) => "another program has opened it".to_owned(),
        Some(libc::EINVAL) if config.queues > 1 => {
            "an interface of that name exists with another type, or with one queue (ip tuntap add ... multi_queue)"
                .to_owned()
        }
        Some(libc::EINVAL) => "an interface of that name exists with another type (ip tuntap)".to_owned(),
        _ => error.to_string(),
    };
    PortError::broken(spec.to_string(), reason)
}
