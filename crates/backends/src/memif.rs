//! `memif:/path/to/socket`: frames in memory that another process has mapped too, as DPDK (`net_memif`), VPP, libmemif and Open vSwitch
//! with DPDK speak it: whole Ethernet frames, no kernel between, no privilege needed.
//!
//! One end listens (`?role=server`), the other connects; the one that connects makes the memory and lays rings and buffers out in
//! it. Both directions are one connection: whoever opens the same socket, role and `id=` to receive and to send in one process has
//! both. A ring is a queue: `rings-in=` and `rings-out=` say how many, of a server how many at most. Frames longer than a buffer go
//! over several.
//!
//! A target without a `/` is an abstract name of this network namespace; with `?abstract=yes` any is. A client that finds nobody
//! tries again four times a second; a server takes the next client once the last has gone. Several ids of one socket are as many ports, and
//! a client says by its first message which one it is for. Root, the user of this process and those
//! of `?users=` may be at the other end. A secret goes over the socket as it is: it keeps mistakes out, and nobody else.
//!
//! # What a peer can do
//!
//! It has all of the memory mapped and may write there at any time. So each number is loaded once and checked, in 64 bits, against
//! what is mapped; bytes are copied to memory of this process before anybody looks at them; where the buffers of a client lie is its own
//! knowledge, and not read back from the ring. Regions have to be sealed memfds in ordinary pages, since a file that its maker cuts
//! off kills whoever touches it (`?trust=yes` takes others: hugetlbfs, DPDK's zero copy), and have 1 GiB together at most
//! (`?memory=`). What is wrong with a frame loses that frame, by name; what is wrong with the connection ends it, with a reason that
//! the other end is told.
//!
//! Peers have faults of their own, most of all DPDK:
//! - the mark that a frame goes on in the next buffer is left over from the frame before (up to 25.11). Those that copy fill each buffer
//!   but the last, so a frame goes on behind full buffers alone (`stale_next` counts the others; `?chains=any` believes all);
//! - a chain that uses the last free slot is written over frames that were not read. Positions further apart than the ring is
//!   long are not believed: reading goes on where the peer is (`peer_overrun`);
//! - memory is unmapped in one thread while another reads it: a DPDK process may die when its peer goes. Nothing here prevents that;
//! - from 23.03 on buffers of 2048 bytes are taken for granted: others are for those who know their peer (`?buffer=`). Behind the last
//!   one lie 64 KiB of nothing.
//!
//! # Waking
//!
//! A reader that is awake says so in the ring, and its peer writes no word of what comes. Before it sleeps it takes that back, looks once
//! more, and waits on the ring's eventfd.

mod device;
mod lobby;
mod message;
mod receive;
mod ringer;
mod send;
mod session;
mod socket;
mod wish;

use self::device::{Claim, Device};
use self::receive::MemifRx;
use self::send::MemifTx;
use self::wish::{OPTIONS, Wish};
use linerate_port::{
    Backend, Feed, PortError, Registry, RxOptions, RxPort, RxQueue, Spec, Target, TxOptions, TxPort, TxQueue,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The row of this backend.
pub const BACKEND: Backend = Backend {
    scheme: "memif",
    placeholder: "socket",
    sentence: "memory shared with DPDK, VPP or Open vSwitch: frames without a kernel between",
    target: Target::Device,
    rx_options: OPTIONS,
    tx_options: OPTIONS,
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| true,
};

/// Opens the rings that frames come by.
fn open_rx(spec: &Spec, options: &RxOptions, _: &Registry) -> Result<RxPort, PortError> {
    let device = open(Wish::read(spec, (options.lanes, 0))?)?;
    let claim = claim(&device, false)?;
    let queue = |number| {
        let subject = format!("memif:{}@{number}", spec.target);
        Box::new(MemifRx::new(subject, Arc::clone(&claim), number, options)) as Box<dyn RxQueue>
    };
    let queues = (0..usize::from(device.wish.rings.0)).map(queue).collect();
    let notes = vec![note(&device)];
    Ok(RxPort { notes, ..RxPort::new(device.wish.name.clone(), queues, Feed::Clock) })
}

/// Opens the rings that frames go by.
fn open_tx(spec: &Spec, options: &TxOptions, _: &Registry) -> Result<TxPort, PortError> {
    let device = open(Wish::read(spec, (0, options.queues))?)?;
    let claim = claim(&device, true)?;
    let queue = |number| {
        let subject = format!("memif:{}@{number}", spec.target);
        Box::new(MemifTx::new(subject, Arc::clone(&claim), number)) as Box<dyn TxQueue>
    };
    let queues = (0..usize::from(device.wish.rings.1)).map(queue).collect();
    Ok(TxPort { name: device.wish.name.clone(), queues, monitor: None })
}

fn open(wish: Wish) -> Result<Arc<Device>, PortError> {
    let name = wish.name.clone();
    Device::open(wish).map_err(|reason| PortError::broken(name, reason))
}

/// All rings of a direction, which are one user's.
fn claim(device: &Arc<Device>, outward: bool) -> Result<Arc<Claim>, PortError> {
    let reason = if outward { "is being sent to already" } else { "is being received from already" };
    device.claim(outward).ok_or_else(|| PortError::broken(&device.wish.name, reason))
}

/// Whether a port of this process connects again when its peer has gone: that takes a new socket.
pub fn reconnects() -> bool {
    Device::all().iter().any(|device| !device.wish.is_server)
}

/// The folders of sockets that are removed in the end.
pub fn socket_folders() -> Vec<OwnedFd> {
    Device::all().iter().filter_map(|device| device.folder()).collect()
}

/// What to know of a port.
fn note(device: &Device) -> String {
    match device.wish.is_server {
        true => "listens for a client, and takes the next one when it has gone".into(),
        false => "connects to a server, and again when it has gone".into(),
    }
}
