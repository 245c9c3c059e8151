//! Fast frames equal those of the model: for any streams, any part, and any sequence of calls.

use crate::sets::{self, Dice};
use linerate_burst::Nanos;
use linerate_generate::stream::{Mark, Order, Span, StreamSet};
use linerate_generate::{Action, Batch, Command, Rate, Run, SenderPart, Slot, StreamSelection, Timeline, Traffic};
use proptest::prelude::*;

/// UTC nanoseconds at the start of a run.
const START: u64 = 1_700_000_000_123_456_789;

/// Returns the slots of a part.
fn slots(set: &StreamSet, part: SenderPart, most: usize) -> Vec<Slot> {
    let mut runs = Vec::new();
    let taken = Timeline::new(set, part).unwrap().take(u64::MAX, most, &mut runs);
    let slots: Vec<Slot> = runs.into_iter().flat_map(Run::slots).collect();
    assert_eq!(slots.len(), taken);
    slots
}

/// Number of frames compared, and of slots computed: a whole burst more.
const COMPARED: usize = 700;
const KNOWN: usize = COMPARED + 256;

/// Takes frames at random times, and compares each with the model; `cycle` is the number of kept frames.
fn compare(
    dice: &mut Dice,
    set: &StreamSet,
    traffic: &mut Traffic,
    slots: &[Slot],
    cycle: u64,
) -> Result<(), TestCaseError> {
    let paced = slots.iter().any(|slot| slot.due > 0);
    let (mut done, mut elapsed, mut counts) = (0, 0, vec![0; set.streams.len()]);
    // Time of the offer, and its remaining frames.
    let (mut made, mut left) = (0, 0);
    while done < slots.len().min(COMPARED) {
        prop_assert_eq!(traffic.next_due(), Some(slots[done].due));
        if left == 0 {
            elapsed += dice.below(100_000);
            made = START + elapsed;
        }
        let burst = traffic.offer(elapsed, Nanos(START + elapsed)).unwrap();
        let due = slots[done..].iter().take_while(|slot| slot.due <= elapsed).count();
        let shown = burst.len();
        prop_assert!(shown <= due && (due == 0 || shown > 0) && (left == 0 || shown == left));
        for ((desc, frame), slot) in burst.iter().zip(&slots[done..]) {
            let stream = &set.streams[slot.stream as usize];
            let expected = stream.frame(slot.number % cycle, made, &set.key);
            prop_assert_eq!(frame, &expected[..], "{:?} of {:?}", slot, stream);
            prop_assert!(!paced || desc.time.0 == START + slot.due, "{:?}", desc);
        }
        let consumed = dice.below(shown as u64 + 1) as usize;
        traffic.consume(consumed);
        slots[done..done + consumed].iter().for_each(|slot| counts[slot.stream as usize] += 1);
        (left, done) = (shown - consumed, done + consumed);
        if let (0, Some(slot)) = (shown, slots.get(done)) {
            elapsed = elapsed.max(slot.due);
        }
        if dice.below(9) == 0 {
            traffic.set_room(dice.below(400) as usize);
        }
    }
    prop_assert_eq!(traffic.sent_per_stream(), &counts[..]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn frames_match_the_model(seed in any::<u64>(), of in 1u32..4) {
        let mut dice = Dice(seed);
        let set = sets::set(&mut dice, 4);
        let part = SenderPart { index: dice.below(of.into()) as u32, of };
        let slots = slots(&set, part, KNOWN);
        let mut traffic = Traffic::new(&set, part).unwrap();
        compare(&mut dice, &set, &mut traffic, &slots, u64::MAX)?;
        // Never all of as many as are computed.
        let sent: u64 = traffic.sent_per_stream().iter().sum();
        prop_assert_eq!(traffic.is_over(), sent == slots.len() as u64);
    }

    #[test]
    fn frames_of_new_streams_match_the_model(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let mut set = sets::set(&mut dice, 4);
        (set.order, set.rate) = (Order::Interleaved, None);
        set.streams.iter_mut().for_each(|stream| stream.span = Span::ALWAYS);
        let slots = slots(&set, SenderPart::WHOLE, KNOWN);
        let mut traffic = Traffic::coming(100);
        let batch = Batch::new(set.streams.clone(), set.key).unwrap();
        traffic.command(Command { at: 0, which: StreamSelection::All, action: Action::Begin(batch.into()) });
        compare(&mut dice, &set, &mut traffic, &slots, u64::MAX)?;
    }

    #[test]
    fn kept_frames_repeat_the_first_frames_of_the_model(seed in any::<u64>(), kept in 1u64..50) {
        let mut dice = Dice(seed);
        let mut set = sets::set(&mut dice, 4);
        for stream in &mut set.streams {
            stream.mark = Mark::None;
            stream.variants.iter_mut().for_each(|variant| variant.trailer = None);
            if matches!(stream.rate, Rate::Bits(..)) {
                // Only the lengths of the first frames make another rate.
                stream.rate = Rate::Frames(2e6);
            }
        }
        set.rate = set.rate.filter(|rate| !matches!(rate, Rate::Bits(..)));
        let slots = slots(&set, SenderPart::WHOLE, KNOWN);
        let mut traffic = Traffic::kept(&set, SenderPart::WHOLE, kept).unwrap();
        compare(&mut dice, &set, &mut traffic, &slots, kept)?;
    }
}
