//! Filters, shards, duplicates, limits and slices together.

use super::*;
use linerate_burst::{Ledger, LinkType, Nanos, Stage, StampSource};

#[test]
fn snap_length_truncates_and_flags_frames() {
    let mut selector = ethernet(Selection { slice: Some(Slice::Bytes(4)), ..Selection::default() });
    // Captured and wire length, then what is kept; a file may claim a wire length below the captured one.
    for (captured, wire, kept, sliced) in
        [(3, 9, 3, false), (4, 4, 4, false), (4, 9, 4, true), (5, 5, 4, true), (6, 3, 4, true)]
    {
        let desc = Desc { wire, ..Desc::new(Nanos(1), 0, captured) };
        let (length, flags) = selector.select(0, &desc, &[0; 6][..captured as usize]).unwrap();
        assert_eq!((length, flags.contains(Flags::SLICED)), (kept, sliced), "{captured} of {wire}");
    }
}

fn ethernet(selection: Selection) -> Selector {
    let mut selector = Selector::new(selection);
    selector.add_interface(&Interface::new("", LinkType::ETHERNET, StampSource::User)).unwrap();
    selector
}

/// A frame with its own flow and time.
fn frame(number: u8) -> (Desc, [u8; 60]) {
    let mut frame = [0; 60];
    frame[5] = number;
    (Desc::new(Nanos(u64::from(number) * 100), 0, 60), frame)
}

/// A port that has applied one filter does not know the other.
#[test]
fn both_filters_apply_regardless_of_the_port() {
    let frame = |number: u8, kind: u8| [[2, 0, 0, 0, 0, number].as_slice(), &[0; 6], &[8, kind], &[0; 46]].concat();
    let (one, other) = ("ether host 2:0:0:0:0:7", "arp");
    for (filter, also) in [(one, other), (one, ""), ("", other), ("", "")] {
        let selection = Selection { filter: filter.into(), also: also.into(), ..Selection::default() };
        let mut selector = ethernet(selection.clone());
        for (number, kind) in [(7, 6), (7, 0), (8, 6), (8, 0)] {
            let (has_one, has_other) = (filter.is_empty() || number == 7, also.is_empty() || kind == 6);
            let (desc, frame) = (Desc::new(Nanos(1), 0, 60), frame(number, kind));
            selector.start_round(&["", filter, "ip or arp", also]);
            let mut selects = |lane, desc: &Desc| selector.select(lane, desc, &frame).is_some();
            assert_eq!(selects(0, &desc), has_one && has_other, "{selection:?}");
            if has_one {
                assert_eq!(selects(1, &desc), has_other, "{selection:?}");
            }
            // A port that has applied another filter has not applied this one.
            assert_eq!(selects(2, &desc), has_one && has_other, "{selection:?}");
            assert_eq!(selects(3, &desc), has_one && has_other, "{selection:?}");
            // Frames that the port saw without their tag are not exempt.
            let restored = Desc { flags: Flags::VLAN_RESTORED, ..desc };
            assert_eq!(selects(1, &restored), has_one && has_other, "{selection:?}");
        }
    }
    let wrong = Selection { filter: "ip) or (ip".into(), also: "arp".into(), ..Selection::default() };
    assert!(Selector::new(wrong).add_interface(&Interface::new("", LinkType::ETHERNET, StampSource::User)).is_err());
}

#[test]
fn each_frame_is_in_one_shard_and_all_shards_are_counted() {
    let mut kept = [0; 200];
    for index in 1..=3 {
        let mut selector = ethernet(Selection { shard: Shard::new(index, 3).ok(), ..Selection::default() });
        for (number, times) in kept.iter_mut().enumerate() {
            let (desc, frame) = frame(number as u8);
            *times += u32::from(selector.select(0, &desc, &frame).is_some());
        }
        let shards = selector.shards();
        assert_eq!((shards.len(), shards.iter().sum::<u64>()), (3, 200));
        assert_eq!(shards[index as usize - 1], selector.delivered);
        assert_eq!(selector.other_shards(), 200 - selector.delivered);
        assert!(shards.iter().all(|frames| *frames > 40), "{shards:?}");
    }
    assert_eq!(kept, [1; 200]);
}

#[test]
fn dropped_frames_have_a_reason() {
    let selection = Selection {
        shard: Shard::new(1, 2).ok(),
        dedup: Some(Duration::from_nanos(50)),
        frames: Some(20),
        ..Selection::default()
    };
    let mut selector = ethernet(selection);
    for number in 0..200 {
        let (desc, frame) = frame(number);
        for _ in 0..3 {
            selector.select(0, &desc, &frame);
        }
    }
    let own = selector.shards()[0] / 3;
    assert!(own > 20);
    assert_eq!((selector.duplicates, selector.past_limit, selector.delivered), (own * 2, own - 20, 20));
    let mut ledger = Ledger::new();
    selector.counters(ledger.account(Stage::Select, ""));
    assert_eq!(ledger.imbalances(), []);
    assert_eq!(ledger.total(Count::OtherShard), 600 - own * 3);
}

#[test]
fn empty_selection_passes_everything() {
    assert!(Selector::new(Selection::default()).is_everything());
    let none = Selection::default;
    for selection in [
        Selection { filter: "ip".into(), ..none() },
        Selection { also: "ip".into(), ..none() },
        Selection { shard: Shard::new(1, 1).ok(), ..none() },
        Selection { dedup: Some(WINDOW), ..none() },
        Selection { frames: Some(9), ..none() },
        Selection { slice: Some(Slice::Bytes(9)), ..none() },
    ] {
        assert!(!Selector::new(selection.clone()).is_everything(), "{selection:?}");
    }
    // While a limit is not near.
    let mut selector = Selector::new(Selection { frames: Some(9), ..none() });
    assert!(selector.take_all(5) && !selector.take_all(5) && selector.take_all(4) && selector.is_full());
}

#[test]
fn ports_deliver_whole_frames_if_consumers_need_them() {
    let bytes = Selection { slice: Some(Slice::Bytes(96)), ..Selection::default() };
    assert_eq!(bytes.snap(), 96);
    assert_eq!(Selection { dedup: Some(WINDOW), ..bytes.clone() }.snap(), 0);
    assert_eq!(Selection { shard: Shard::new(1, 2).ok(), ..bytes }.snap(), 0);
    let header = Selection { slice: Some(Slice::Header(Header::Transport, 0)), ..Selection::default() };
    assert_eq!((header.snap(), Selection::default().snap()), (0, 0));
}
