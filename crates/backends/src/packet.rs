//! `packet:interface`: AF_PACKET, for every driver, without taking frames away from the host.
//!
//! Receives through TPACKET_V3 rings whose blocks are used as bursts in place: nothing is copied. One socket per lane,
//! joined in a fanout group by CPU, because each CPU stamps and stores its frames in order while two CPUs feeding one
//! ring do not. Sends with `sendmmsg`, bypassing the queueing discipline.

mod direction;
mod receive;
mod scatter;
mod send;
mod stamps;

use self::direction::Direction;
use self::receive::{PacketRx, Timing};
use self::scatter::ScatterRx;
use self::send::PacketTx;
pub(crate) use self::stamps::able as stamping_clock;
use self::stamps::{ClockMonitor, Stamping};
use crate::inventory::{ETHERNET_HARDWARE, bring_up, find, note_if_down};
use crate::netns::within;
use crate::nic::NicMonitor;
use crate::sys::packet_ring::{Layout, PacketRing};
use crate::sys::packet_socket::PacketSocket;
use linerate_burst::{Interface, LinkType, StampSource};
use linerate_filter::program::{MAX_INSNS, code};
use linerate_filter::{Filter, Insn, REFUSE_TAGGED};
use linerate_port::{
    Backend, Feed, InterfaceInfo, PortError, Registry, RxOptions, RxPort, RxQueue, Spec, Target, TxOptions, TxPort,
    TxQueue,
};
use rustix::time::{ClockId, clock_getres};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

const RX_OPTIONS: &[&str] = &["netns", "ring", "block", "timeout", "lanes", "direction", "stamp"];
const TX_OPTIONS: &[&str] = &["netns"];
/// Ring memory of a port, of all its lanes.
const RING_BYTES: u64 = 128 << 20;
/// Range of a desc's offset, with a margin.
const MAX_RING_BYTES: u64 = 3 << 30;
const MAX_LANES: u64 = 64;
const RING_RANGE: RangeInclusive<u64> = 128 << 10..=MAX_RING_BYTES;
/// Two of the largest blocks fit in the largest ring for each of the most lanes.
const BLOCK_RANGE: RangeInclusive<u64> = 64 << 10..=8 << 20;
/// Minimum ring memory per lane.
const LANE_RING_BYTES: u64 = 16 << 20;
/// Holds the longest classic super-frame. No larger, because the kernel hands a block over at every timeout however
/// little it contains: a ring of N blocks tolerates a reader that stalls for N milliseconds.
const BLOCK_BYTES: u64 = 128 << 10;
const BLOCK_TIMEOUT_MS: u64 = 1;
/// Covers the block timeout, and a kernel that is late by the same time.
const LAG: Duration = Duration::from_millis(2);
/// Lead of a card's timestamp over the kernel's: interrupt coalescing and a softirq are between them.
const CARD_LEAD: Duration = Duration::from_millis(5);
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

/// Options of a port, checked before anything is opened.
struct PacketConfig {
    lanes: u32,
    layout: Layout,
    timing: Timing,
    filter: FilterPlan,
    direction: Direction,
    /// True if the card stamps frames.
    by_card: bool,
}

/// The filter in the kernel.
#[derive(Default)]
struct FilterPlan {
    /// The program, which also truncates frames to the snap length.
    program: Option<Vec<Insn>>,
    /// The filter text, if the program applies all of it.
    applied: String,
    notes: Vec<String>,
}

impl PacketConfig {
    fn read(spec: &Spec, options: &RxOptions) -> Result<Self, PortError> {
        let own = if options.lanes > 0 { options.lanes as u64 } else { cpus() };
        let lanes = spec.number_in("lanes", own, 1..=MAX_LANES, "1 to 64")?.min(MAX_LANES);
        let block = spec.number_in("block", BLOCK_BYTES, BLOCK_RANGE, "64KiB to 8MiB")?.next_power_of_two();
        let asked = RING_BYTES.max(LANE_RING_BYTES * lanes);
        let asked = spec.number_in("ring", asked, RING_RANGE, "128KiB to 3GiB")?;
        let ring = asked.clamp(2 * block * lanes, MAX_RING_BYTES);
        let timeout_ms = spec.number_in("timeout", BLOCK_TIMEOUT_MS, 1..=1000, "1 to 1000 (ms)")?;
        let block_timeout = real_timeout(Duration::from_millis(timeout_ms));
        let by_card = match spec.option("stamp") {
            None | Some("software") => false,
            Some("hardware") => true,
            Some(other) => {
                let reason = format!("stamp={other}: expected software (kernel) or hardware (card)");
                return Err(PortError::wrong(spec.to_string(), reason));
            }
        };
        if let Some((first, last)) = spec.queues {
            let reason = format!("@{first}-{last}: AF_PACKET captures an interface as a whole; use ?lanes=N");
            return Err(PortError::wrong(spec.to_string(), reason));
        }
        let mut filter = plan_filter(spec, options)?;
        if ring > asked {
            filter.notes.push(format!("ring= raised to {} KiB: {lanes} lanes need two blocks each", ring >> 10));
        }
        Ok(PacketConfig {
            lanes: lanes as u32,
            layout: Layout {
                block_bytes: block as u32,
                blocks: (ring / lanes / block).max(2) as u32,
                timeout_ms: timeout_ms as u32,
            },
            timing: Timing { lag: lag(options.lag, by_card, block_timeout), block_timeout },
            filter,
            direction: Direction::read(spec, options)?,
            by_card,
        })
    }
}

impl FilterPlan {
    /// Returns the number of kernel filters of a queue: sockets do not count rejected packets.
    fn rejects_uncounted(&self) -> u64 {
        u64::from(!self.applied.is_empty())
    }

    /// Attaches the filter to a socket, for frames of a direction; without the program if it is too long for the
    /// kernel.
    fn attach_to(&mut self, socket: &PacketSocket, direction: Direction) -> io::Result<()> {
        if let Some(program) = &self.program {
            match direction.attach(socket, program) {
                Err(error) if is_too_long(&error) && !self.applied.is_empty() => {
                    let note = "filter runs in this process: too long for the kernel (net.core.optmem_max)";
                    *self = FilterPlan { notes: vec![note.into()], ..FilterPlan::default() };
                }
                result => return result,
            }
        }
        direction.attach(socket, &[Insn::ret(u32::MAX)])
    }

    /// Attaches the filter to a socket that cannot restore VLAN tags: of frames with a stripped tag, those that match
    /// are truncated to `tagged` bytes, to be counted.
    fn attach_untagged_to(&mut self, socket: &PacketSocket, tagged: u32) -> io::Result<()> {
        let rest = match &self.program {
            Some(program) if program.starts_with(&REFUSE_TAGGED[..2]) => program[REFUSE_TAGGED.len()..].to_vec(),
            Some(program) => program.clone(),
            None => vec![Insn::ret(u32::MAX)],
        };
        let is_short = rest.len() * 2 + 4 <= MAX_INSNS;
        let short =
            rest.iter().map(|insn| if insn.code == code::RET_K && insn.k > 0 { Insn::ret(tagged) } else { *insn });
        // A is the tag's presence, and must be 0 at the start of a filter.
        let [load, refuse @ ..] = REFUSE_TAGGED;
        let choose = [Insn::jump(code::JEQ_K, 0, 0, 1), Insn::new(code::JA, rest.len() as u32 + 1)];
        let cut = choose.into_iter().chain([Insn::new(code::LD_IMM, 0)]).chain(short);
        let first: Vec<Insn> = if is_short { cut.collect() } else { refuse.to_vec() };
        self.program = Some([load].into_iter().chain(first).chain(rest).collect());
        self.attach_to(socket, Direction::In)
    }
}

/// Returns whether a program exceeds the kernel's memory or instruction limit.
fn is_too_long(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL))
}

/// Returns the number of lanes, one per processor: the softirq of any of them may deliver frames, regardless of this
/// process's affinity.
fn cpus() -> u64 {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let last = online.trim().rsplit([',', '-']).next().and_then(|cpu| cpu.parse::<u64>().ok());
    last.map_or_else(|| std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64), |last| last + 1)
}

/// Returns the maximum time from a frame's timestamp until it is visible: as requested, but no less than the kernel
/// needs.
fn lag(asked: Option<Duration>, by_card: bool, block_timeout: Duration) -> Duration {
    let earlier = if asked.is_none() && by_card { CARD_LEAD } else { Duration::ZERO };
    asked.unwrap_or(LAG).max(block_timeout + Duration::from_millis(1)) + earlier
}

/// Returns the time after which the kernel really hands a block over. Since Linux 6.18 a high-resolution timer does
/// that; before, the timer wheel, which rounds up to ticks and adds one.
fn real_timeout(asked: Duration) -> Duration {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) >= (Some(6), Some(18)) {
        return asked;
    }
    let tick = clock_getres(ClockId::MonotonicCoarse);
    let tick = u64::try_from(tick.tv_nsec).unwrap_or(0).max(1);
    Duration::from_nanos((asked.as_nanos() as u64).next_multiple_of(tick) + tick)
}

/// Decides where the filter runs: in the kernel if the result is the same there.
fn plan_filter(spec: &Spec, options: &RxOptions) -> Result<FilterPlan, PortError> {
    if options.filter.trim().is_empty() {
        let program = (options.snap != 0).then(|| vec![Insn::ret(options.snap)]);
        return Ok(FilterPlan { program, ..FilterPlan::default() });
    }
    let filter = Filter::compile(&options.filter, LinkType::ETHERNET.0)
        .map_err(|error| PortError::broken(spec.to_string(), error.to_string()))?;
    Ok(match filter.in_kernel(options.snap) {
        Ok(program) => FilterPlan {
            program: Some(program.into_insns()),
            applied: options.filter.clone(),
            notes: vec!["filter runs in the kernel, which does not count the packets that it rejects".into()],
        },
        Err(reason) => {
            FilterPlan { notes: vec![format!("filter runs in this process: {reason}")], ..FilterPlan::default() }
        }
    })
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
            group = Some(socket.join_fanout(group, libc::PACKET_FANOUT_CPU | ignore)?);
        }
        lanes.push((socket, ring));
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
