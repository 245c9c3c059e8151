//! Open devices: each once per process, for both directions.

use super::plugin::plugin;
use crate::sys::dpdk_device::{Device, OpenParams};
use crate::sys::dpdk_plugin::Stamps;
use linerate_port::spec::without_secrets;
use linerate_port::{PortError, Spec};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Options of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DpdkConfig {
    /// Device in the notation of DPDK.
    device: String,
    /// Number of queues of the direction that it is opened for.
    pub queues: u16,
    is_promiscuous: bool,
    memory_mib: Option<u32>,
    options: Options,
}

/// Options shared by both directions of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Options {
    mtu: Option<u32>,
    depth: Option<u32>,
    stamps: Option<Stamps>,
    /// True if buffers are reused in turn.
    is_fifo: Option<bool>,
}

/// An open device, and its options.
struct OpenDevice {
    device: Weak<Device>,
    text: String,
    options: Options,
}

/// Open devices by name.
static OPEN: Mutex<Option<HashMap<String, OpenDevice>>> = Mutex::new(None);

/// Limits of options.
const MOST_MTU: u64 = 65_535;
/// Bytes of a frame in addition to its MTU: an Ethernet header and two tags.
const HEADER: u32 = 14 + 8;
const LEAST_MTU: u64 = 68;
const MOST_DEPTH: u64 = 32_768;
const MOST_QUEUES: u32 = 64;
const LEAST_MEMORY: u64 = 64 << 20;
const MOST_MEMORY: u64 = 64 << 30;

impl DpdkConfig {
    pub(super) fn read(spec: &Spec, queues: usize, is_promiscuous: bool) -> Result<DpdkConfig, PortError> {
        let wrong = |reason: String| PortError::wrong(spec.to_string(), reason);
        let queues = match spec.queues {
            None => queues.clamp(1, MOST_QUEUES as usize) as u16,
            Some((0, last)) if last < MOST_QUEUES => last as u16 + 1,
            Some((0, _)) => return Err(wrong(format!("expected at most {MOST_QUEUES} queues"))),
            Some((first, last)) => {
                return Err(wrong(format!("@{first}-{last}: queues start at 0; use @0-{last}")));
            }
        };
        let within = |key: &str, least: u64, most: u64| {
            let value = spec.option(key).map(|_| spec.number(key, 0)).transpose()?;
            match value {
                Some(value) if !(least..=most).contains(&value) => {
                    Err(wrong(format!("{key}={value}: expected a number from {least} to {most}")))
                }
                value => Ok(value.map(|value| value as u32)),
            }
        };
        let stamps = match spec.option("stamp") {
            None => None,
            Some("poll") => Some(Stamps::Poll),
            Some("driver") => Some(Stamps::Driver),
            Some(other) => {
                let reason = format!("stamp={other}: expected poll (read time) or driver (its timestamps)");
                return Err(wrong(reason));
            }
        };
        let is_fifo = match spec.option("pool") {
            None => None,
            Some("lifo") => Some(false),
            Some("fifo") => Some(true),
            Some(other) => {
                return Err(wrong(format!("pool={other}: expected lifo (cached buffers first) or fifo (in turn)")));
            }
        };
        let memory = spec.option("memory").map(|_| spec.number("memory", 0)).transpose()?;
        if let Some(bytes) = memory.filter(|bytes| !(LEAST_MEMORY..=MOST_MEMORY).contains(bytes)) {
            return Err(wrong(format!("memory={bytes}: expected a size from 64MiB to 64GiB")));
        }
        Ok(DpdkConfig {
            device: spec.target.clone(),
            queues,
            is_promiscuous,
            memory_mib: memory.map(|bytes| (bytes >> 20) as u32),
            options: Options {
                mtu: within("mtu", LEAST_MTU, MOST_MTU)?,
                depth: within("queue", 64, MOST_DEPTH)?,
                stamps,
                is_fifo,
            },
        })
    }

    /// Returns the name of the device, without arguments.
    pub(super) fn name(&self) -> &str {
        self.device.split(',').next().unwrap_or_default()
    }

    /// Explains why a maximum frame length is too short for the requested MTU.
    pub(super) fn refuses(&self, longest: u32) -> Option<String> {
        let asked = self.options.mtu.filter(|mtu| longest < mtu + HEADER)?;
        let most = longest.saturating_sub(HEADER);
        Some(format!("mtu={asked}: the device is already open with an MTU of at most {most}"))
    }

    /// Returns whether it is a card: those are named by PCI addresses.
    fn is_card(&self) -> bool {
        self.name().contains(':')
    }
}

/// Opens a device, or returns the open one.
pub(super) fn open(spec: &Spec, config: &DpdkConfig, receives: bool) -> Result<Arc<Device>, PortError> {
    let broken = |reason: String| PortError::broken(spec.to_string(), reason);
    let plugin = plugin(config.memory_mib, config.is_card()).map_err(broken)?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.get_or_insert_with(HashMap::new);
    if let Some(known) = open.get(config.name())
        && let Some(device) = known.device.upgrade()
    {
        check(known, config).map_err(broken)?;
        return Ok(device);
    }
    let count = |is_wanted: bool| if is_wanted { config.queues } else { 0 };
    let asked = OpenParams {
        device: &config.device,
        rx_queues: count(receives),
        tx_queues: count(!receives),
        depth: config.options.depth.unwrap_or(0),
        mtu: config.options.mtu.unwrap_or(0),
        promiscuous: config.is_promiscuous,
        fifo: config.options.is_fifo == Some(true),
        stamps: config.options.stamps,
    };
    let device = Device::open(plugin, &asked).map_err(broken)?;
    let known = OpenDevice { device: Arc::downgrade(&device), text: config.device.clone(), options: config.options };
    open.insert(config.name().to_owned(), known);
    Ok(device)
}

/// Checks that an open device has the requested options.
fn check(known: &OpenDevice, config: &DpdkConfig) -> Result<(), String> {
    if known.text != config.device {
        return Err(format!("already open as {}", without_secrets(&known.text)));
    }
    let differs = |now: Option<u32>, then: Option<u32>| now.is_some() && now != then;
    let (now, then) = (config.options, known.options);
    for (key, differs) in [
        ("mtu=", differs(now.mtu, then.mtu)),
        ("queue=", differs(now.depth, then.depth)),
        ("stamp=", now.stamps.is_some() && now.stamps != then.stamps),
        ("pool=", now.is_fifo.is_some() && now.is_fifo != then.is_fifo),
    ] {
        if differs {
            return Err(format!("already open with another {key}"));
        }
    }
    Ok(())
}

/// Explains why a queue is not available.
pub(super) fn taken(number: u16, there: u16, used: &str, kind: &str) -> String {
    if number < there {
        return format!("already open for {used}");
    }
    match there {
        0 => format!("already open, without a {kind} queue in its driver"),
        1 => format!("already open with one {kind} queue; name as many for both directions, such as @0-{number}"),
        _ => format!("already open with {there} {kind} queues; name as many for both directions, such as @0-{number}"),
    }
}
