//! Selectors and maps of varying fields.

use super::value::{Order, Set, Values};
use crate::stream::{Alias, IndexSelection, MOST_WEIGHTED, Map, Selector};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Order of the varying fields of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pattern {
    /// All combinations, the last field fastest.
    Mesh,
    /// In step: each advances with every frame.
    Lockstep,
    /// Random combinations, equally likely.
    Random,
    /// Random combinations by Zipf's law.
    Zipf(f64),
}

/// Field with several values.
#[derive(Clone, Debug)]
pub(super) struct VaryingField {
    pub values: Values,
    /// Index of its layer, and the pattern of that layer.
    pub pattern: Option<(usize, Pattern)>,
}

/// Selectors, and for each field the index of its selector and its map.
pub(super) type FieldSelectors = (Vec<Selector>, Vec<(usize, Map)>);

/// Group of fields that share a selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Link(String),
    Layer(usize),
    Single(usize),
}

/// Derives the selectors of fields, and for each field the index of its selector and its map.
///
/// # Errors
/// The index of a field, and the problem with its order.
pub(super) fn selectors(fields: &[VaryingField], seed: u64) -> Result<FieldSelectors, (usize, String)> {
    let mut groups: BTreeMap<Group, Vec<usize>> = BTreeMap::new();
    for (index, field) in fields.iter().enumerate() {
        groups.entry(group(index, field)).or_default().push(index);
    }
    let (mut made, mut maps) = (Vec::new(), vec![None; fields.len()]);
    for (group, members) in &groups {
        let seed = seed.wrapping_add((made.len() as u64 + 1).wrapping_mul(0x5851_f42d_4c95_7f2d));
        let pattern = match group {
            Group::Layer(_) => fields[members[0]].pattern.map(|(_, pattern)| pattern),
            _ => None,
        };
        let sets: Vec<&Set> = members.iter().map(|index| &fields[*index].values.set).collect();
        let fails = |what: &str| (members[0], what.to_owned());
        let (selector, divisors) = match pattern {
            Some(Pattern::Mesh) => mesh(&sets, Order::InTurn, seed),
            Some(Pattern::Random) => mesh(&sets, Order::Random, seed),
            Some(Pattern::Zipf(exponent)) => mesh(&sets, Order::Zipf(exponent), seed),
            Some(Pattern::Lockstep) | None => together(fields, members, seed),
        }
        .map_err(|what| fails(&what))?;
        for (index, divide) in members.iter().zip(divisors) {
            maps[*index] = Some((made.len(), map(&fields[*index].values, divide, seed)));
        }
        made.push(selector);
    }
    Ok((made, maps.into_iter().flatten().collect()))
}

fn group(index: usize, field: &VaryingField) -> Group {
    let plain = field.values.order == Order::InTurn && field.values.every == 1;
    match (&field.values.link, field.pattern) {
        (Some(link), _) => Group::Link(link.clone()),
        (None, Some((layer, _))) if plain => Group::Layer(layer),
        _ => Group::Single(index),
    }
}

/// Returns one selector for fields that advance together.
fn together(fields: &[VaryingField], members: &[usize], seed: u64) -> Result<(Selector, Vec<u64>), String> {
    let plain = |index: &&usize| fields[**index].values.order == Order::InTurn;
    let leaders: Vec<&Values> = members.iter().filter(|index| !plain(index)).map(|at| &fields[*at].values).collect();
    let every = members.iter().map(|index| fields[*index].values.every).max().unwrap_or(1);
    let counts = members.iter().map(|index| fields[*index].values.set.count());
    let divisors = vec![1; members.len()];
    let selector = match leaders[..] {
        [] => Selector { count: counts.fold(1, multiple), pick: IndexSelection::InTurn { every } },
        [leader, ..] => {
            if counts.clone().any(|count| count != leader.set.count()) {
                return Err("fields that move together in random order need the same number of values".to_owned());
            }
            if leaders.iter().any(|other| other.order != leader.order) {
                return Err("fields that move together need one common order".to_owned());
            }
            picked(leader.set.count(), &leader.order, seed)?
        }
    };
    Ok((selector, divisors))
}

/// Returns one selector for all combinations.
fn mesh(sets: &[&Set], order: Order, seed: u64) -> Result<(Selector, Vec<u64>), String> {
    let (mut product, mut divisors) = (1u64, vec![1; sets.len()]);
    for (set, divisor) in sets.iter().zip(&mut divisors).rev() {
        *divisor = product;
        // A list has no divisor of its own: each of its values is repeated.
        if matches!(set, Set::List(_)) && product.saturating_mul(set.count() as u64) > MOST_WEIGHTED as u64 {
            return Err("the field with a list changes too slowly; put it last".to_owned());
        }
        let count = u64::try_from(set.count()).ok().filter(|count| *count > 0);
        let whole = count.and_then(|count| product.checked_mul(count));
        product = whole.ok_or("more than 2^64 combinations; use fewer values")?;
    }
    Ok((picked(product.into(), &order, seed)?, divisors))
}

fn picked(count: u128, order: &Order, seed: u64) -> Result<Selector, String> {
    let size = usize::try_from(count).ok().filter(|count| (1..=MOST_WEIGHTED).contains(count));
    let table = match order {
        Order::InTurn => return Ok(Selector { count: bounded(count), pick: IndexSelection::InTurn { every: 1 } }),
        Order::Random => return Ok(Selector { count: bounded(count), pick: IndexSelection::Random { seed } }),
        Order::Weighted(weights) => Alias::new(weights),
        Order::Zipf(exponent) => size.and_then(|size| Alias::zipf(size, *exponent)),
    };
    let table = table.ok_or_else(|| format!("{count} values are too many for weights; use at most {MOST_WEIGHTED}"))?;
    Ok(Selector { count: bounded(count), pick: IndexSelection::Weighted { table: Arc::new(table), seed } })
}

/// Returns the number of values for a selector: 0 for 2^64 and above.
fn bounded(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// Returns the number of frames after which two fields are both at their first value again; 0 above 2^64.
fn multiple(one: u64, other: u128) -> u64 {
    let (one, other) = (u128::from(one), u128::from(bounded(other)));
    if one == 0 || other == 0 {
        return 0;
    }
    let (mut a, mut b) = (one, other);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    bounded(one / a * other)
}

fn map(values: &Values, divide: u64, seed: u64) -> Map {
    match &values.set {
        Set::One(value) => Map::List(Arc::from([*value])),
        Set::List(list) => match divide {
            1 => Map::List(Arc::from(list.as_slice())),
            _ => Map::List(list.iter().flat_map(|value| std::iter::repeat_n(*value, divide as usize)).collect()),
        },
        Set::Range { start, count, .. } if values.order == Order::Random && bounded(*count) == 0 => {
            // More values than an index can have: scattered over all of them.
            Map::Scatter { start: *start, span: *count, seed }
        }
        Set::Range { start, step, count } => Map::Range { start: *start, step: *step, divide, modulo: bounded(*count) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::value::values;
    use linerate_headers::named::Format;

    fn frames(fields: &[(&str, Option<Pattern>)], count: u64) -> Result<Vec<Vec<u128>>, (usize, String)> {
        let read = |text: &str| values(text, text, Format::Number, 128).unwrap();
        let fields: Vec<VaryingField> = fields
            .iter()
            .map(|(text, pattern)| VaryingField { values: read(text), pattern: pattern.map(|pattern| (0, pattern)) })
            .collect();
        let (selectors, maps) = selectors(&fields, 1)?;
        Ok((0..count).map(|n| maps.iter().map(|(at, map)| map.at(selectors[*at].at(n))).collect()).collect())
    }

    #[test]
    fn fields_vary_as_requested() {
        let single = frames(&[("1..2", None), ("5..7", None)], 4).unwrap();
        assert_eq!(single, [[1, 5], [2, 6], [1, 7], [2, 5]]);
        let mesh = Some(Pattern::Mesh);
        assert_eq!(frames(&[("1..2", mesh), ("5..6", mesh)], 5).unwrap(), [[1, 5], [1, 6], [2, 5], [2, 6], [1, 5]]);
        assert_eq!(frames(&[("[1,2]", mesh), ("[5,6]", mesh)], 4).unwrap(), [[1, 5], [1, 6], [2, 5], [2, 6]]);
        let step = Some(Pattern::Lockstep);
        assert_eq!(frames(&[("1..3", step), ("5..6", step)], 4).unwrap(), [[1, 5], [2, 6], [3, 5], [1, 6]]);
        let linked = frames(&[("1..100 random @c", None), ("1001..1100 @c", None)], 50).unwrap();
        assert!(linked.iter().all(|pair| pair[1] == pair[0] + 1000));
        assert!(linked.iter().any(|pair| *pair != linked[0]));
        let zipf = Some(Pattern::Zipf(1.2));
        let pairs = frames(&[("1..10", zipf), ("1..10", zipf)], 1000).unwrap();
        assert!(pairs.iter().filter(|pair| **pair == [1, 1]).count() > 150);
        let random = Some(Pattern::Random);
        let pairs: std::collections::BTreeSet<_> =
            frames(&[("1..4", random), ("1..4", random)], 1000).unwrap().into_iter().collect();
        assert_eq!(pairs.len(), 16);
    }

    #[test]
    fn impossible_orders_are_rejected() {
        let mesh = Some(Pattern::Mesh);
        let wide = "0..0xffffffffffff";
        assert!(frames(&[("[1,2]", mesh), (wide, mesh)], 1).unwrap_err().1.contains("put it last"));
        assert!(frames(&[(wide, mesh), ("[1,2]", mesh)], 1).is_ok());
        assert!(frames(&[(wide, mesh), (wide, mesh)], 1).unwrap_err().1.contains("2^64"));
        assert!(frames(&[("1..9 random @c", None), ("1..8 @c", None)], 1).unwrap_err().1.contains("same number"));
        assert!(
            frames(&[("1..9 random @c", None), ("[1,2,3,4,5,6,7,8:1,9] @c", None)], 1)
                .unwrap_err()
                .1
                .contains("one common order")
        );
        let zipf = Some(Pattern::Zipf(1.0));
        assert!(frames(&[(wide, zipf)], 1).unwrap_err().1.contains("at most"));
    }
}
