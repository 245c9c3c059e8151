//! `xdp:interface`: an XDP program takes frames from the driver, before the kernel allocates an skb.
//!
//! Frames that it takes are hidden from the host; on an interface that the host uses itself it passes them on too, or
//! requires `--take`. A program generated at run time timestamps each frame and writes it into this process's memory,
//! or hands it to its queue's socket (AF_XDP), or only counts it. The program is attached by a link, which the kernel
//! removes with the process however that ends, and never replaces another program.

mod attach;
mod bind;
mod btf;
mod config;
mod filtering;
mod in_place;
mod program;
mod receive;
mod send;
mod tally;
mod vlan;

use self::attach::Attachment;
use self::bind::{BoundSocket, Chunks, bind, describe};
use self::config::{CopyMode, RxPath, XdpConfig, chunk_bytes, longest_frame, queues};
use self::receive::{Parts, Queue, SocketIntake, XdpRx};
use self::send::XdpTx;
use crate::carrier::wait_until_up;
use crate::inventory::{ETHERNET_HARDWARE, bring_up, find, note_if_down, uses};
use crate::netns::within;
use crate::nic::NicMonitor;
use crate::rtnl::{Rtnetlink, XDP_ZERO_COPY, XdpFeatures};
use crate::sys::packet_socket::PacketSocket;
use crate::sys::xsk_memory::Memory;
use crate::sys::xsk_socket::{RingSizes, XskSocket};
use crate::xdp_features::{check_kernel, in_its_namespace, too_old, xdp_mode};
use linerate_burst::Ledger;
use linerate_port::{
    Backend, Feed, InterfaceInfo, Monitor, PortError, Registry, RxOptions, RxPort, RxQueue, Spec, Target, TxOptions,
    TxPort, TxQueue, events,
};
use std::io;
use std::sync::Arc;

/// Chunks in addition to the receive ring, for frames that are being read or that a card holds.
const SPARE_CHUNKS: u32 = 2048;
/// Frames in flight of a sending queue.
const SEND_FRAMES: u32 = 2048;
/// Describes this backend.
pub const BACKEND: Backend = Backend {
    scheme: "xdp",
    placeholder: "interface",
    sentence: "XDP: takes frames from the driver, before the host; the fastest receiver",
    target: Target::Interface { works: on_interface, takes_away: true, only_sends: false },
    rx_options: config::RX_OPTIONS,
    tx_options: config::TX_OPTIONS,
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| true,
};

/// First kernel with links of XDP programs, which end with the process.
const LEAST_KERNEL: (u32, u32) = (5, 9);

/// Returns whether XDP can be used on an interface.
fn on_interface(found: &InterfaceInfo) -> Result<String, String> {
    if !ETHERNET_HARDWARE.contains(&found.hardware) {
        return Err(format!("its frames have no Ethernet header (ARPHRD type {})", found.hardware));
    }
    if let Some(reason) = too_old(LEAST_KERNEL) {
        return Err(reason);
    }
    let memory = Memory::new(4096, 2, 0).map_err(|error| error.to_string())?;
    let sizes = RingSizes { receive: 2, fill: 2, send: 2, completion: 2 };
    match XskSocket::new(Arc::new(memory), sizes) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            Err("needs CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON (root, setcap or the group linerate)".into())
        }
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Err("this kernel lacks AF_XDP".into()),
        Err(error) => Err(error.to_string()),
        Ok(_) if !found.up => Err(format!("is down: {}", bring_up(&found.name, None))),
        Ok(_) => in_its_namespace(found, xdp_mode),
    }
}

/// Opens an interface to receive from.
fn open_rx(spec: &Spec, options: &RxOptions, _: &Registry) -> Result<RxPort, PortError> {
    let wanted = XdpConfig::read(spec, options)?;
    within(spec.option("netns"), || {
        check_kernel(LEAST_KERNEL)?;
        let found = find(&spec.target)?;
        let (wanted, shared) = wanted_of(&found, wanted, options)?;
        let dropped_before = Attachment::existing(&found)?.and_then(|program| program.dropped()).unwrap_or_default();
        let monitor = NicMonitor::new(&spec.to_string(), &spec.target, found.index, false)?;
        // If the card writes into our memory itself, a program has nothing to copy.
        let features = XdpFeatures::new().and_then(|ask| ask.of(found.index));
        let has_zero_copy = features.is_some_and(|has| has & XDP_ZERO_COPY != 0);
        let by_card = if has_zero_copy { wanted.or_socket() } else { wanted };
        let mut opened = open_lanes(spec, &found, by_card, options)?;
        // Announced but refused, as on virtio_net without an IOMMU: our ring is faster than sockets with copies.
        let is_open = wanted.intake.is_none() && wanted.copying == CopyMode::Auto;
        if is_open && by_card.intake == Some(RxPath::Socket) && !opened.has_zero_copy {
            drop(opened);
            opened = open_lanes(spec, &found, wanted, options)?;
        }
        let blind = (options.outgoing && !uses(&found)?.is_empty()).then(|| {
            format!(
                "packets that this host sends are not captured (XDP sees only received ones); use packet:{}",
                found.name
            )
        });
        let notes = note_if_down(&found, spec.option("netns")).into_iter().chain(shared).chain(blind);
        let notes = notes.chain(opened.notes).collect();
        let OpenedLanes { mut lanes, is_filtered, attachment, .. } = opened;
        let promiscuous = options.promiscuous.then(|| hold_promiscuous(&found)).transpose()?;
        if !options.paused {
            lanes.iter_mut().for_each(|lane| lane.start());
        }
        let monitor = Box::new(XdpMonitor { nic: monitor, attachment, dropped_before, _promiscuous: promiscuous });
        Ok(RxPort {
            name: spec.to_string(),
            queues: lanes,
            feed: Feed::Clock,
            monitor: Some(monitor),
            filter: if is_filtered { options.filter.clone() } else { String::new() },
            offset_ns: 0,
            notes,
        })
    })
    .map_err(|error| explain(spec, &error))
}

/// Opens an interface to send to.
fn open_tx(spec: &Spec, options: &TxOptions, _: &Registry) -> Result<TxPort, PortError> {
    let wanted = XdpConfig::read(spec, &RxOptions::default())?;
    within(spec.option("netns"), || {
        let found = find(&spec.target)?;
        let mut numbers = queues(spec, found.queues.1)?;
        if spec.queues.is_none() {
            let last = (options.queues.max(1) as u32 - 1).min(*numbers.end());
            numbers = 0..=last;
        }
        let senders = numbers
            .map(|queue| open_sender(spec, &wanted, &found, queue).map(|sender| Box::new(sender) as Box<dyn TxQueue>));
        let queues = senders.collect::<io::Result<_>>()?;
        let monitor = NicMonitor::new(&spec.to_string(), &spec.target, found.index, true)?;
        Ok(TxPort { name: spec.to_string(), queues, monitor: Some(Box::new(monitor)) })
    })
    .map_err(|error| explain(spec, &error))
}

/// The card's counters; keeps the interface promiscuous.
struct XdpMonitor {
    nic: NicMonitor,
    attachment: Arc<Attachment>,
    /// Frames that the program had dropped when the port was opened.
    dropped_before: u64,
    _promiscuous: Option<PacketSocket>,
}

impl Monitor for XdpMonitor {
    fn counters(&self, ledger: &mut Ledger) {
        self.nic.add_counters(ledger, || Some(self.attachment.dropped()?.saturating_sub(self.dropped_before)));
    }
}

fn hold_promiscuous(found: &InterfaceInfo) -> io::Result<PacketSocket> {
    let socket = PacketSocket::open(found.index)?;
    socket.set_promiscuous()?;
    Ok(socket)
}

/// Adapts the options to an interface that the host uses itself: frames are taken away from the host only if the user
/// asks for it. Returns a note on that.
fn wanted_of(found: &InterfaceInfo, wanted: XdpConfig, options: &RxOptions) -> io::Result<(XdpConfig, Option<String>)> {
    let uses = if options.take || wanted.passes { Vec::new() } else { uses(found)? };
    if uses.is_empty() {
        return Ok((wanted, wanted.passes.then(|| "the host receives the frames too".into())));
    }
    let uses = uses.join("; ");
    let passing = wanted.passing();
    if options.shared && passing.passes {
        let note =
            format!("this host uses {} ({uses}) and receives the frames too; use --take to take them away", found.name);
        return Ok((passing, Some(note)));
    }
    let reason = format!(
        "this host uses {} ({uses}) and would lose the frames; use packet:{} to share them, \
         or --take to take them",
        found.name, found.name
    );
    Err(io::Error::new(io::ErrorKind::ResourceBusy, reason))
}

/// Lanes of a port.
struct OpenedLanes {
    lanes: Vec<Box<dyn RxQueue>>,
    notes: Vec<String>,
    attachment: Arc<Attachment>,
    is_filtered: bool,
    has_zero_copy: bool,
}

/// Attaches the program, unless it is, and opens the queues.
fn open_lanes(spec: &Spec, found: &InterfaceInfo, wanted: XdpConfig, options: &RxOptions) -> io::Result<OpenedLanes> {
    let attachment = Attachment::of(found, &wanted, &options.filter)?;
    let reset = wait_until_up(found);
    let is_filtered = !options.filter.is_empty() && attachment.filter == options.filter;
    // A filter in this process needs whole frames.
    let wanted = if is_filtered || options.filter.is_empty() { wanted } else { wanted.whole() };
    let numbers = queues(spec, found.queues.0)?;
    let ring = wanted.ring_frames(numbers.clone().count(), chunk_bytes(found));
    let notes = reset.into_iter().chain(attachment.notes.clone()).collect();
    let mut opened = OpenedLanes { lanes: Vec::new(), notes, attachment, is_filtered, has_zero_copy: true };
    for queue in numbers {
        let (lane, note, is_zero_copy) = open_lane(spec, &wanted, found, &opened.attachment, queue, ring)?;
        if opened.lanes.is_empty() {
            opened.notes.push(note);
        }
        opened.has_zero_copy &= is_zero_copy;
        opened.lanes.push(Box::new(lane));
    }
    Ok(opened)
}

/// Opens a queue to receive, and prepares it for sending later. Returns a note, and whether the card writes into our
/// memory itself.
fn open_lane(
    spec: &Spec,
    wanted: &XdpConfig,
    found: &InterfaceInfo,
    attachment: &Arc<Attachment>,
    queue: u32,
    ring: u32,
) -> io::Result<(XdpRx, String, bool)> {
    let netlink = Rtnetlink::new()?;
    let own = Queue { attachment: attachment.clone(), number: queue };
    let lane = |queue: Queue, intake| {
        XdpRx::new(Parts {
            subject: subject(spec, queue.number),
            interface: found.name.clone(),
            intake,
            queue,
            index: found.index,
            netlink,
            lag: wanted.lag,
        })
    };
    if let Some((intake, note)) = attachment.intake(&own, wanted.snap)? {
        return Ok((lane(own, intake), note, false));
    }
    let chunks = ring + SPARE_CHUNKS;
    // The kernel updates the fill ring's consumer only when it looks for more, so as many chunks may have been returned
    // since.
    let sizes =
        RingSizes { receive: ring, fill: (2 * chunks).next_power_of_two(), send: SEND_FRAMES, completion: SEND_FRAMES };
    let layout = Chunks { chunk: chunk_bytes(found), receive: chunks, sizes };
    // Zero copy depends on the program's mode.
    let mut wanted = *wanted;
    wanted.mode = Some(attachment.mode());
    let BoundSocket { socket, frames, sender, binding, refused } = bind(&wanted, found, queue, layout)?;
    if let Some(budget) = wanted.busy_poll {
        socket.set_busy_poll(budget)?;
    }
    attachment.connect(queue, &socket)?;
    attachment.idle_senders().insert(queue, (socket.clone(), sender));
    let (is_zero_copy, note) = (binding.zero_copy, describe(&(binding, refused), ring));
    let intake = SocketIntake::new((frames, socket), longest_frame(found), wanted.busy_poll.is_some());
    Ok((lane(own, Box::new(intake)), note, is_zero_copy))
}

/// Opens a queue to send: the sending side of an open lane, or a separate socket.
fn open_sender(spec: &Spec, wanted: &XdpConfig, found: &InterfaceInfo, queue: u32) -> io::Result<XdpTx> {
    let subject = subject(spec, queue);
    if let Some(attachment) = Attachment::existing(found)? {
        let idle = attachment.idle_senders().remove(&queue);
        if let Some(parts) = idle {
            return XdpTx::new(subject, parts, Some(attachment), found);
        }
    }
    let wanted = &wanted.for_sending();
    // No frame is received, but the kernel requires all four rings.
    let sizes = RingSizes { receive: 2, fill: 2, send: SEND_FRAMES, completion: SEND_FRAMES };
    let layout = Chunks { chunk: chunk_bytes(found), receive: 0, sizes };
    let BoundSocket { socket, sender, binding, .. } = bind(wanted, found, queue, layout)?;
    // Several drivers support zero-copy sending only while a program is attached.
    let mut attachment = Attachment::existing(found)?;
    if attachment.is_none() && binding.zero_copy {
        attachment = Some(Attachment::of(found, wanted, "")?);
        wait_until_up(found).into_iter().for_each(|note| events::report(format!("{spec}: {note}")));
    }
    XdpTx::new(subject, (socket, sender), attachment, found)
}

/// Names the account of a queue; interfaces of one name in two namespaces are distinct.
fn subject(spec: &Spec, queue: u32) -> String {
    let netns = spec.option("netns").map(|netns| format!("?netns={netns}")).unwrap_or_default();
    format!("xdp:{}@{queue}{netns}", spec.target)
}

fn explain(spec: &Spec, error: &io::Error) -> PortError {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            &*crate::remedy("; xdp needs CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON")
        }
        Some(libc::ENOMEM | libc::ENOBUFS) => {
            "; the rings exceed the memory, or the limit of locked memory (ulimit -l) without CAP_IPC_LOCK; \
             grant CAP_IPC_LOCK, or use smaller rings with ?ring=4096"
        }
        Some(libc::EBUSY) => {
            "; another AF_XDP socket uses the queue (within one process, open the receiving side first)"
        }
        Some(libc::EOPNOTSUPP) => "; the driver does not support that; try ?copy=auto&mode=auto",
        _ => "",
    };
    // An error number `EINVAL` from the kernel is not an invalid option.
    if error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error().is_none() {
        return PortError::wrong(spec.to_string(), error.to_string());
    }
    PortError::broken(spec.to_string(), format!("{error}{advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel returns `ENOBUFS` if memory may not be locked, not only for large rings.
    #[test]
    fn locked_memory_limit_is_explained() {
        let spec = Spec::parse("xdp:eth0").unwrap();
        let text = explain(&spec, &io::Error::from_raw_os_error(libc::ENOBUFS)).to_string();
        assert!(text.contains("ring=4096") && text.contains("CAP_IPC_LOCK"), "{text}");
    }
}
