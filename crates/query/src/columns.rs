//! Columns of records, independent of their source: the table of fields as numbers, and values of many records at a
//! time.

use linerate_export::fields::{self, Absence, Field, Getter};
use linerate_meter::{Flow, Level, Quality};
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

/// A column: its index in [`all`].
pub type Id = usize;

/// One column of a record: a field of one direction, or a bit of its quality.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name in files.
    pub name: String,
    /// Its field.
    pub field: &'static Field,
    /// Direction; 0 for the originator, and for fields without one.
    pub side: usize,
    /// Bit of a field with named bits.
    pub bit: Quality,
    /// True if it may be absent.
    pub is_nullable: bool,
}

/// Kind of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Integers.
    Number,
    /// Nanoseconds since 1970.
    Time,
    /// Booleans, as 1 and 0.
    Flag,
    /// Floats.
    Real,
    /// IP addresses.
    Address,
    /// Words and texts.
    Text,
    /// Lists of numbers.
    List,
}

static ALL: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for (field, side) in fields::columns() {
        let name = field.column_of(side);
        let is_nullable = field.absence != Absence::Never || field.part.level() > Level::Counters;
        let mut add = |name: String, bit| all.push(Column { name, field, side, bit, is_nullable });
        match field.get {
            Getter::Quality(_) => Quality::NAMES.iter().for_each(|(bit, word)| add(format!("{name}_{word}"), *bit)),
            _ => add(name, Quality::default()),
        }
    }
    all
});

static NAMES: LazyLock<HashMap<String, Id>> =
    LazyLock::new(|| ALL.iter().enumerate().map(|(id, column)| (column.name.clone(), id)).collect());

/// Returns all columns, in the order of files.
pub fn all() -> &'static [Column] {
    &ALL
}

/// Returns the column of this name in files.
pub fn of_name(name: &str) -> Option<Id> {
    NAMES.get(name).copied()
}

/// Returns an existing column, by a name in the source code.
pub(crate) fn own(name: &str) -> Id {
    NAMES[name]
}

impl Column {
    /// Returns the kind of its values.
    pub fn kind(&self) -> Kind {
        match self.field.get {
            Getter::U8(_) | Getter::U16(_) | Getter::U32(_) | Getter::U64(_) | Getter::Id(_) => Kind::Number,
            Getter::F64(_) => Kind::Real,
            Getter::Bool(_) | Getter::Quality(_) => Kind::Flag,
            Getter::Time(_) => Kind::Time,
            Getter::Address(_) => Kind::Address,
            Getter::Name(_) | Getter::Text(_) | Getter::Mac(_) => Kind::Text,
            Getter::List(_) => Kind::List,
        }
    }

    /// Returns whether its numbers are identifiers, such as an id.
    pub fn is_id(&self) -> bool {
        matches!(self.field.get, Getter::Id(_))
    }

    /// Returns whether its numbers can be summed over records.
    pub fn is_countable(&self) -> bool {
        self.kind() == Kind::Number && !self.field.unit.is_empty()
    }
}

/// A word of a dictionary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// An address.
    Address(IpAddr),
    /// Any text.
    Text(Arc<str>),
}

/// An address is hashed as one number: a list has tens of thousands of them per row group.
impl Hash for Word {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Word::Address(IpAddr::V4(address)) => state.write_u32(address.to_bits()),
            Word::Address(IpAddr::V6(address)) => state.write_u128(address.to_bits()),
            Word::Text(text) => text.hash(state),
        }
    }
}

/// Values of one column, of many records.
#[derive(Clone, Debug)]
pub enum Values {
    /// Numbers, times, flags; the second list marks absent values, and is empty without any.
    Numbers(Vec<u64>, Vec<bool>),
    /// Floats, likewise.
    Reals(Vec<f64>, Vec<bool>),
    /// Indices into a list of words; the index after its end stands for an absent value.
    Words(Vec<u32>, Arc<Vec<Word>>),
    /// Lists; an empty one is absent.
    Lists(Vec<Vec<u64>>),
}

impl Values {
    /// Returns whether the value of a record is absent.
    #[inline]
    pub fn is_absent(&self, row: usize) -> bool {
        match self {
            Values::Numbers(_, absent) | Values::Reals(_, absent) => absent.get(row).is_some_and(|is| *is),
            Values::Words(places, words) => places[row] as usize >= words.len(),
            Values::Lists(lists) => lists[row].is_empty(),
        }
    }

    /// Returns the values of these records, in this order.
    pub(crate) fn at(&self, rows: impl Iterator<Item = usize>) -> Values {
        let marks = |absent: &[bool], rows: &[usize]| match absent {
            [] => Vec::new(),
            _ => rows.iter().map(|row| absent[*row]).collect(),
        };
        let rows: Vec<usize> = rows.collect();
        match self {
            Values::Numbers(numbers, absent) => {
                Values::Numbers(rows.iter().map(|row| numbers[*row]).collect(), marks(absent, &rows))
            }
            Values::Reals(reals, absent) => {
                Values::Reals(rows.iter().map(|row| reals[*row]).collect(), marks(absent, &rows))
            }
            Values::Words(places, words) => {
                Values::Words(rows.iter().map(|row| places[*row]).collect(), Arc::clone(words))
            }
            Values::Lists(lists) => Values::Lists(rows.iter().map(|row| lists[*row].clone()).collect()),
        }
    }

    /// Returns absent values for `rows` records.
    pub fn none(kind: Kind, rows: usize) -> Values {
        match kind {
            Kind::Real => Values::Reals(vec![0.0; rows], vec![true; rows]),
            Kind::Address | Kind::Text => Values::Words(vec![0; rows], Arc::default()),
            Kind::List => Values::Lists(vec![Vec::new(); rows]),
            Kind::Number | Kind::Time | Kind::Flag => Values::Numbers(vec![0; rows], vec![true; rows]),
        }
    }
}

/// Many records, as columns; columns that were not requested are missing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Number of records.
    pub rows: usize,
    columns: Vec<Option<Values>>,
}

impl Batch {
    /// Creates a batch without columns for `rows` records.
    pub fn new(rows: usize) -> Self {
        Batch { rows, columns: vec![None; ALL.len()] }
    }

    /// Adds the values of a column.
    pub fn put(&mut self, id: Id, values: Values) {
        self.columns[id] = Some(values);
    }

    /// Returns the values of a column, if it was requested.
    pub fn get(&self, id: Id) -> Option<&Values> {
        self.columns.get(id)?.as_ref()
    }

    /// Returns these columns of records from a meter or collector.
    pub fn of_flows(flows: &[Flow], ids: &[Id]) -> Self {
        let mut batch = Batch::new(flows.len());
        ids.iter().for_each(|id| batch.put(*id, of_flows(&ALL[*id], flows)));
        batch
    }
}

fn of_flows(column: &Column, flows: &[Flow]) -> Values {
    let side = column.side;
    match column.field.get {
        Getter::U8(get) => numbers(flows, |flow| get(flow, side).map(u64::from)),
        Getter::U16(get) => numbers(flows, |flow| get(flow, side).map(u64::from)),
        Getter::U32(get) => numbers(flows, |flow| get(flow, side).map(u64::from)),
        Getter::U64(get) | Getter::Id(get) => numbers(flows, |flow| get(flow, side)),
        Getter::Bool(get) => numbers(flows, |flow| get(flow, side).map(u64::from)),
        Getter::Time(get) => numbers(flows, |flow| get(flow, side).map(|time| time.0)),
        Getter::Quality(get) => numbers(flows, |flow| Some(get(flow).contains(column.bit).into())),
        Getter::F64(get) => {
            let values = flows.iter().map(|flow| get(flow, side));
            let (reals, absent): (Vec<f64>, Vec<bool>) =
                values.map(|value| (value.unwrap_or_default(), value.is_none())).unzip();
            Values::Reals(reals, absent)
        }
        Getter::Name(get) => words(flows, |flow| get(flow, side).map(|name| Word::Text(name.into()))),
        Getter::Text(get) => words(flows, |flow| get(flow, side).map(|text: Cow<'_, str>| Word::Text((*text).into()))),
        Getter::Address(get) => words(flows, |flow| get(flow, side).map(Word::Address)),
        Getter::Mac(get) => words(flows, |flow| get(flow, side).map(|mac| Word::Text(mac.to_string().into()))),
        Getter::List(get) => {
            let list = |flow| {
                let mut list = Vec::new();
                get(flow, side, &mut list);
                list
            };
            Values::Lists(flows.iter().map(list).collect())
        }
    }
}

fn numbers(flows: &[Flow], get: impl Fn(&Flow) -> Option<u64>) -> Values {
    let (numbers, absent): (Vec<u64>, Vec<bool>) =
        flows.iter().map(|flow| get(flow).map_or((0, true), |number| (number, false))).unzip();
    let absent = if absent.contains(&true) { absent } else { Vec::new() };
    Values::Numbers(numbers, absent)
}

/// Converts texts to words; a text equal to the previous one has the same index.
fn words(flows: &[Flow], get: impl Fn(&Flow) -> Option<Word>) -> Values {
    let mut words: Vec<Word> = Vec::new();
    let found: Vec<Option<u32>> = flows
        .iter()
        .map(|flow| {
            let word = get(flow)?;
            if words.last() != Some(&word) {
                words.push(word);
            }
            Some(words.len() as u32 - 1)
        })
        .collect();
    let none = words.len() as u32;
    Values::Words(found.into_iter().map(|place| place.unwrap_or(none)).collect(), Arc::new(words))
}
