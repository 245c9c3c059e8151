//! Order and times of frames: by definition, and at random against an oracle that sums up everything for each frame.

use crate::sets::{self, Dice};
use linerate_generate::stream::*;
use linerate_generate::trailer::Key;
use linerate_generate::{Layer, Rate, Run, SenderPart, Slot, Timeline};
use proptest::prelude::*;

/// A stream of 60-byte frames.
fn stream(id: u32, rate: Rate, count: Option<u64>) -> Stream {
    Stream {
        name: format!("number {id}"),
        id,
        link: linerate_headers::Link::Ethernet,
        variants: vec![Variant { frame: vec![0; 60], ..Variant::default() }],
        size: Selector::ONE,
        selectors: Vec::new(),
        rate,
        shape: Shape::Even,
        count,
        next: Next::Following,
        span: Default::default(),
        mark: Mark::None,
    }
}

fn set(order: Order, streams: Vec<Stream>) -> StreamSet {
    StreamSet { streams, order, rate: None, key: Key::default() }
}

/// Stream, number and due time of the first frames.
fn first(set: &StreamSet, most: usize) -> Vec<(u32, u64, u64)> {
    let slots = taken(set, SenderPart::WHOLE, most);
    slots.iter().map(|slot| (slot.stream, slot.number, slot.due)).collect()
}

fn taken(set: &StreamSet, part: SenderPart, most: usize) -> Vec<Slot> {
    let mut runs = Vec::new();
    let taken = Timeline::new(set, part).unwrap().take(u64::MAX, most, &mut runs);
    let slots: Vec<Slot> = runs.into_iter().flat_map(Run::slots).collect();
    assert_eq!(slots.len(), taken);
    slots
}

#[test]
fn reentered_stream_continues() {
    let mut again = stream(1, Rate::Frames(5e8), Some(3));
    again.next = Next::Goto { stream: 0, times: Some(1) };
    let set = set(Order::Sequential, vec![stream(0, Rate::Frames(1e8), Some(2)), again, stream(2, Rate::Top, Some(2))]);
    let expected = [
        (0, 0, 0),
        (0, 1, 10),
        (1, 0, 20),
        (1, 1, 22),
        (1, 2, 24),
        (0, 2, 26),
        (0, 3, 36),
        (1, 3, 46),
        (1, 4, 48),
        (1, 5, 50),
        (2, 0, 52),
        (2, 1, 52),
    ];
    assert_eq!(first(&set, 100), expected);
}

#[test]
fn sequence_ends_at_a_stop_or_loops_on_request() {
    let mut one = stream(0, Rate::Top, Some(2));
    one.next = Next::Stop;
    let mut set = set(Order::Sequential, vec![one, stream(1, Rate::Top, Some(1))]);
    assert_eq!(first(&set, 100).len(), 2);
    set.streams[0].next = Next::Goto { stream: 0, times: None };
    assert_eq!(first(&set, 100).last(), Some(&(0, 99, 0)));
}

#[test]
fn an_inner_loop_restarts() {
    let mut inner = stream(0, Rate::Top, Some(1));
    inner.next = Next::Goto { stream: 0, times: Some(2) };
    let mut outer = stream(1, Rate::Top, Some(1));
    outer.next = Next::Goto { stream: 0, times: Some(1) };
    let streams: Vec<u32> =
        first(&set(Order::Sequential, vec![inner, outer]), 100).iter().map(|(stream, ..)| *stream).collect();
    assert_eq!(streams, [0, 0, 0, 1, 0, 0, 0, 1]);
}

#[test]
fn interleaved_streams_are_ordered_by_due_time_number_and_place() {
    let streams = vec![stream(0, Rate::Frames(1e8), Some(3)), stream(1, Rate::Frames(2e8), None)];
    let expected =
        [(0, 0, 0), (1, 0, 0), (1, 1, 5), (0, 1, 10), (1, 2, 10), (1, 3, 15), (0, 2, 20), (1, 4, 20), (1, 5, 25)];
    assert_eq!(first(&set(Order::Interleaved, streams), 9), expected);
}

#[test]
fn streams_at_maximum_rate_alternate_until_their_end() {
    let counts = [Some(2), None, Some(1)];
    let streams = (0..3).map(|id| stream(id, Rate::Top, counts[id as usize])).collect();
    let order: Vec<u32> = first(&set(Order::Interleaved, streams), 8).iter().map(|(stream, ..)| *stream).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 1, 1, 1]);
}

#[test]
fn constant_gap_is_reported() {
    let own = |rate| set(Order::Interleaved, vec![stream(0, rate, Some(20))]);
    let bits = Rate::Bits(64.0 * 8.0 * 1e6, Layer::L2);
    let two = |rate| {
        let each = Rate::Frames(1.0);
        let streams = vec![stream(0, each, Some(20)), stream(1, each, Some(20))];
        StreamSet { rate, ..set(Order::Interleaved, streams) }
    };
    for (set, gap) in [(own(Rate::Frames(4e6)), 250.0), (own(bits), 1000.0), (two(Some(Rate::Frames(1e6))), 1000.0)] {
        assert_eq!(set.even_gap(), Some(gap));
        let slots = first(&set, 40);
        let wrong = slots.windows(2).find(|pair| (pair[1].2 - pair[0].2) as f64 != gap);
        assert_eq!((wrong, slots.len() >= 20), (None, true));
    }
    let longer = Variant { frame: vec![0; 61], ..Variant::default() };
    let mut mixed = own(bits);
    mixed.streams[0].variants.push(longer);
    mixed.streams[0].size = Selector { count: 2, pick: IndexSelection::InTurn { every: 1 } };
    let mut bursts = own(Rate::Frames(1e6));
    bursts.streams[0].shape = Shape::Bursts { frames: 2, gap: 9 };
    for set in [own(Rate::Top), two(None), mixed, bursts] {
        assert_eq!(set.even_gap(), None, "{:?}", set.rate);
    }
}

#[test]
fn bursts_are_followed_by_gaps() {
    let mut bursts = stream(0, Rate::Frames(1e8), Some(5));
    bursts.shape = Shape::Bursts { frames: 2, gap: 100 };
    let dues: Vec<u64> = first(&set(Order::Sequential, vec![bursts]), 9).iter().map(|(.., due)| *due).collect();
    assert_eq!(dues, [0, 10, 120, 130, 240]);
}

#[test]
fn poisson_process_has_the_requested_rate() {
    let mut poisson = stream(0, Rate::Frames(1e6), Some(100_001));
    poisson.shape = Shape::Poisson { seed: 3 };
    let mut set = set(Order::Sequential, vec![poisson]);
    let one = first(&set, 200_000);
    let mean = one.last().unwrap().2 as f64 / 1e5;
    assert!((mean - 1000.0).abs() < 10.0, "{mean}");
    set.streams[0].shape = Shape::Poisson { seed: 4 };
    assert_ne!(first(&set, 200_000), one);
}

#[test]
fn common_rate_is_shared_by_individual_rates() {
    let streams = vec![stream(0, Rate::Frames(1.0), None), stream(1, Rate::Frames(3.0), None)];
    let mut set = set(Order::Interleaved, streams);
    set.rate = Some(Rate::Bits(64.0 * 8.0 * 1e6, Layer::L2));
    let slots = first(&set, 4000);
    assert_eq!(slots.iter().filter(|(stream, ..)| *stream == 1).count(), 3000);
    assert!(slots.iter().enumerate().all(|(index, (.., due))| *due == index as u64 * 1000));
}

#[test]
fn rounding_errors_do_not_accumulate_over_days() {
    // A loop of two streams whose frames take thirds and sevenths of a nanosecond, a million times; and a single stream.
    let mut back = stream(1, Rate::Frames(7e8), Some(1));
    back.next = Next::Goto { stream: 0, times: None };
    let loops = set(Order::Sequential, vec![stream(0, Rate::Frames(3e3), Some(1)), back]);
    let mut timeline = Timeline::new(&loops, SenderPart { index: 1_999_999, of: 2_000_000 }).unwrap();
    let once = 1e6 / 3.0 * 1e6 + (1e6 - 1.0) / 0.7;
    assert!((timeline.peek().unwrap().due as f64 - once).abs() <= 1.0, "{:?} {once}", timeline.peek());
    timeline.take(u64::MAX, 2, &mut Vec::new());
    let thrice = 3e6 / 3.0 * 1e6 + (3e6 - 1.0) / 0.7;
    assert!((timeline.peek().unwrap().due as f64 - thrice).abs() <= 1.0);
    let single = set(Order::Sequential, vec![stream(0, Rate::Frames(14_880_952.38), None)]);
    let days = Timeline::new(&single, SenderPart { index: u32::MAX - 1, of: u32::MAX }).unwrap().peek().unwrap();
    assert_eq!(days.due, Rate::Frames(14_880_952.38).nanos(days.number, 0));
}

#[test]
fn no_frame_is_taken_before_it_is_due() {
    let set = set(Order::Sequential, vec![stream(0, Rate::Frames(1e9), None)]);
    let mut timeline = Timeline::new(&set, SenderPart::WHOLE).unwrap();
    assert_eq!(timeline.take(9, 100, &mut Vec::new()), 10);
    assert_eq!(timeline.peek().map(|slot| slot.due), Some(10));
    assert_eq!(timeline.take(1000, 90, &mut Vec::new()), 90, "no more than there is room for");
}

#[test]
fn an_invalid_part_is_an_error() {
    let set = set(Order::Sequential, vec![stream(0, Rate::Top, None)]);
    for part in [SenderPart { index: 0, of: 0 }, SenderPart { index: 2, of: 2 }] {
        assert!(Timeline::new(&set, part).is_err(), "{part:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// The oracle computes each due time from all frames before it.
    #[test]
    fn a_timeline_matches_the_definitions(seed in any::<u64>(), of in 1u32..5) {
        let set = sets::set(&mut Dice(seed), 5);
        let most = 300;
        let expected = sets::slots(&set, most);
        for index in 0..of {
            let mine: Vec<Slot> = expected.iter().skip(index as usize).step_by(of as usize).copied().collect();
            let slots = taken(&set, SenderPart { index, of }, mine.len() + usize::from(expected.len() < most));
            prop_assert_eq!(slots.len(), mine.len());
            let mut latest = 0;
            for (slot, mine) in slots.iter().zip(&mine) {
                prop_assert_eq!((slot.stream, slot.number), (mine.stream, mine.number));
                // Sums of fractions in another order may round otherwise.
                prop_assert!(slot.due.abs_diff(mine.due) <= 1, "{:?} {:?}", slot, mine);
                prop_assert!(slot.due >= latest);
                latest = slot.due;
            }
        }
    }
}
