//! `dpdk:device,arguments`: what DPDK has a driver for, by a plugin.
//!
//! The plugin is a shared object in C (`c/dpdk`, `make dpdk`), compiled against the DPDK that is installed, since half of DPDK are
//! inline functions of its headers. It is loaded when the first such port opens: nothing of DPDK is needed to build this program,
//! nor to start it. A device is written as DPDK writes it, `net_pcap0,rx_pcap=in.pcap` or `0000:3b:00.0`, with queues and options
//! behind: `@0-3?mtu=9000`.
//!
//! - **Frames lie where the driver put them**: in buffers of 2 KiB, scattered over a pool, which go back once they are consumed; the
//!   plugin writes the descs. What comes in several buffers, had a tag that the card took out, or lies elsewhere, the plugin copies
//!   to where frames lie one behind the other: joined, the tag back in its place.
//! - **A device is opened once** a process, for both directions; whoever opens it again has queues of the same one. After `detach`
//!   what the driver has is read and kept, and nothing more.
//! - **DPDK starts once** a process, on a thread of its own, without huge pages (unless a card is opened and there are some), and
//!   takes no card that nobody named. What it says in the meantime is the reason that an error has; what it says later goes to
//!   standard error.
//! - **Time** is when frames were read, for all frames of a look; a driver that knows better is believed where the unit is known:
//!   `net_pcap` has UTC, cards have a clock that is compared with the host's (`?stamp=driver`).
//! - **Sent** means taken by the driver: DPDK does not say what became of a frame. The card's own counters stand beside it.
//!
//! There is nothing to wait on: whoever waits looks again after a while.

mod device;
mod plugin;
mod receive;
mod send;

pub use self::plugin::{MEMORY_MIB, trusted, version};

use self::device::{Wish, open};
use self::receive::{DpdkRx, LAG};
use self::send::DpdkTx;
use crate::nic::names_a_loss;
use crate::sys::dpdk_device::{Area, Classically, Device, Receiving, classic};
use crate::sys::dpdk_plugin::{Stamps, Stats};
use linerate_burst::{Count, Interface, Ledger, LinkType, Stage, StampSource};
use linerate_port::{
    Backend, Feed, Monitor, PortError, Registry, RxOptions, RxPort, RxQueue, Spec, Target, TxOptions, TxPort, TxQueue,
};
use std::sync::Arc;

/// The row of this backend.
pub const BACKEND: Backend = Backend {
    scheme: "dpdk",
    placeholder: "device",
    sentence: "what DPDK has a driver for: a card by its PCI address, or net_NAME0,arguments; by a plugin (make dpdk)",
    target: Target::Device,
    rx_options: &["mtu", "queue", "memory", "pool", "stamp"],
    tx_options: &["mtu", "queue", "memory", "pool"],
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| true,
};

/// Opens a device to receive from.
fn open_rx(spec: &Spec, options: &RxOptions, _: &Registry) -> Result<RxPort, PortError> {
    let wish = Wish::read(spec, options.lanes, options.promiscuous)?;
    let device = open(spec, &wish, true)?;
    let stamps = device.info.stamps();
    let interface = Interface {
        description: format!("{spec}; DPDK driver {}", device.info.driver()),
        ..Interface::new(wish.name(), LinkType::ETHERNET, source(stamps))
    };
    let lag = options.lag.unwrap_or(LAG);
    let mut queues: Vec<Box<dyn RxQueue>> = Vec::new();
    for number in 0..wish.queues {
        let queue = device.receiving(number).ok_or_else(|| {
            let there = device.info.rx_queues;
            PortError::broken(spec.to_string(), device::taken(number, there, "received from", "receive"))
        })?;
        queues.push(Box::new(DpdkRx::new(subject(&wish, number), interface.clone(), queue, options.snap, lag)));
    }
    let feed = if stamps == Stamps::Driver { Feed::others(options) } else { Feed::Clock };
    let monitor = DpdkMonitor::new(&device, spec.to_string(), false);
    let notes = notes(&device, options);
    Ok(RxPort { monitor: Some(Box::new(monitor)), notes, ..RxPort::new(spec.to_string(), queues, feed) })
}

/// Opens a device to send to.
fn open_tx(spec: &Spec, options: &TxOptions, _: &Registry) -> Result<TxPort, PortError> {
    let wish = Wish::read(spec, options.queues, false)?;
    let device = open(spec, &wish, false)?;
    if let Some(reason) = wish.refuses(device.info.longest) {
        return Err(PortError::broken(spec.to_string(), reason));
    }
    let mut queues: Vec<Box<dyn TxQueue>> = Vec::new();
    for number in 0..wish.queues {
        let queue = device.sending(number).ok_or_else(|| {
            let there = device.info.tx_queues;
            PortError::broken(spec.to_string(), device::taken(number, there, "sent to", "send"))
        })?;
        queues.push(Box::new(DpdkTx::new(subject(&wish, number), queue)));
    }
    let monitor = DpdkMonitor::new(&device, spec.to_string(), true);
    Ok(TxPort { name: spec.to_string(), queues, monitor: Some(Box::new(monitor)) })
}

/// Bursts of these devices, with queue 0 each, merged by time and copied frame by frame from the driver's buffers into memory of
/// so many bytes: what programs over DPDK do. To be measured beside the way that frames go here.
#[derive(Debug)]
pub struct Classic {
    queues: Vec<Receiving>,
    area: Area,
}

impl Classic {
    /// Opens the devices.
    pub fn open(specs: &[Spec], bytes: usize) -> Result<Classic, PortError> {
        let open = |spec: &Spec| {
            let wish = Wish::read(spec, 1, false)?;
            let taken = || PortError::broken(spec.to_string(), "is being received from already");
            open(spec, &wish, true)?.receiving(0).ok_or_else(taken)
        };
        let queues = specs.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Classic { queues, area: Area::new(bytes, bytes / 64) })
    }

    /// Does it until so many frames were copied; how many that were.
    pub fn copy(&mut self, frames: u64) -> u64 {
        classic(&self.queues, frames, &mut self.area, Classically::Copied).0
    }

    /// The same by three threads, of which one receives, one merges, and one copies into memory of a memfd; with the nanoseconds that
    /// each used of a processor, but for those in which it waited for another one.
    pub fn copy_by_steps(&mut self, frames: u64) -> (u64, [u64; 3]) {
        classic(&self.queues, frames, &mut self.area, Classically::BySteps)
    }

    /// Only receives them.
    pub fn free(&mut self, frames: u64) -> u64 {
        classic(&self.queues, frames, &mut self.area, Classically::Freed).0
    }
}

/// Whose counters those of a queue are.
fn subject(wish: &Wish, queue: u16) -> String {
    format!("dpdk:{}@{queue}", wish.name())
}

fn source(stamps: Stamps) -> StampSource {
    match stamps {
        Stamps::Poll => StampSource::User,
        Stamps::Driver => StampSource::File,
        Stamps::ByCard => StampSource::Hardware,
    }
}

/// What was chosen.
fn notes(device: &Device, options: &RxOptions) -> Vec<String> {
    let info = &device.info;
    let times = match info.stamps() {
        Stamps::Poll => "frames have the time at which they are read",
        Stamps::Driver => "frames have the times that the driver knows; it says of no end: -c or -t ends the run",
        Stamps::ByCard => "frames have the times of the card's clock, put onto that of the host",
    };
    let mut notes = vec![format!("{}, driver {}, {}", plugin::how(), info.driver(), times)];
    if options.promiscuous && info.promiscuous == 0 {
        notes.push(format!("driver {} takes in all frames or its own as it likes", info.driver()));
    }
    notes
}

/// What the driver has counted since the port was opened.
struct DpdkMonitor {
    subject: String,
    device: Arc<Device>,
    is_sending: bool,
    base: Stats,
    base_details: Vec<(String, u64)>,
}

impl DpdkMonitor {
    fn new(device: &Arc<Device>, subject: String, is_sending: bool) -> Self {
        let (base, base_details) = (device.stats(), device.counters());
        DpdkMonitor { subject, device: Arc::clone(device), is_sending, base, base_details }
    }
}

impl Monitor for DpdkMonitor {
    fn counters(&self, ledger: &mut Ledger) {
        let now = self.device.stats();
        let grown = |read: fn(&Stats) -> u64| read(&now).saturating_sub(read(&self.base));
        let account = ledger.account(Stage::Nic, &self.subject);
        if self.is_sending {
            account.add(Count::NicSent, grown(|stats| stats.sent));
            account.add(Count::NicSendDropped, grown(|stats| stats.send_errors));
        } else {
            account.add(Count::NicReceived, grown(|stats| stats.received));
            account.add(Count::NicMissed, grown(|stats| stats.missed));
            account.add(Count::NicErrors, grown(|stats| stats.errors));
            account.add(Count::NicNoBuffer, grown(|stats| stats.no_buffer));
        }
        for (name, value) in self.device.counters() {
            let before = self.base_details.iter().find(|(other, _)| *other == name).map_or(0, |(_, value)| *value);
            if value > before && name.starts_with("tx") == self.is_sending && names_a_loss(&name) {
                ledger.add_detail(&self.subject, &name, value - before);
            }
        }
    }
}
