//! Random sets of streams, and their frames by the definitions, slowly.
#![allow(dead_code)]

use linerate_generate::stream::*;
use linerate_generate::trailer::{self, Key};
use linerate_generate::{Layer, Rate, Slot};
use std::sync::Arc;

/// Random numbers from a seed: SplitMix64.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    /// Returns one of these values.
    pub(crate) fn of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize].clone()
    }

    /// Returns a number of any size.
    pub(crate) fn any(&mut self) -> u64 {
        let bits = self.below(64);
        self.roll() >> bits
    }

    fn wide(&mut self) -> u128 {
        let bits = self.below(128);
        (u128::from(self.roll()) << 64 | u128::from(self.roll())) >> bits
    }
}

/// Returns a set of up to `most` streams.
pub(crate) fn set(dice: &mut Dice, most: u64) -> StreamSet {
    let streams = 1 + dice.below(most);
    let order = dice.of(&[Order::Sequential, Order::Interleaved]);
    let rate = dice.of(&[None, None, Some(Rate::Top), Some(Rate::Frames(1e7)), Some(Rate::Bits(1e10, Layer::L2))]);
    let top = dice.below(3) == 0;
    let mut streams: Vec<Stream> = (0..streams).map(|id| stream(dice, id as u32, streams as usize, top)).collect();
    if order == Order::Interleaved && rate.is_none() && !top {
        let spans =
            [Span::ALWAYS, Span { start: 77_777, length: Some(99_999) }, Span { start: 0, length: Some(50_001) }];
        streams.iter_mut().for_each(|stream| stream.span = dice.of(&spans));
    }
    let set = StreamSet { streams, order, rate, key: Key(dice.roll()) };
    set.check().unwrap_or_else(|wrong| panic!("{wrong}: {set:?}"));
    set
}

fn stream(dice: &mut Dice, id: u32, streams: usize, top: bool) -> Stream {
    let selectors: Vec<Selector> = (0..1 + dice.below(3)).map(|_| selector(dice)).collect();
    let mark = dice.of(&[Mark::None, Mark::Trailer, Mark::Count]);
    let variants: Vec<Variant> =
        (0..dice.of(&[1, 1, 2, 3])).map(|_| variant(dice, selectors.len(), mark == Mark::Trailer)).collect();
    let rates = [Rate::Frames(1e6), Rate::Frames(3e6), Rate::Frames(7.7e5), Rate::Bits(1e9, Layer::L1)];
    let rate = if top { Rate::Top } else { dice.of(&rates) };
    let bursts = Shape::Bursts { frames: 1 + dice.below(5), gap: dice.below(5000) };
    let poisson = Shape::Poisson { seed: dice.roll() };
    let times: Vec<u64> = (0..1 + dice.below(9)).map(|place| place * 1000 + dice.below(3000)).collect();
    let recorded = match rate {
        Rate::Frames(_) => Shape::recorded(&times).0,
        _ => Shape::Even,
    };
    let shape = dice.of(&[Shape::Even, Shape::Even, bursts, poisson, recorded]);
    let some = 1 + dice.below(300);
    let count = dice.of(&[None, Some(1), Some(40), Some(some)]);
    let goto =
        Next::Goto { stream: dice.below(streams as u64) as usize, times: dice.of(&[None, Some(0), Some(1), Some(3)]) };
    Stream {
        name: format!("number {id}"),
        id: id + 7,
        link: linerate_headers::Link::Ethernet,
        size: size(dice, variants.len()),
        variants,
        selectors,
        rate,
        shape: if top && matches!(shape, Shape::Poisson { .. }) { Shape::Even } else { shape },
        count,
        next: dice.of(&[Next::Following, Next::Following, goto, Next::Stop]),
        span: Span::ALWAYS,
        mark,
    }
}

fn size(dice: &mut Dice, variants: usize) -> Selector {
    let weights: Vec<f64> = (0..variants).map(|_| 1.0 + dice.below(9) as f64).collect();
    let weighted = IndexSelection::Weighted { table: Arc::new(Alias::new(&weights).unwrap()), seed: dice.roll() };
    let in_turn = IndexSelection::InTurn { every: 1 + dice.below(3) };
    Selector { count: variants as u64, pick: dice.of(&[weighted, in_turn, IndexSelection::Random { seed: 5 }]) }
}

fn selector(dice: &mut Dice) -> Selector {
    let count = dice.of(&[0, 1, 2, 3, 100, 1 << 32, 1 << 40, u64::MAX]);
    let every = dice.of(&[1, 1, 2, 7, 1 << 20]);
    if dice.below(4) == 0 {
        let table = Arc::new(Alias::zipf(50, 1.0).unwrap());
        return Selector { count: 50, pick: IndexSelection::Weighted { table, seed: dice.roll() } };
    }
    Selector {
        count,
        pick: dice.of(&[
            IndexSelection::InTurn { every },
            IndexSelection::InTurn { every: 1 },
            IndexSelection::Random { seed: every },
        ]),
    }
}

fn variant(dice: &mut Dice, selectors: usize, trailer: bool) -> Variant {
    let mut variant = Variant::default();
    // Borders of checksum parts.
    let mut borders = vec![0];
    let mut at = 0;
    let (mut places, mut trailer) = (Vec::new(), trailer);
    for _ in 0..4 + dice.below(12) {
        match dice.below(8) {
            0..=2 => {
                let width = dice.of(&[1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 12, 16, 16]);
                changes(dice, at, width, selectors, &mut variant.changes);
                at += width;
            }
            3 => {
                let length = dice.below(40) as usize;
                variant.fills.push(Fill { offset: at, length, seed: dice.roll() });
                at += length;
            }
            4 if trailer => {
                trailer = false;
                variant.trailer = Some(at);
                at += trailer::LEN;
            }
            5 | 6 => {
                let no_zero = dice.below(2) == 0;
                let internet = ChecksumKind::Internet { plus: dice.any() as u16, no_zero };
                let kind = dice.of(&[internet, internet, ChecksumKind::Crc32c]);
                places.push((at, kind));
                at += kind.length();
            }
            _ => at += dice.below(9) as usize,
        }
        borders.push(at);
    }
    if trailer {
        variant.trailer = Some(at);
        at += trailer::LEN;
        borders.push(at);
    }
    at += 1 + dice.below(60) as usize;
    borders.push(at);
    variant.frame = (0..at).map(|_| dice.of(&[0, 0, 0xff, 7, 0xa5])).collect();
    checksums(dice, &places, &borders, &mut variant);
    variant
}

/// Adds one field in these bytes, or several that share them.
fn changes(dice: &mut Dice, offset: usize, width: usize, selectors: usize, changes: &mut Vec<Change>) {
    let whole = u128::MAX >> (128 - 8 * width);
    let cut = dice.below(8 * width as u64) as u32;
    let masks = match dice.below(3) {
        0 => vec![whole],
        1 => vec![whole >> cut],
        _ if cut == 0 => vec![whole],
        _ => vec![whole << cut & whole, whole >> (8 * width as u32 - cut)],
    };
    for mask in masks {
        let selector = dice.below(selectors as u64) as usize;
        changes.push(Change { offset, width, mask, selector, map: map(dice) });
    }
}

fn map(dice: &mut Dice) -> Map {
    let start = dice.wide();
    match dice.below(4) {
        0 => Map::counting(start),
        1 => {
            let (divide, modulo) = (dice.of(&[1, 1, 3, 1 << 33]), dice.of(&[0, 1, 5, 100, 1 << 34]));
            Map::Range { start, step: dice.wide() as i128, divide, modulo }
        }
        2 => Map::List((0..1 + dice.below(120)).map(|_| dice.wide()).collect()),
        _ => {
            let span = dice.of(&[0, 1, 10, 1 << 32, 1 << 64, (1 << 70) + 3, 1 << 100]);
            Map::Scatter { start, span, seed: dice.roll() }
        }
    }
}

/// Adds checksums at these offsets over random parts.
fn checksums(dice: &mut Dice, places: &[(usize, ChecksumKind)], borders: &[usize], variant: &mut Variant) {
    for (index, (offset, kind)) in places.iter().enumerate() {
        let mut parts = Vec::new();
        let mut from = 0;
        for _ in 0..1 + dice.below(3) {
            let mut ends = [dice.of(borders), dice.of(borders)];
            ends.sort_unstable();
            let later = places[index + 1..].iter().any(|(place, _)| (ends[0]..ends[1]).contains(place));
            if ends[0] >= from && !later {
                from = ends[1];
                parts.push((ends[0], ends[1]));
            }
        }
        variant.checksums.push(Checksum { offset: *offset, kind: *kind, parts });
    }
}

/// Returns the first `most` frames of a set, by the definitions.
pub(crate) fn slots(set: &StreamSet, most: usize) -> Vec<Slot> {
    match set.order {
        Order::Sequential => in_sequence(set, most),
        Order::Interleaved => at_once(set, most),
    }
}

/// Returns the due time of frame `n` of a stream that starts at 0.
fn due(stream: &Stream, rate: Rate, n: u64) -> f64 {
    let start = stream.span.start as f64;
    let length = |n| stream.variant(n).frame.len() as u64;
    match &stream.shape {
        Shape::Even => start + rate.exact_nanos(n, (0..n).map(length).sum()),
        Shape::Bursts { frames, gap } => {
            start + rate.exact_nanos(n, (0..n).map(length).sum()) + (n / frames) as f64 * *gap as f64
        }
        Shape::Poisson { seed } => (0..n)
            .map(|n| {
                let uniform =
                    ((Dice(seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).roll() >> 11) + 1) as f64;
                -(uniform / 2f64.powi(53)).ln() * rate.exact_nanos(1, length(n))
            })
            .fold(start, |sum, gap| sum + gap),
        Shape::Recorded(places) => {
            let pass = places.len() as u64;
            start + ((n / pass * pass) as f64 + places[(n % pass) as usize]) * rate.exact_nanos(1, 0)
        }
    }
}

fn in_sequence(set: &StreamSet, most: usize) -> Vec<Slot> {
    let mut slots = Vec::new();
    let mut numbers = vec![0; set.streams.len()];
    let mut gone = vec![0; set.streams.len()];
    let mut at = 0;
    let taken = |numbers: &[u64]| -> f64 {
        let each = set.streams.iter().zip(numbers);
        each.map(|(stream, number)| due(stream, set.rate.unwrap_or(stream.rate), *number)).sum()
    };
    while let Some(stream) = set.streams.get(at) {
        for _ in 0..stream.count.unwrap_or(u64::MAX) {
            if slots.len() == most {
                return slots;
            }
            slots.push(Slot { stream: at as u32, number: numbers[at], due: taken(&numbers).round() as u64 });
            numbers[at] += 1;
        }
        at = match stream.next {
            Next::Goto { stream, times: None } => stream,
            Next::Goto { stream, times: Some(times) } if gone[at] < times => {
                gone[at] += 1;
                stream
            }
            Next::Stop => return slots,
            _ => {
                gone[at] = 0;
                at + 1
            }
        };
    }
    slots
}

fn at_once(set: &StreamSet, most: usize) -> Vec<Slot> {
    let mut slots = Vec::new();
    for (index, stream) in set.streams.iter().enumerate() {
        for number in 0..stream.count.unwrap_or(u64::MAX).min(most as u64) {
            let due = due(stream, stream.rate, number).round() as u64;
            if stream.span.length.is_none_or(|length| due < stream.span.start + length) {
                slots.push(Slot { stream: index as u32, number, due });
            }
        }
    }
    slots.sort_by_key(|slot| (slot.due, slot.number, slot.stream));
    slots.truncate(most);
    if let Some(rate) = set.rate {
        let mut bytes = 0;
        for (frames, slot) in slots.iter_mut().enumerate() {
            slot.due = rate.nanos(frames as u64, bytes);
            bytes += set.streams[slot.stream as usize].variant(slot.number).frame.len() as u64;
        }
    }
    slots
}
