//! Errors in a set of streams are reported; a set that passes the check can be sent.

use crate::sets::{self, Dice};
use linerate_generate::stream::*;
use linerate_generate::trailer::Key;
use linerate_generate::{Rate, SenderPart, Traffic};
use linerate_headers::Link;
use proptest::prelude::*;

/// A stream with one of everything.
fn good() -> StreamSet {
    let change = Change { offset: 4, width: 4, mask: 0xffff_ffff, selector: 0, map: Map::counting(7) };
    let internet = ChecksumKind::Internet { plus: 0, no_zero: false };
    let variant = Variant {
        frame: vec![0; 64],
        changes: vec![change],
        fills: vec![Fill { offset: 10, length: 10, seed: 1 }],
        checksums: vec![
            Checksum { offset: 20, kind: internet, parts: vec![(0, 20)] },
            Checksum { offset: 24, kind: ChecksumKind::Crc32c, parts: vec![(0, 64)] },
        ],
        trailer: Some(48),
    };
    let stream = Stream {
        name: "one".into(),
        id: 1,
        link: Link::Ethernet,
        variants: vec![variant],
        size: Selector::ONE,
        selectors: vec![Selector { count: 5, pick: IndexSelection::InTurn { every: 1 } }],
        rate: Rate::Frames(1e6),
        shape: Shape::Even,
        count: None,
        next: Next::Following,
        span: Default::default(),
        mark: Mark::Trailer,
    };
    StreamSet { streams: vec![stream], order: Order::Sequential, rate: None, key: Key::default() }
}

/// Damages a set.
type Damage = fn(&mut StreamSet);

#[test]
fn errors_are_reported() {
    assert_eq!(good().check(), Ok(()));
    let cases: &[(&str, Damage)] = &[
        ("no streams", |set| set.streams.clear()),
        ("invalid rate NaN", |set| set.rate = Some(Rate::Frames(f64::NAN))),
        ("invalid rate 0", |set| set.streams[0].rate = Rate::Frames(0.0)),
        ("too high; expected one below 16777216", |set| set.streams[0].id = 1 << 24),
        ("number 1 is that of stream \"one\"", |set| set.streams.push(set.streams[0].clone())),
        ("count is 0", |set| set.streams[0].count = Some(0)),
        ("at least one frame", |set| set.streams[0].shape = Shape::Bursts { frames: 0, gap: 1 }),
        ("needs a rate", |set| {
            set.streams[0].shape = Shape::Poisson { seed: 1 };
            set.streams[0].rate = Rate::Top;
        }),
        ("goto stream number 1", |set| set.streams[0].next = Next::Goto { stream: 1, times: None }),
        ("from 1 lengths, but it has 0", |set| set.streams[0].variants.clear()),
        ("from 2 lengths, but it has 1", |set| set.streams[0].size.count = 2),
        ("for 0 frames", |set| set.streams[0].selectors[0].pick = IndexSelection::InTurn { every: 0 }),
        ("3 weights for 5", |set| {
            let table = Alias::zipf(3, 1.0).unwrap().into();
            set.streams[0].selectors[0].pick = IndexSelection::Weighted { table, seed: 1 };
        }),
        ("in all frames or in none", |set| set.streams[0].mark = Mark::None),
        ("in all frames or in none", |set| set.streams[0].variants[0].trailer = None),
        ("1 to 262144 bytes", |set| set.streams[0].variants[0].frame = vec![0; 262_145]),
        ("17 bytes wide", |set| set.streams[0].variants[0].changes[0].width = 17),
        ("0 bytes wide", |set| set.streams[0].variants[0].changes[0].width = 0),
        ("one run of bits", |set| set.streams[0].variants[0].changes[0].mask = 0),
        ("one run of bits", |set| set.streams[0].variants[0].changes[0].mask = 0b101),
        ("one run of bits", |set| set.streams[0].variants[0].changes[0].mask = 1 << 32),
        ("uses selector 1, but only 1 exist", |set| set.streams[0].variants[0].changes[0].selector = 1),
        ("divided by 0", |set| {
            let map = Map::Range { start: 0, step: 1, divide: 0, modulo: 0 };
            set.streams[0].variants[0].changes[0].map = map;
        }),
        ("list is empty", |set| set.streams[0].variants[0].changes[0].map = Map::List([].into())),
        ("fill at byte 60 extends beyond", |set| set.streams[0].variants[0].fills[0].offset = 60),
        ("fill at byte 10 extends beyond", |set| set.streams[0].variants[0].fills[0].length = usize::MAX),
        ("trailer at byte 49 extends beyond", |set| set.streams[0].variants[0].trailer = Some(49)),
        ("trailer at byte 12 overlaps", |set| set.streams[0].variants[0].trailer = Some(12)),
        ("checksum at byte 6 overlaps", |set| set.streams[0].variants[0].checksums[0].offset = 6),
        ("part 0 to 65 is out of order", |set| set.streams[0].variants[0].checksums[1].parts = vec![(0, 65)]),
        ("part 4 to 9 is out of order", |set| set.streams[0].variants[0].checksums[1].parts = vec![(0, 8), (4, 9)]),
        ("part 9 to 8 is out of order", |set| set.streams[0].variants[0].checksums[1].parts = vec![(9, 8)]),
        ("ends within the field at byte 4", |set| set.streams[0].variants[0].checksums[1].parts = vec![(0, 6)]),
        ("ends within the fill at byte 10", |set| set.streams[0].variants[0].checksums[1].parts = vec![(11, 64)]),
        ("which must come first", |set| set.streams[0].variants[0].checksums[0].parts = vec![(20, 40)]),
    ];
    for (words, change) in cases {
        let mut set = good();
        change(&mut set);
        let wrong = set.check().expect_err(words).to_string();
        assert!(wrong.contains(words), "{wrong}: not {words:?}");
        assert!(Traffic::new(&set, SenderPart::WHOLE).is_err());
    }
}

#[test]
fn streams_at_the_maximum_rate_do_not_starve_others() {
    let mut set = good();
    set.streams.push(Stream { id: 2, name: "two".into(), rate: Rate::Top, ..set.streams[0].clone() });
    assert_eq!(set.check(), Ok(()));
    set.order = Order::Interleaved;
    assert!(set.check().unwrap_err().to_string().contains("all a rate or all \"max\""));
}

#[test]
fn streams_of_one_port_have_one_link_type() {
    let mut set = good();
    set.streams.push(Stream { id: 2, name: "two".into(), link: Link::Sll, ..set.streams[0].clone() });
    let error = set.check().unwrap_err().to_string();
    assert!(error.contains("\"two\": its link type differs from that of stream \"one\""), "{error}");
}

#[test]
fn fields_may_share_bytes_but_no_bits() {
    let mut set = good();
    let changes = &mut set.streams[0].variants[0].changes;
    changes[0].mask = 0xfff0_0000;
    changes.push(Change { mask: 0x000f_ffff, ..changes[0].clone() });
    assert_eq!(set.check(), Ok(()));
    set.streams[0].variants[0].changes[1].mask = 0x001f_ffff;
    assert!(set.check().unwrap_err().to_string().contains("overlaps"));
}

#[test]
fn trailers_cannot_be_kept() {
    let wrong = Traffic::kept(&good(), SenderPart::WHOLE, 10).unwrap_err().to_string();
    assert!(wrong.contains("stream \"one\"") && wrong.contains("trailer"), "{wrong}");
}

proptest! {
    /// Numbers of a right set are replaced by others: it is refused, or its frames can be made.
    #[test]
    fn valid_sets_never_fail_later(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let mut set = sets::set(&mut dice, 3);
        let streams = set.streams.len() as u64;
        let stream = &mut set.streams[dice.below(streams) as usize];
        let variants = stream.variants.len() as u64;
        let variant = &mut stream.variants[dice.below(variants) as usize];
        for _ in 0..1 + dice.below(3) {
            let number = dice.any() as usize;
            let any = dice.of(&[0, 1, number, number % 64, usize::MAX]);
            match dice.below(9) {
                0 => variant.changes.iter_mut().for_each(|change| change.offset = any),
                1 => variant.changes.iter_mut().for_each(|change| change.mask ^= any as u128),
                2 => variant.fills.iter_mut().for_each(|fill| fill.length = any),
                3 => variant.checksums.iter_mut().for_each(|sum| sum.offset = any),
                4 => variant.checksums.iter_mut().for_each(|sum| sum.parts.push((0, any))),
                5 => variant.frame.truncate(any),
                6 => stream.count = Some(any as u64),
                7 => stream.selectors.iter_mut().for_each(|selector| selector.count = any as u64),
                _ => stream.rate = Rate::Frames(f64::from_bits(number as u64)),
            }
        }
        if set.check().is_ok() {
            let mut traffic = Traffic::new(&set, SenderPart::WHOLE).unwrap();
            for _ in 0..3 {
                let shown = traffic.offer(u64::MAX >> dice.below(64), linerate_burst::Nanos(dice.roll())).unwrap().len();
                traffic.consume(shown);
            }
            for stream in &set.streams {
                stream.frame(dice.any(), dice.any(), &set.key);
            }
        }
    }
}
