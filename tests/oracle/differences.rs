//! Permitted differences, by name; `docs/tcp.md` gives the reasons.

use crate::oracle::replies::{Answers, Block};
use crate::oracle::script::{ACK, At, FIN, RST, SYN, Script, Segment, Stamp, Step, View};

/// Answers of both receivers to a step, with its context.
pub(super) struct Both<'a> {
    pub script: &'a Script,
    /// Index of the step.
    pub number: usize,
    pub step: &'a Step,
    /// State of the peer of `ours` before the step.
    pub before: &'a View,
    /// Bytes of the stream that `ours` has received.
    pub received: &'a [bool],
    pub ours: Answers,
    pub kernel: Answers,
}

/// Known difference.
pub(super) struct Difference {
    pub name: &'static str,
    /// The states differ from here on, so the script stops.
    pub forks: bool,
    /// Makes the answers equal if they differ in this way.
    excuse: fn(&mut Both<'_>),
}

/// All known differences, in the order of `docs/tcp.md`.
pub(super) const DIFFERENCES: [Difference; 13] = [
    Difference { name: "late echo", forks: false, excuse: late_echo },
    Difference { name: "before the start", forks: false, excuse: before_the_start },
    Difference { name: "FIN in blocks", forks: false, excuse: fin_in_blocks },
    Difference { name: "which blocks", forks: false, excuse: which_blocks },
    Difference { name: "order of checks", forks: false, excuse: acknowledgement_first },
    Difference { name: "old and empty", forks: false, excuse: old_and_empty },
    Difference { name: "reset of a half-open connection", forks: false, excuse: half_open_reset },
    Difference { name: "reset at the edge", forks: false, excuse: reset_at_the_edge },
    Difference { name: "reset after a block", forks: true, excuse: reset_after_a_block },
    Difference { name: "bytes after a FIN", forks: true, excuse: bytes_after_a_fin },
    Difference { name: "no timestamp", forks: true, excuse: no_timestamp },
    Difference { name: "FIN without room", forks: true, excuse: fin_without_room },
    Difference { name: CHANGED_BYTES, forks: false, excuse: |_| {} },
];

/// Name of the difference in received bytes.
pub(super) const CHANGED_BYTES: &str = "changed bytes";

/// Returns the differences found; `None` if they do not explain everything.
pub(super) fn of(mut both: Both<'_>) -> Option<Vec<&'static Difference>> {
    let mut found = Vec::new();
    for difference in &DIFFERENCES {
        let before = (both.ours.clone(), both.kernel.clone());
        if before.0 == before.1 {
            break;
        }
        (difference.excuse)(&mut both);
        if before.0 != both.ours || before.1 != both.kernel {
            found.push(difference);
        }
    }
    (both.ours == both.kernel).then_some(found)
}

/// Returns the difference for the first wrong bytes of both.
pub(super) fn of_bytes(ours: Option<usize>, kernel: Option<usize>) -> Option<&'static str> {
    (ours.is_none() && kernel.is_some()).then_some(CHANGED_BYTES)
}

impl Both<'_> {
    fn segment(&self) -> Option<Segment> {
        if let Step::Send(segment) = self.step { Some(*segment) } else { None }
    }

    /// Returns the offset of the segment, for `ours`.
    fn at(&self) -> Option<i64> {
        self.segment().map(|segment| match segment.at {
            At::Stream(at) => at,
            At::Window(at) => self.before.edge + at - self.before.base,
        })
    }

    fn has(&self, flag: u16) -> bool {
        self.segment().is_some_and(|segment| segment.flags & flag != 0)
    }

    /// Returns true if a FIN of the script is here.
    fn is_fin(&self, at: i64) -> bool {
        self.script.steps[..=self.number].iter().any(|step| match step {
            Step::Send(Segment { at: At::Stream(from), len, flags, .. }) => {
                flags & FIN != 0 && from + *len as i64 == at
            }
            _ => false,
        })
    }

    /// Returns the offset of the first FIN of the script.
    fn first_fin(&self) -> Option<i64> {
        self.script.steps[..=self.number].iter().find_map(|step| match step {
            Step::Send(Segment { at: At::Stream(from), len, flags, .. }) if flags & FIN != 0 => {
                Some(from + *len as i64)
            }
            _ => None,
        })
    }

    fn is_received(&self, (start, end): Block) -> bool {
        let (start, end) = (start + self.before.base, end + self.before.base);
        start < end
            && usize::try_from(start).is_ok_and(|start| {
                self.received.get(start..end as usize).is_some_and(|received| received.iter().all(|received| *received))
            })
    }
}

/// The kernel echoes the timestamp of duplicates and of segments that acknowledge too little.
fn late_echo(both: &mut Both<'_>) {
    if both.kernel.echo > both.ours.echo && both.ours.echo.is_some() {
        both.kernel.echo = both.ours.echo;
    }
}

/// The kernel reports bytes before the first one as duplicates.
fn before_the_start(both: &mut Both<'_>) {
    if both.ours.duplicates.is_empty() {
        both.kernel.duplicates.retain(|(start, _)| *start >= 0);
    }
}

/// The kernel counts a FIN as a byte in blocks.
fn fin_in_blocks(both: &mut Both<'_>) {
    let shorter = |both: &Both<'_>, blocks: &[Block]| -> Vec<Block> {
        let cut = |(start, end): &Block| if both.is_fin(end - 1) { (*start, end - 1) } else { (*start, *end) };
        blocks.iter().map(cut).filter(|(start, end)| start < end).collect()
    };
    if both.ours.blocks != both.kernel.blocks {
        both.kernel.blocks = shorter(both, &both.kernel.blocks);
    }
    if both.ours.duplicates != both.kernel.duplicates {
        both.kernel.duplicates = shorter(both, &both.kernel.duplicates);
    }
}

/// The kernel remembers four blocks, and merges only those.
fn which_blocks(both: &mut Both<'_>) {
    let [Some(first), Some(kernel_first)] = [both.ours.blocks.first(), both.kernel.blocks.first()] else { return };
    // The first block has to contain the segment just received.
    let is_good = |segment: &Segment| {
        segment.flags & (ACK | RST | SYN) == ACK && segment.ack == 0 && segment.stamp == Stamp::Fresh
    };
    let is_in = |at: i64| both.ours.blocks.iter().any(|(start, end)| (*start..*end).contains(&at));
    let is_new = both.segment().as_ref().is_some_and(is_good) && both.at().is_some_and(is_in);
    let is_same_range = !is_new || (first.0 <= kernel_first.0 && kernel_first.1 <= first.1);
    let is_whole = |(start, end): &Block| {
        both.is_received((*start, *end)) && !both.is_received((start - 1, *start)) && !both.is_received((*end, end + 1))
    };
    let kernel_is_right = both.kernel.blocks.iter().all(|block| both.is_received(*block));
    if is_same_range && kernel_is_right && both.ours.blocks.iter().all(is_whole) {
        both.kernel.blocks = both.ours.blocks.clone();
    }
}

/// The kernel treats an empty segment with an old timestamp as a reordered acknowledgement.
fn old_and_empty(both: &mut Both<'_>) {
    let is_one = |segment: Segment| segment.len == 0 && matches!(segment.stamp, Stamp::Ago(_));
    if both.segment().is_some_and(is_one) && both.kernel == Answers::default() {
        both.ours = Answers::default();
    }
}

/// The kernel checks the acknowledgement before the sequence number.
fn acknowledgement_first(both: &mut Both<'_>) {
    let Some(segment) = both.segment() else { return };
    if !both.has(ACK | RST) && both.kernel == Answers::default() {
        both.ours = Answers::default();
    }
    if segment.ack != 0 && both.kernel.duplicates.is_empty() {
        both.ours.duplicates.clear();
    }
}

/// The kernel also challenges a reset of a half-open connection.
fn half_open_reset(both: &mut Both<'_>) {
    if both.has(RST) && both.number == 1 && both.ours == Answers::default() {
        both.kernel = Answers::default();
    }
}

/// The kernel's window has one more sequence number.
fn reset_at_the_edge(both: &mut Both<'_>) {
    let is_at_edge = both.at().is_some_and(|at| at + both.before.base == both.before.edge);
    if both.has(RST) && is_at_edge && both.ours == Answers::default() && both.kernel.resets.is_empty() {
        both.kernel = Answers::default();
    }
}

/// The kernel also accepts a reset right at the end of the last block.
fn reset_after_a_block(both: &mut Both<'_>) {
    let last = both.ours.blocks.iter().map(|(_, end)| *end).max();
    if both.has(RST) && both.at().is_some() && both.at() == last && both.kernel == Answers::default() {
        both.ours = Answers::default();
    }
}

/// The kernel forgets a FIN that contradicts later bytes, or resets; in linerate the first FIN counts.
fn bytes_after_a_fin(both: &mut Both<'_>) {
    let ours_finished = both.ours.ack.is_some_and(|ack| both.is_fin(ack - 1));
    let kernel_continues = both.kernel.ack > both.ours.ack || both.kernel.ack.is_none();
    let first = both.first_fin().unwrap_or(i64::MAX);
    let is_after = |blocks: &[Block]| blocks.iter().any(|(_, end)| *end > first);
    let is_reported = is_after(&both.kernel.blocks) && !is_after(&both.ours.blocks);
    if (ours_finished && kernel_continues || is_reported) && both.segment().is_some_and(|segment| segment.len > 0) {
        both.kernel = both.ours.clone();
    }
}

/// The kernel accepts segments without a timestamp.
fn no_timestamp(both: &mut Both<'_>) {
    let is_missing = both.segment().is_some_and(|segment| segment.stamp == Stamp::Missing);
    if is_missing && both.before.has_stamps && both.ours == Answers::default() {
        both.kernel = Answers::default();
    }
}

/// The kernel drops a FIN without an answer if the window is closed.
fn fin_without_room(both: &mut Both<'_>) {
    if both.has(FIN) && both.before.edge == both.before.next && both.kernel == Answers::default() {
        both.ours = Answers::default();
    }
}
