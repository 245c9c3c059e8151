//! `tun:name`: an interface of this host whose other end is this process. What the host sends there is received, and what is sent is
//! what the host receives: IP packets, without a link header.
//!
//! The interface is made by the run and goes with it, unless it was there before (`ip tuntap add`). Both directions are one
//! descriptor a queue: whoever opens the same name to receive and to send in one process has both.
//!
//! What the host sends by TCP comes as super-frames of up to 64 KiB whose checksum is not finished, as between two processes of
//! one host: it says so in the header that the kernel puts in front of each (`crate::virtio`), and frames are flagged so. Where
//! they are wanted as on a wire, `?offloads=no` has the kernel cut and finish them. They can be read straight to where they
//! are wanted (`RxOptions::scatter`): one copy in all, made by the kernel. What is sent needs its checksums.
//!
//! The kernel keeps as many frames for us as the queue of the interface has room for (`?queue=`, 1,000) and counts what does not
//! fit: it is lost by the name of `ring_full`. After `detach` no more than that many are read: all that had arrived, and not
//! what comes without end. Frames have the time at which they are read.
//!
//! With `?mode=tap` the interface has Ethernet frames.

mod device;
mod receive;
mod send;

use self::device::{Device, Wish};
use self::receive::TunRx;
use self::send::TunTx;
use linerate_burst::LinkType;
use linerate_port::{
    Backend, Feed, PortError, Registry, RxOptions, RxPort, RxQueue, Spec, Target, TxOptions, TxPort, TxQueue,
};
use std::io;

const OPTIONS: &[&str] = &["netns", "address", "mtu", "queue", "offloads", "mode"];

/// The row of this backend.
pub const BACKEND: Backend = Backend {
    scheme: "tun",
    placeholder: "name",
    sentence: "an interface of this host that the run makes: IP packets from it and to it",
    target: Target::Tunnel,
    rx_options: OPTIONS,
    tx_options: OPTIONS,
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| true,
};

/// Opens the interface to receive what the host sends there.
fn open_rx(spec: &Spec, options: &RxOptions, _: &Registry) -> Result<RxPort, PortError> {
    let wish = Wish::read(spec, options.lanes)?;
    let device = Device::open(spec, &wish).map_err(|error| explain(spec, &wish, &error))?;
    let mut queues: Vec<Box<dyn RxQueue>> = Vec::new();
    for queue in device.queues(wish.queues).map_err(|reason| PortError::wrong(spec.to_string(), reason))? {
        let subject = format!("tun:{}@{}", spec.target, queue.number);
        let rx = TunRx::new(subject, device.clone(), queue, options);
        queues.push(Box::new(rx.ok_or_else(|| PortError::broken(spec.to_string(), "is being received from already"))?));
    }
    Ok(RxPort::new(spec.to_string(), queues, Feed::Clock))
}

/// Opens it to send what the host is to receive.
fn open_tx(spec: &Spec, options: &TxOptions, _: &Registry) -> Result<TxPort, PortError> {
    let wish = Wish::read(spec, options.queues)?;
    if wish.is_ethernet && options.link != LinkType::ETHERNET {
        let reason =
            format!("it takes ethernet frames, and these are of {}; without mode=tap it takes packets", options.link);
        return Err(PortError::wrong(spec.to_string(), reason));
    }
    let device = Device::open(spec, &wish).map_err(|error| explain(spec, &wish, &error))?;
    let strips = !wish.is_ethernet && options.link == LinkType::ETHERNET;
    let queues = device.queues(wish.queues).map_err(|reason| PortError::wrong(spec.to_string(), reason))?;
    let open = |queue: device::Queue| {
        let subject = format!("tun:{}@{}", spec.target, queue.number);
        Box::new(TunTx::new(subject, device.clone(), queue, strips)) as Box<dyn TxQueue>
    };
    Ok(TxPort { name: spec.to_string(), queues: queues.into_iter().map(open).collect(), monitor: None })
}

/// Why it cannot be opened, and what to do about it.
fn explain(spec: &Spec, wish: &Wish, error: &io::Error) -> PortError {
    let reason = match error.raw_os_error() {
        Some(libc::EACCES) => "/dev/net/tun may not be opened: this needs root, or rights to that file".to_owned(),
        Some(libc::EPERM) => "it needs root, or CAP_NET_ADMIN, or an interface of that name that was made for you \
                              (ip tuntap add ... user NAME)"
            .to_owned(),
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => "this kernel has no /dev/net/tun: modprobe tun".to_owned(),
        Some(libc::EBUSY) => "another program is at its other end".to_owned(),
        Some(libc::EINVAL) if wish.queues > 1 => {
            "an interface of that name is there that has another kind, or one queue (ip tuntap add ... multi_queue)"
                .to_owned()
        }
        Some(libc::EINVAL) => "an interface of that name is there that is none of this kind (ip tuntap)".to_owned(),
        _ => error.to_string(),
    };
    PortError::broken(spec.to_string(), reason)
}
