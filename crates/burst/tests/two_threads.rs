//! Frames gathered by two threads are laid out as if one thread had gathered them.

use linerate_burst::helper::Helper;
use linerate_burst::{Block, Burst, Desc, FinishDesc, Flags, FrameIndex, Layout, Memory, Nanos, RECORD_HEADER, TAIL};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Runs `run` with a helper and its worker thread.
fn with_helper(run: impl FnOnce(&mut Helper)) {
    let (mut helper, worker) = Helper::new();
    thread::scope(|scope| {
        scope.spawn(|| worker.work());
        run(&mut helper);
        drop(helper);
    });
}

/// Lays frames of these lengths back to back, each with other bytes; returns the memory and the descs.
fn lay(lengths: &[usize], seed: u8) -> (Vec<u8>, Vec<Desc>) {
    let (mut memory, mut descs) = (Vec::new(), Vec::new());
    for (index, length) in lengths.iter().enumerate() {
        let time = Nanos::from_parts(index as u64 / 7, index as u64);
        descs.push(Desc { hash: index as u32, ..Desc::new(time, memory.len() as u32, *length as u32) });
        memory.extend((0..*length).map(|at| seed.wrapping_add((index * 31 + at * 7) as u8)));
    }
    memory.resize(memory.len() + TAIL, 0xee);
    (memory, descs)
}

/// Changes descs and keeps every frame, except one in `cuts` and one in `leaves_out`, if not 0.
#[derive(Clone, Copy)]
struct Change {
    cuts: u32,
    leaves_out: u32,
}

impl FinishDesc for Change {
    fn finish(&mut self, desc: &mut Desc, frame: &[u8], pick: FrameIndex) -> bool {
        if pick.is_late() {
            desc.flags |= Flags::LATE;
        }
        let number = desc.hash;
        desc.hash = frame.iter().map(|byte| u32::from(*byte)).sum();
        if self.cuts > 0 && number % self.cuts == 1 {
            desc.captured /= 2;
        }
        self.leaves_out == 0 || number % self.leaves_out != 1
    }
}

/// Returns the contents of consecutive blocks of this layout, each with a first frame of `front` bytes, after `copy`
/// has filled them with all picks.
fn fill(
    layout: Layout,
    front: usize,
    mut picks: &[FrameIndex],
    mut copy: impl FnMut(&mut Block, &[FrameIndex]) -> usize,
) -> Vec<(Vec<Desc>, Vec<u8>)> {
    let mut blocks = Vec::new();
    while !picks.is_empty() {
        let mut block = Block::over(Memory::private(layout));
        assert!(block.push(&Desc::new(Nanos(5), 0, 0), &vec![0xdd; front]));
        loop {
            let (before, done) = (block.len(), copy(&mut block, picks));
            picks = &picks[done..];
            // Picks given back because a frame was omitted continue in the same block.
            if picks.is_empty() || (done == 0 && block.len() == before) {
                break;
            }
        }
        blocks.push((block.descs().to_vec(), block.view(0, &[]).records(0..block.len()).to_vec()));
    }
    blocks
}

fn length() -> impl Strategy<Value = usize> {
    // Records of 16 to 64 bytes: up to four of them lie within one vector.
    prop_oneof![3 => Just(0usize), 3 => 1usize..17, 3 => 46usize..50, 3 => 60usize..66, 1 => 0usize..1515]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_threads_gather_the_same_as_one(
        lanes in prop::collection::vec(prop::collection::vec(length(), 1..60), 1..5),
        drawn in prop::collection::vec((any::<u8>(), any::<u8>(), any::<bool>()), 1..400),
        (frames, room) in (2usize..300, 0usize..20_000),
        (cuts, leaves_out) in (prop_oneof![3 => Just(0u32), 1 => 2u32..30], prop_oneof![3 => Just(0u32), 1 => 2u32..30]),
        has_thread in any::<bool>(),
    ) {
        let laid: Vec<_> = lanes.iter().zip(0..).map(|(lengths, seed)| lay(lengths, seed)).collect();
        let lanes: Vec<Burst<'_>> = laid.iter().map(|(memory, descs)| Burst::over(memory, descs).unwrap()).collect();
        let picks: Vec<FrameIndex> = drawn.into_iter().map(|(lane, index, late)| {
            let lane = usize::from(lane) % lanes.len();
            let pick = FrameIndex::new(lane, usize::from(index) % lanes[lane].len());
            if late { pick.late() } else { pick }
        }).collect();
        let layout = Layout::of(0, frames).unwrap();
        let front = layout.bytes() - layout.body() - TAIL - 2 * RECORD_HEADER - 1515 - room;
        let change = Change { cuts, leaves_out };
        let by_one = fill(layout, front, &picks, |block, picks| block.gather(&lanes, picks, &mut change.clone()));
        let run = |helper: &mut Helper| {
            let by_two = fill(layout, front, &picks, |block, picks| {
                block.gather_with_helper(helper, &lanes, picks, &change)
            });
            assert!(by_one == by_two, "blocks differ");
        };
        if has_thread {
            with_helper(run);
        } else {
            // Its worker thread never starts.
            run(&mut Helper::new().0);
        }
    }
}

#[test]
fn each_call_runs_once_even_if_the_worker_is_late() {
    with_helper(|helper| {
        for call in 0..3000u64 {
            let (mut here, mut there) = (0, 0);
            let spin = |rounds: u64| (0..rounds).for_each(|_| std::hint::spin_loop());
            helper.join(
                || {
                    spin(call % 7 * 50);
                    here += 1;
                },
                &mut || {
                    spin(call % 5 * 50);
                    there += 1;
                },
            );
            assert_eq!((here, there), (1, 1), "call {call}");
            if call % 1000 == 0 {
                // Long enough for the worker to sleep.
                thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    });
}

#[test]
fn both_sides_work_at_the_same_time() {
    with_helper(|helper| {
        let meeting = std::sync::Barrier::new(2);
        for _ in 0..100 {
            helper.join(
                || {
                    meeting.wait();
                },
                &mut || {
                    meeting.wait();
                },
            );
        }
    });
}

#[test]
fn slower_thread_gets_less_work() {
    with_helper(|helper| {
        let nap = || thread::sleep(std::time::Duration::from_micros(300));
        let meeting = std::sync::Barrier::new(2);
        let meet = || {
            meeting.wait();
        };
        let meet_and_nap = || {
            meet();
            nap();
        };
        assert_eq!(helper.share(1000), 500);
        (0..300).for_each(|_| helper.join(meet_and_nap, &mut || meet()));
        assert!(helper.share(1000) < 300, "{}", helper.share(1000));
        (0..300).for_each(|_| helper.join(meet, &mut || meet_and_nap()));
        assert!(helper.share(1000) > 500, "{}", helper.share(1000));
    });
}

#[test]
fn a_panic_reaches_the_caller_and_the_next_call_works() {
    with_helper(|helper| {
        let meeting = std::sync::Barrier::new(2);
        let there = catch_unwind(AssertUnwindSafe(|| {
            helper.join(
                || {
                    meeting.wait();
                },
                &mut || {
                    meeting.wait();
                    panic!("there")
                },
            );
        }));
        assert!(there.is_err());
        // The work of the other side has finished too.
        let mut ended = false;
        let here = catch_unwind(AssertUnwindSafe(|| {
            helper.join(
                || {
                    meeting.wait();
                    panic!("here")
                },
                &mut || {
                    meeting.wait();
                    thread::sleep(std::time::Duration::from_millis(2));
                    ended = true;
                },
            );
        }));
        assert!(here.is_err() && ended);
        let mut calls = 0;
        helper.join(|| (), &mut || calls += 1);
        assert_eq!(calls, 1);
    });
}
