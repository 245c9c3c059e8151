//! `dpdk:device,arguments`: devices with a DPDK driver, by a plugin.
//!
//! The plugin is a shared object in C (`c/dpdk`, `make dpdk`), compiled against the installed DPDK, since half of DPDK
//! are inline functions of its headers. It is loaded when the first such port opens: DPDK is needed neither to build
//! nor to start this program. A device is written as in DPDK, `net_pcap0,rx_pcap=in.pcap` or `0000:3b:00.0`, followed
//! by queues and options: `@0-3?mtu=9000`.
//!
//! - **Frames stay in the driver's buffers**: of 2 KiB, scattered over a pool, returned after consumption; the plugin
//!   writes the descs. Frames in several buffers, with a tag stripped by the card, or outside the pool, are copied by
//!   the plugin to a contiguous area: joined, with the tag restored.
//! - ***A device is opened once** per process, for both directions; another port on it has queues of the same device.
//!   After `detach` the driver's current frames are read and kept, and no later ones.
//! - ***DPDK starts once** per process, on its own thread, without huge pages (unless a card is opened and some are
//!   available), and takes no card that no port names. Its log until then is the reason in an error; later messages go
//!   to standard error.
//! - **Time** is the read time, common to all frames of a poll; times of a driver are used if their unit is known:
//!   `net_pcap` has UTC, cards have a clock that is compared with the host's (`?stamp=driver`).
//! - **Sent** means taken by the driver: DPDK does not report the outcome of a frame. The card's own counters are
//!   reported too.
//!
//! No descriptor to wait on exists: receivers poll.

mod device;
mod plugin;
mod receive;
mod send;

pub use self::plugin::{MEMORY_MIB, trusted, version};

use self::device::{DpdkConfig, open};
use self::receive::{DpdkRx, LAG};
use self::send::DpdkTx;
use crate::nic::names_a_loss;
use crate::sys::dpdk_device::{Area, BaselineVariant, Device, PluginRxQueue, classic};
use crate::sys::dpdk_plugin::{Stamps, Stats};
use linerate_burst::{Count, Interface, Ledger, LinkType, Stage, StampSource};
use linerate_port::{
    Backend, Feed, Monitor, PortError, Registry, RxOptions, RxPort, RxQueue, Spec, Target, TxOptions, TxPort, TxQueue,
};
use std::sync::Arc;

/// Describes this backend.
pub const BACKEND: Backend = Backend {
    scheme: "dpdk",
    placeholder: "device",
    sentence: "a device with a DPDK driver: a card by PCI address, or net_NAME0,arguments; needs a plugin (make dpdk)",
    target: Target::Device,
    rx_options: &["mtu", "queue", "memory", "pool", "stamp"],
    tx_options: &["mtu", "queue", "memory", "pool"],
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| true,
};

/// Opens a device to receive from.
fn open_rx(spec: &Spec, options: &RxOptions, _: &Registry) -> Result<RxPort, PortError> {
    let config = DpdkConfig::read(spec, options.lanes, options.promiscuous)?;
    let device = open(spec, &config, true)?;
    let stamps = device.info.stamps();
    let interface = Interface {
        description: format!("{spec}; DPDK driver {}", device.info.driver()),
        ..Interface::new(config.name(), LinkType::ETHERNET, source(stamps))
    };
    let lag = options.lag.unwrap_or(LAG);
    let mut queues: Vec<Box<dyn RxQueue>> = Vec::new();
    for number in 0..config.queues {
        let queue = device.receiving(number).ok_or_else(|| {
            let there = device.info.rx_queues;
            PortError::broken(spec.to_string(), device::taken(number, there, "receiving", "receive"))
        })?;
        queues.push(Box::new(DpdkRx::new(subject(&config, number), interface.clone(), queue, options.snap, lag)));
    }
    let feed = if stamps == Stamps::Driver { Feed::others(options) } else { Feed::Clock };
    let monitor = DpdkMonitor::new(&device, spec.to_string(), false);
    let notes = notes(&device, options);
    Ok(RxPort { monitor: Some(Box::new(monitor)), notes, ..RxPort::new(spec.to_string(), queues, feed) })
}

/// Opens a device to send to.
fn open_tx(spec: &Spec, options: &TxOptions, _: &Registry) -> Result<TxPort, PortError> {
    let config = DpdkConfig::read(spec, options.queues, false)?;
    let device = open(spec, &config, false)?;
    if let Some(reason) = config.refuses(device.info.longest) {
        return Err(PortError::broken(spec.to_string(), reason));
    }
    let mut queues: Vec<Box<dyn TxQueue>> = Vec::new();
    for number in 0..config.queues {
        let queue = device.sending(number).ok_or_else(|| {
            let there = device.info.tx_queues;
            PortError::broken(spec.to_string(), device::taken(number, there, "sending", "send"))
        })?;
        queues.push(Box::new(DpdkTx::new(subject(&config, number), queue)));
    }
    let monitor = DpdkMonitor::new(&device, spec.to_string(), true);
    Ok(TxPort { name: spec.to_string(), queues, monitor: Some(Box::new(monitor)) })
}

/// The conventional way of DPDK programs, as a baseline for benchmarks: bursts of these devices, with queue 0 each, are
/// merged by time and copied frame by frame from the driver's buffers into memory.
#[derive(Debug)]
pub struct DpdkBaseline {
    queues: Vec<PluginRxQueue>,
    area: Area,
}

impl DpdkBaseline {
    /// Opens the devices, with a buffer of `bytes`.
    pub fn open(specs: &[Spec], bytes: usize) -> Result<DpdkBaseline, PortError> {
        let open = |spec: &Spec| {
            let config = DpdkConfig::read(spec, 1, false)?;
            let taken = || PortError::broken(spec.to_string(), "already open for receiving");
            open(spec, &config, true)?.receiving(0).ok_or_else(taken)
        };
        let queues = specs.iter().map(open).collect::<Result<_, _>>()?;
        Ok(DpdkBaseline { queues, area: Area::new(bytes, bytes / 64) })
    }

    /// Copies until `frames` were copied; returns their number.
    pub fn copy(&mut self, frames: u64) -> u64 {
        classic(&self.queues, frames, &mut self.area, BaselineVariant::Copied).0
    }

    /// Copies by three threads, one to receive, one to merge, and one to copy into memory of a memfd; returns the CPU
    /// time of each in nanoseconds too, without the time spent waiting for another thread.
    pub fn copy_by_steps(&mut self, frames: u64) -> (u64, [u64; 3]) {
        classic(&self.queues, frames, &mut self.area, BaselineVariant::BySteps)
    }

    /// Only receives frames.
    pub fn free(&mut self, frames: u64) -> u64 {
        classic(&self.queues, frames, &mut self.area, BaselineVariant::Freed).0
    }
}

/// Names the account of a queue.
fn subject(config: &DpdkConfig, queue: u16) -> String {
    format!("dpdk:{}@{queue}", config.name())
}

fn source(stamps: Stamps) -> StampSource {
    match stamps {
        Stamps::Poll => StampSource::User,
        Stamps::Driver => StampSource::File,
        Stamps::ByCard => StampSource::Hardware,
    }
}

/// Describes the choices made.
fn notes(device: &Device, options: &RxOptions) -> Vec<String> {
    let info = &device.info;
    let times = match info.stamps() {
        Stamps::Poll => "timestamps are read times",
        Stamps::Driver => "timestamps are the driver's; it reports no end of input, so stop the run by -c or -t",
        Stamps::ByCard => "timestamps are the card's, converted to host time",
    };
    let mut notes = vec![format!("{}, driver {}, {}", plugin::how(), info.driver(), times)];
    if options.promiscuous && info.promiscuous == 0 {
        notes.push(format!("driver {} does not support setting promiscuous mode", info.driver()));
    }
    notes
}

/// Counters of the driver since the port was opened.
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
