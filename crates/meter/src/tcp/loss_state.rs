//! Optional TCP state: holes, retransmissions, duplicate acknowledgements. Allocated when first needed, and reused.

use super::record::{TROUBLE, beyond, units};

/// Optional state of one flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    pub sides: [Side; 2],
}

/// Optional state of one side: counters saturate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Side {
    /// The newest is the last one; `open` is the number of those before it.
    holes: [Hole; HOLES],
    open: u32,
    /// Repeated acknowledgement number of this side's bytes, the number of repetitions, and the time of the last, ns.
    repeated: u32,
    repeats: u32,
    repeated_at: u64,
    /// Bytes of holes that were discarded.
    pub lost_bytes: u64,
    pub retransmitted_bytes: u64,
    pub timeout: u32,
    pub fast: u32,
    pub spurious: u32,
    pub unseen: u32,
    pub out_of_order: u32,
    pub copies: u32,
    pub duplicate_acks: u32,
    pub keep_alives: u32,
    pub window_probes: u32,
    pub zero_windows: u32,
    pub gaps: u32,
    /// Segments with payload that was seen before; packets with a wrong checksum.
    pub again: u32,
    pub bad: u32,
}

/// Sequence numbers that were not seen, and the time since which later ones were, in units of 1,024 ns.
#[derive(Clone, Copy, Debug, Default)]
struct Hole {
    start: u32,
    end: u32,
    since: u32,
}

/// Maximum number of holes per side.
const HOLES: usize = 4;
/// Number of duplicate acknowledgements, and maximum age of the last of them, that make a retransmission a fast one.
const REPEATS: u32 = 2;
const FAST: u64 = 20_000_000;

impl Side {
    /// Opens a hole from `start` to `end`, after all other holes; if there are too many, the oldest is discarded.
    pub(super) fn open(&mut self, start: u32, end: u32, now: u32) {
        let hole = Hole { start, end, since: now };
        self.put(self.open as usize, hole);
    }

    /// Returns the number of bytes from `start` to `end` that are in holes.
    pub(super) fn in_holes(&self, start: u32, end: u32) -> u32 {
        self.known().iter().filter_map(|hole| hole.overlap(start, end)).map(|(start, end)| end - start).sum()
    }

    /// Returns the time of the oldest hole with some of the bytes from `start` to `end`; removes them from holes.
    pub(super) fn fill(&mut self, start: u32, end: u32) -> Option<u32> {
        let mut oldest = None;
        let mut place = 0;
        while place < self.open as usize {
            let hole = self.holes[place];
            let Some((from, to)) = hole.overlap(start, end) else {
                place += 1;
                continue;
            };
            oldest = oldest.or(Some(hole.since));
            let before = Hole { end: start.wrapping_add(from), ..hole };
            let behind = Hole { start: start.wrapping_add(to), ..hole };
            self.remove(place);
            let rest = [before, behind].into_iter().filter(|hole| hole.bytes() > 0);
            for hole in rest {
                place = self.put(place, hole);
            }
        }
        oldest
    }

    /// Discards holes further than `far` below `next`, before they would appear to be above.
    pub(super) fn discard_far(&mut self, next: u32, far: u32) {
        while self.open > 0 && next.wrapping_sub(self.holes[0].end) > far {
            self.lose();
        }
        if self.open > 0 {
            let hole = &mut self.holes[0];
            let beyond = next.wrapping_sub(hole.start).saturating_sub(far);
            hole.start = hole.start.wrapping_add(beyond);
            self.lost_bytes += u64::from(beyond);
        }
    }

    /// Discards all holes.
    pub(super) fn forget(&mut self) {
        while self.open > 0 {
            self.lose();
        }
    }

    /// Returns the number of bytes that were never seen.
    pub(super) fn gap_bytes(&self) -> u64 {
        self.lost_bytes + self.known().iter().map(|hole| u64::from(hole.bytes())).sum::<u64>()
    }

    /// Counts a duplicate acknowledgement.
    pub(super) fn repeat(&mut self, number: u32, time: u64) {
        let is_same = self.repeats > 0 && self.repeated == number;
        self.repeats = if is_same { self.repeats.saturating_add(1) } else { 1 };
        self.repeated = number;
        self.repeated_at = time;
    }

    /// Returns whether a segment that begins here was requested by duplicate acknowledgements.
    pub(super) fn is_fast(&self, start: u32, time: u64) -> bool {
        self.repeats >= REPEATS && self.repeated == start && time.saturating_sub(self.repeated_at) <= FAST
    }

    fn known(&self) -> &[Hole] {
        &self.holes[..self.open as usize]
    }

    /// Inserts a hole before the one at `place`; returns the new place of that one.
    fn put(&mut self, place: usize, hole: Hole) -> usize {
        let place = if self.open as usize == HOLES {
            if place == 0 {
                self.lost_bytes += u64::from(hole.bytes());
                return 0;
            }
            self.lose();
            place - 1
        } else {
            place
        };
        self.holes.copy_within(place..self.open as usize, place + 1);
        self.holes[place] = hole;
        self.open += 1;
        place + 1
    }

    fn lose(&mut self) {
        self.lost_bytes += u64::from(self.holes[0].bytes());
        self.remove(0);
    }

    fn remove(&mut self, place: usize) {
        self.holes.copy_within(place + 1..self.open as usize, place);
        self.open -= 1;
    }
}

impl Hole {
    fn bytes(&self) -> u32 {
        self.end.wrapping_sub(self.start)
    }

    /// Returns the part of the hole that is from `start` to `end`, as offsets from `start`.
    fn overlap(&self, start: u32, end: u32) -> Option<(u32, u32)> {
        let length = end.wrapping_sub(start) as i32;
        let from = beyond(self.start, start).clamp(0, length);
        let to = beyond(self.end, start).clamp(0, length);
        (from < to).then_some((from as u32, to as u32))
    }
}

/// Returns whether a hole that is filled now was open for at most `patience` units.
pub(crate) fn is_prompt(since: u32, time: u64, patience: u32) -> bool {
    units(time).wrapping_sub(since) as i32 <= patience as i32
}

/// The troubles of all flows, in chunks that never move.
#[derive(Default)]
pub(crate) struct Troubles {
    chunks: Vec<Vec<Trouble>>,
    /// The first one that is free; it links to the next.
    free: Option<u32>,
}

const CHUNK: usize = 1024;
/// Link of the last one that is free.
const LAST: u32 = u32::MAX;

impl Troubles {
    /// Returns the trouble of a flow with this number; allocates one if it has none yet.
    pub(super) fn of(&mut self, number: &mut u32) -> &mut Trouble {
        if *number & TROUBLE == TROUBLE {
            *number = *number & !TROUBLE | self.allocate();
        }
        let place = (*number & TROUBLE) as usize;
        &mut self.chunks[place / CHUNK][place % CHUNK]
    }

    /// Returns the trouble of a flow that has one.
    pub(super) fn get(&mut self, number: u32) -> Option<&mut Trouble> {
        let place = (number & TROUBLE) as usize;
        self.chunks.get_mut(place / CHUNK)?.get_mut(place % CHUNK)
    }

    /// Returns the trouble of a flow that has one, read-only.
    pub(super) fn look(&self, number: u32) -> Option<&Trouble> {
        let place = (number & TROUBLE) as usize;
        self.chunks.get(place / CHUNK)?.get(place % CHUNK)
    }

    /// Removes and returns the trouble of a flow.
    pub(super) fn take(&mut self, number: u32) -> Option<Trouble> {
        let before = self.free;
        let trouble = self.get(number)?;
        let taken = *trouble;
        trouble.sides[0].repeated = before.unwrap_or(LAST);
        self.free = Some(number & TROUBLE);
        Some(taken)
    }

    fn allocate(&mut self) -> u32 {
        const NONE: Trouble = Trouble { sides: [Side::NONE; 2] };
        if let Some(number) = self.free
            && let Some(trouble) = self.get(number)
        {
            let next = trouble.sides[0].repeated;
            *trouble = NONE;
            self.free = (next != LAST).then_some(next);
            return number;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let chunk = self.chunks.len() - 1;
        self.chunks[chunk].push(NONE);
        (chunk * CHUNK + self.chunks[chunk].len() - 1) as u32
    }
}

impl Side {
    const NONE: Side = Side {
        holes: [Hole { start: 0, end: 0, since: 0 }; HOLES],
        open: 0,
        repeated: 0,
        repeats: 0,
        repeated_at: 0,
        lost_bytes: 0,
        retransmitted_bytes: 0,
        timeout: 0,
        fast: 0,
        spurious: 0,
        unseen: 0,
        out_of_order: 0,
        copies: 0,
        duplicate_acks: 0,
        keep_alives: 0,
        window_probes: 0,
        zero_windows: 0,
        gaps: 0,
        again: 0,
        bad: 0,
    };
}
