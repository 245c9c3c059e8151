use super::*;
use linerate_burst::{LinkType, StampSource};
use proptest::prelude::*;
use std::sync::Mutex;

/// Frames by their times in milliseconds, one list per output.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Vec<u64>>>>);

impl Sink for Kept {
    fn accept(&mut self, view: View<'_>) -> Result<(), SinkError> {
        let mut kept = self.0.lock().unwrap();
        if kept.is_empty() {
            kept.push(Vec::new());
        }
        kept.last_mut().unwrap().extend(view.burst().descs().iter().map(|desc| desc.time.0 / 1_000_000));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn reopen(&mut self, _: &Ledger) -> Result<Option<String>, SinkError> {
        self.0.lock().unwrap().push(Vec::new());
        Ok(None)
    }

    fn finish(&mut self, _: &Ledger) -> Result<(), SinkError> {
        Ok(())
    }

    fn counters(&self, ledger: &mut Ledger) {
        let frames = self.0.lock().unwrap().iter().map(Vec::len).sum::<usize>() as u64;
        ledger.account(Stage::Write, "x").add(Count::WriteReceived, frames).add(Count::Written, frames);
    }
}

fn interfaces() -> [Interface; 1] {
    [Interface::new("eth0", LinkType::ETHERNET, StampSource::User)]
}

/// Adds a frame at a time in ms; it is a trigger if its EtherType is that of IP.
fn push(block: &mut Block, millis: u64, is_trigger: bool) {
    let mut frame = [0; 60];
    frame[12] = if is_trigger { 8 } else { 9 };
    assert!(block.push(&Desc { wire: 60, ..Desc::new(Nanos(millis * 1_000_000), 0, 0) }, &frame));
}

fn triggers(before: u64, after: u64) -> Triggers {
    let (before, after) = (Duration::from_millis(before), Duration::from_millis(after));
    Triggers { before, after, filter: "ip".to_owned(), memory: 64 << 20, ..Triggers::default() }
}

/// Model of the frames written.
fn model(frames: &[(u64, bool)], before: u64, after: u64) -> Vec<u64> {
    let is_kept = |(time, _): &&(u64, bool)| {
        frames.iter().any(|(at, is)| *is && *time < at + after.max(1) && time + before >= *at)
    };
    frames.iter().filter(is_kept).map(|(time, _)| *time).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn packets_around_triggers_are_written(
        steps in prop::collection::vec((1u64..50, prop::bool::weighted(0.1)), 1..200), before in 0u64..300, after in 1u64..300,
        most in 1usize..40, pause in (0usize..200, prop_oneof![Just(0u64), 1..1_000_000_000u64]),
    ) {
        let times = steps.iter().enumerate().scan(1000, |now, (frame, (step, is))| {
            *now += step + if frame == pause.0 { pause.1 } else { 0 };
            Some((*now, *is))
        });
        let frames: Vec<(u64, bool)> = times.collect();
        let kept = Kept::default();
        let mut sink = TriggerBuffer::new(triggers(before, after), Box::new(kept.clone()));
        for frames in frames.chunks(most) {
            let mut block = Block::new(0, 100);
            frames.iter().for_each(|(time, is)| push(&mut block, *time, *is));
            sink.accept(block.view(0, &interfaces())).unwrap();
        }
        sink.finish(&Ledger::new()).unwrap();
        let got = kept.0.lock().unwrap().concat();
        prop_assert_eq!(&got, &model(&frames, before, after));
        let mut ledger = Ledger::new();
        sink.counters(&mut ledger);
        prop_assert_eq!(ledger.imbalances(), []);
        prop_assert_eq!(ledger.total(Count::NotTriggered), (frames.len() - got.len()) as u64);
    }
}

#[test]
fn rate_and_manual_triggers_each_have_their_output() {
    let kept = Kept::default();
    let rate = Some(Rate::Frames(100.0));
    let triggers = Triggers { filter: String::new(), rate, ..triggers(50, 100) };
    let manual = triggers.manual.clone();
    let mut sink = TriggerBuffer::new(triggers, Box::new(kept.clone()));
    let mut block = Block::new(0, 100);
    // 50 per second, then ten in 100 ms, then 50 again.
    let times =
        (0..10).map(|n| 1000 + n * 20).chain((0..12).map(|n| 1300 + n * 5)).chain((0..20).map(|n| 1400 + n * 20));
    times.for_each(|time| push(&mut block, time, false));
    sink.accept(block.view(0, &interfaces())).unwrap();
    // The tenth is at 1345.
    let written: Vec<u64> = (0..12).map(|n| 1300 + n * 5).chain([1400, 1420, 1440]).collect();
    assert_eq!(kept.0.lock().unwrap()[0], written);
    manual.flag().store(true, Ordering::Relaxed);
    sink.look(&Ledger::new(), Nanos(1_790_000_000)).unwrap();
    assert_eq!(kept.0.lock().unwrap()[1], [1740, 1760, 1780]);
    // Its time passes without frames.
    sink.look(&Ledger::new(), Nanos(1_890_000_000)).unwrap();
    assert_eq!((kept.0.lock().unwrap().len(), sink.fired), (3, 2));
}

#[test]
fn memory_is_bounded_and_its_drops_are_counted() {
    let kept = Kept::default();
    let triggers = Triggers { memory: 0, ..triggers(1_000_000, 1) };
    let mut sink = TriggerBuffer::new(triggers, Box::new(kept.clone()));
    for number in 0..10 {
        let mut block = Block::new(1 << 20, 4096);
        (0..4096).for_each(|at| push(&mut block, number * 4096 + at, number == 9 && at == 4095));
        sink.accept(block.view(0, &interfaces())).unwrap();
    }
    sink.finish(&Ledger::new()).unwrap();
    let mut ledger = Ledger::new();
    sink.counters(&mut ledger);
    assert_eq!(ledger.imbalances(), []);
    let written = ledger.total(Count::Written);
    assert!((8192..=2 * 8192).contains(&written), "{written}");
    assert_eq!(ledger.total(Count::BeforeCrowded), 40_960 - written);
    assert!(sink.notes()[1].contains("exceeded --before-memory"), "{:?}", sink.notes());
}

#[test]
fn manual_trigger_counts_at_the_end_and_filters_keep_interfaces() {
    let kept = Kept::default();
    let triggers = triggers(100, 10);
    let manual = triggers.manual.clone();
    let mut sink = TriggerBuffer::new(triggers, Box::new(kept.clone()));
    // For the first interface no filter can be compiled: frames of the second one are checked by their own.
    let interfaces = [Interface::new("x", LinkType(65_000), StampSource::User), interfaces()[0].clone()];
    let mut block = Block::new(0, 100);
    [(1000, 9), (1010, 9), (1020, 8)].iter().for_each(|(millis, kind)| {
        let mut frame = [0; 60];
        frame[12] = *kind;
        let desc = Desc { wire: 60, interface: 1, ..Desc::new(Nanos(millis * 1_000_000), 0, 0) };
        assert!(block.push(&desc, &frame));
    });
    assert!(sink.accept(block.view(0, &interfaces)).is_err());
    assert_eq!(kept.0.lock().unwrap().concat(), [1000, 1010, 1020]);
    let mut block = Block::new(0, 100);
    [1500, 1550].iter().for_each(|time| push(&mut block, *time, false));
    sink.accept(block.view(0, &interfaces)).unwrap();
    manual.flag().store(true, Ordering::Relaxed);
    sink.finish(&Ledger::new()).unwrap();
    assert_eq!(kept.0.lock().unwrap().concat(), [1000, 1010, 1020, 1500, 1550]);
}
