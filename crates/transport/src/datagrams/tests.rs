//! Datagrams lost, duplicated, late or out of order, compared with what was sent.

use super::*;
use crate::copy::Kernel;
use crate::frames::Missing;
use linerate_burst::{Count, Ledger, Stage};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const DATA: usize = 10;
const SIZE: usize = 80;

fn ends() -> Ends {
    Ends { from: ([10, 0, 0, 1], 7).into(), to: ([10, 0, 0, 2], 9).into() }
}

pub(super) fn config(form: Form, frames: usize) -> Config {
    let frames = frames::Config {
        size: SIZE,
        frames,
        ahead: 0,
        missing: Missing::Zeroed,
        granule: DATA,
        crc: true,
        kernel: Kernel::default(),
    };
    let timeout = Duration::from_secs(1);
    Config { frames, form, window: 2, reach: 1600, timeout, full: WhenFull::DropNewest, streams: 4 }
}

pub(super) const FORM: Form =
    Form::Fixed { sequence: Field::big(1, 2), unit: Unit::Packets(DATA), batch: None, data: 3 };

pub(super) fn datagram(number: u64) -> Vec<u8> {
    let [.., high, low] = number.to_be_bytes();
    [vec![0xaa, high, low], data(number)].concat()
}

/// Never 0, so that missing bytes show.
fn data(number: u64) -> Vec<u8> {
    (0..DATA as u64).map(|at| ((number * 37 + at * 3) % 255) as u8 + 1).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Shuffled within `reorder`, some lost, some duplicated, from any first sequence number, so that it wraps.
    #[test]
    fn frames_contain_what_arrived_in_time(
        start in prop_oneof![Just(0_u64), 0..70_000_u64], fates in prop::collection::vec((0_u8..20, 0_u64..40), 1..300),
    ) {
        let mut sent: Vec<(u64, u64)> = Vec::new();
        for (index, (fate, delay)) in fates.iter().enumerate() {
            let number = index as u64;
            match fate {
                0 | 1 => {}
                2 => sent.extend([(number, start + number), (number + delay, start + number)]),
                3 => sent.push((number + delay, start + number)),
                _ => sent.push((number, start + number)),
            }
        }
        sent.sort_by_key(|(when, _)| *when);
        let mut datagrams = Datagrams::new(config(FORM, 50)).unwrap();
        // Oracle: sets of numbers per frame, and the window.
        let (mut there, mut first, mut want): (BTreeMap<u64, BTreeSet<u64>>, _, _) = (BTreeMap::new(), None, Counts::default());
        let base = sent.first().map_or(0, |(_, number)| number % 65_536);
        let origin = sent.first().map_or(0, |(_, number)| *number);
        for (_, number) in &sent {
            datagrams.receive(&ends(), &datagram(number % 65_536), Nanos(5));
            want.received += 1;
            // At the start of a stream only numbers down to 0 can be before its first.
            let Some(position) = (base + number).checked_sub(origin) else { return Ok(()) };
            let frame = position / 8;
            let begin: u64 = *first.get_or_insert(frame);
            if frame < begin {
                want.late += 1;
                continue;
            }
            first = Some(begin.max((frame + 1).saturating_sub(2)));
            match there.entry(frame).or_default().insert(position) {
                true => want.placed += 1,
                false => want.repeated += 1,
            }
        }
        datagrams.finish();
        let counts = datagrams.counts();
        prop_assert_eq!(
            (counts.received, counts.placed, counts.repeated, counts.late),
            (want.received, want.placed, want.repeated, want.late)
        );
        let (mut repeated, mut stored) = (0, 0);
        while let Some(frame) = datagrams.full() {
            let meta = frame.meta;
            repeated += u64::from(meta.repeated);
            let Some(numbers) = there.remove(&meta.number) else {
                prop_assert!(meta.len == 0 && meta.ending.is_some());
                continue;
            };
            for slot in 0..meta.len / DATA {
                let position = meta.number * 8 + slot as u64;
                let is_there = numbers.contains(&position);
                prop_assert_eq!(frame.presence().is_there(slot), is_there);
                let wanted = if is_there { data((position + origin - base) % 65_536) } else { vec![0; DATA] };
                prop_assert_eq!(&frame.bytes()[slot * DATA..(slot + 1) * DATA], &wanted[..]);
            }
            prop_assert_eq!(numbers.len() * DATA, meta.len - meta.missing as usize);
            stored += meta.len as u64 - meta.missing;
            prop_assert!(meta.len == SIZE || meta.ending.is_some());
        }
        prop_assert!(there.is_empty(), "{:?} was not output", there);
        prop_assert!(repeated <= counts.repeated);
        prop_assert_eq!(stored, counts.bytes);
    }

    #[test]
    fn no_input_breaks_invariants(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..40), kind in 0..4,
    ) {
        let form = match kind {
            0 => FORM,
            1 => Form::Spead { heap: 100, step: 1 },
            2 => Form::Vita49 { data: 16 },
            _ => Form::Fixed { sequence: Field::little(0, 8), unit: Unit::Bytes, batch: None, data: 8 },
        };
        let mut datagrams = Datagrams::new(config(form, 3)).unwrap();
        for payload in &payloads {
            datagrams.receive(&ends(), payload, Nanos(1));
            if let Some(bytes) = payload.first_chunk::<4>() {
                datagrams.receive(&ends(), &[&[0x53, 4, 2, 6, 0, 0, 0, bytes[0] % 5], &payload[..]].concat(), Nanos(1));
            }
        }
        datagrams.finish();
        let mut ledger = Ledger::new();
        datagrams.counts().add_to(ledger.account(Stage::Datagrams, "any"));
        prop_assert_eq!(ledger.imbalances(), []);
        prop_assert_eq!(ledger.total(Count::DatagramsReceived), datagrams.counts().received);
    }
}

fn some(datagrams: &mut Datagrams, numbers: impl IntoIterator<Item = u64>, now: u64) {
    numbers.into_iter().for_each(|number| datagrams.receive(&ends(), &datagram(number), Nanos(now)));
}

fn numbers(datagrams: &mut Datagrams) -> Vec<(u32, u64, u64)> {
    let mut found = Vec::new();
    while let Some(frame) = datagrams.full() {
        found.push((frame.meta.stream.0, frame.meta.number, frame.meta.missing));
        datagrams.return_frame(frame);
    }
    found
}

#[test]
fn restarted_sender_gets_a_new_stream() {
    let mut datagrams = Datagrams::new(config(FORM, 5)).unwrap();
    some(&mut datagrams, 1000..1016, 1);
    // One number out of sequence is not a restart, nor are several scattered ones.
    some(&mut datagrams, [5, 300, 1016, 7, 400, 8, 500, 9, 600, 10], 1);
    assert_eq!((datagrams.counts().sequence_jump, datagrams.counts().restarts), (9, 0));
    // The last of those is consistent with these: the eighth of them is number 6.
    some(&mut datagrams, 0..16, 1);
    datagrams.finish();
    let counts = datagrams.counts();
    assert_eq!((counts.restarts, counts.sequence_jump, counts.placed), (1, 9 + 6, 17 + 10));
    assert_eq!(numbers(&mut datagrams), [(0, 125, 0), (0, 126, 0), (0, 127, 0), (1, 0, 60), (1, 1, 0)]);
}

/// Within reach, but behind all frames in progress.
#[test]
fn restart_within_the_window_gets_a_new_stream() {
    let mut datagrams = Datagrams::new(config(FORM, 20)).unwrap();
    some(&mut datagrams, 0..100, 1);
    some(&mut datagrams, 0..16, 2);
    datagrams.finish();
    let counts = datagrams.counts();
    assert_eq!((counts.restarts, counts.late, counts.sequence_jump, counts.placed), (1, 7, 0, 109));
    assert_eq!(numbers(&mut datagrams)[13..], [(1, 0, 70), (1, 1, 0)]);
}

#[test]
fn one_wrong_number_loses_no_other_datagram() {
    let mut datagrams = Datagrams::new(config(FORM, 20)).unwrap();
    some(&mut datagrams, (0..20).chain([150]).chain(20..40), 1);
    // Two consistent numbers give the new position of the sender; the first of them is lost.
    some(&mut datagrams, 112..128, 1);
    datagrams.finish();
    let counts = datagrams.counts();
    assert_eq!((counts.sequence_jump, counts.late, counts.placed), (2, 0, 55));
    let found = numbers(&mut datagrams);
    assert_eq!(found, [(0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 3, 0), (0, 4, 0), (0, 14, 10), (0, 15, 0)]);
}

#[test]
fn a_timeout_outputs_incomplete_frames() {
    let mut datagrams = Datagrams::new(config(FORM, 5)).unwrap();
    some(&mut datagrams, [0, 1, 3], 1_000_000_000);
    some(&mut datagrams, [9], 1_800_000_000);
    datagrams.tick(Nanos(1_900_000_000));
    assert_eq!(numbers(&mut datagrams), []);
    datagrams.tick(Nanos(2_000_000_000));
    assert_eq!(numbers(&mut datagrams), [(0, 0, 50)]);
    some(&mut datagrams, [2], 2_000_000_000);
    assert_eq!(datagrams.counts().late, 1);
    datagrams.tick(Nanos(3_000_000_000));
    let frame = datagrams.full().unwrap();
    assert_eq!((frame.meta.ending, frame.meta.len, frame.meta.late), (Some(Ending::Silent), 20, 1));
}

/// No frame was free for the first frame of a stream; the second does not wait for it.
#[test]
fn a_frame_after_a_missing_one_times_out() {
    let mut datagrams = Datagrams::new(config(FORM, 1)).unwrap();
    let other = Ends { from: ends().to, to: ends().from };
    datagrams.receive(&other, &datagram(0), Nanos(1));
    some(&mut datagrams, [0], 1_000_000_000);
    datagrams.tick(Nanos(1_000_000_001));
    assert_eq!(numbers(&mut datagrams), [(0, 0, 0)]);
    some(&mut datagrams, [8], 1_000_000_000);
    some(&mut datagrams, [0], 1_900_000_000);
    datagrams.tick(Nanos(2_000_000_000));
    assert_eq!(numbers(&mut datagrams), [(1, 1, 70)]);
    assert_eq!((datagrams.counts().skipped, datagrams.counts().no_frame), (1, 2));
}

/// A stream that starts while no frame is free leaves only a count.
#[test]
fn streams_without_a_frame_report_no_end() {
    let mut datagrams = Datagrams::new(config(FORM, 1)).unwrap();
    datagrams.receive(&Ends { from: ends().to, to: ends().from }, &datagram(0), Nanos(1));
    for second in 1..=20 {
        some(&mut datagrams, [0], second * 1_000_000_000);
        datagrams.tick(Nanos((second + 1) * 1_000_000_000));
    }
    assert_eq!((datagrams.streams(), datagrams.counts().no_frame), ((0, 21), 20));
    assert_eq!(numbers(&mut datagrams), [(0, 0, 0)]);
}

#[test]
fn gaps_of_a_frame_are_bounded() {
    let form = Form::Fixed { sequence: Field::big(0, 4), unit: Unit::Bytes, batch: None, data: 4 };
    let mut config = config(form, 3);
    (config.frames.size, config.reach) = (1 << 20, 1 << 30);
    let mut datagrams = Datagrams::new(config).unwrap();
    for position in (1..=140_001_u32).step_by(2) {
        datagrams.receive(&ends(), &[&position.to_be_bytes()[..], &[7]].concat(), Nanos(1));
    }
    // Data that closes a gap is still accepted.
    datagrams.receive(&ends(), &[&2_u32.to_be_bytes()[..], &[7]].concat(), Nanos(1));
    datagrams.finish();
    assert_eq!((datagrams.counts().placed, datagrams.counts().no_frame), (65_537, 70_001 - 65_536));
    assert_eq!(datagrams.full().unwrap().missing().len(), 65_535);
}

#[test]
fn without_free_frames_the_newest_or_oldest_is_dropped() {
    for (full, wanted) in [(WhenFull::DropNewest, vec![0, 1, 2]), (WhenFull::DropOldest, vec![2, 3, 4])] {
        let mut datagrams = Datagrams::new(Config { full, ..config(FORM, 3) }).unwrap();
        some(&mut datagrams, 0..40, 1);
        datagrams.finish();
        let counts = datagrams.counts();
        let found: Vec<u64> =
            numbers(&mut datagrams).iter().filter(|frame| frame.2 == 0).map(|frame| frame.1).collect();
        match full {
            WhenFull::DropNewest => assert_eq!((counts.no_frame, counts.placed, counts.reclaimed), (16, 24, 0)),
            WhenFull::DropOldest => {
                assert_eq!((counts.no_frame, counts.reclaimed, counts.reclaimed_bytes), (0, 2, 160));
            }
        }
        assert_eq!(found[..3], wanted);
    }
}

#[test]
fn wrong_sizes_and_too_many_senders_are_counted() {
    let mut datagrams = Datagrams::new(Config { streams: 1, ..config(FORM, 3) }).unwrap();
    datagrams.receive(&ends(), &datagram(0)[..12], Nanos(1));
    datagrams.receive(&ends(), &[0; 2], Nanos(1));
    datagrams.receive(&ends(), &datagram(0), Nanos(1));
    datagrams.receive(&Ends { from: ends().to, to: ends().from }, &datagram(0), Nanos(1));
    let counts = datagrams.counts();
    assert_eq!((counts.malformed, counts.placed, counts.no_stream), (2, 1, 1));
}

#[test]
fn fields_of_any_format_are_found() {
    let sequence = Field { offset: 1, width: 2, little_endian: true, shift: 4, bits: 6 };
    let form = Form::Fixed { sequence, unit: Unit::Bytes, batch: Some((Field::big(0, 1), 100)), data: 3 };
    let belongs = form.find(&[9, 0x3a, 0xf1, 1, 2]).unwrap();
    assert_eq!((belongs.first(), belongs.data), (9 * 100 + 0x13, [1, 2].as_slice()));
    // 8 bits of batches: the one after 255 is 0.
    assert_eq!(form.find(&[1, 0, 0, 1]).unwrap().position(255 * 100), 257 * 100);
    // Data that reaches into the next batch.
    let form = Form::Fixed {
        sequence: Field::big(1, 1),
        unit: Unit::Packets(4),
        batch: Some((Field::big(0, 1), 10)),
        data: 2,
    };
    assert_eq!(form.find(&[1, 1, 5, 6, 7, 8]).map(|belongs| belongs.first()), Ok(14));
    assert_eq!(form.find(&[1, 2, 5, 6, 7, 8]), Err(NoPosition::Malformed));
    let item = |id: u64, value: u64| (1 << 63 | id << 48 | value).to_be_bytes();
    let head = [0x53, 4, 2, 6, 0, 0, 0, 4];
    let packet = [&head[..], &item(1, 6), &item(2, 64), &item(3, 32), &item(4, 2), &[7, 8, 9]].concat();
    let belongs = Form::Spead { heap: 64, step: 2 }.find(&packet).unwrap();
    assert_eq!((belongs.first(), belongs.data), (3 * 64 + 32, [7, 8].as_slice()));
    assert_eq!(Form::Spead { heap: 33, step: 2 }.find(&packet), Err(NoPosition::Malformed));
    // IF data with a stream, integer and fractional timestamps and a trailer; the fifth of 16.
    let head = (1_u32 << 28 | 1 << 26 | 1 << 22 | 1 << 20 | 5 << 16 | 7).to_be_bytes();
    let packet = [&head[..], &77_u32.to_be_bytes(), &[0; 12], &[1, 2, 3, 4], &[0; 4]].concat();
    let belongs = Form::Vita49 { data: 4 }.find(&packet).unwrap();
    assert_eq!((belongs.stream, belongs.position(4 * 30), belongs.data), (77, 4 * 37, [1, 2, 3, 4].as_slice()));
    assert_eq!(Form::Vita49 { data: 4 }.find(&[0x40, 0, 0, 1]), Err(NoPosition::NoData));
}
