//! Commands to running streams, compared with the timeline that all other senders follow.

use super::order::sets;
use super::*;
use crate::xdp_live::commands::{Readiness, StreamCommands};
use crate::xdp_live::program::DUE;
use linerate_burst::Nanos;
use linerate_generate::{Action, Command, SenderPart, StreamSelection, Traffic};
use proptest::prelude::*;
use std::sync::Arc;

/// Frames that are compared.
const FRAMES: usize = 80;
/// Start of a run: time since boot.
const START: u64 = 1000;
/// Tolerance of times, in nanoseconds: fractions are rounded by the timeline and truncated by the program.
const ROUNDED: u64 = 8;

/// Generates commands, each some time after the one before.
fn commands() -> impl Strategy<Value = Vec<Command>> {
    let rate = prop::sample::select(vec![5e5, 1e6, 3.1e6]).prop_map(|rate| vec![Action::Rate(Rate::Frames(rate))]);
    let scale = prop::sample::select(vec![0.3, 1.0, 2.5]).prop_map(|factor| vec![Action::Scale(factor)]);
    let actions = prop_oneof![
        3 => rate,
        2 => scale,
        2 => Just(vec![Action::Pause, Action::Resume]),
        2 => Just(vec![Action::Stop, Action::Start(Arc::from([]))]),
    ];
    prop::collection::vec((actions, 0u64..15_000, 0u64..9000), 0..6).prop_map(|commands_after| {
        let mut at = 0;
        let mut commands = Vec::new();
        for (actions, after, between) in commands_after {
            at += after;
            for action in actions {
                commands.push(Command { at, which: StreamSelection::All, action });
                at += between;
            }
        }
        commands
    })
}

/// Returns the frames of the model, and their due times.
fn model_frames(set: &StreamSet, commands: &[Command]) -> Vec<(Vec<u8>, u64)> {
    let mut traffic = Traffic::commanded(set, SenderPart::WHOLE).unwrap();
    commands.iter().for_each(|command| traffic.command(command.clone()));
    let mut frames = Vec::new();
    while let Some(due) = traffic.next_due().filter(|_| frames.len() < FRAMES) {
        let burst = traffic.offer(due, Nanos(due)).unwrap();
        frames.extend(burst.iter().map(|(desc, frame)| (frame.to_vec(), desc.time.0)));
        let taken = burst.len();
        traffic.consume(taken);
    }
    frames.truncate(FRAMES);
    frames
}

/// Returns the frames of the program, and their due times.
fn program_frames(set: &StreamSet, commands: &[Command]) -> Vec<(Vec<u8>, u64)> {
    let program = Streams::commanded(set).unwrap_or_else(|reason| panic!("{reason}"));
    let live = StreamCommands::new(&program, set).unwrap();
    let trial = Trial::with(set, &program);
    let (state, mut frames) = (&trial.state, Vec::new());
    commands.iter().for_each(|command| {
        live.check(state, command).unwrap();
        live.command(command.clone());
    });
    live.begin(state, START);
    let times = commands.iter().map(|command| command.at).chain([u64::MAX - START]);
    for at in times {
        while live.turn(state, START) == Readiness::Run && frames.len() < FRAMES {
            let due = state.get(DUE) - START;
            match trial.next() {
                Some(frame) => frames.push((frame, due)),
                None => break,
            }
        }
        live.turn(state, START + at);
    }
    frames
}

/// Returns whether only one of the two made a frame just before a pause or a stop, within rounding.
fn is_on_the_edge(commands: &[Command], wanted: u64, made: u64) -> bool {
    let rests = |command: &&Command| matches!(command.action, Action::Pause | Action::Stop);
    let mut at = commands.iter().filter(rests).map(|command| command.at);
    wanted != made && at.any(|at| at.abs_diff(wanted.min(made)) <= ROUNDED)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn commanded_streams_follow_the_timeline(set in sets(), commands in commands()) {
        prop_assume!(may_load());
        let mut set = set;
        if set.order == Order::Interleaved {
            // With commands each stream has its part of a common rate; here they share it.
            set.rate = None;
        }
        for stream in &mut set.streams {
            stream.variants.truncate(1);
            stream.size = Selector::ONE;
        }
        prop_assume!(set.check().is_ok() && (set.rate.is_some() || set.streams[0].rate != Rate::Top));
        let (wanted, made) = (model_frames(&set, &commands), program_frames(&set, &commands));
        for (number, (wanted, made)) in wanted.iter().zip(&made).enumerate() {
            if is_on_the_edge(&commands, wanted.1, made.1) {
                return Ok(());
            }
            prop_assert_eq!(&wanted.0, &made.0, "frame {}", number);
            prop_assert!(wanted.1.abs_diff(made.1) <= ROUNDED, "frame {number} is due at {}, not {}", made.1, wanted.1);
        }
        prop_assert_eq!(wanted.len(), made.len());
    }
}

#[test]
fn restarted_stream_has_a_new_number_and_its_first_frame() {
    if !may_load() {
        return;
    }
    let variant = Variant {
        frame: (0..80).collect(),
        changes: vec![change(20, 2, 0, Values::counting(0)), change(30, 2, 1, Values::counting(5))],
        checksums: vec![internet(40, &[(14, 40), (42, 80)])],
        trailer: Some(64),
        ..Variant::default()
    };
    let two = || {
        stream(
            vec![variant.clone()],
            vec![in_turn(3, 1), Selector { count: 7, pick: IndexSelection::Random { seed: 1 } }],
        )
    };
    let before = set(vec![two(), two()], Order::Interleaved);
    let mut after = before.clone();
    (after.streams[0].id, after.streams[1].id) = (40_000, 3);
    let program = Streams::commanded(&before).unwrap();
    let live = StreamCommands::new(&program, &before).unwrap();
    let trial = Trial::with(&before, &program);
    live.begin(&trial.state, START);
    (0..10).for_each(|n| trial.expect(n as usize % 2, n / 2));
    let command = |action| live.command(Command { at: 0, which: StreamSelection::All, action });
    command(Action::Stop);
    assert_eq!(live.turn(&trial.state, START), Readiness::Wait, "no wait at line rate");
    command(Action::Start(Arc::from([40_000, 3])));
    assert_eq!(live.turn(&trial.state, START), Readiness::Run);
    let trial = Trial { set: &after, ..trial };
    (0..10).for_each(|n| trial.expect(n as usize % 2, n / 2));
    assert_eq!(live.made(&trial.state), [10, 10]);
    let done = live.done(&trial.state);
    assert_eq!((done.commands, done.until), (2, Some(0)));
    let begun: Vec<_> = done.begun.iter().map(|begun| (begun.stream, begun.number, begun.made)).collect();
    assert_eq!(begun, [(0, Some(40_000), 5), (1, Some(3), 5)]);
    assert_eq!(live.done(&trial.state).begun, []);
}

#[test]
fn unsupported_commands_are_reported() {
    if !may_load() {
        return;
    }
    let one = |length| Stream { rate: Rate::Frames(1e6), count: Some(1), ..stream(vec![plain(length)], Vec::new()) };
    let refused = |set: &StreamSet, which: StreamSelection, action| {
        let program = Streams::commanded(set).unwrap();
        let trial = Trial::with(set, &program);
        let live = StreamCommands::new(&program, set).unwrap();
        live.begin(&trial.state, START);
        trial.next().unwrap();
        live.check(&trial.state, &Command { at: 0, which, action }).err().unwrap_or_default()
    };
    let (turns, row) =
        (set(vec![one(60), one(70)], Order::Interleaved), set(vec![one(60), one(70)], Order::Sequential));
    let first = || StreamSelection::Some(Arc::from([0]));
    let (rate, bits) = (Action::Rate(Rate::Frames(5.0)), Action::Rate(Rate::Bits(1e6, linerate_generate::Layer::L2)));
    for action in [Action::Pause, Action::Resume, Action::Stop, Action::Start(Arc::from([])), rate.clone()] {
        assert!(refused(&turns, first(), action).contains("name all of them, or"));
    }
    assert!(refused(&turns, StreamSelection::All, bits.clone()).contains("a rate in frames"));
    assert!(refused(&turns, StreamSelection::All, Action::Start(Arc::from([]))).contains("stop all of them first"));
    assert!(refused(&row, first(), Action::Pause).contains("paused and stopped together"));
    for (set, which, action) in
        [(&turns, StreamSelection::All, rate.clone()), (&row, first(), rate), (&row, StreamSelection::All, bits)]
    {
        assert_eq!(refused(set, which, action), "");
    }
}
