//! Random commands to running streams, compared with a model that keeps each stream separately.

use crate::sets::Dice;
use linerate_burst::Nanos;
use linerate_generate::stream::*;
use linerate_generate::trailer::{Key, Trailer};
use linerate_generate::{Action, Batch, Command, Rate, SenderPart, StreamSelection, Traffic};
use proptest::prelude::*;
use std::collections::BTreeMap;

const RATES: [f64; 4] = [1e6, 2.5e6, 3e5, 7e5];
/// Spans that end after the end of a frame's gap, and exactly at one.
const LATER: Span = Span { start: 77_777, length: Some(333_333) };
const SHORT: Span = Span { start: 0, length: Some(100_000) };
/// Start of the runs, UTC.
const START: u64 = 1_700_000_000_000_000_000;

fn stream(dice: &mut Dice, id: u32, shared: bool) -> Stream {
    let frames = 1 + dice.below(4);
    let bursts = Shape::Bursts { frames, gap: 3000 + dice.below(9000) };
    let recorded = Shape::Recorded([0.0, 0.0, 1.5, 2.0].into());
    Stream {
        name: format!("s{id}"),
        id,
        link: linerate_headers::Link::Ethernet,
        variants: vec![Variant { frame: vec![0; 60], trailer: Some(44), ..Variant::default() }],
        size: Selector::ONE,
        selectors: Vec::new(),
        rate: Rate::Frames(if shared { 1.0 } else { dice.of(&RATES) }),
        shape: if shared { Shape::Even } else { dice.of(&[Shape::Even, Shape::Even, bursts, recorded]) },
        count: dice.of(&[None, None, Some(1), Some(200)]),
        next: Next::Following,
        span: if shared { Span::ALWAYS } else { dice.of(&[Span::ALWAYS, LATER, SHORT]) },
        mark: Mark::Trailer,
    }
}

fn set(dice: &mut Dice, shared: bool) -> StreamSet {
    let streams = (0..1 + dice.below(6) as u32).map(|id| stream(dice, id, shared)).collect();
    let rate = shared.then(|| Rate::Frames(dice.of(&RATES)));
    StreamSet { streams, order: Order::Interleaved, rate, key: Key::default() }
}

fn commands(dice: &mut Dice, streams: u32, most: u64) -> Vec<Command> {
    let (mut at, mut number) = (0, 1000);
    let count = dice.below(most);
    let command = |_| {
        at += dice.below(80_000);
        let places: Vec<u32> = (0..streams).filter(|_| dice.below(2) == 0).collect();
        let which = if dice.below(3) == 0 { StreamSelection::All } else { StreamSelection::Some(places.into()) };
        let named = which.places(streams as usize).count();
        let action = match dice.below(8) {
            0 | 1 => Action::Rate(Rate::Frames(dice.of(&RATES))),
            2 => Action::Scale(dice.of(&[0.5, 2.0, 1.1])),
            3 => Action::Pause,
            4 => Action::Resume,
            5 => Action::Stop,
            6 => Action::Rates((0..named).map(|_| Rate::Frames(dice.of(&RATES))).collect()),
            _ => {
                number += streams;
                Action::Start((number..number + streams).collect())
            }
        };
        Command { at, which, action }
    };
    (0..count).map(command).collect()
}

/// Model of one stream: gap, origin frame with its due time, next frame, time of the pause, and so on.
struct Model {
    gap: f64,
    from: (u64, f64),
    next: u64,
    paused: Option<f64>,
    runs: bool,
    /// True once it has begun.
    is_there: bool,
    shape: Shape,
    count: u64,
    span: Span,
    /// Time from which on nothing is due.
    end: f64,
    number: u32,
    /// Sent frames: number in trailers, frame, due time.
    sent: Vec<(u32, u64, u64)>,
}

impl Model {
    fn due(&self) -> f64 {
        let between = match self.shape {
            Shape::Bursts { frames, gap } => (self.next / frames - self.from.0 / frames) as f64 * gap as f64,
            _ => 0.0,
        };
        if let Shape::Recorded(places) = &self.shape {
            let pass = places.len() as u64;
            let place = |frame: u64| (frame - frame % pass) as f64 + places[(frame % pass) as usize];
            return self.from.1 + (place(self.next) - place(self.from.0)) * self.gap;
        }
        self.from.1 + (self.next - self.from.0) as f64 * self.gap + between
    }

    fn send_until(&mut self, at: u64) {
        while self.runs && self.paused.is_none() && (self.due().round() as u64) < at {
            self.sent.push((self.number, self.next, self.due().round() as u64));
            self.next += 1;
            self.runs = self.next < self.count;
            self.end_if_late();
        }
    }

    /// Ends if the next frame would be due at or after the end.
    fn end_if_late(&mut self) {
        self.runs &= self.due().round() < self.end.round();
    }

    fn begin(&mut self, at: f64) {
        let start = at + self.span.start as f64;
        (self.from, self.next, self.runs, self.paused) = ((0, start), 0, true, None);
        self.end = self.span.length.map_or(f64::INFINITY, |length| start + length as f64);
    }

    fn apply(&mut self, at: f64, action: &Action, number: Option<u32>) {
        match action {
            Action::Rate(Rate::Frames(rate)) => self.set_gap(at, 1e9 / rate),
            Action::Rate(_) => unreachable!(),
            Action::Scale(factor) => self.set_gap(at, self.gap / factor),
            Action::Pause => self.paused = self.paused.or(self.runs.then_some(at)),
            Action::Resume => {
                let since = self.paused.take().unwrap_or(at);
                self.from.1 += at - since;
                self.end += at - since;
            }
            Action::Stop => (self.runs, self.paused) = (false, None),
            Action::Start(_) if !self.runs => {
                self.begin(at);
                self.number = number.unwrap();
            }
            Action::Start(_) => {}
            Action::Rates(_) | Action::Begin(_) => unreachable!("applied to each stream"),
        }
        self.end_if_late();
    }

    fn set_gap(&mut self, at: f64, gap: f64) {
        let at = self.paused.unwrap_or(at);
        let left = self.due() - at;
        let stays = match self.shape {
            _ if self.next == 0 => left,
            Shape::Bursts { .. } => (left - self.gap).max(0.0),
            _ => 0.0,
        };
        self.from = (self.next, at + stays + (left - stays) * gap / self.gap);
        self.gap = gap;
    }
}

/// Returns the frames that each stream sends until `end`, by the model.
fn model(set: &StreamSet, commands: &[Command], end: u64) -> Vec<Vec<(u32, u64, u64)>> {
    let comes = commands.iter().any(|command| matches!(command.action, Action::Begin(_)));
    let model = |stream: &Stream| {
        let Rate::Frames(rate) = stream.rate else { unreachable!() };
        let mut model = Model {
            gap: 1e9 / rate,
            from: (0, 0.0),
            next: 0,
            paused: None,
            runs: true,
            is_there: !comes,
            shape: stream.shape.clone(),
            count: stream.count.unwrap_or(u64::MAX),
            span: stream.span,
            end: 0.0,
            number: stream.id,
            sent: Vec::new(),
        };
        model.begin(0.0);
        model.runs = model.is_there;
        model
    };
    let mut models: Vec<Model> = set.streams.iter().map(model).collect();
    for command in commands {
        models.iter_mut().for_each(|model| model.send_until(command.at));
        for (nth, place) in command.which.places(set.streams.len()).enumerate() {
            let (model, at) = (&mut models[place], command.at as f64);
            match &command.action {
                Action::Begin(_) => {
                    let Rate::Frames(rate) = set.streams[place].rate else { unreachable!() };
                    (model.gap, model.number, model.is_there) = (1e9 / rate, set.streams[place].id, true);
                    model.begin(at);
                }
                _ if !model.is_there => {}
                Action::Start(numbers) => model.apply(at, &command.action, Some(numbers[nth])),
                Action::Rates(rates) => model.apply(at, &Action::Rate(rates[nth]), None),
                action => model.apply(at, action, None),
            }
        }
    }
    models.iter_mut().for_each(|model| model.send_until(end));
    models.into_iter().map(|model| model.sent).collect()
}

/// Returns the frames of one part: number in trailers, frame, due time; polled at random times, with commands queued
/// some time ahead.
fn frames(set: &StreamSet, part: SenderPart, commands: &[Command], end: u64, dice: &mut Dice) -> Vec<(u32, u64, u64)> {
    let comes = commands.iter().any(|command| matches!(command.action, Action::Begin(_)));
    let mut traffic = if comes { Traffic::coming(40) } else { Traffic::commanded(set, part).unwrap() };
    let (mut queued, mut now, mut found) = (0, 0, Vec::new());
    while now < end - 1 {
        now = (now + 1 + dice.below(60_000)).min(end - 1);
        let ahead = now + dice.below(100_000);
        while queued < commands.len() && (commands[queued].at <= ahead) {
            traffic.command(commands[queued].clone());
            queued += 1;
        }
        loop {
            let applied = traffic.applied();
            let burst = traffic.offer(now, Nanos(START + now)).unwrap();
            for (desc, index) in burst.descs().iter().zip(0..) {
                let trailer = burst.frame(index).last_chunk().and_then(|bytes| Trailer::read(bytes, &set.key)).unwrap();
                found.push((trailer.stream, trailer.sequence, desc.time.0 - START));
            }
            let taken = burst.len();
            traffic.consume(taken);
            if taken == 0 && traffic.applied() == applied {
                break;
            }
        }
    }
    found
}

/// Groups frames by stream number; a number is never reused.
fn by_number(frames: &[(u32, u64, u64)]) -> BTreeMap<u32, Vec<(u64, u64)>> {
    let mut found = BTreeMap::<u32, Vec<(u64, u64)>>::new();
    frames.iter().for_each(|(number, frame, due)| found.entry(*number).or_default().push((*frame, *due)));
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// For any commands, each stream sends what it would by itself, without gaps in its numbers, and others do not
    /// change.
    #[test]
    fn commands_change_only_the_selected_streams(seed in any::<u64>()) {
        let dice = &mut Dice(seed);
        let set = set(dice, false);
        let (commands, end) = (commands(dice, set.streams.len() as u32, 12), 1_000_000);
        let all = frames(&set, SenderPart::WHOLE, &commands, end, dice);
        let expected: Vec<(u32, u64, u64)> = model(&set, &commands, end).concat();
        let (found, expected) = (by_number(&all), by_number(&expected));
        prop_assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (number, expected) in &expected {
            let found = &found[number];
            prop_assert_eq!(found.len(), expected.len(), "stream {}", number);
            for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
                prop_assert_eq!((found.0, expected.0), (place as u64, place as u64));
                prop_assert!(found.1.abs_diff(expected.1) <= 1, "stream {}: {:?} {:?}", number, found, expected);
            }
        }
        prop_assert!(all.windows(2).all(|pair| pair[0].2 <= pair[1].2), "in the order of due times");
    }

    /// Streams that start while others are sent behave as if sent separately, also at reused indices.
    #[test]
    fn commands_change_only_the_selected_new_streams(seed in any::<u64>()) {
        let dice = &mut Dice(seed);
        let set = set(dice, false);
        let (streams, end) = (set.streams.len() as u32, 1_000_000);
        let mut commands = commands(dice, streams, 9);
        let mut first = 0;
        while first < streams {
            let count = 1 + dice.below(u64::from(streams - first)) as u32;
            let batch = set.streams[first as usize..(first + count) as usize].to_vec();
            let action = Action::Begin(Batch::new(batch, set.key).unwrap().into());
            commands.push(Command { at: dice.below(400_000), which: StreamSelection::Some((first..first + count).collect()), action });
            first += count;
        }
        commands.sort_by_key(|command| command.at);
        let found = by_number(&frames(&set, SenderPart::WHOLE, &commands, end, dice));
        let expected = by_number(&model(&set, &commands, end).concat());
        prop_assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (number, expected) in &expected {
            let found = &found[number];
            prop_assert_eq!(found.len(), expected.len(), "stream {}", number);
            prop_assert!(found.iter().zip(expected).all(|(found, expected)| found.0 == expected.0 && found.1.abs_diff(expected.1) <= 1));
        }
    }

    /// Several senders that poll at different times together send the same as one, for any commands.
    #[test]
    fn partial_senders_together_equal_one_sender(seed in any::<u64>(), of in 2u32..5) {
        let dice = &mut Dice(seed);
        let shared = dice.below(2) == 0;
        let set = set(dice, shared);
        let (commands, end) = (commands(dice, set.streams.len() as u32, 12), 500_000);
        let whole = frames(&set, SenderPart::WHOLE, &commands, end, dice);
        let mut parts: Vec<(u32, u64, u64)> = Vec::new();
        for index in 0..of {
            parts.extend(frames(&set, SenderPart { index, of }, &commands, end, dice));
        }
        prop_assert_eq!(by_number(&whole).into_iter().collect::<Vec<_>>(), {
            let mut parts = by_number(&parts);
            parts.values_mut().for_each(|frames| frames.sort());
            parts.into_iter().collect::<Vec<_>>()
        });
    }

    /// Streams with a common rate keep their times when others get commands, and numbers have no gaps.
    #[test]
    fn shared_rate_becomes_a_rate_per_stream(seed in any::<u64>()) {
        let dice = &mut Dice(seed);
        let set = set(dice, true);
        let end = 500_000;
        let undisturbed = by_number(&frames(&set, SenderPart::WHOLE, &[], end, dice));
        let others: Vec<u32> = (1..set.streams.len() as u32).collect();
        let at = dice.below(400_000);
        let pause = Command { at, which: StreamSelection::Some(others.into()), action: Action::Pause };
        let commanded = by_number(&frames(&set, SenderPart::WHOLE, &[pause], end, dice));
        // While one ends, others take its turns; a command stops that.
        if set.streams.iter().all(|stream| stream.count.is_none()) {
            prop_assert_eq!(undisturbed[&0].len(), commanded[&0].len());
            for (undisturbed, commanded) in undisturbed[&0].iter().zip(&commanded[&0]) {
                prop_assert!(undisturbed.0 == commanded.0 && undisturbed.1.abs_diff(commanded.1) <= 1, "{:?} {:?}", undisturbed, commanded);
            }
        }
    }

    /// A sequence of streams continues after a pause, too.
    #[test]
    fn a_sequence_is_paused_and_resumed(seed in any::<u64>(), of in 1u32..4) {
        let dice = &mut Dice(seed);
        let mut set = StreamSet { order: Order::Sequential, ..set(dice, false) };
        set.streams.iter_mut().for_each(|stream| stream.span = Span::ALWAYS);
        let end = 400_000;
        let (from, length) = (dice.below(200_000), 1 + dice.below(100_000));
        let commands = [(from, Action::Pause), (from + length, Action::Resume)]
            .map(|(at, action)| Command { at, which: StreamSelection::All, action });
        let undisturbed = frames(&set, SenderPart::WHOLE, &[], end - length, dice);
        let mut found: Vec<_> =
            (0..of).flat_map(|index| frames(&set, SenderPart { index, of }, &commands, end, dice)).collect();
        found.sort_by_key(|(number, frame, due)| (*due, *number, *frame));
        let expected = undisturbed.iter().map(|(number, frame, due)| (*number, *frame, due + if *due >= from { length } else { 0 }));
        let mut expected: Vec<_> = expected.collect();
        expected.sort_by_key(|(number, frame, due)| (*due, *number, *frame));
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn late_sender_does_not_catch_up_before_a_pause() {
    let dice = &mut Dice(1);
    let mut set = set(dice, false);
    set.streams.truncate(1);
    (set.streams[0].rate, set.streams[0].count, set.streams[0].shape) = (Rate::Frames(1e6), None, Shape::Even);
    let mut traffic = Traffic::commanded(&set, SenderPart::WHOLE).unwrap();
    let pause = Command { at: 1_000_000_000, which: StreamSelection::All, action: Action::Pause };
    traffic.command(pause);
    assert!(traffic.offer(1_000_000_001, Nanos(START)).unwrap().is_empty());
    assert_eq!((traffic.applied(), traffic.next_due(), traffic.is_over()), (1, None, false));
    traffic.command(Command { at: 2_000_000_000, which: StreamSelection::All, action: Action::Resume });
    assert_eq!(traffic.offer(2_000_000_000, Nanos(START)).unwrap().len(), 1);
}

/// Whatever was commanded to one of two streams at the maximum rate, both are sent equally often.
#[test]
fn streams_at_the_maximum_rate_take_turns() {
    let one = |stream: u32| StreamSelection::Some([stream].into());
    for stream in [0, 1] {
        for actions in [
            vec![Action::Rate(Rate::Top)],
            vec![Action::Pause, Action::Resume],
            vec![Action::Stop, Action::Start([7].into())],
        ] {
            let dice = &mut Dice(1);
            let mut set = set(dice, false);
            set.streams = (0..2)
                .map(|id| Stream {
                    rate: Rate::Top,
                    shape: Shape::Even,
                    count: None,
                    span: Span::ALWAYS,
                    ..self::stream(dice, id, false)
                })
                .collect();
            let mut traffic = Traffic::commanded(&set, SenderPart::WHOLE).unwrap();
            let mut send = |at: u64, command: Option<Command>| {
                command.into_iter().for_each(|command| traffic.command(command));
                for _ in 0..20 {
                    let taken = traffic.offer(at, Nanos(START)).unwrap().len();
                    traffic.consume(taken);
                }
                <[u64; 2]>::try_from(traffic.sent_per_stream()).unwrap()
            };
            send(1, None);
            for (at, action) in (1_000_000..).step_by(1_000_000).zip(&actions) {
                send(at, Some(Command { at, which: one(stream), action: action.clone() }));
            }
            let (before, after) = (send(9_000_000, None), send(10_000_000, None));
            let [first, second] = [after[0] - before[0], after[1] - before[1]];
            assert!(first > 1 && first.abs_diff(second) <= 1, "{actions:?}: {first} and {second}");
        }
    }
}
