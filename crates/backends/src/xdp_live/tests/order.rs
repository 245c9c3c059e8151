//! Order and times of any set, compared with the timeline that all other senders follow.

use super::super::program::DUE;
use super::*;
use linerate_generate::{Layer, Run, SenderPart, Timeline};
use proptest::prelude::*;

/// Frames that are compared.
const FRAMES: usize = 80;

/// Strategies with few values, so that they collide.
fn next(streams: usize) -> impl Strategy<Value = Next> {
    let goto = (0..streams, prop::option::weighted(0.8, 0u64..4));
    prop_oneof![
        3 => Just(Next::Following),
        1 => Just(Next::Stop),
        4 => goto.prop_map(|(stream, times)| Next::Goto { stream, times }),
    ]
}

fn rate() -> impl Strategy<Value = Rate> {
    prop::sample::select(vec![Rate::Frames(1e6), Rate::Frames(7.7e5), Rate::Bits(1e9, Layer::L1)])
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![Just(Shape::Even), (1u64..5, 0u64..3000).prop_map(|(frames, gap)| Shape::Bursts { frames, gap })]
}

/// Returns a frame that contains its stream and its number.
fn marked(id: u32, length: usize) -> Variant {
    let mut frame = vec![id as u8; length];
    frame[14..18].fill(0);
    Variant { frame, changes: vec![change(14, 4, 0, Values::counting(0))], ..Variant::default() }
}

fn one(id: u32, streams: usize) -> impl Strategy<Value = Stream> {
    let lengths = prop::collection::vec(20usize..90, 1..3);
    let count = prop::option::weighted(0.95, 1u64..6);
    (lengths, count, next(streams), rate(), shape()).prop_map(move |(lengths, count, next, rate, shape)| {
        let variants = lengths.into_iter().map(|length| marked(id, length)).collect();
        Stream { id, count, next, rate, shape, ..stream(variants, vec![in_turn(0, 1)]) }
    })
}

/// Generates streams as users write them, restricted to the orders that programs support.
pub(super) fn sets() -> impl Strategy<Value = StreamSet> {
    let streams = (1usize..6).prop_flat_map(|count| (0..count as u32).map(|id| one(id, count)).collect::<Vec<_>>());
    let common = prop::option::weighted(0.3, rate());
    (streams, any::<bool>(), any::<bool>(), common).prop_map(|(mut streams, sequential, top, common)| {
        let order = if sequential { Order::Sequential } else { Order::Interleaved };
        let first = streams[0].clone();
        for (index, stream) in streams.iter_mut().enumerate() {
            if top {
                (stream.rate, stream.shape) = (Rate::Top, Shape::Even);
            } else if !sequential && index > 0 {
                stream.rate = first.rate;
            }
        }
        if !sequential && streams.len() > 1 {
            streams.iter_mut().for_each(|stream| stream.shape = Shape::Even);
            if matches!(first.rate, Rate::Bits(..)) {
                streams.iter_mut().for_each(|stream| stream.variants = vec![marked(stream.id, 60)]);
                streams.iter_mut().for_each(|stream| stream.size = Selector::ONE);
            }
        }
        StreamSet { rate: common, ..set(streams, order) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn frames_follow_the_order_and_times_of_the_timeline(set in sets()) {
        prop_assume!(may_load() && set.check().is_ok());
        let mut runs = Vec::new();
        Timeline::new(&set, SenderPart::WHOLE).unwrap().take(u64::MAX, FRAMES, &mut runs);
        let trial = Trial::of(&set);
        let paced = set.rate.is_some() || set.streams[0].rate != Rate::Top;
        let slots: Vec<_> = runs.into_iter().flat_map(Run::slots).collect();
        for slot in &slots {
            let due = trial.state.get(DUE);
            // Fractions of a nanosecond are rounded here and truncated there.
            prop_assert!(!paced || due.abs_diff(slot.due) <= 1, "due at {due}, not {slot:?}");
            trial.expect(slot.stream as usize, slot.number);
        }
        if slots.len() < FRAMES {
            prop_assert!(trial.next().is_none(), "more than {} frames", slots.len());
        }
    }
}
