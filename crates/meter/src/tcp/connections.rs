//! TCP state of all flows of a meter.

use super::history::Histories;
use super::loss_state::{Side, Troubles};
use super::record::{ColdSide, Hot, NO_TIME, Record, SACK, TIMESTAMPS};
use super::slow_path::SlowPath;
use super::state::{is_established, state_of};
use super::{Retransmitted, Rtt, Tcp, TcpSide};
use crate::facts::Facts;
use crate::pages::{self, Pages};
use linerate_burst::{prefetch_many, resident};

/// Indexed by the number of the flow's record; empty below level `tcp`.
pub(crate) struct Connections {
    records: Vec<Record>,
    tables: SideTables,
}

/// Optional parts that few flows have.
#[derive(Default)]
pub(super) struct SideTables {
    pub troubles: Troubles,
    pub histories: Histories,
    pub round_trips: RoundTrips,
}

/// Bytes of a flow, and additional bytes of one with a `Trouble`.
pub(crate) const BYTES: usize = size_of::<Record>();
pub(crate) const TROUBLE_BYTES: usize = size_of::<super::loss_state::Trouble>();

/// Maximum number of optional bytes per flow, without `Trouble`.
pub(crate) const RARE_BYTES: usize = super::history::RARE_BYTES + pages::bytes::<[Sums; 2]>();

const _: () = assert!(TROUBLE_BYTES <= 320);

impl Connections {
    /// Allocates memory for `flows` flows.
    pub(crate) fn new(flows: usize) -> Self {
        Connections { records: resident(flows), tables: SideTables::default() }
    }

    /// Returns whether the level is below `tcp`.
    #[inline(always)]
    pub(crate) fn is_off(&self) -> bool {
        self.records.capacity() == 0
    }

    /// Prefetches the memory that the next packet of a flow needs.
    #[inline(always)]
    pub(crate) fn prefetch(&self, record: u32) {
        if let Some(record) = self.records.get(record as usize) {
            prefetch_many(&record.hot);
            prefetch_many(&record.cold);
        }
    }

    /// Starts a record; `before` is the state carried over from the previous one.
    pub(crate) fn begin(&mut self, number: u32, before: Option<Record>) {
        let record = before.unwrap_or(Record::NEW);
        if self.is_off() {
            return;
        }
        match self.records.get_mut(number as usize) {
            Some(place) => *place = record,
            None => self.records.push(record),
        }
    }

    /// Returns the state to carry over when a record ends before its connection does.
    pub(crate) fn carried(&self, number: u32, originator: usize) -> Option<Record> {
        let Record { hot, cold } = self.records.get(number as usize)?;
        let mut carried = Record { hot: hot.carried(), ..Record::NEW };
        carried.cold.sides = [0, 1].map(|side| cold.sides[side].carried());
        if is_established([hot.marks[originator], hot.marks[originator ^ 1]]) {
            carried.hot.note_established(originator);
        }
        Some(carried)
    }

    /// Returns whether the other end would accept this FIN or RST; true where sequence numbers are not known.
    pub(crate) fn accepts_end(&self, number: u32, facts: &Facts) -> bool {
        self.records.get(number as usize).is_none_or(|record| record.accepts_end(facts))
    }

    /// Returns whether a SYN belongs to the connection seen so far; false where sequence numbers are not known.
    pub(crate) fn is_late_syn(&self, number: u32, facts: &Facts) -> bool {
        self.records.get(number as usize).is_some_and(|record| record.is_late_syn(facts))
    }

    /// Takes a packet with a TCP header.
    #[inline(always)]
    pub(crate) fn take(&mut self, number: u32, facts: &Facts) {
        if let Some(record) = self.records.get_mut(number as usize)
            && !record.take_fast(facts)
        {
            self.take_any(number, facts);
        }
    }

    /// Takes a packet on the slow path.
    #[inline(never)]
    pub(crate) fn take_any(&mut self, number: u32, facts: &Facts) {
        if let Some(record) = self.records.get_mut(number as usize) {
            SlowPath::new(number, record, &mut self.tables, facts).take();
        }
    }

    /// Returns the retransmitted segments of each end so far.
    pub(crate) fn retransmitted(&self, number: u32) -> [u64; 2] {
        let record = self.records.get(number as usize);
        let trouble = record.and_then(|record| self.tables.troubles.look(record.hot.trouble));
        let segments =
            |side: &Side| [side.timeout, side.fast, side.spurious, side.unseen].into_iter().map(u64::from).sum();
        trouble.map_or([0; 2], |trouble| trouble.sides.each_ref().map(segments))
    }

    /// Returns the analysis of a record that ends, and frees it.
    pub(crate) fn end(&mut self, number: u32, originator: usize) -> Option<Tcp> {
        let Record { hot, cold } = *self.records.get(number as usize)?;
        let troubles = self.tables.troubles.take(hot.trouble).map(|trouble| trouble.sides).unwrap_or_default();
        let is_scaled = hot.scale(0).is_some() && hot.scale(1).is_some();
        let carried = self.tables.round_trips.0.take(number);
        let mut sides = [0, 1].map(|side| {
            let rtt = carried[side].with(&cold.sides[side]);
            side_of(&hot, side, &cold.sides[side], &troubles[side], is_scaled, rtt)
        });
        sides.rotate_left(originator);
        let time = |units: u32| (units != NO_TIME).then_some(u64::from(units) << 10);
        Some(Tcp {
            state: state_of([hot.marks[originator], hot.marks[originator ^ 1]]),
            history: self.tables.histories.take(number, hot.history, originator),
            syn_to_syn_ack: time(hot.handshake[0]),
            syn_ack_to_ack: time(hot.handshake[1]),
            sides,
        })
    }
}

fn side_of(hot: &Hot, side: usize, cold: &ColdSide, trouble: &Side, is_scaled: bool, rtt: Rtt) -> TcpSide {
    let shift = if is_scaled { hot.scale(side).unwrap_or(0) } else { 0 };
    let windows = if cold.windows[0] > cold.windows[1] { [0; 2] } else { cold.windows };
    TcpSide {
        isn: hot.has_seen_syn(side).then_some(cold.isn),
        mss: Some(cold.mss).filter(|mss| *mss != 0),
        window_scale: hot.scale(side),
        sack_permitted: hot.trouble & SACK << side != 0,
        timestamps: hot.trouble & TIMESTAMPS << side != 0,
        window: windows.map(|window| u32::from(window) << shift),
        zero_windows: trouble.zero_windows.into(),
        rtt,
        retransmitted: Retransmitted {
            timeout: trouble.timeout.into(),
            fast: trouble.fast.into(),
            spurious: trouble.spurious.into(),
            unseen: trouble.unseen.into(),
        },
        retransmitted_bytes: trouble.retransmitted_bytes,
        out_of_order: trouble.out_of_order.into(),
        copies: trouble.copies.into(),
        duplicate_acks: trouble.duplicate_acks.into(),
        keep_alives: trouble.keep_alives.into(),
        window_probes: trouble.window_probes.into(),
        gaps: trouble.gaps.into(),
        gap_bytes: trouble.gap_bytes(),
    }
}

/// Overflow of round trips from the records.
#[derive(Default)]
pub(super) struct RoundTrips(Pages<[Sums; 2]>);

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: u64,
    sum: u64,
    squares: u128,
}

impl RoundTrips {
    /// Adds the sums of a side, not its extremes.
    pub(super) fn carry(&mut self, number: u32, side: usize, cold: &mut ColdSide) {
        self.0.at(number)[side & 1].add(cold);
        (cold.count, cold.sum, cold.squares) = (0, 0, 0);
    }
}

impl Sums {
    /// Returns all round trips of a side, including those in its record.
    fn with(mut self, cold: &ColdSide) -> Rtt {
        let sums = &mut self;
        sums.add(cold);
        if sums.count == 0 {
            return Rtt::default();
        }
        let (count, sum) = (u128::from(sums.count), u128::from(sums.sum));
        let spread = sums.squares.saturating_mul(count).saturating_sub(sum * sum);
        let nanoseconds = |units: u32| u64::from(units) << 10;
        Rtt {
            count: sums.count,
            min: nanoseconds(cold.least),
            max: nanoseconds(cold.most),
            mean: sum as f64 / count as f64 * 1024.0,
            deviation: (spread as f64).sqrt() / count as f64 * 1024.0,
        }
    }

    fn add(&mut self, cold: &ColdSide) {
        self.count += u64::from(cold.count);
        self.sum += u64::from(cold.sum);
        self.squares += u128::from(cold.squares);
    }
}
