//! `xdp:interface`: frames taken from the driver by an XDP program, before the kernel makes packets of them.
//!
//! What it takes, the host does not see; on an interface that the host uses itself it leaves the frames to it too, or
//! wants `--take`. A program made at run time stamps each frame and writes it into this process's
//! memory, or hands it to its queue's socket (AF_XDP), or counts it where nobody wants more. The program is attached by a link, which the kernel removes
//! with the process however that ends, and never takes the place of another program.

mod attach;
mod btf;
mod direct;
mod filtering;
mod program;
mod receive;
mod send;
mod tally;
mod wanted;

use self::attach::Attachment;
use self::receive::{Parts, Queue, SocketIntake, XdpRx};
use self::send::XdpTx;
use self::wanted::{Copying, Wanted, chunk_bytes, longest_frame, needs_several_chunks, queues};
use crate::inventory::{ETHERNET_HARDWARE, bring_up, find, note_if_down, uses};
use crate::native::{check_kernel, in_its_namespace, too_old, xdp_mode};
use crate::netns::within;
use crate::nic::NicMonitor;
use crate::rtnl::{Rtnetlink, XDP_ZERO_COPY, XdpFeatures};
use crate::sys::bpf::Mode;
use crate::sys::packet_socket::PacketSocket;
use crate::sys::xsk_frames::XskFrames;
use crate::sys::xsk_memory::Memory;
use crate::sys::xsk_sender::XskSender;
use crate::sys::xsk_socket::{Binding, RingSizes, Rings, XskSocket};
use linerate_burst::Ledger;
use linerate_port::{
    Backend, Feed, Found, Monitor, PortError, Registry, RxOptions, RxPort, RxQueue, Spec, Target, TxOptions, TxPort,
    TxQueue,
};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Chunks beyond the receive ring, for frames that are being read or that a card holds.
const SPARE_CHUNKS: u32 = 2048;
/// Frames under way of a sending queue.
const SEND_FRAMES: u32 = 2048;
/// Where frames of several chunks are joined.
const JOINED_BYTES: usize = 8 << 20;
/// The kernel frees a queue a moment after its last owner has closed it.
const BUSY_LIMIT: Duration = Duration::from_secs(2);
const BUSY_NAP: Duration = Duration::from_millis(20);

/// The row of this backend.
pub const BACKEND: Backend = Backend {
    scheme: "xdp",
    placeholder: "interface",
    sentence: "XDP: takes frames from the driver, before the host; the fastest way in",
    target: Target::Interface { works: on_interface, takes_away: true, only_sends: false },
    rx_options: wanted::RX_OPTIONS,
    tx_options: wanted::TX_OPTIONS,
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| true,
};

/// The first kernel with all that the programs call (`bpf_ktime_get_tai_ns`).
const LEAST_KERNEL: (u32, u32) = (6, 1);

/// Whether XDP can be used on an interface.
fn on_interface(found: &Found) -> Result<String, String> {
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
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Err("this kernel has no AF_XDP".into()),
        Err(error) => Err(error.to_string()),
        Ok(_) if !found.up => Err(format!("is down: {}", bring_up(&found.name, None))),
        Ok(_) => in_its_namespace(found, xdp_mode),
    }
}

/// Opens an interface to receive from.
fn open_rx(spec: &Spec, options: &RxOptions, _: &Registry) -> Result<RxPort, PortError> {
    let wanted = Wanted::read(spec, options)?;
    within(spec.option("netns"), || {
        check_kernel(LEAST_KERNEL)?;
        let found = find(&spec.target)?;
        let (wanted, shared) = wanted_of(&found, wanted, options)?;
        let monitor = NicMonitor::new(&spec.to_string(), &spec.target, found.index, false)?;
        // A card that writes into our memory itself leaves nothing for a program to copy.
        let features = XdpFeatures::new().and_then(|ask| ask.of(found.index));
        let wanted = if features.is_some_and(|has| has & XDP_ZERO_COPY != 0) { wanted.or_socket() } else { wanted };
        let attachment = Attachment::of(&found, &wanted, &options.filter)?;
        let is_filtered = !options.filter.is_empty() && attachment.filter == options.filter;
        // Whoever filters wants all of a frame.
        let wanted = if is_filtered || options.filter.is_empty() { wanted } else { wanted.whole() };
        let blind = (options.outgoing && !uses(&found)?.is_empty()).then(|| {
            format!("packets that this host sends are not captured: XDP does not see them, packet:{} does", found.name)
        });
        let notes = note_if_down(&found, spec.option("netns")).into_iter().chain(shared).chain(blind);
        let mut notes: Vec<String> = notes.chain(attachment.notes.clone()).collect();
        let numbers = queues(spec, found.queues.0)?;
        let ring = wanted.ring_frames(numbers.clone().count(), chunk_bytes(&found));
        let mut lanes: Vec<Box<dyn RxQueue>> = Vec::new();
        for queue in numbers {
            let (lane, note) = open_lane(spec, &wanted, &found, &attachment, queue, ring)?;
            if lanes.is_empty() {
                notes.push(note);
            }
            lanes.push(Box::new(lane));
        }
        let promiscuous = options.promiscuous.then(|| hold_promiscuous(&found)).transpose()?;
        if !options.paused {
            lanes.iter_mut().for_each(|lane| lane.start());
        }
        let monitor = Box::new(XdpMonitor { nic: monitor, _promiscuous: promiscuous });
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
    let wanted = Wanted::read(spec, &RxOptions::default())?;
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

/// The card's counters; holds the interface promiscuous.
struct XdpMonitor {
    nic: NicMonitor,
    _promiscuous: Option<PacketSocket>,
}

impl Monitor for XdpMonitor {
    fn counters(&self, ledger: &mut Ledger) {
        self.nic.counters(ledger);
    }
}

fn hold_promiscuous(found: &Found) -> io::Result<PacketSocket> {
    let socket = PacketSocket::open(found.index)?;
    socket.set_promiscuous()?;
    Ok(socket)
}

/// Frames that are taken are gone for the host: not without its owner's word. What an interface is opened for that the host uses itself,
/// and what is said about that.
fn wanted_of(found: &Found, wanted: Wanted, options: &RxOptions) -> io::Result<(Wanted, Option<String>)> {
    let uses = if options.take || wanted.passes { Vec::new() } else { uses(found)? };
    if uses.is_empty() {
        return Ok((wanted, wanted.passes.then(|| "the host gets the frames too".into())));
    }
    let uses = uses.join("; ");
    let passing = wanted.passing();
    if options.shared && passing.passes {
        let note = format!("this host uses {} ({uses}): it gets the frames too; --take takes them away", found.name);
        return Ok((passing, Some(note)));
    }
    let reason = format!(
        "this host uses {} ({uses}) and would not see the frames that are taken: packet:{} leaves them to it, \
         --take takes them",
        found.name, found.name
    );
    Err(io::Error::new(io::ErrorKind::ResourceBusy, reason))
}

/// Opens a queue to receive, and to send should anyone want that later.
fn open_lane(
    spec: &Spec,
    wanted: &Wanted,
    found: &Found,
    attachment: &Arc<Attachment>,
    queue: u32,
    ring: u32,
) -> io::Result<(XdpRx, String)> {
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
        return Ok((lane(own, intake), note));
    }
    let chunks = ring + SPARE_CHUNKS;
    // The kernel says what it has taken from the fill ring only when it looks for more, so as many chunks may have come back meanwhile.
    let sizes =
        RingSizes { receive: ring, fill: (2 * chunks).next_power_of_two(), send: SEND_FRAMES, completion: SEND_FRAMES };
    let layout = Chunks { chunk: chunk_bytes(found), receive: chunks, sizes };
    // What is copied or not depends on where the program has come to run.
    let mut wanted = *wanted;
    wanted.mode = Some(attachment.mode());
    let Bound { socket, rings, binding, refused } = bind(&wanted, found, queue, layout)?;
    let frames = XskFrames::new(socket.memory().clone(), rings.receive, rings.fill, chunks);
    let sender = XskSender::new(
        socket.memory().clone(),
        rings.send,
        rings.completion,
        chunks,
        SEND_FRAMES,
        binding.multi_buffer,
    );
    if let Some(budget) = wanted.busy_poll {
        socket.set_busy_poll(budget)?;
    }
    attachment.connect(queue, &socket)?;
    attachment.idle_senders().insert(queue, (socket.clone(), sender));
    let note = describe(&(binding, refused), ring);
    let intake = SocketIntake::new((frames, socket), longest_frame(found), wanted.busy_poll.is_some());
    Ok((lane(own, Box::new(intake)), note))
}

/// Opens a queue to send: the sending side of a lane that is open, or a socket of its own.
fn open_sender(spec: &Spec, wanted: &Wanted, found: &Found, queue: u32) -> io::Result<XdpTx> {
    let subject = subject(spec, queue);
    if let Some(attachment) = Attachment::existing(found)? {
        let idle = attachment.idle_senders().remove(&queue);
        if let Some(parts) = idle {
            return XdpTx::new(subject, parts, Some(attachment), found);
        }
    }
    let wanted = &wanted.for_sending();
    // No frame is received, but the kernel wants all four rings.
    let sizes = RingSizes { receive: 2, fill: 2, send: SEND_FRAMES, completion: SEND_FRAMES };
    let layout = Chunks { chunk: chunk_bytes(found), receive: 0, sizes };
    let Bound { socket, rings, binding, .. } = bind(wanted, found, queue, layout)?;
    // Several drivers send without copying only while a program is attached.
    let attachment = match Attachment::existing(found)? {
        None if binding.zero_copy => Some(Attachment::of(found, wanted, "")?),
        attachment => attachment,
    };
    let sender =
        XskSender::new(socket.memory().clone(), rings.send, rings.completion, 0, SEND_FRAMES, binding.multi_buffer);
    XdpTx::new(subject, (socket, sender), attachment, found)
}

/// The memory of a socket: chunks to receive into, then chunks to send from.
#[derive(Clone, Copy)]
struct Chunks {
    chunk: u32,
    receive: u32,
    sizes: RingSizes,
}

/// A socket that is bound, and why it is not bound without copying.
struct Bound {
    socket: Arc<XskSocket>,
    rings: Rings,
    binding: Binding,
    refused: Option<io::Error>,
}

/// Makes a socket and binds it: without copying where the driver can, and in the best form it can.
fn bind(wanted: &Wanted, found: &Found, queue: u32, layout: Chunks) -> io::Result<Bound> {
    let joined = if layout.receive > 0 { JOINED_BYTES } else { 0 };
    let memory = Arc::new(Memory::new(layout.chunk, layout.receive + layout.sizes.send, joined)?);
    let (socket, rings) = XskSocket::new(memory, layout.sizes)?;
    let several = needs_several_chunks(found);
    let mut attempts = Vec::new();
    if wanted.copying != Copying::Copy && wanted.mode != Some(Mode::Generic) {
        attempts.push(Binding { zero_copy: true, multi_buffer: several });
    }
    if wanted.copying != Copying::Zero {
        attempts.push(Binding { zero_copy: false, multi_buffer: true });
        attempts.push(Binding { zero_copy: false, multi_buffer: false });
    }
    let mut refused = None;
    for binding in attempts {
        match bind_patiently(&socket, found.index, queue, binding) {
            Ok(()) => {
                socket.set_send_budget(layout.sizes.send);
                return Ok(Bound { socket: Arc::new(socket), rings, binding, refused });
            }
            // Drivers refuse in many ways what they cannot do.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EPERM | libc::ENODEV)) => {
                return Err(error);
            }
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP)))
}

fn bind_patiently(socket: &XskSocket, interface: u32, queue: u32, binding: Binding) -> io::Result<()> {
    let started = Instant::now();
    loop {
        match socket.bind(interface, queue, binding) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && started.elapsed() < BUSY_LIMIT => {
                std::thread::sleep(BUSY_NAP);
            }
            result => return result,
        }
    }
}

fn describe((binding, refused): &(Binding, Option<io::Error>), ring: u32) -> String {
    let copying = match (binding.zero_copy, refused) {
        (true, _) => "no copy: the card writes into our memory".to_owned(),
        (false, Some(error)) => format!("the kernel copies frames (without copying: {error})"),
        (false, None) => "the kernel copies frames".to_owned(),
    };
    let several = if binding.multi_buffer { "" } else { "; frames longer than a buffer are dropped" };
    format!("AF_XDP: {copying}{several}; rings of {ring} frames")
}

/// Whose counters those of a queue are; interfaces of one name in two namespaces are two.
fn subject(spec: &Spec, queue: u32) -> String {
    let netns = spec.option("netns").map(|netns| format!("?netns={netns}")).unwrap_or_default();
    format!("xdp:{}@{queue}{netns}", spec.target)
}

fn explain(spec: &Spec, error: &io::Error) -> PortError {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            &*crate::remedy("; xdp: needs CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON")
        }
        Some(libc::ENOMEM | libc::ENOBUFS) => {
            "; the rings do not fit in memory, or in what may be locked there without CAP_IPC_LOCK (ulimit -l): \
             give that right too, or ask for less with ?ring=4096"
        }
        Some(libc::EBUSY) => {
            "; the queue belongs to another AF_XDP socket (in one process, open the receiving side first)"
        }
        Some(libc::EOPNOTSUPP) => "; the driver cannot do that: try ?copy=auto&mode=auto",
        _ => "",
    };
    // What the kernel calls invalid is no matter of what was written.
    if error.kind() == io::ErrorKind::InvalidInput && error.raw_os_error().is_none() {
        return PortError::wrong(spec.to_string(), error.to_string());
    }
    PortError::broken(spec.to_string(), format!("{error}{advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel says `ENOBUFS` where the memory may not be locked, which is no matter of rings alone.
    #[test]
    fn memory_that_may_not_be_locked_is_explained() {
        let spec = Spec::parse("xdp:eth0").unwrap();
        let text = explain(&spec, &io::Error::from_raw_os_error(libc::ENOBUFS)).to_string();
        assert!(text.contains("ring=4096") && text.contains("CAP_IPC_LOCK"), "{text}");
    }
}
