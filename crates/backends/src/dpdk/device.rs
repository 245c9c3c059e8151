//! Devices that are open: each once a process, for both directions.

use super::plugin::plugin;
use crate::sys::dpdk_device::{Device, Open};
use crate::sys::dpdk_plugin::Stamps;
use linerate_port::spec::without_secrets;
use linerate_port::{PortError, Spec};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What a user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// As DPDK takes it.
    device: String,
    /// Queues of the direction that it is opened for.
    pub queues: u16,
    is_promiscuous: bool,
    memory_mib: Option<u32>,
    options: Options,
}

/// What both directions of a device share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Options {
    mtu: Option<u32>,
    depth: Option<u32>,
    stamps: Option<Stamps>,
    /// Buffers go round.
    is_fifo: Option<bool>,
}

/// A device that is open, as it was opened.
struct Known {
    device: Weak<Device>,
    text: String,
    options: Options,
}

/// By name.
static OPEN: Mutex<Option<HashMap<String, Known>>> = Mutex::new(None);

/// What can be asked for.
const MOST_MTU: u64 = 65_535;
/// What frames have in front of what an MTU is of: an Ethernet header and two tags.
const HEADER: u32 = 14 + 8;
const LEAST_MTU: u64 = 68;
const MOST_DEPTH: u64 = 32_768;
const MOST_QUEUES: u32 = 64;
const LEAST_MEMORY: u64 = 64 << 20;
const MOST_MEMORY: u64 = 64 << 30;

impl Wish {
    pub(super) fn read(spec: &Spec, queues: usize, is_promiscuous: bool) -> Result<Wish, PortError> {
        let wrong = |reason: String| PortError::wrong(spec.to_string(), reason);
        let queues = match spec.queues {
            None => queues.clamp(1, MOST_QUEUES as usize) as u16,
            Some((0, last)) if last < MOST_QUEUES => last as u16 + 1,
            Some((0, _)) => return Err(wrong(format!("a device has at most {MOST_QUEUES} queues here"))),
            Some((first, last)) => {
                return Err(wrong(format!("@{first}-{last}: queues count from 0, all are opened: @0-{last}")));
            }
        };
        let within = |key: &str, least: u64, most: u64| {
            let value = spec.option(key).map(|_| spec.number(key, 0)).transpose()?;
            match value {
                Some(value) if !(least..=most).contains(&value) => {
                    Err(wrong(format!("{key}={value}: it is a number from {least} to {most}")))
                }
                value => Ok(value.map(|value| value as u32)),
            }
        };
        let stamps = match spec.option("stamp") {
            None => None,
            Some("poll") => Some(Stamps::Poll),
            Some("driver") => Some(Stamps::Driver),
            Some(other) => {
                let reason = format!("stamp={other}: it is poll (when frames are read) or driver (what that knows)");
                return Err(wrong(reason));
            }
        };
        let is_fifo = match spec.option("pool") {
            None => None,
            Some("lifo") => Some(false),
            Some("fifo") => Some(true),
            Some(other) => {
                return Err(wrong(format!("pool={other}: it is lifo (buffers in the cache first) or fifo (in turn)")));
            }
        };
        let memory = spec.option("memory").map(|_| spec.number("memory", 0)).transpose()?;
        if let Some(bytes) = memory.filter(|bytes| !(LEAST_MEMORY..=MOST_MEMORY).contains(bytes)) {
            return Err(wrong(format!("memory={bytes}: it is a size from 64MiB to 64GiB")));
        }
        Ok(Wish {
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

    /// Of the device, without arguments.
    pub(super) fn name(&self) -> &str {
        self.device.split(',').next().unwrap_or_default()
    }

    /// Why frames of that length at most are too short for what is asked for.
    pub(super) fn refuses(&self, longest: u32) -> Option<String> {
        let asked = self.options.mtu.filter(|mtu| longest < mtu + HEADER)?;
        let most = longest.saturating_sub(HEADER);
        Some(format!("mtu={asked}: the device, which is open already, sends frames for an MTU of {most} at most"))
    }

    /// Whether it is a card: those have PCI addresses for names.
    fn is_card(&self) -> bool {
        self.name().contains(':')
    }
}

/// Opens a device, or finds it open.
pub(super) fn open(spec: &Spec, wish: &Wish, receives: bool) -> Result<Arc<Device>, PortError> {
    let broken = |reason: String| PortError::broken(spec.to_string(), reason);
    let plugin = plugin(wish.memory_mib, wish.is_card()).map_err(broken)?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.get_or_insert_with(HashMap::new);
    if let Some(known) = open.get(wish.name())
        && let Some(device) = known.device.upgrade()
    {
        check(known, wish).map_err(broken)?;
        return Ok(device);
    }
    let count = |is_wanted: bool| if is_wanted { wish.queues } else { 0 };
    let asked = Open {
        device: &wish.device,
        rx_queues: count(receives),
        tx_queues: count(!receives),
        depth: wish.options.depth.unwrap_or(0),
        mtu: wish.options.mtu.unwrap_or(0),
        promiscuous: wish.is_promiscuous,
        fifo: wish.options.is_fifo == Some(true),
        stamps: wish.options.stamps,
    };
    let device = Device::open(plugin, &asked).map_err(broken)?;
    let known = Known { device: Arc::downgrade(&device), text: wish.device.clone(), options: wish.options };
    open.insert(wish.name().to_owned(), known);
    Ok(device)
}

/// Whether what is open is what is asked for.
fn check(known: &Known, wish: &Wish) -> Result<(), String> {
    if known.text != wish.device {
        return Err(format!("is open already, as {}", without_secrets(&known.text)));
    }
    let differs = |now: Option<u32>, then: Option<u32>| now.is_some() && now != then;
    let (now, then) = (wish.options, known.options);
    for (key, differs) in [
        ("mtu=", differs(now.mtu, then.mtu)),
        ("queue=", differs(now.depth, then.depth)),
        ("stamp=", now.stamps.is_some() && now.stamps != then.stamps),
        ("pool=", now.is_fifo.is_some() && now.is_fifo != then.is_fifo),
    ] {
        if differs {
            return Err(format!("is open already with another {key}"));
        }
    }
    Ok(())
}

/// Why a queue is not to be had.
pub(super) fn taken(number: u16, there: u16, used: &str, kind: &str) -> String {
    if number < there {
        return format!("is being {used} already");
    }
    match there {
        0 => format!("is open already, and its driver has no {kind} queue"),
        1 => format!("is open already with one {kind} queue: name as many with both directions, as @0-{number}"),
        _ => format!("is open already with {there} {kind} queues: name as many with both directions, as @0-{number}"),
    }
}
