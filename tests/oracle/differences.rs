//! The differences that there may be, by name; `docs/tcp.md` says why.

use crate::oracle::said::{Block, Said};
use crate::oracle::script::{ACK, At, FIN, RST, SYN, Script, Segment, Stamp, Step, View};

/// What both said to a step, and what is known beside that.
pub(super) struct Both<'a> {
    pub script: &'a Script,
    /// Which step it is.
    pub number: usize,
    pub step: &'a Step,
    /// What the peer of ours knew before.
    pub before: &'a View,
    /// Which bytes of the stream ours has.
    pub there: &'a [bool],
    pub ours: Said,
    pub kernel: Said,
}

/// A difference that is known.
pub(super) struct Difference {
    pub name: &'static str,
    /// Both are in different states from here on.
    pub forks: bool,
    /// Makes both say the same, if it is this one.
    excuse: fn(&mut Both<'_>),
}

/// All of them.
pub(super) const DIFFERENCES: [Difference; 13] = [
    Difference { name: "late echo", forks: false, excuse: late_echo },
    Difference { name: "before the start", forks: false, excuse: before_the_beginning },
    Difference { name: "FIN in blocks", forks: false, excuse: end_in_blocks },
    Difference { name: "which blocks", forks: false, excuse: which_blocks },
    Difference { name: "order of checks", forks: false, excuse: acknowledgement_first },
    Difference { name: "old and empty", forks: false, excuse: old_and_empty },
    Difference { name: "reset of a half-open connection", forks: false, excuse: half_open_reset },
    Difference { name: "reset at the edge", forks: false, excuse: reset_at_the_edge },
    Difference { name: "reset after a block", forks: true, excuse: reset_behind_a_block },
    Difference { name: "bytes after a FIN", forks: true, excuse: bytes_behind_an_end },
    Difference { name: "no timestamp", forks: true, excuse: no_timestamp },
    Difference { name: "FIN without room", forks: true, excuse: end_without_room },
    Difference { name: CHANGED_BYTES, forks: false, excuse: |_| {} },
];

/// The name of the difference in bytes.
pub(super) const CHANGED_BYTES: &str = "changed bytes";

/// Which differences there are; nothing if they do not explain all.
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

/// The same for the first wrong bytes of ours and of the kernel's.
pub(super) fn of_bytes(ours: Option<usize>, kernel: Option<usize>) -> Option<&'static str> {
    (ours.is_none() && kernel.is_some()).then_some(CHANGED_BYTES)
}

impl Both<'_> {
    fn segment(&self) -> Option<Segment> {
        if let Step::Send(segment) = self.step { Some(*segment) } else { None }
    }

    /// Where its segment begins, for ours.
    fn at(&self) -> Option<i64> {
        self.segment().map(|segment| match segment.at {
            At::Stream(at) => at,
            At::Window(at) => self.before.edge + at - self.before.base,
        })
    }

    fn has(&self, flag: u16) -> bool {
        self.segment().is_some_and(|segment| segment.flags & flag != 0)
    }

    /// Whether an end was said to be here.
    fn is_end(&self, at: i64) -> bool {
        self.script.steps[..=self.number].iter().any(|step| match step {
            Step::Send(Segment { at: At::Stream(from), len, flags, .. }) => {
                flags & FIN != 0 && from + *len as i64 == at
            }
            _ => false,
        })
    }

    /// Where the first that was said is.
    fn first_end(&self) -> Option<i64> {
        self.script.steps[..=self.number].iter().find_map(|step| match step {
            Step::Send(Segment { at: At::Stream(from), len, flags, .. }) if flags & FIN != 0 => {
                Some(from + *len as i64)
            }
            _ => None,
        })
    }

    fn is_there(&self, (start, end): Block) -> bool {
        let (start, end) = (start + self.before.base, end + self.before.base);
        start < end
            && usize::try_from(start).is_ok_and(|start| {
                self.there.get(start..end as usize).is_some_and(|there| there.iter().all(|there| *there))
            })
    }
}

/// Of what comes again, or acknowledges too little, the kernel echoes the timestamp.
fn late_echo(both: &mut Both<'_>) {
    if both.kernel.echo > both.ours.echo && both.ours.echo.is_some() {
        both.kernel.echo = both.ours.echo;
    }
}

/// Bytes in front of the first are told as such that came again.
fn before_the_beginning(both: &mut Both<'_>) {
    if both.ours.again.is_empty() {
        both.kernel.again.retain(|(start, _)| *start >= 0);
    }
}

/// The number of a FIN counts as a byte in blocks.
fn end_in_blocks(both: &mut Both<'_>) {
    let shorter = |both: &Both<'_>, blocks: &[Block]| -> Vec<Block> {
        let cut = |(start, end): &Block| if both.is_end(end - 1) { (*start, end - 1) } else { (*start, *end) };
        blocks.iter().map(cut).filter(|(start, end)| start < end).collect()
    };
    if both.ours.blocks != both.kernel.blocks {
        both.kernel.blocks = shorter(both, &both.kernel.blocks);
    }
    if both.ours.again != both.kernel.again {
        both.kernel.again = shorter(both, &both.kernel.again);
    }
}

/// The kernel remembers four blocks, and those alone grow together.
fn which_blocks(both: &mut Both<'_>) {
    let [Some(first), Some(kernel_first)] = [both.ours.blocks.first(), both.kernel.blocks.first()] else { return };
    // What has just come has to be in the first.
    let is_good = |segment: &Segment| {
        segment.flags & (ACK | RST | SYN) == ACK && segment.ack == 0 && segment.stamp == Stamp::Fresh
    };
    let is_in = |at: i64| both.ours.blocks.iter().any(|(start, end)| (*start..*end).contains(&at));
    let is_new = both.segment().as_ref().is_some_and(is_good) && both.at().is_some_and(is_in);
    let is_same_range = !is_new || (first.0 <= kernel_first.0 && kernel_first.1 <= first.1);
    let is_whole = |(start, end): &Block| {
        both.is_there((*start, *end)) && !both.is_there((start - 1, *start)) && !both.is_there((*end, end + 1))
    };
    let kernel_is_right = both.kernel.blocks.iter().all(|block| both.is_there(*block));
    if is_same_range && kernel_is_right && both.ours.blocks.iter().all(is_whole) {
        both.kernel.blocks = both.ours.blocks.clone();
    }
}

/// What is empty and has an old timestamp the kernel takes for an acknowledgement that was overtaken.
fn old_and_empty(both: &mut Both<'_>) {
    let is_one = |segment: Segment| segment.len == 0 && matches!(segment.stamp, Stamp::Ago(_));
    if both.segment().is_some_and(is_one) && both.kernel == Said::default() {
        both.ours = Said::default();
    }
}

/// The kernel looks for what is acknowledged before it looks where a segment is.
fn acknowledgement_first(both: &mut Both<'_>) {
    let Some(segment) = both.segment() else { return };
    if !both.has(ACK | RST) && both.kernel == Said::default() {
        both.ours = Said::default();
    }
    if segment.ack != 0 && both.kernel.again.is_empty() {
        both.ours.again.clear();
    }
}

/// The kernel challenges it there, too.
fn half_open_reset(both: &mut Both<'_>) {
    if both.has(RST) && both.number == 1 && both.ours == Said::default() {
        both.kernel = Said::default();
    }
}

/// The kernel's window has one number more.
fn reset_at_the_edge(both: &mut Both<'_>) {
    let is_at_edge = both.at().is_some_and(|at| at + both.before.base == both.before.edge);
    if both.has(RST) && is_at_edge && both.ours == Said::default() && both.kernel.resets.is_empty() {
        both.kernel = Said::default();
    }
}

/// The kernel takes a reset for right at the end of what came last, too.
fn reset_behind_a_block(both: &mut Both<'_>) {
    let last = both.ours.blocks.iter().map(|(_, end)| *end).max();
    if both.has(RST) && both.at().is_some() && both.at() == last && both.kernel == Said::default() {
        both.ours = Said::default();
    }
}

/// The kernel forgets an end that does not fit what comes, or resets; here the first end counts.
fn bytes_behind_an_end(both: &mut Both<'_>) {
    let ours_ended = both.ours.ack.is_some_and(|ack| both.is_end(ack - 1));
    let goes_on = both.kernel.ack > both.ours.ack || both.kernel.ack.is_none();
    let first = both.first_end().unwrap_or(i64::MAX);
    let is_behind = |blocks: &[Block]| blocks.iter().any(|(_, end)| *end > first);
    let is_told = is_behind(&both.kernel.blocks) && !is_behind(&both.ours.blocks);
    if (ours_ended && goes_on || is_told) && both.segment().is_some_and(|segment| segment.len > 0) {
        both.kernel = both.ours.clone();
    }
}

/// The kernel takes segments without one.
fn no_timestamp(both: &mut Both<'_>) {
    let is_missing = both.segment().is_some_and(|segment| segment.stamp == Stamp::Missing);
    if is_missing && both.before.has_stamps && both.ours == Said::default() {
        both.kernel = Said::default();
    }
}

/// The kernel drops a FIN where the window is closed, and says nothing.
fn end_without_room(both: &mut Both<'_>) {
    if both.has(FIN) && both.before.edge == both.before.next && both.kernel == Said::default() {
        both.ours = Said::default();
    }
}
