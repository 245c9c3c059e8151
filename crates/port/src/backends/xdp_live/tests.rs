//! Programs against the plain telling of their plans, run by the kernel on frames in memory.

use super::program::Layout;
use super::words::{LIMIT, OFFSET, State};
use crate::backends::sys::bpf::{Demands, Map, MapKind, Program};
use crate::backends::sys::bpf_live::Bytes;
use crate::live::{Checksum, Field, Gap, Plan, Template, Value};
use proptest::prelude::*;

const REDIRECT: u32 = 4;

/// A plan's program, on frames that go nowhere.
struct Trial {
    program: Program,
    state: State,
    longest: usize,
    _maps: (Map, Bytes),
}

impl Trial {
    fn of(plan: &Plan) -> Trial {
        let checked = plan.check().unwrap();
        let layout = Layout::of(checked);
        let state = State::new(layout.words).unwrap();
        let mut copied = Bytes::new(layout.copied.len().max(8)).unwrap();
        copied.write(0, &layout.copied);
        layout.initial.iter().for_each(|(word, value)| state.set(*word, *value));
        state.set(LIMIT, plan.count.unwrap_or(u64::MAX));
        let devmap = Map::new(MapKind::Devmap, 4, 1).unwrap();
        devmap.set(0, &1u32.to_ne_bytes()).unwrap();
        let insns = layout.program(state.raw(), devmap.raw(), copied.raw()).unwrap();
        let program = Program::load(&insns, Demands::default()).unwrap_or_else(|error| panic!("{error}"));
        Trial { program, state, longest: checked.longest(), _maps: (devmap, copied) }
    }

    /// The next frame, made over bytes that somebody has left.
    fn next(&self) -> (u32, Vec<u8>) {
        self.program.run_once(&vec![0xee; self.longest]).unwrap()
    }
}

fn may_load() -> bool {
    let may = Map::new(MapKind::Devmap, 4, 1).is_ok();
    if !may {
        eprintln!("SKIPPED: programs are loaded by root alone");
    }
    may
}

/// Frames of 14 to 400 bytes with fields and checksums over any parts, on the edges of 16 bits too.
fn templates() -> impl Strategy<Value = Vec<Template>> {
    let value =
        || prop_oneof![Just(0u64), Just(0xffff), Just(u64::MAX), any::<u64>(), any::<u16>().prop_map(u64::from)];
    let kind = prop_oneof![
        value().prop_map(Value::Fixed),
        value().prop_map(|start| Value::Sequence { start }),
        (value(), any::<i32>(), 0u64..5)
            .prop_map(|(start, step, count)| { Value::Stepped { start, step: step.into(), count } }),
        (value(), prop_oneof![Just(1), Just(-1), Just(i64::MAX), Just(1 << 62)])
            .prop_map(|(start, step)| { Value::Stepped { start, step, count: 2 } }),
    ];
    let field = (0usize..400, prop_oneof![Just(1usize), Just(2), Just(4), Just(8)], kind)
        .prop_map(|(offset, width, value)| Field { offset, width, value });
    let checksum = (0usize..400, prop::collection::vec((0usize..400, 0usize..400), 1..4), any::<u16>(), any::<bool>())
        .prop_map(|(offset, parts, plus, no_zero)| Checksum { offset, parts, plus, no_zero });
    let byte = prop_oneof![Just(0u8), Just(0xff), any::<u8>()];
    let template = (
        prop_oneof![14usize..80, 14usize..400],
        prop::collection::vec(byte, 400),
        prop::collection::vec(field, 0..6),
        prop::collection::vec(checksum, 0..4),
    );
    prop::collection::vec(
        template.prop_map(|(length, bytes, fields, checksums)| fit(&bytes[..length], fields, checksums)),
        1..6,
    )
}

/// What of it makes a template that is right.
fn fit(frame: &[u8], fields: Vec<Field>, checksums: Vec<Checksum>) -> Template {
    let mut template = Template { frame: frame.to_vec(), ..Template::default() };
    let length = frame.len();
    let is_right = |template: &Template| Plan { templates: vec![template.clone()], count: None }.check().is_ok();
    for mut field in fields {
        field.offset %= length;
        template.fields.push(field);
        if !is_right(&template) {
            template.fields.pop();
        }
    }
    for mut checksum in checksums {
        checksum.offset %= length;
        let sorted = |(a, b): &(usize, usize)| ((*a.min(b)) % (length + 1), (*a.max(b)) % (length + 1));
        checksum.parts = checksum.parts.iter().map(sorted).map(|(a, b)| (a.min(b), a.max(b))).collect();
        template.checksums.push(checksum);
        if !is_right(&template) {
            template.checksums.pop();
        }
    }
    template
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn programs_make_what_their_plans_say(templates in templates()) {
        prop_assume!(may_load());
        let plan = Plan { templates, count: None };
        let trial = Trial::of(&plan);
        for number in 0..14 {
            let (action, frame) = trial.next();
            prop_assert_eq!(action, REDIRECT);
            prop_assert_eq!(frame, plan.frame(number, 0), "frame {}", number);
        }
    }
}

#[test]
fn time_is_now_and_the_checksum_covers_it() {
    if !may_load() {
        return;
    }
    let template = Template {
        frame: vec![0; 60],
        fields: vec![Field { offset: 21, width: 8, value: Value::Time }],
        checksums: vec![Checksum { offset: 14, parts: vec![(14, 60)], plus: 0, no_zero: true }],
        gap: Gap::ZERO,
    };
    let plan = Plan { templates: vec![template], count: Some(500) };
    let trial = Trial::of(&plan);
    trial.state.set(OFFSET, 1_700_000_000_000_000_000);
    let mut last = 0;
    for number in 0..500 {
        let (_, frame) = trial.next();
        let time = u64::from_be_bytes(frame[21..29].try_into().unwrap());
        assert!(time > last.max(1_700_000_000_000_000_000));
        assert_eq!(frame, plan.frame(number, time));
        last = time;
    }
    assert_eq!(trial.next().0, 1, "after the last frame there is none");
}

/// Among all sums of 16 bits there is the one that is written as 0xffff in UDP, as 0 elsewhere.
#[test]
fn every_sum_is_folded_and_zero_written_as_asked() {
    if !may_load() {
        return;
    }
    let checksum = |offset, no_zero| Checksum { offset, parts: vec![(14, 18)], plus: 0xfff0, no_zero };
    let template = Template {
        frame: vec![0xff; 24],
        fields: vec![Field { offset: 14, width: 2, value: Value::Sequence { start: 0 } }],
        checksums: vec![checksum(20, true), checksum(22, false)],
        gap: Gap::ZERO,
    };
    let plan = Plan { templates: vec![template], count: None };
    let trial = Trial::of(&plan);
    let mut zeros = 0;
    for number in 0..=0xffff {
        let frame = trial.next().1;
        assert_eq!(frame, plan.frame(number, 0), "frame {number}");
        zeros += u32::from(frame[20..24] == [0xff, 0xff, 0, 0]);
    }
    assert!(zeros > 0, "no sum was zero");
}

#[test]
fn many_templates_take_turns() {
    if !may_load() {
        return;
    }
    let template = |number: usize| Template { frame: vec![number as u8; 14 + number * 3], ..Template::default() };
    let plan = Plan { templates: (0..100).map(template).collect(), count: None };
    let trial = Trial::of(&plan);
    for number in 0..250 {
        assert_eq!(trial.next().1, plan.frame(number, 0), "frame {number}");
    }
}
