//! Options of a port, checked before anything is opened; and the filter in the kernel.

use super::direction::Direction;
use super::receive::Timing;
use crate::sys::packet_ring::{Layout, SLOT_BLOCK, SLOT_OVERHEAD};
use crate::sys::packet_socket::PacketSocket;
use linerate_burst::LinkType;
use linerate_filter::program::{MAX_INSNS, code};
use linerate_filter::{Filter, Insn, REFUSE_TAGGED};
use linerate_port::{PortError, RxOptions, Spec};
use rustix::time::{ClockId, clock_getres};
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

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
/// Memory of a ring of slots, per lane: 8,192 frames of Ethernet's MTU.
const SLOTS_BYTES: u64 = 16 << 20;
/// Covers a softirq that stores frames of several queues.
const SLOT_LAG: Duration = Duration::from_millis(1);
/// Link headers of a frame of MTU length: Ethernet and two VLAN tags.
pub(super) const LINK_OVERHEAD: u32 = 14 + 8;
/// Smallest slot.
const LEAST_SLOT: u32 = 2048;
/// Lead of a card's timestamp over the kernel's: interrupt coalescing and a softirq are between them.
const CARD_LEAD: Duration = Duration::from_millis(5);

pub(super) struct PacketConfig {
    pub lanes: u32,
    pub layout: Layout,
    pub timing: Timing,
    pub filter: FilterPlan,
    pub direction: Direction,
    /// True if the card stamps frames.
    pub by_card: bool,
    /// Memory per lane for slots, and the lag with them, if frames must be visible at once.
    slots: Option<(u64, Duration)>,
}

/// The filter in the kernel.
#[derive(Default)]
pub(super) struct FilterPlan {
    /// The program, which also truncates frames to the snap length.
    program: Option<Vec<Insn>>,
    /// The filter text, if the program applies all of it.
    pub applied: String,
    pub notes: Vec<String>,
}

impl PacketConfig {
    pub(super) fn read(spec: &Spec, options: &RxOptions) -> Result<Self, PortError> {
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
        let early = if options.lag.is_none() && by_card { CARD_LEAD } else { Duration::ZERO };
        // Maximum time from a frame's timestamp until it is visible.
        let lag = |asked: Duration| asked + early;
        // block= and timeout= select blocks.
        let by_slots = options.prompt && spec.option("block").is_none() && spec.option("timeout").is_none();
        if ring > asked && !by_slots {
            filter.notes.push(format!("ring= raised to {} KiB: {lanes} lanes need two blocks each", ring >> 10));
        }
        Ok(PacketConfig {
            lanes: lanes as u32,
            layout: Layout {
                block_bytes: block as u32,
                blocks: (ring / lanes / block).max(2) as u32,
                timeout_ms: Some(timeout_ms as u32),
            },
            timing: Timing {
                lag: lag(options.lag.unwrap_or(LAG).max(block_timeout + Duration::from_millis(1))),
                block_timeout,
            },
            filter,
            direction: Direction::read(spec, options)?,
            by_card,
            slots: by_slots.then(|| {
                (spec.option("ring").map_or(SLOTS_BYTES, |_| asked / lanes), lag(options.lag.unwrap_or(SLOT_LAG)))
            }),
        })
    }

    /// Adapts the ring to an interface: slots for frames that must be visible at once.
    pub(super) fn fit(&mut self, mtu: u32) {
        let slot = (mtu.saturating_add(LINK_OVERHEAD + SLOT_OVERHEAD)).next_power_of_two().max(LEAST_SLOT);
        if let Some((bytes, lag)) = self.slots.filter(|_| slot <= SLOT_BLOCK) {
            let blocks = (bytes / u64::from(SLOT_BLOCK)).max(1) as u32;
            self.layout = Layout { block_bytes: slot, blocks: blocks * (SLOT_BLOCK / slot), timeout_ms: None };
            self.timing = Timing { lag, block_timeout: Duration::ZERO };
        }
    }
}

impl FilterPlan {
    /// Returns the number of kernel filters of a queue: sockets do not count rejected packets.
    pub(super) fn rejects_uncounted(&self) -> u64 {
        u64::from(!self.applied.is_empty())
    }

    /// Attaches the filter to a socket, for frames of a direction; without the program if it is too long for the
    /// kernel.
    pub(super) fn attach_to(&mut self, socket: &PacketSocket, direction: Direction) -> io::Result<()> {
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
    pub(super) fn attach_untagged_to(&mut self, socket: &PacketSocket, tagged: u32) -> io::Result<()> {
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
