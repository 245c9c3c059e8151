//! Questions: keys to group by, and measures to sum.

use crate::columns::{Batch, Id, Kind, all, own};
use crate::filter::Filter;
use crate::names::{NamedColumns, known, named, usual};
use crate::slot::Slot;
use linerate_burst::text::nearest;
use linerate_meter::Flow;
use std::collections::BTreeSet;

/// A question about records.
#[derive(Clone, Debug)]
pub struct Question {
    /// Filter of the records.
    pub filter: Filter,
    /// Keys to group by; empty for a single group.
    pub keys: Vec<Key>,
    /// Length of a time step in ns; 0 for none. The sums of a record are spread evenly over its time.
    pub every: u64,
    /// Measures of each group, in this order.
    pub measures: Vec<Measure>,
    /// Index of the measure by which groups are sorted, in descending order.
    pub sort: usize,
    /// Maximum number of groups, or records, in the result.
    pub top: usize,
    /// Maximum number of groups kept. Above it the smaller half of them is merged into `others`.
    pub most_groups: usize,
}

/// Default maximum number of groups: some 200 bytes each.
pub const MOST_GROUPS: usize = 1 << 20;

/// A key to group by.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Name as written by the user.
    pub name: String,
    /// Its column, or one per end.
    pub of: NamedColumns,
    /// Prefix lengths of IPv4 and of IPv6 addresses.
    pub prefix: Option<[u8; 2]>,
    /// True for the other end than that of the same key before it, as in `address,address`: a record counts once, for the
    /// pair of its ends in the order of their values.
    pub is_other: bool,
}

/// A measure of a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Measure {
    /// Number of records.
    Records,
    /// Sum of columns, with its name.
    Sum(String, Vec<Id>),
    /// Sum of a column of the end that a record is grouped by, with its name; then the same column of the other end.
    OfEnd(String, [Id; 2]),
    /// Time from the first packet to the last one, in ns.
    Duration,
    /// Bits per second over that time, or over the time step.
    Bps,
    /// Packets per second, likewise.
    Pps,
    /// Bytes per packet.
    Bpp,
}

impl Key {
    /// Parses keys such as `orig_address/24,port`, or `address,address` for pairs of hosts.
    ///
    /// # Errors
    /// A field is unknown, or cannot be a key.
    pub fn parse(text: &str) -> Result<Vec<Key>, String> {
        let mut keys: Vec<Key> = Vec::new();
        for one in text.split(',') {
            let mut key = Key::one(one.trim())?;
            if keys.contains(&key) && matches!(key.of, NamedColumns::Both(_)) {
                key = Key { name: format!("other_{}", key.name), is_other: true, ..key };
            }
            if keys.contains(&key) {
                return Err(format!("duplicate key {}; leave one out", one.trim()));
            }
            if keys.len() == MOST_KEYS {
                return Err(format!("too many keys; at most {MOST_KEYS}"));
            }
            keys.push(key);
        }
        Ok(keys)
    }

    fn one(text: &str) -> Result<Key, String> {
        let mut parts = text.split('/');
        let name = parts.next().unwrap_or_default();
        let lengths: Vec<&str> = parts.collect();
        let of = named(name).ok_or_else(|| {
            let near = usual(name).or_else(|| nearest(name, known()));
            let near = near.map_or(String::new(), |near| format!(" (did you mean {near}?)"));
            format!("{name}: no such field{near}; examples: address, orig_address/24, resp_port, protocol")
        })?;
        let id = match of {
            NamedColumns::One(id) | NamedColumns::Both([id, _]) => id,
        };
        let kind = all()[id].kind();
        if matches!(kind, Kind::List | Kind::Real) {
            return Err(format!("{name}: cannot group by a list or float field"));
        }
        let bits = |text: &str| {
            let bits = text.parse::<u8>().ok().filter(|bits| *bits <= 128);
            bits.ok_or_else(|| {
                format!("{name}/{text}: invalid prefix; expected 0 to 128 bits, such as /24 (IPv4) or /48 (IPv6)")
            })
        };
        let prefix = match lengths[..] {
            [] => None,
            _ if kind != Kind::Address => return Err(format!("{name}: not an address field; remove the prefix")),
            [one] => {
                let bits = bits(one)?;
                Some(if bits <= 32 { [bits, WIDE_PREFIX] } else { [32, bits] })
            }
            [narrow, wide] => {
                let narrow = bits(narrow)?;
                if narrow > 32 {
                    return Err(format!("{text}: invalid prefix; IPv4 addresses have 32 bits"));
                }
                Some([narrow, bits(wide)?])
            }
            _ => return Err(format!("{text}: invalid prefix; expected one number, or one for IPv4 and one for IPv6")),
        };
        Ok(Key { name: text.to_ascii_lowercase(), of, prefix, is_other: false })
    }

    /// Returns its column of a direction.
    pub fn id(&self, side: usize) -> Id {
        match self.of {
            NamedColumns::One(id) => id,
            NamedColumns::Both(ids) => ids[side ^ usize::from(self.is_other)],
        }
    }

    /// Returns whether it is of either end of a record.
    pub(crate) fn is_of_either_end(&self) -> bool {
        self.id(0) != self.id(1)
    }

    /// Returns the kind of its values.
    pub fn kind(&self) -> Kind {
        all()[self.id(0)].kind()
    }
}

/// Maximum number of keys of a question.
const MOST_KEYS: usize = 8;
/// Prefix length of IPv6 addresses if only that of IPv4 is given: a site.
const WIDE_PREFIX: u8 = 48;

impl Measure {
    /// Parses measures such as `flows,packets,bytes,bps` and any field that can be summed.
    ///
    /// # Errors
    /// A measure is unknown.
    pub fn parse(text: &str) -> Result<Vec<Measure>, String> {
        text.split(',').map(|one| Measure::one(one.trim())).collect()
    }

    /// Returns the measure of this name.
    ///
    /// # Errors
    /// The measure is unknown.
    pub fn one(name: &str) -> Result<Measure, String> {
        let lower = name.to_ascii_lowercase();
        Ok(match lower.as_str() {
            "records" => Measure::Records,
            "duration" => Measure::Duration,
            "bps" => Measure::Bps,
            "pps" => Measure::Pps,
            "bpp" => Measure::Bpp,
            _ => {
                let ids = match named(name) {
                    Some(NamedColumns::One(id)) => vec![id],
                    Some(NamedColumns::Both(ids)) => ids.to_vec(),
                    None => {
                        let words = ["records", "flows", "packets", "bytes", "bps", "pps", "bpp", "duration"];
                        let near = nearest(name, words.map(str::to_owned).into_iter().chain(known()));
                        let near = near.map_or(String::new(), |near| format!(" (did you mean {near}?)"));
                        return Err(format!("{name}: no such measure{near}; examples: {}", words.join(", ")));
                    }
                };
                if !all()[ids[0]].is_countable() {
                    return Err(format!("{name}: cannot be summed; expected a count such as packets or bytes"));
                }
                Measure::Sum(lower, ids)
            }
        })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        match self {
            Measure::Records => "records",
            Measure::Sum(name, _) | Measure::OfEnd(name, _) => name,
            Measure::Duration => "duration",
            Measure::Bps => "bps",
            Measure::Pps => "pps",
            Measure::Bpp => "bpp",
        }
    }

    /// Returns the same for groups by either end: there the source is the end of the group, the destination the other.
    fn of_end(self) -> Measure {
        let turned = |name: &str| match (name.strip_prefix("src_"), name.strip_prefix("dst_")) {
            (Some(of), _) => Some(format!("dst_{of}")),
            (_, Some(of)) => Some(format!("src_{of}")),
            _ => None,
        };
        match self {
            Measure::Sum(name, ids) => {
                match (&ids[..], turned(&name.replace('.', "_")).and_then(|turned| named(&turned))) {
                    ([id], Some(NamedColumns::One(other))) => Measure::OfEnd(name, [*id, other]),
                    _ => Measure::Sum(name, ids),
                }
            }
            measure => measure,
        }
    }

    /// Returns the columns that it sums.
    fn columns(&self) -> Vec<Id> {
        match self {
            Measure::Sum(_, ids) => ids.clone(),
            Measure::OfEnd(_, ids) => ids.to_vec(),
            _ => Vec::new(),
        }
    }

    /// Returns whether groups have a share of its total.
    pub fn has_parts(&self) -> bool {
        matches!(self, Measure::Records | Measure::Sum(..) | Measure::OfEnd(..))
    }
}

impl Measure {
    fn slots(&self) -> Vec<Slot> {
        let both = |name: &str| Slot::Sum(["orig_", "resp_"].map(|side| own(&format!("{side}{name}"))).to_vec());
        match self {
            Measure::Records => vec![Slot::Count],
            Measure::Sum(_, ids) => vec![Slot::Sum(ids.clone())],
            Measure::OfEnd(_, [id, other]) => vec![Slot::OfEnd([*id, *other]), Slot::OfEnd([*other, *id])],
            Measure::Duration => vec![Slot::First, Slot::Last],
            Measure::Bps => vec![both("frame_bytes"), Slot::First, Slot::Last],
            Measure::Pps => vec![both("packets"), Slot::First, Slot::Last],
            Measure::Bpp => vec![both("frame_bytes"), both("packets")],
        }
    }

    /// Returns its value from accumulators; rates are those of a time step of `step` ns, unless 0.
    pub(crate) fn value(&self, slots: &[Slot], kept: &[u64], step: u64) -> f64 {
        let get = |place: usize| {
            let slot = &self.slots()[place];
            slots.iter().position(|known| known == slot).map_or(0, |place| kept[place])
        };
        let per = |count: u64, by: u64, scale: f64| if by == 0 { 0.0 } else { count as f64 * scale / by as f64 };
        let time = || if step > 0 { step } else { get(2).saturating_sub(get(1)) };
        match self {
            Measure::Records | Measure::Sum(..) | Measure::OfEnd(..) => get(0) as f64,
            Measure::Duration => get(1).saturating_sub(get(0)) as f64,
            Measure::Bps => per(get(0), time(), 8e9),
            Measure::Pps => per(get(0), time(), 1e9),
            Measure::Bpp => per(get(0), get(1), 1.0),
        }
    }

    /// Returns its value for each of these records.
    pub fn of_flows(&self, flows: &[Flow]) -> Vec<f64> {
        let slots = self.slots();
        let columns: Vec<Id> = slots.iter().flat_map(Slot::columns).collect();
        let batch = Batch::of_flows(flows, &columns);
        let kept: Vec<_> = slots.iter().map(|slot| slot.of(&batch)).collect();
        let of_row = |row: usize| kept.iter().map(|values| values[row]).collect::<Vec<_>>();
        (0..flows.len()).map(|row| self.value(&slots, &of_row(row), 0)).collect()
    }

    /// Returns its value if it is an integer.
    pub(crate) fn whole(&self, slots: &[Slot], kept: &[u64]) -> Option<u64> {
        let get = |slot: &Slot| slots.iter().position(|known| known == slot).map(|place| kept[place]);
        match self {
            Measure::Records | Measure::Sum(..) | Measure::OfEnd(..) => get(&self.slots()[0]),
            Measure::Duration => Some(get(&Slot::Last)?.saturating_sub(get(&Slot::First)?)),
            Measure::Bps | Measure::Pps | Measure::Bpp => None,
        }
    }
}

impl Question {
    /// Creates a question about all records that pass the filter, in one group.
    pub fn new(filter: Filter) -> Self {
        let measures =
            ["flows", "packets", "bytes"].map(|name| Measure::one(name).unwrap_or(Measure::Records)).to_vec();
        Question { filter, keys: Vec::new(), every: 0, measures, sort: 2, top: 10, most_groups: MOST_GROUPS }
    }

    /// Sets the measures and the sort order; a measure to sort by is added if missing. With keys of either end, `src_` and `dst_` mean
    /// the end of the group and the other one: `src_bytes` is what it sent.
    ///
    /// # Errors
    /// A measure is unknown.
    pub fn measure(&mut self, sums: Option<&str>, sort: Option<&str>) -> Result<(), String> {
        let is_of_end = self.keys.iter().any(Key::is_of_either_end);
        let of_end = |measure: Measure| if is_of_end { measure.of_end() } else { measure };
        if let Some(sums) = sums {
            self.measures = Measure::parse(sums)?.into_iter().map(of_end).collect();
            self.sort = 0;
        }
        if let Some(sort) = sort {
            let sort = of_end(Measure::one(sort)?);
            self.sort = match self.measures.iter().position(|known| *known == sort) {
                Some(place) => place,
                None => {
                    self.measures.push(sort);
                    self.measures.len() - 1
                }
            };
        }
        Ok(())
    }

    /// Returns whether records are grouped.
    pub fn is_of_groups(&self) -> bool {
        !self.keys.is_empty() || self.every > 0
    }

    /// Returns whether a record counts in two groups, once for each of its ends.
    pub fn counts_twice(&self) -> bool {
        self.keys.iter().any(Key::is_of_either_end) && !self.keys.iter().any(|key| key.is_other)
    }

    /// Returns the accumulators of each group; at least one is a count, by which groups to merge are selected.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        let mut slots: Vec<Slot> = Vec::new();
        let sort = self.measures.get(self.sort);
        for slot in sort.into_iter().chain(&self.measures).flat_map(Measure::slots) {
            if !slots.contains(&slot) {
                slots.push(slot);
            }
        }
        if !slots.iter().any(Slot::is_count) {
            slots.push(Slot::Count);
        }
        slots
    }

    /// Returns the columns of keys and measures, and the tunnel column.
    pub(crate) fn group_columns(&self) -> BTreeSet<Id> {
        let keys = self.keys.iter().flat_map(|key| [key.id(0), key.id(1)]);
        let times = ["first_time", "last_time"].into_iter().filter(|_| self.every > 0).map(own);
        let sums = self.slots();
        keys.chain(times).chain(sums.iter().flat_map(Slot::columns)).chain([own("tunnel_kind")]).collect()
    }

    /// Returns the columns that the user named: keys, filter and sums.
    pub fn named_columns(&self) -> BTreeSet<Id> {
        let keys = self.keys.iter().flat_map(|key| [key.id(0), key.id(1)]);
        let sums = self.measures.iter().flat_map(Measure::columns);
        keys.chain(self.filter.columns()).chain(sums).collect()
    }

    /// Returns all columns that are read for unstored records.
    pub fn columns(&self) -> Vec<Id> {
        let mut ids = self.group_columns();
        ids.extend(self.filter.columns());
        ids.into_iter().collect()
    }
}
