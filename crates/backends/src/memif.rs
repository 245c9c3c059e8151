//! `memif:/path/to/socket`: frames in memory shared with another process, in the protocol of DPDK (`net_memif`), VPP,
//! libmemif and Open vSwitch with DPDK: whole Ethernet frames, without the kernel and without privileges.
//!
//! One end listens (`?role=server`), the other connects; the client allocates the memory and lays out rings and buffers
//! in it. Both directions are one connection: a receiving and a sending port of one process with the same socket, role
//! and `id=` share it. A ring is a queue: `rings-in=` and `rings-out=` set their number (on a server the maximum). A
//! frame longer than a buffer uses several.
//!
//! A target without a `/` is an abstract name of this network namespace; with `?abstract=yes` any is. A client that
//! cannot connect retries four times a second; a server accepts the next client after the last has disconnected.
//! Several ids of one socket are several ports; the client's first message names its id. Peers may run as root, as the
//! user of this process or as one of `?users=`. The secret is sent in clear: it prevents mistakes, not attacks.
//!
//! # What a peer can do
//!
//! It has all of the memory mapped and may write there at any time. Each number is therefore loaded once and checked,
//! in 64 bits, against the mapping; bytes are copied to memory of this process before they are parsed; a client
//! computes the positions of its buffers and never reads them back from the ring. Regions must be sealed memfds in
//! ordinary pages, since touching a truncated file kills the process (`?trust=yes` accepts others: hugetlbfs, DPDK's
//! zero copy), and have at most 1 GiB together (`?memory=`). A bad frame is dropped and counted; a broken rule of the
//! protocol closes the connection, and the reason is sent to the peer.
//!
//! Known faults of peers, mainly of DPDK:
//! - the flag NEXT (the frame continues in the next buffer) is left over from an earlier frame (up to 25.11). Peers
//!   that copy fill each buffer but the last, so NEXT is followed only after a full buffer (`stale_next` counts the
//!   others; `?chains=any` follows all);
//! - a chain that uses the last free slot is written over unread frames. Positions further apart than the ring is long
//!   are invalid: reading continues at the peer's position (`peer_overrun`);
//! - memory is unmapped in one thread while another reads it: a DPDK process may crash when its peer closes. Nothing
//!   here prevents that;
//! - from 23.03 on buffers of 2048 bytes are assumed: set `?buffer=` only for a peer that supports other sizes. 64 KiB
//!   of guard memory follow the last buffer.
//!
//! # Wake-up
//!
//! A reader that is awake masks the ring's interrupt, and its peer sends no notification. Before it sleeps it unmasks
//! the interrupt, checks the ring again, and waits on the ring's eventfd.

mod config;
mod device;
mod message;
mod notifier;
mod receive;
mod send;
mod session;
mod shared_listener;
mod socket;

use self::config::{MemifConfig, OPTIONS};
use self::device::{Claim, Device};
use self::receive::MemifRx;
use self::send::MemifTx;
use linerate_port::{
    Backend, Feed, PortError, Registry, RxOptions, RxPort, RxQueue, Spec, Target, TxOptions, TxPort, TxQueue,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Describes this backend.
pub const BACKEND: Backend = Backend {
    scheme: "memif",
    placeholder: "socket",
    sentence: "memory shared with DPDK, VPP or Open vSwitch: frames bypass the kernel",
    target: Target::Device,
    rx_options: OPTIONS,
    tx_options: OPTIONS,
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| true,
};

/// Opens the receive rings.
fn open_rx(spec: &Spec, options: &RxOptions, _: &Registry) -> Result<RxPort, PortError> {
    let device = open(MemifConfig::read(spec, (options.lanes, 0))?)?;
    let claim = claim(&device, false)?;
    let queue = |number| {
        let subject = format!("memif:{}@{number}", spec.target);
        Box::new(MemifRx::new(subject, Arc::clone(&claim), number, options)) as Box<dyn RxQueue>
    };
    let queues = (0..usize::from(device.config.rings.0)).map(queue).collect();
    let notes = vec![note(&device)];
    Ok(RxPort { notes, ..RxPort::new(device.config.name.clone(), queues, Feed::Clock) })
}

/// Opens the transmit rings.
fn open_tx(spec: &Spec, options: &TxOptions, _: &Registry) -> Result<TxPort, PortError> {
    let device = open(MemifConfig::read(spec, (0, options.queues))?)?;
    let claim = claim(&device, true)?;
    let queue = |number| {
        let subject = format!("memif:{}@{number}", spec.target);
        Box::new(MemifTx::new(subject, Arc::clone(&claim), number)) as Box<dyn TxQueue>
    };
    let queues = (0..usize::from(device.config.rings.1)).map(queue).collect();
    Ok(TxPort { name: device.config.name.clone(), queues, monitor: None })
}

fn open(config: MemifConfig) -> Result<Arc<Device>, PortError> {
    let name = config.name.clone();
    Device::open(config).map_err(|reason| PortError::broken(name, reason))
}

/// Claims all rings of a direction, which belong to one port.
fn claim(device: &Arc<Device>, outward: bool) -> Result<Arc<Claim>, PortError> {
    let reason = if outward { "already open for sending" } else { "already open for receiving" };
    device.claim(outward).ok_or_else(|| PortError::broken(&device.config.name, reason))
}

/// Returns whether a port of this process reconnects when its peer has gone, which takes a new socket.
pub fn reconnects() -> bool {
    Device::all().iter().any(|device| !device.config.is_server)
}

/// Returns the folders of the sockets, whose files are removed on close.
pub fn socket_folders() -> Vec<OwnedFd> {
    Device::all().iter().filter_map(|device| device.folder()).collect()
}

/// Returns the note on a port.
fn note(device: &Device) -> String {
    match device.config.is_server {
        true => "server: listening for a client, then for the next one".into(),
        false => "client: reconnects when the server closes".into(),
    }
}
