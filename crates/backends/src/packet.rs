//! `packet:interface`: AF_PACKET, for every driver, without taking frames away from the host.
//!
//! Receives through TPACKET_V3 rings whose blocks are used as bursts in place: nothing is copied. Frames to be forwarded
//! or answered come through TPACKET_V2, whose slots are visible at once instead of after the block timeout. One socket
//! per lane, joined in a fanout group by CPU, because each CPU stamps and stores its frames in order while two CPUs
//! feeding one ring do not. Sends with `sendmmsg`, bypassing the queueing discipline.

mod config;
mod direction;
mod receive;
mod scatter;
mod send;
mod stamps;

use self::config::PacketConfig;
use self::direction::Direction;
use self::receive::PacketRx;
use self::scatter::ScatterRx;
use self::send::PacketTx;
pub(crate) use self::stamps::able as stamping_clock;
use self::stamps::{ClockMonitor, Stamping};
use crate::inventory::{ETHERNET_HARDWARE, bring_up, find, note_if_down};
use crate::netns::within;
use crate::nic::NicMonitor;
use crate::sys::packet_ring::PacketRing;
use crate::sys::packet_socket::PacketSocket;
use linerate_burst::{Interface, LinkType, StampSource};
use linerate_filter::Insn;
use linerate_port::{
    Backend, Feed, InterfaceInfo, PortError, Registry, RxOptions, RxPort, RxQueue, Spec, Target, TxOptions, TxPort,
    TxQueue,
};
use std::io;
use std::sync::Arc;

const RX_OPTIONS: &[&str] = &["netns", "ring", "block", "timeout", "lanes", "direction", "stamp"];
const TX_OPTIONS: &[&str] = &["netns"];
const SEND_BUFFER: u32 = 4 << 20;
/// `PACKET_FANOUT_FLAG_IGNORE_OUTGOING` (linux/if_packet.h).
const FANOUT_IGNORE_OUTGOING: u32 = 0x4000;

/// Describes this backend.
pub const BACKEND: Backend = Backend {
    scheme: "packet",
    placeholder: "interface",
    sentence: "AF_PACKET: captures copies, the host receives all frames too; every Linux driver",
    target: Target::Interface { works: on_interface, takes_away: false, only_sends: false },
    rx_options: RX_OPTIONS,
    tx_options: TX_OPTIONS,
    open_rx,
    open_tx,
    leaves_when_sent: |_, _| true,
};

/// Returns whether AF_PACKET can be used on an interface.
fn on_interface(found: &InterfaceInfo) -> Result<String, String> {
    if !ETHERNET_HARDWARE.contains(&found.hardware) {
        return Err(format!("its frames have no Ethernet header (ARPHRD type {})", found.hardware));
    }
    match PacketSocket::open(found.index) {
        Err(error) if error.raw_os_error() == Some(1) => {
            Err("needs CAP_NET_RAW (root, setcap or the group linerate)".into())
        }
        Err(error) => Err(error.to_string()),
        Ok(_) if !found.up => Err(format!("is down: {}", bring_up(&found.name, None))),
        Ok(_) => Ok(String::new()),
    }
}

/// Opens an interface to receive from.
fn open_rx(spec: &Spec, options: &RxOptions, _: &Registry) -> Result<RxPort, PortError> {
    let mut wanted = PacketConfig::read(spec, options)?;
    if options.scatter {
        if let Some((key, _)) =
            spec.options.iter().find(|(key, _)| key != "netns" && RX_OPTIONS.contains(&key.as_str()))
        {
            let reason = format!("{key}= has no effect here: frames are read one at a time, without a ring");
            return Err(PortError::wrong(spec.to_string(), reason));
        }
        return open_scatter(spec, options, wanted);
    }
    let opened = within(spec.option("netns"), || {
        let found = find(&spec.target)?;
        wanted.direction = wanted.direction.at(&found);
        wanted.fit(found.mtu);
        let one_way = options.outgoing.then(|| wanted.direction.note(&found)).flatten();
        let stamping = wanted.by_card.then(|| Stamping::start(&spec.target, spec.option("netns"))).transpose()?;
        let sockets = open_lanes(&mut wanted, &found, options.promiscuous)?;
        let monitor = NicMonitor::new(&spec.to_string(), &spec.target, found.index, false)?;
        Ok((found, one_way, stamping, sockets, monitor))
    });
    let (found, one_way, stamping, lanes, monitor) = opened.map_err(|error| explain(spec, &error))?;
    let interface = interface(spec, stamping.as_ref());
    let clock = stamping.as_ref().map(|stamping| Arc::clone(&stamping.clock));
    let queues = lanes.into_iter().enumerate().map(|(lane, (socket, ring))| {
        let (interface, subject) = (interface.clone(), subject(spec, lane));
        Box::new(PacketRx::new(interface, subject, socket, ring, &wanted, found.mtu, clock.clone())) as Box<dyn RxQueue>
    });
    let stamp_notes = stamping.as_ref().map(|stamping| stamping.notes.clone()).unwrap_or_default();
    Ok(RxPort {
        name: spec.to_string(),
        queues: queues.collect(),
        feed: Feed::Clock,
        monitor: Some(match stamping {
            None => Box::new(monitor),
            Some(stamping) => Box::new(ClockMonitor::new(monitor, spec.to_string(), stamping)),
        }),
        filter: wanted.filter.applied,
        offset_ns: 0,
        notes: note_if_down(&found, spec.option("netns"))
            .into_iter()
            .chain(one_way)
            .chain(wanted.filter.notes)
            .chain(stamp_notes)
            .collect(),
    })
}

/// Opens an interface to read each frame directly to its destination.
fn open_scatter(spec: &Spec, options: &RxOptions, mut wanted: PacketConfig) -> Result<RxPort, PortError> {
    let opened = within(spec.option("netns"), || {
        let found = find(&spec.target)?;
        let monitor = NicMonitor::new(&spec.to_string(), &spec.target, found.index, false)?;
        let queue = ScatterRx::open(interface(spec, None), subject(spec, 0), &found, &mut wanted, options.promiscuous)?;
        Ok((found, queue, monitor))
    });
    let (found, queue, monitor) = opened.map_err(|error| explain(spec, &error))?;
    Ok(RxPort {
        monitor: Some(Box::new(monitor)),
        filter: wanted.filter.applied,
        notes: note_if_down(&found, spec.option("netns"))
            .into_iter()
            .chain(wanted.filter.notes)
            .chain(queue.note())
            .collect(),
        ..RxPort::new(spec.to_string(), vec![Box::new(queue)], Feed::Clock)
    })
}

/// Returns the description of the interface, with the source of its timestamps.
fn interface(spec: &Spec, stamping: Option<&Stamping>) -> Interface {
    let Some(stamping) = stamping else {
        return Interface::new(&spec.target, LinkType::ETHERNET, StampSource::Kernel);
    };
    Interface {
        description: format!("{spec}; times of its clock ptp{}, converted to host time", stamping.number),
        ..Interface::new(&spec.target, LinkType::ETHERNET, StampSource::Hardware)
    }
}

/// Opens an interface to send to.
fn open_tx(spec: &Spec, options: &TxOptions, _: &Registry) -> Result<TxPort, PortError> {
    if spec.queues.is_some() {
        return Err(PortError::wrong(spec.to_string(), "AF_PACKET sends to an interface as a whole; omit the @"));
    }
    let opened = within(spec.option("netns"), || {
        let found = find(&spec.target)?;
        let sockets = (0..options.queues.max(1)).map(|_| open_sender(&found)).collect::<io::Result<Vec<_>>>()?;
        Ok((sockets, NicMonitor::new(&spec.to_string(), &spec.target, found.index, true)?))
    });
    let (sockets, monitor) = opened.map_err(|error| explain(spec, &error))?;
    let queues = sockets
        .into_iter()
        .enumerate()
        .map(|(queue, socket)| Box::new(PacketTx::new(subject(spec, queue), socket)) as Box<dyn TxQueue>);
    Ok(TxPort { name: spec.to_string(), queues: queues.collect(), monitor: Some(Box::new(monitor)) })
}

/// Names the account of a queue; interfaces of one name in two namespaces are distinct.
fn subject(spec: &Spec, queue: usize) -> String {
    let netns = spec.option("netns").map(|netns| format!("?netns={netns}")).unwrap_or_default();
    format!("packet:{}@{queue}{netns}", spec.target)
}

type Lane = (PacketSocket, PacketRing);

fn open_lanes(wanted: &mut PacketConfig, found: &InterfaceInfo, promiscuous: bool) -> io::Result<Vec<Lane>> {
    let mut lanes = Vec::new();
    let mut group = None;
    for _ in 0..wanted.lanes {
        let socket = PacketSocket::open(found.index)?;
        let ring = PacketRing::new(&socket, wanted.layout)?;
        // Drop all frames until every lane is open: no frame may be seen by two of them.
        socket.attach(&[Insn::ret(0)])?;
        if wanted.by_card {
            socket.set(libc::PACKET_TIMESTAMP, libc::SOF_TIMESTAMPING_RAW_HARDWARE)?;
        }
        if wanted.direction == Direction::In {
            socket.set(libc::PACKET_IGNORE_OUTGOING, 1)?;
        }
        if promiscuous {
            socket.set_promiscuous()?;
        }
        socket.bind(true)?;
        if wanted.lanes > 1 {
            // A fanout group has its own flag for outgoing frames, independent of its sockets.
            let ignore = if wanted.direction == Direction::In { FANOUT_IGNORE_OUTGOING } else { 0 };
            group = match socket.join_fanout(group, libc::PACKET_FANOUT_CPU | ignore) {
                // Older kernels (6.1) group sockets of an interface only while it is up.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && !found.up && group.is_none() => {
                    wanted.lanes = 1;
                    wanted
                        .filter
                        .notes
                        .push("one lane: this kernel opens several only while the interface is up".into());
                    None
                }
                joined => Some(joined?),
            };
        }
        lanes.push((socket, ring));
        if wanted.lanes == 1 {
            break;
        }
    }
    for (socket, _) in &lanes {
        socket.statistics()?;
        wanted.filter.attach_to(socket, wanted.direction)?;
    }
    Ok(lanes)
}

fn open_sender(found: &InterfaceInfo) -> io::Result<PacketSocket> {
    let socket = PacketSocket::open(found.index)?;
    socket.set(libc::PACKET_QDISC_BYPASS, 1)?;
    socket.set_send_buffer(SEND_BUFFER)?;
    socket.bind(false)?;
    Ok(socket)
}

fn explain(spec: &Spec, error: &io::Error) -> PortError {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => crate::remedy("; AF_PACKET needs CAP_NET_RAW"),
        Some(libc::ENOMEM) => "; the receive rings exceed the memory; use smaller ones with ?ring=16MiB".to_owned(),
        _ => String::new(),
    };
    PortError::broken(spec.to_string(), format!("{error}{advice}"))
}
