//! Arbitrary streams, restricted to what programs support.

use super::*;
use proptest::prelude::*;
use std::sync::Arc;

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0u64),
        Just(1),
        Just(0xffff),
        Just(u64::MAX),
        any::<u64>(),
        0u64..300,
        any::<u32>().prop_map(u64::from)
    ]
}

fn wide() -> impl Strategy<Value = u128> {
    (value(), value()).prop_map(|(high, low)| u128::from(high) << 64 | u128::from(low))
}

fn selector() -> impl Strategy<Value = Selector> {
    let count = || prop_oneof![value(), 1u64..9, (0u32..64).prop_map(|bit| 1 << bit)];
    prop_oneof![
        (count(), 1u64..4).prop_map(|(count, every)| in_turn(count, every)),
        (count(), any::<u64>()).prop_map(|(count, seed)| Selector { count, pick: IndexSelection::Random { seed } }),
        (prop::collection::vec(0.1f64..9.0, 1..9), any::<u64>()).prop_map(|(weights, seed)| {
            let table = Arc::new(Alias::new(&weights).unwrap());
            Selector { count: weights.len() as u64, pick: IndexSelection::Weighted { table, seed } }
        }),
    ]
}

fn map() -> impl Strategy<Value = Values> {
    let step = prop_oneof![(-3i128..4), any::<i64>().prop_map(i128::from), (0u32..127).prop_map(|bit| 1 << bit)];
    prop_oneof![
        (wide(), step, 1u64..6, 0u64..6).prop_map(|(start, step, divide, modulo)| Values::Range {
            start,
            step,
            divide,
            modulo
        }),
        prop::collection::vec(wide(), 1..9).prop_map(|values| Values::List(values.into())),
        (wide(), prop_oneof![wide(), (0u32..128).prop_map(|bit| 1 << bit)], any::<u64>())
            .prop_map(|(start, span, seed)| Values::Scatter { start, span, seed }),
    ]
}

fn change_of() -> impl Strategy<Value = Change> {
    (0usize..400, 1usize..17, 0usize..3, map(), 0u32..128, 1u32..129).prop_map(
        |(offset, width, selector, map, low, bits)| {
            let all = 8 * width as u32;
            // Often whole bytes, as most fields are.
            let (low, bits) = if low < 64 { (0, all) } else { (low % all, bits) };
            let bits = 1 + (bits - 1) % (all - low);
            Change { offset, width, mask: u128::MAX >> (128 - bits) << low, selector, map }
        },
    )
}

fn checksum() -> impl Strategy<Value = Checksum> {
    (0usize..400, prop::collection::vec((0usize..400, 0usize..400), 1..4), any::<u16>(), any::<bool>()).prop_map(
        |(offset, parts, plus, no_zero)| Checksum { offset, kind: ChecksumKind::Internet { plus, no_zero }, parts },
    )
}

fn variant() -> impl Strategy<Value = Variant> {
    let byte = prop_oneof![Just(0u8), Just(0xff), any::<u8>()];
    let fill = (0usize..400, 0usize..40, any::<u64>()).prop_map(|(offset, length, seed)| Fill { offset, length, seed });
    (
        prop_oneof![14usize..80, 14usize..400],
        prop::collection::vec(byte, 400),
        prop::collection::vec(change_of(), 0..6),
        prop::collection::vec(fill, 0..2),
        prop::collection::vec(checksum(), 0..4),
        prop::option::of(0usize..400),
    )
        .prop_map(|(length, bytes, changes, fills, checksums, trailer)| Variant {
            frame: bytes[..length].to_vec(),
            changes,
            fills,
            checksums,
            trailer,
        })
}

fn streams() -> impl Strategy<Value = Vec<Stream>> {
    let one = (
        prop::collection::vec(variant(), 1..4),
        prop::collection::vec(selector(), 3),
        selector(),
        prop::option::of(1u64..9),
    );
    let one = one.prop_map(|(variants, selectors, size, count)| {
        let size = Selector { count: variants.len() as u64, pick: size.pick };
        Stream { size, count, ..super::stream(variants, selectors) }
    });
    prop::collection::vec(one, 1..4)
}

/// Reduces a stream to what programs support.
fn fit(stream: Stream) -> Stream {
    let works = |stream: &Stream| Streams::of(&set(vec![stream.clone()], Order::Interleaved)).is_ok();
    let whole = stream.clone();
    let mut stream = Stream { variants: whole.variants.iter().map(|one| plain(one.frame.len())).collect(), ..stream };
    if !works(&stream) {
        stream.size = Selector { count: stream.variants.len() as u64, ..Selector::ONE };
    }
    for (index, variant) in whole.variants.into_iter().enumerate() {
        let length = variant.frame.len();
        stream.variants[index].frame = variant.frame;
        let mut attempt = |edit: &dyn Fn(&mut Variant)| {
            let before = stream.variants[index].clone();
            edit(&mut stream.variants[index]);
            if !works(&stream) {
                stream.variants[index] = before;
            }
        };
        for change in variant.changes {
            attempt(&|variant| variant.changes.push(Change { offset: change.offset % length, ..change.clone() }));
        }
        for fill in variant.fills {
            attempt(&|variant| variant.fills.push(Fill { offset: fill.offset % length, ..fill.clone() }));
        }
        if let Some(trailer) = variant.trailer {
            attempt(&|variant| variant.trailer = Some(trailer % length));
        }
        for checksum in variant.checksums {
            let ends = |(a, b): &(usize, usize)| (a % (length + 1), b % (length + 1));
            let parts = checksum.parts.iter().map(ends).map(|(a, b)| (a.min(b), a.max(b))).collect();
            let checksum = Checksum { offset: checksum.offset % length, parts, ..checksum };
            attempt(&|variant| variant.checksums.push(checksum.clone()));
        }
    }
    stream
}

/// Returns the order of a set by a simple model: stream and number of its first frames.
fn expected(set: &StreamSet, frames: usize) -> Vec<(usize, u64)> {
    let count = |index: usize| set.streams[index].count.unwrap_or(frames as u64);
    let indices = 0..set.streams.len();
    let mut all: Vec<(usize, u64)> = indices.flat_map(|index| (0..count(index)).map(move |n| (index, n))).collect();
    if set.order == Order::Interleaved {
        all.sort_by_key(|(index, n)| (*n, *index));
    }
    all.truncate(frames);
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn programs_match_the_model(streams in streams(), sequential: bool) {
        prop_assume!(may_load());
        let streams = streams.into_iter().map(fit).collect();
        let set = set(streams, if sequential { Order::Sequential } else { Order::Interleaved });
        let trial = Trial::of(&set);
        let expected = expected(&set, 30);
        for (stream, n) in &expected {
            trial.expect(*stream, *n);
        }
        if expected.len() < 30 {
            prop_assert!(trial.next().is_none());
        }
    }
}
