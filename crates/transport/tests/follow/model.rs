//! Random segments, compared with a naive model.

use super::hosts::{ACK, FIN, SYN, Stream, TestSegment, followed, sent};
use linerate_transport::follow::{Config, Ending, Overlap};
use proptest::prelude::*;
use std::ops::Range;

/// Returns the byte of a stream at an offset.
fn pattern(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn part(start: u64, end: u64) -> Vec<u8> {
    (start..end).map(pattern).collect()
}

/// A configuration whose limits are never reached, in which gaps wait to the end.
fn patient(overlap: Overlap) -> Config {
    Config { overlap, ..Config::default() }
}

fn policies() -> impl Strategy<Value = Overlap> {
    prop::sample::select(Overlap::NAMES.map(|(_, overlap)| overlap).to_vec())
}

/// Checks a stream of consistent segments in any order: all received bytes, and gaps for the rest.
fn check_whole(stream: &Stream, pieces: &[Range<u64>]) {
    let end = pieces.iter().map(|piece| piece.end).max().unwrap_or(0);
    let is_there = |at: u64| pieces.iter().any(|piece| piece.contains(&at));
    assert_eq!(stream.edge, end);
    let wanted: Vec<u8> = (0..end).map(|at| if is_there(at) { pattern(at) } else { 0 }).collect();
    assert_eq!(stream.whole(), wanted);
    let missing: Vec<u64> = (0..end).filter(|at| !is_there(*at)).collect();
    let reported: Vec<u64> = stream.gaps.iter().cloned().flatten().collect();
    assert_eq!(reported, missing);
    let seen: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
    let tally = stream.summary().tally;
    assert_eq!(tally.bytes + tally.repeated, seen, "{tally:?}");
    assert_eq!((tally.differing, tally.late, tally.before, tally.beyond, tally.far), (0, 0, 0, 0, 0));
}

/// Returns the data of hosts with these policies, byte by byte.
fn model(overlap: Overlap, segments: &[(Range<u64>, u8)]) -> Vec<Option<u8>> {
    let end = segments.iter().map(|(range, _)| range.end).max().unwrap_or(0);
    let mut bytes: Vec<Option<(u8, Range<u64>)>> = vec![None; end as usize];
    let mut edge = 0;
    for (range, mark) in segments {
        for at in range.clone().filter(|at| *at >= edge) {
            let new_counts = bytes[at as usize].as_ref().is_none_or(|(_, old)| match overlap {
                Overlap::First => false,
                Overlap::Last => true,
                Overlap::Bsd => range.start < old.start,
                Overlap::Linux => (range.start, std::cmp::Reverse(range.end)) < (old.start, std::cmp::Reverse(old.end)),
            });
            if new_counts {
                bytes[at as usize] = Some((*mark, range.clone()));
            }
        }
        edge = bytes.iter().position(Option::is_none).unwrap_or(bytes.len()) as u64;
    }
    bytes.into_iter().map(|byte| byte.map(|(mark, _)| mark)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn received_bytes_are_output_and_the_rest_is_reported_missing(
        isn in prop_oneof![any::<u32>(), (0xffff_ff00_u32..=u32::MAX)],
        pieces in prop::collection::vec((0_u64..400, 1_u64..60), 1..40),
        overlap in policies(),
    ) {
        let pieces: Vec<Range<u64>> = pieces.into_iter().map(|(start, len)| start..start + len).collect();
        let mut segments = vec![sent(isn, SYN, &[])];
        let place = |offset: u64| isn.wrapping_add(1).wrapping_add(offset as u32);
        segments.extend(pieces.iter().map(|piece| sent(place(piece.start), ACK, &part(piece.start, piece.end))));
        let streams = followed(patient(overlap), &segments);
        prop_assert_eq!(streams.len(), 1);
        check_whole(&streams[0], &pieces);
    }

    #[test]
    fn overlaps_match_a_byte_by_byte_model(
        pieces in prop::collection::vec((0_u64..60, 1_u64..20), 1..20),
        overlap in policies(),
    ) {
        let pieces: Vec<(Range<u64>, u8)> =
            pieces.into_iter().zip(1..).map(|((start, len), mark)| (start..start + len, mark)).collect();
        let mut segments = vec![sent(99, SYN, &[])];
        let data = |(range, mark): &(Range<u64>, u8)| vec![*mark; (range.end - range.start) as usize];
        segments.extend(pieces.iter().map(|piece| sent(100 + piece.0.start as u32, ACK, &data(piece))));
        let streams = followed(patient(overlap), &segments);
        let wanted: Vec<u8> = model(overlap, &pieces).into_iter().map(Option::unwrap_or_default).collect();
        prop_assert_eq!(streams[0].whole(), wanted);
    }

    /// A stream whose numbers wrap more than once, through gaps that are given up at once; some segments are repeated.
    #[test]
    fn sequence_numbers_wrap(
        isn in any::<u32>(), steps in prop::collection::vec((1_u64..1 << 30, any::<bool>()), 10..30), seen in 1_u64..50,
    ) {
        let place = |offset: u64| isn.wrapping_add(1).wrapping_add(offset as u32);
        let data = |start: u64| part(start, start + seen);
        let (mut segments, mut at, mut pieces) = (vec![sent(isn, SYN, &[])], 0, Vec::new());
        for (step, again) in steps {
            at += step.max(seen);
            let one = sent(place(at), ACK, &data(at));
            pieces.push((at, data(at)));
            segments.extend(again.then(|| one.clone()));
            segments.push(one);
        }
        let streams = followed(Config { stream_memory: 0, ..patient(Overlap::First) }, &segments);
        prop_assert_eq!(&streams[0].bytes, &pieces);
    }

    #[test]
    fn truncated_frames_leave_gaps_without_delay(lens in prop::collection::vec((1_usize..100, 0_usize..100), 1..20)) {
        let (mut segments, mut at, mut there) = (vec![sent(9, SYN, &[])], 0, Vec::new());
        for (len, cut) in lens {
            let cut = cut.min(len);
            let data = part(at, at + len as u64);
            segments.push(TestSegment { cut, ..sent(10 + at as u32, ACK, &data) });
            there.push(at..at + (len - cut) as u64);
            at += len as u64;
        }
        segments.push(sent(10 + at as u32, ACK | FIN, &[]));
        let streams = followed(patient(Overlap::First), &segments);
        let stream = &streams[0];
        prop_assert_eq!((stream.edge, stream.summary().ending), (at, Ending::Fin));
        let bytes: u64 = there.iter().map(|range| range.end - range.start).sum();
        prop_assert_eq!(stream.summary().tally.bytes, bytes);
        for (start, bytes) in &stream.bytes {
            prop_assert_eq!(bytes, &part(*start, start + bytes.len() as u64));
        }
    }
}
