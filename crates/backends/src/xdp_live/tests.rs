//! Programs compared with the model of their streams, run by the kernel on frames in memory.

mod commands;
mod order;
mod random;

use super::program::{BOUND, DUE, LATE_FRAMES, LATE_MAX, Maps, Program as Streams, SHIFTED};
use super::shared_state::{OFFSET, State};
use crate::program_clock::monotonic;
use crate::sys::bpf::{Demands, Map, MapKind, Program};
use crate::sys::bpf_live::Bytes;
use linerate_generate::Rate;
use linerate_generate::stream::{
    Alias, Change, Checksum, ChecksumKind, Fill, IndexSelection, Map as Values, Mark, Next, Order, Selector, Shape,
    Stream, StreamSet, Variant,
};
use linerate_generate::trailer::Key;

const REDIRECT: u32 = 4;
const DROP: u32 = 1;
const TIME: u64 = 1_700_000_000_000_000_000;

/// A set's program, run on frames that are not sent.
struct Trial<'a> {
    set: &'a StreamSet,
    program: Program,
    state: State,
    longest: usize,
    _maps: (Map, Bytes),
}

impl<'a> Trial<'a> {
    fn of(set: &'a StreamSet) -> Self {
        Trial::with(set, &Streams::of(set).unwrap_or_else(|reason| panic!("{reason}")))
    }

    fn with(set: &'a StreamSet, streams: &Streams<'_>) -> Self {
        let state = State::new(streams.words).unwrap();
        let mut memory = Bytes::new(streams.memory.len().max(8)).unwrap();
        memory.write(0, &streams.memory);
        streams.initial().iter().for_each(|(word, value)| state.set(*word, *value));
        state.set(OFFSET, TIME);
        // Frames are long overdue, and times are compared.
        state.set(BOUND, u64::MAX);
        let devmap = Map::new(MapKind::Devmap, 4, 1).unwrap();
        devmap.set(0, &1u32.to_ne_bytes()).unwrap();
        let maps = Maps { words: state.raw(), devmap: devmap.raw(), memory: memory.raw() };
        let insns = streams.instructions(maps).unwrap();
        let program = Program::load(&insns, Demands::default()).unwrap_or_else(|error| panic!("{error}"));
        Trial { set, program, state, longest: streams.longest, _maps: (devmap, memory) }
    }

    /// Returns the next frame, made over leftover bytes; `None` if none is made.
    fn next(&self) -> Option<Vec<u8>> {
        let (action, frame) = self.program.run_once(&vec![0xee; self.longest]).unwrap();
        assert!(action == REDIRECT || action == DROP && self.state.counts().failed == 0, "a frame failed");
        (action == REDIRECT).then_some(frame)
    }

    /// Checks that the next frame is frame `n` of a stream.
    fn expect(&self, stream: usize, n: u64) {
        let frame = self.next().unwrap_or_else(|| panic!("stream {stream} frame {n} is not made"));
        let stream = &self.set.streams[stream];
        let time = stream.variant(n).trailer.map_or(0, |at| {
            let word = u64::from_be_bytes(frame[at + 8..at + 16].try_into().unwrap());
            word >> 24
        });
        let wanted = stream.frame(n, time, &self.set.key);
        assert!(frame == wanted, "{:?} frame {n}:\n{frame:02x?}\n{wanted:02x?}", stream.name);
    }
}

fn may_load() -> bool {
    let may = Map::new(MapKind::Devmap, 4, 1).is_ok();
    if !may {
        eprintln!("SKIPPED: loading programs needs root");
    }
    may
}

fn stream(variants: Vec<Variant>, selectors: Vec<Selector>) -> Stream {
    let size = Selector { count: variants.len() as u64, ..Selector::ONE };
    Stream {
        name: "s".into(),
        id: 7,
        link: linerate_headers::Link::Ethernet,
        variants,
        size,
        selectors,
        rate: Rate::Top,
        shape: Shape::Even,
        count: None,
        next: Next::Following,
        span: Default::default(),
        mark: Mark::None,
    }
}

fn set(streams: Vec<Stream>, order: Order) -> StreamSet {
    let number = |(id, mut stream): (usize, Stream)| {
        stream.id = id as u32 + 7;
        let trailers = stream.variants.iter().any(|variant| variant.trailer.is_some());
        stream.mark = if trailers { Mark::Trailer } else { Mark::None };
        stream
    };
    let streams = streams.into_iter().enumerate().map(number).collect();
    StreamSet { streams, order, rate: None, key: Key::default() }
}

fn in_turn(count: u64, every: u64) -> Selector {
    Selector { count, pick: IndexSelection::InTurn { every } }
}

fn change(offset: usize, width: usize, selector: usize, map: Values) -> Change {
    let mask = if width == 16 { u128::MAX } else { (1 << (8 * width)) - 1 };
    Change { offset, width, mask, selector, map }
}

fn internet(offset: usize, parts: &[(usize, usize)]) -> Checksum {
    let kind = ChecksumKind::Internet { plus: 17, no_zero: true };
    Checksum { offset, kind, parts: parts.to_vec() }
}

fn plain(length: usize) -> Variant {
    Variant { frame: vec![length as u8; length], ..Variant::default() }
}

/// As in all senders: a longer stall shifts the rest of the schedule.
#[test]
fn a_stalled_program_catches_up_within_a_bound() {
    if !may_load() {
        return;
    }
    const BEHIND: u64 = 100_000_000;
    for commanded in [false, true] {
        let one = Stream { rate: Rate::Frames(1e6), ..stream(vec![plain(60)], vec![Selector::ONE]) };
        let set = set(vec![one], Order::Interleaved);
        let streams = if commanded { Streams::commanded(&set) } else { Streams::of(&set) };
        let trial = Trial::with(&set, &streams.unwrap());
        let word = |word| trial.state.get(word);
        let due = monotonic() - 10 * BEHIND;
        trial.state.set(DUE, due);
        trial.state.set(BOUND, BEHIND);
        assert!(trial.next().is_some());
        let shifted = word(SHIFTED);
        assert!((9 * BEHIND..monotonic() - due - BEHIND + 1).contains(&shifted), "{shifted}");
        // The gap at this rate is 1 us.
        assert_eq!((word(DUE), word(LATE_MAX), word(LATE_FRAMES)), (due + shifted + 1000, BEHIND, 1));
        // A frame that is due now is neither late nor shifted.
        trial.state.set(DUE, monotonic());
        trial.state.set(BOUND, u64::MAX);
        let before = monotonic();
        assert!(trial.next().is_some());
        let is_slow = monotonic() - before > 1_000_000;
        assert!(word(SHIFTED) == shifted && (is_slow || word(LATE_FRAMES) == 1));
    }
}

#[test]
fn user_defined_streams_are_generated() {
    if !may_load() {
        return;
    }
    let table = |weights: &[f64]| std::sync::Arc::new(Alias::new(weights).unwrap());
    let range = |start, step, divide, modulo| Values::Range { start, step, divide, modulo };
    let host = 0x2001_0db8_0000_0000_0000_0000_0000_0001u128;
    let far = IndexSelection::Random { seed: 9 };
    // Selectors: a count other than a power of two, three frames each, random, weighted, bits.
    let selectors = vec![
        in_turn(1000, 1),
        in_turn(77, 3),
        Selector { count: 1 << 20, pick: far.clone() },
        Selector { count: 5, pick: IndexSelection::Weighted { table: table(&[1.0, 0.0, 5.0, 2.0, 0.1]), seed: 4 } },
        in_turn(0, 4),
        Selector { count: 1 << 40 | 1, pick: far.clone() },
        Selector { count: 0, pick: far },
    ];
    let every = [
        change(20, 16, 0, range(host, 3, 1, 0)),
        change(20, 16, 2, range(host + 5000, -1, 256, 0)),
        change(20, 16, 4, range(host, 1 << 64, 1, 0)),
        change(20, 16, 0, range(host, (3 << 64) - 1, 1, 1)),
        change(20, 16, 5, Values::Scatter { start: host - 1, span: 1 << 96, seed: 3 }),
        change(20, 16, 5, Values::Scatter { start: 0, span: 0, seed: 3 }),
        change(20, 16, 1, Values::List([host, 5, u128::MAX].into())),
        change(20, 6, 0, range(0x0200_0000_0000, 1, 1, 0)),
        change(21, 3, 0, range(0xff_fff0, 1, 7, 100)),
        change(21, 7, 6, range(1, 1, 1, 0)),
        change(20, 4, 1, range(10, -3, 7, 3)),
        change(20, 4, 2, Values::Scatter { start: 0xc612_0000, span: 1 << 17, seed: 1 }),
        change(20, 4, 2, Values::Scatter { start: 0xc612_0000, span: 70_000, seed: 1 }),
        change(20, 8, 3, Values::Scatter { start: 1, span: 1 << 40 | 3, seed: 1 }),
        change(20, 2, 3, Values::List([80, 443, 53, 22].into())),
        change(20, 2, 6, Values::List([80, 443, 53].into())),
        // A VLAN number, a flow label, two fields of one byte, one with both ends inside bytes.
        Change { mask: 0xfff, ..change(20, 2, 0, range(4090, 1, 1, 0)) },
        Change { mask: 0xf_ffff, ..change(20, 4, 2, Values::counting(0)) },
        Change { mask: ((1 << 55) - 1) << 5, ..change(20, 10, 6, Values::counting(3)) },
        Change { mask: 0xff00_0000_0000_0000_0000, ..change(20, 12, 1, Values::counting(3)) },
    ];
    for change in every {
        let frame: Vec<u8> = (0..64).collect();
        let checksums = vec![internet(50, &[(20, 36), (36, 45)]), internet(13, &[(15, 64)])];
        let variant = Variant { frame, changes: vec![change.clone()], checksums, ..Variant::default() };
        let set = set(vec![stream(vec![variant], selectors.clone())], Order::Interleaved);
        let trial = Trial::of(&set);
        (0..1100).for_each(|n| trial.expect(0, n));
        println!("{change:?}");
    }
    let halves = |mask| Change { mask, ..change(15, 1, 0, Values::counting(0)) };
    let changes = vec![halves(0xfc), halves(3), Change { selector: 1, ..change(20, 3, 0, Values::counting(0)) }];
    let variant = Variant { frame: vec![9; 60], changes, checksums: vec![internet(30, &[(15, 30)])], ..plain(60) };
    let set = set(vec![stream(vec![variant], selectors)], Order::Interleaved);
    let trial = Trial::of(&set);
    (0..300).for_each(|n| trial.expect(0, n));
}

#[test]
fn lengths_noise_and_trailers_are_generated() {
    if !may_load() {
        return;
    }
    let picks = [
        IndexSelection::InTurn { every: 2 },
        IndexSelection::Random { seed: 1 },
        IndexSelection::Weighted { table: std::sync::Arc::new(Alias::new(&[7.0, 4.0, 1.0]).unwrap()), seed: 1 },
    ];
    for pick in picks {
        let variants = [60usize, 566, 1514].map(|length| {
            let fill = |offset, length, seed| Fill { offset, length, seed };
            Variant {
                frame: (0..length).map(|at| at as u8).collect(),
                fills: vec![fill(42, length - 58, 1), fill(15, 3, 2)],
                checksums: vec![internet(40, &[(15, 39), (42, length)])],
                trailer: Some(length - 16),
                ..Variant::default()
            }
        });
        let mut stream = stream(variants.into(), Vec::new());
        stream.size.pick = pick;
        let set = set(vec![stream], Order::Interleaved);
        let trial = Trial::of(&set);
        (0..200).for_each(|n| trial.expect(0, n));
    }
}

/// Among all 16-bit sums there is the one that is written as 0xffff in UDP, as 0 elsewhere.
#[test]
fn checksums_are_folded_and_zero_is_encoded_as_requested() {
    if !may_load() {
        return;
    }
    let checksum = |offset, no_zero| Checksum {
        offset,
        kind: ChecksumKind::Internet { plus: 0xfff0, no_zero },
        parts: vec![(14, 18)],
    };
    let variant = Variant {
        frame: vec![0xff; 24],
        changes: vec![change(14, 2, 0, Values::counting(0))],
        checksums: vec![checksum(20, true), checksum(22, false)],
        ..Variant::default()
    };
    let set = set(vec![stream(vec![variant], vec![in_turn(0, 1)])], Order::Interleaved);
    let trial = Trial::of(&set);
    let mut zeros = 0;
    for number in 0..=0xffff {
        let frame = trial.next().unwrap();
        assert_eq!(frame, set.streams[0].frame(number, 0, &set.key), "frame {number}");
        zeros += u32::from(frame[20..24] == [0xff, 0xff, 0, 0]);
    }
    assert!(zeros > 0, "no sum was zero");
}

#[test]
fn streams_alternate_until_their_end() {
    if !may_load() {
        return;
    }
    let of = |count, length| Stream { count, ..stream(vec![plain(length)], Vec::new()) };
    for counts in [[None; 3], [Some(4); 3], [Some(1), Some(5), Some(3)], [Some(1), Some(2), None]] {
        let streams: Vec<Stream> = counts.iter().zip([14, 30, 61]).map(|(count, length)| of(*count, length)).collect();
        let set = set(streams, Order::Interleaved);
        let trial = Trial::of(&set);
        let takes = |n: u64, stream: &usize| counts[*stream].is_none_or(|count| n < count);
        for n in 0..6 {
            (0..3).filter(|stream| takes(n, stream)).for_each(|stream| trial.expect(stream, n));
        }
        assert_eq!(trial.next().is_none(), counts.iter().all(|count| count.is_some()), "{counts:?}");
    }
    let many: Vec<Stream> = (0..64).map(|index| of(None, 14 + index)).collect();
    let set = set(many, Order::Interleaved);
    let trial = Trial::of(&set);
    (0..200).for_each(|turn| trial.expect(turn % 64, turn as u64 / 64));
}

#[test]
fn sequence_follows_gotos_and_numbers_continue() {
    if !may_load() {
        return;
    }
    let of = |count, next| Stream { count: Some(count), next, ..stream(vec![plain(20 + count as usize)], Vec::new()) };
    let goto = |stream, times| Next::Goto { stream, times };
    let follow = Next::Following;
    let sequences = [
        (vec![of(2, follow), of(3, follow)], "0 0 1 1 1 ."),
        (vec![of(1, follow), of(2, Next::Stop), of(3, follow)], "0 1 1 ."),
        (vec![of(1, follow), of(2, goto(0, Some(2))), of(1, follow)], "0 1 1 0 1 1 0 1 1 2 ."),
        (vec![of(1, goto(0, Some(1))), of(2, goto(0, Some(1)))], "0 0 1 1 0 0 1 1 ."),
        (vec![of(1, goto(2, None)), of(1, follow), of(2, goto(1, None))], "0 2 2 1 2 2 1 2 2"),
        (vec![of(2, goto(0, Some(2)))], "0 0 0 0 0 0 ."),
    ];
    for (streams, order) in sequences {
        let set = set(streams, Order::Sequential);
        let trial = Trial::of(&set);
        let mut numbers = [0; 3];
        for word in order.split(' ') {
            match word.parse::<usize>() {
                Ok(stream) => {
                    trial.expect(stream, numbers[stream]);
                    numbers[stream] += 1;
                }
                Err(_) => assert_eq!(trial.next(), None, "{order}"),
            }
        }
    }
}

#[test]
fn unsupported_streams_are_reported() {
    let base = || stream(vec![plain(60)], vec![in_turn(0, 1)]);
    let with = |edit: &dyn Fn(&mut Stream)| {
        let mut stream = base();
        edit(&mut stream);
        set(vec![stream], Order::Sequential)
    };
    let changed = |change: Change| with(&|stream| stream.variants[0].changes = vec![change.clone()]);
    let two = |edit: &dyn Fn(&mut Stream)| {
        let first = Stream { rate: Rate::Frames(1e6), ..base() };
        let mut second = first.clone();
        edit(&mut second);
        set(vec![first, second], Order::Interleaved)
    };
    let wide = |map| changed(change(20, 16, 0, map));
    let crc = Checksum { offset: 40, kind: ChecksumKind::Crc32c, parts: vec![(20, 30)] };
    let some = change(20, 4, 0, Values::counting(0));
    let wide_one = change(20, 16, 0, Values::counting(0));
    let cases = [
        (with(&|stream| stream.shape = Shape::Poisson { seed: 0 }), "Poisson"),
        (two(&|stream| stream.rate = Rate::Frames(1e3)), "different rates"),
        (two(&|stream| stream.shape = Shape::Bursts { frames: 1, gap: 1 }), "uneven gaps"),
        (set((0..65).map(|_| base()).collect(), Order::Interleaved), "65 streams"),
        // An invalid set is rejected by `check`, which has tests of its own.
        (set(Vec::new(), Order::Interleaved), "no stream"),
        (changed(Change { offset: 57, ..some.clone() }), "beyond the end"),
        (wide(Values::counting(u128::from(u64::MAX))), "carries"),
        (wide(Values::Scatter { start: u128::from(u64::MAX), span: 2, seed: 0 }), "over the edge"),
        (wide(Values::Scatter { start: 0, span: (1 << 70) + 1, seed: 0 }), "power of two"),
        (wide(Values::Scatter { start: 1, span: 1 << 70, seed: 0 }), "with lower bits"),
        (changed(Change { mask: ((1 << 70) - 1) << 1, ..wide_one.clone() }), "end with a byte"),
        (changed(Change { mask: ((1 << 62) - 1) << 5, ..wide_one.clone() }), "end with a byte"),
        (
            with(&|stream| {
                stream.variants[0].changes = vec![some.clone()];
                stream.variants[0].checksums = vec![crc.clone()];
            }),
            "CRC32c",
        ),
        (
            with(&|stream| {
                stream.variants[0].changes = vec![some.clone()];
                stream.variants[0].checksums = (0..5).map(|at| internet(30 + 2 * at, &[(20, 24)])).collect();
            }),
            "5 checksums",
        ),
    ];
    for (set, part) in cases {
        let reason = Streams::of(&set).map(|_| ()).unwrap_err();
        assert!(reason.contains(part), "{reason:?} does not contain {part:?}");
    }
}
