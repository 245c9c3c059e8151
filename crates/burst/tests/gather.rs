//! Frames gathered from many lanes are laid out as if each had been pushed.

use linerate_burst::{Block, Burst, Desc, FinishDesc, Flags, FrameIndex, Layout, Memory, Nanos, RECORD_HEADER, TAIL};
use proptest::prelude::*;

/// The recipe of a frame: everything but its length and its time comes from `seed`.
#[derive(Clone, Copy, Debug)]
struct Frame {
    length: usize,
    time: u64,
    seed: u32,
}

/// The frames of a lane, back to back or anywhere.
#[derive(Clone, Debug)]
struct Lane {
    frames: Vec<Frame>,
    scattered: bool,
}

impl Lane {
    /// Returns the memory of the lane, which ends with the required [`TAIL`] bytes, and its descs.
    fn lay(&self) -> (Vec<u8>, Vec<Desc>) {
        let mut order: Vec<usize> = (0..self.frames.len()).collect();
        if self.scattered {
            order.sort_by_key(|index| self.frames[*index].seed);
        }
        let gap = if self.scattered { 3000 } else { 20 };
        let mut memory = Vec::new();
        let mut descs = vec![Desc::new(Nanos::ZERO, 0, 0); self.frames.len()];
        for index in order {
            let Frame { length, time, seed } = self.frames[index];
            memory.resize(memory.len() + seed as usize % gap, 0xee);
            descs[index] = Desc {
                wire: length as u32 + seed % 3,
                interface: seed as u16,
                // Another test covers FCS.
                flags: Flags(seed as u16 >> 3).without(Flags::FCS),
                l3: 14,
                l4: 34,
                note: (seed >> 5) as u16,
                hash: seed,
                ..Desc::new(Nanos(time), memory.len() as u32, length as u32)
            };
            memory.extend((0..length).map(|at| (seed as usize + at * 7) as u8));
        }
        memory.resize(memory.len() + TAIL, 0xee);
        (memory, descs)
    }
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![2 => Just(0usize), 4 => 59usize..66, 2 => 127usize..130, 3 => 0usize..4001]
}

fn time() -> impl Strategy<Value = u64> {
    const SECOND: u64 = 1_000_000_000;
    let near = |seconds: u64| (seconds * SECOND - 2)..(seconds * SECOND + 2);
    prop_oneof![
        3 => near(1_700_000_000),
        3 => near(1_700_000_001),
        2 => 0u64..3,
        // The end of 32-bit seconds, then of all seconds.
        2 => near(1 << 32),
        2 => u64::MAX - 2..=u64::MAX,
        1 => near(u64::MAX / SECOND),
        1 => any::<u64>(),
    ]
}

fn lane() -> impl Strategy<Value = Lane> {
    let frame = (length(), time(), any::<u32>()).prop_map(|(length, time, seed)| Frame { length, time, seed });
    let frames = prop::collection::vec(frame, 1..60);
    (frames, any::<bool>()).prop_map(|(frames, scattered)| Lane { frames, scattered })
}

/// Changes some frames, truncates some, omits some, depending only on the frame and its pick.
struct Change;

impl FinishDesc for Change {
    fn finish(&mut self, desc: &mut Desc, frame: &[u8], pick: FrameIndex) -> bool {
        assert_eq!(frame.len(), desc.captured as usize, "the whole frame is shown");
        if pick.is_late() {
            desc.flags |= Flags::LATE;
        }
        match desc.hash % 16 {
            0 => return false,
            1 => desc.captured = frame.len() as u32 / 2,
            2 => desc.captured = 0,
            // A frame cannot become longer, nor move.
            3 => (desc.captured, desc.offset) = (desc.captured + 1000, 7),
            4 => (desc.time, desc.interface) = (Nanos(desc.time.0 ^ 1 << 63), frame.len() as u16),
            5 => desc.hash = frame.iter().map(|byte| u32::from(*byte)).sum(),
            _ => {}
        }
        true
    }
}

/// Returns the part of a frame that the same `finish` keeps.
fn finished<'a>(lanes: &[Burst<'a>], pick: FrameIndex, finish: &mut impl FinishDesc) -> Option<(Desc, &'a [u8])> {
    let lane = &lanes[pick.lane()];
    let (mut desc, frame) = (lane.descs()[pick.index()], lane.frame(pick.index()));
    let kept = finish.finish(&mut desc, frame, pick);
    kept.then(|| (desc, &frame[..frame.len().min(desc.captured as usize)]))
}

/// The sizes of the first block, and of all that follow it.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Descs.
    frames: usize,
    /// Room for this many of the next picks, plus or minus some bytes.
    picks: usize,
    more: isize,
}

/// Gathers `picks` into one block after the other, as the room in each ends.
fn check(lanes: &[Lane], mut picks: &[FrameIndex], room: Room, finish: &mut impl FinishDesc) {
    let laid: Vec<_> = lanes.iter().map(Lane::lay).collect();
    let lanes: Vec<Burst<'_>> = laid.iter().map(|(memory, descs)| Burst::over(memory, descs).unwrap()).collect();
    let source = |pick: &FrameIndex| (lanes[pick.lane()].descs()[pick.index()], lanes[pick.lane()].frame(pick.index()));
    let longest = picks.iter().map(|pick| source(pick).1.len()).max().unwrap_or_default();

    let layout = Layout::of(0, room.frames).unwrap();
    let block = || Block::over(Memory::private(layout));
    let (mut gathered, mut pushed) = (block(), block());
    while !picks.is_empty() {
        // A first frame leaves exactly the wanted room.
        let kept = picks.iter().take(room.picks).filter_map(|pick| finished(&lanes, *pick, finish));
        let wanted: usize = kept.map(|(_, frame)| RECORD_HEADER + frame.len()).sum();
        let wanted = wanted.saturating_add_signed(room.more).max(RECORD_HEADER + longest);
        let front = vec![0xdd; layout.bytes() - TAIL - layout.body() - RECORD_HEADER - wanted];
        for block in [&mut gathered, &mut pushed] {
            block.clear();
            assert!(block.push(&Desc::new(Nanos(5), 0, 0), &front));
        }

        let done = gathered.gather(&lanes, picks, finish);
        assert!(done > 0, "there is room for any one frame");
        for (desc, frame) in picks[..done].iter().filter_map(|pick| finished(&lanes, *pick, finish)) {
            assert!(pushed.push(&desc, frame), "gathered without room");
        }
        assert_eq!(gathered.descs(), pushed.descs());
        assert!(records(&gathered) == records(&pushed), "records differ");
        if let Some(next) = picks.get(done) {
            let (desc, frame) = source(next);
            assert!(!pushed.push(&desc, frame), "stopped although there was room");
        }
        picks = &picks[done..];
    }
}

fn records(block: &Block) -> &[u8] {
    block.view(0, &[]).records(0..block.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_are_gathered_as_if_pushed_one_by_one(
        lanes in prop::collection::vec(lane(), 1..5),
        picks in prop::collection::vec((any::<u8>(), any::<u8>(), any::<bool>()), 0..200),
        (frames, fitting, more) in (2usize..80, 1usize..60, -1isize..2),
        changes in any::<bool>(),
    ) {
        let pick = |(lane, index, late): (u8, u8, bool)| {
            let lane = usize::from(lane) % lanes.len();
            let pick = FrameIndex::new(lane, usize::from(index) % lanes[lane].frames.len());
            if late { pick.late() } else { pick }
        };
        let picks: Vec<FrameIndex> = picks.into_iter().map(pick).collect();
        let room = Room { frames, picks: fitting, more };
        if changes {
            check(&lanes, &picks, room, &mut Change);
        } else {
            check(&lanes, &picks, room, &mut ());
        }
    }
}

#[test]
fn an_empty_block_gathers_the_longest_frame() {
    let longest = Frame { length: linerate_burst::MAX_FRAME, time: 1, seed: 7 };
    let (memory, descs) = Lane { frames: vec![longest], scattered: false }.lay();
    let lane = Burst::over(&memory, &descs).unwrap();
    let mut block = Block::new(0, 2);
    assert_eq!(block.gather(&[lane], &[FrameIndex::new(0, 0); 2], &mut ()), 1);
    assert_eq!(block.burst().frame(0), lane.frame(0));
}

#[test]
fn only_contiguous_frames_are_dense() {
    // Frames of one length at a fixed distance, in one direction.
    let descs = |count: u32, length: u32, apart: u32| -> Vec<Desc> {
        (0..count).map(|index| Desc::new(Nanos(1), index * apart, length)).collect()
    };
    let memory = vec![0; 10 << 20];
    let is_dense = |descs: &[Desc]| Burst::over(&memory, descs).unwrap().is_dense();
    assert!(Burst::EMPTY.is_dense() && is_dense(&descs(1, 60, 0)));
    for count in [2, 7, 8, 9, 1000] {
        assert!(is_dense(&descs(count, 60, 60)), "{count} frames back to back");
        assert!(is_dense(&descs(count, 60, 60 + 16)), "{count} records");
        assert!(is_dense(&descs(count, 1514, 1600)), "{count} frames of a kernel ring");
        assert!(!is_dense(&descs(count, 60, 2048)), "{count} short frames in buffers");
        assert!(!is_dense(&descs(count, 1514, 4096)), "{count} long frames in pages");
        let backwards: Vec<Desc> = descs(count, 60, 76).into_iter().rev().collect();
        assert!(!is_dense(&backwards), "{count} frames backwards");
    }
    // One jump is enough where each frame is a sample.
    let mut jump = descs(8, 60, 76);
    jump[5].offset = 1 << 20;
    assert!(!is_dense(&jump));
    let (memory, descs) = (vec![0; 20_000], descs(100, 60, 76));
    assert!(Burst::over(&memory, &descs).unwrap().slice(10..50).is_dense(), "a part of it is dense too");
}
