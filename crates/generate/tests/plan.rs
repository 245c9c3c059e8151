//! Simplifications of the plan: constants, long numbers, divided indices, equal indices.

use linerate_generate::Rate;
use linerate_generate::plan::{Plan, Term};
use linerate_generate::stream::*;
use linerate_generate::trailer::Key;

/// Plans a frame of 64 bytes with these changes, each with one of the selectors, and a checksum over all of them.
fn plan(changes: Vec<Change>, selectors: Vec<Selector>, count: Option<u64>) -> Plan {
    let kind = ChecksumKind::Internet { plus: 0, no_zero: false };
    let checksums = vec![Checksum { offset: 60, kind, parts: vec![(0, 60)] }];
    let variant = Variant { frame: vec![0xee; 64], changes, checksums, ..Variant::default() };
    let stream = Stream {
        link: linerate_headers::Link::Ethernet,
        name: "one".into(),
        id: 0,
        variants: vec![variant],
        size: Selector::ONE,
        selectors,
        rate: Rate::Top,
        shape: Shape::Even,
        count,
        next: Next::Following,
        span: Default::default(),
        mark: Mark::None,
    };
    let set = StreamSet { streams: vec![stream], order: Order::Sequential, rate: None, key: Key::default() };
    set.check().unwrap();
    Plan::of(&set)
}

fn change(offset: usize, width: usize, selector: usize, map: Map) -> Change {
    Change { offset, width, mask: u128::MAX >> (128 - 8 * width), selector, map }
}

fn in_turn(count: u64, every: u64) -> Selector {
    Selector { count, pick: IndexSelection::InTurn { every } }
}

#[test]
fn constant_fields_are_part_of_the_template() {
    let changes = vec![
        change(0, 2, 0, Map::List([0x0102, 0x0102].into())),
        change(2, 2, 1, Map::counting(0x0304)),
        change(4, 2, 0, Map::Range { start: 0x0506, step: 0, divide: 1, modulo: 0 }),
    ];
    let plan = plan(changes, vec![in_turn(2, 1), Selector::ONE], None);
    assert_eq!(plan.template(&plan.layouts[0])[..8], [1, 2, 3, 4, 5, 6, 0xee, 0xee]);
    assert!(plan.fields.is_empty() && plan.selectors.is_empty() && plan.sums.is_empty());
}

#[test]
fn only_the_changing_half_of_a_long_number_varies() {
    let address = 0x2001_0db8_0000_0000_0000_0000_0000_0001u128;
    let of = |map| plan(vec![change(8, 16, 0, map)], vec![in_turn(100, 1)], None);
    let lower = of(Map::counting(address));
    assert_eq!((lower.fields.len(), lower.fields[0].place.offset, lower.fields[0].place.width), (1, 16, 8));
    assert_eq!(lower.template(&lower.layouts[0])[8..24], (address >> 64 << 64).to_be_bytes());
    let upper = of(Map::Range { start: address, step: 1 << 64, divide: 1, modulo: 0 });
    assert_eq!((upper.fields.len(), upper.fields[0].place.offset), (1, 8));
    let carries = of(Map::counting(u128::from(u64::MAX)));
    assert!(carries.fields.len() == 2 && carries.fields.iter().all(|field| matches!(field.term, Term::Wide(_))));
}

#[test]
fn divided_index_becomes_a_simple_index_if_possible() {
    let pair = || {
        let slow = Map::Range { start: 0, step: 1, divide: 4, modulo: 3 };
        let fast = Map::Range { start: 0, step: 1, divide: 1, modulo: 4 };
        vec![change(0, 1, 0, slow), change(1, 1, 0, fast)]
    };
    let of = |count, frames| plan(pair(), vec![in_turn(count, 2)], frames);
    let divided = |plan: &Plan| plan.fields.iter().filter(|field| matches!(field.term, Term::Divided { .. })).count();
    let whole = of(12, None);
    assert_eq!((whole.selectors.clone(), divided(&whole)), (vec![in_turn(3, 8), in_turn(4, 2)], 0));
    // The index starts over before all pairs occurred.
    assert_eq!(divided(&of(13, None)), 2);
    // Within few frames it never starts over.
    let few = of(13, Some(8));
    assert_eq!((few.selectors.clone(), few.fields.len()), (vec![in_turn(0, 2)], 1));
}

#[test]
fn fields_that_move_together_share_an_index() {
    let changes =
        vec![change(0, 4, 0, Map::counting(1)), change(4, 2, 1, Map::counting(2)), change(6, 1, 2, Map::counting(3))];
    let selectors = vec![in_turn(9, 1), in_turn(10, 1), in_turn(9, 1)];
    let plan = plan(changes, selectors, None);
    let follows: Vec<(u32, u32)> = plan.fields.iter().map(|field| (field.selector, field.place.offset)).collect();
    assert_eq!((plan.selectors.len(), follows), (2, vec![(0, 0), (0, 6), (1, 4)]));
}
