//! Every field of a flow record, declared once: what it is called, what it means, and where in a [`Flow`] it is.
//!
//! JSON lines, columns, Zeek's names and the tables of `docs/flows.md` are made from these rows. Rows stand in the order of
//! JSON; [`columns`] gives that of columns.

mod flow;
mod has;
mod names;
mod stats;
mod tcp;

pub use has::Has;

use linerate_burst::Nanos;
use linerate_meter::{Flow, Level, Quality};
use linerate_wire::MacAddr;
use std::borrow::Cow;
use std::net::IpAddr;

/// All there are.
pub fn fields() -> impl Iterator<Item = &'static Field> {
    [flow::FIELDS, tcp::FIELDS, stats::FIELDS, names::FIELDS].into_iter().flatten()
}

/// Those of what a conversation said of itself.
pub(crate) fn names() -> &'static [Field] {
    names::FIELDS
}

/// A field, and names for what says the same elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its path in JSON, with dots; of a field that both directions have, `*` stands for `orig` and for `resp`.
    pub path: &'static str,
    /// What it tells of.
    pub part: Part,
    /// Where it is.
    pub get: Get,
    /// Whether it may be absent.
    pub absence: Absence,
    /// What it is counted in; empty of what is no number of anything.
    pub unit: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// The information elements of IPFIX.
    pub ipfix: Ipfix,
    /// The names that Argus has for it.
    pub argus: &'static str,
    /// The names that Zeek has for it, in its conn.log.
    pub zeek: Zeek,
    /// The names that tstat has for it.
    pub tstat: &'static str,
}

/// What a field tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The flow.
    Flow,
    /// The headers around its packets.
    Headers,
    /// Each end.
    End,
    /// The packets of each direction.
    Side,
    /// What to know before relying on it.
    Quality,
    /// A TCP connection.
    Tcp,
    /// Each of its directions.
    TcpSide,
    /// The first packets.
    Stats,
    /// Lengths and gaps of each direction.
    StatsSide,
    /// What the conversation said of itself.
    Names,
}

/// A value of a flow; the number says of which direction, 0 the originator's. `None`: it is absent.
pub type Value<T> = fn(&Flow, usize) -> Option<T>;

/// What kind of value a field has, and how to get it.
#[derive(Clone, Copy, Debug)]
pub enum Get {
    /// A number of 8 bits.
    U8(Value<u8>),
    /// A number of 16 bits.
    U16(Value<u16>),
    /// A number of 32 bits.
    U32(Value<u32>),
    /// A number of 64 bits.
    U64(Value<u64>),
    /// A number with a fraction.
    F64(Value<f64>),
    /// Yes or no.
    Bool(Value<bool>),
    /// A moment; its path ends in `_ns`.
    Time(Value<Nanos>),
    /// A number that only names something: hexadecimal in JSON, whose numbers are exact to 53 bits alone.
    Id(Value<u64>),
    /// One of a few words.
    Name(Value<&'static str>),
    /// An address of IPv4 or IPv6.
    Address(Value<IpAddr>),
    /// A MAC address.
    Mac(Value<MacAddr>),
    /// Any text.
    Text(for<'a> fn(&'a Flow, usize) -> Option<Cow<'a, str>>),
    /// Numbers, which are appended; false: the list is absent.
    List(fn(&Flow, usize, &mut Vec<u64>) -> bool),
    /// Bits with names: a list of these in JSON, a column each.
    Quality(fn(&Flow) -> Quality),
}

/// Whether a field may be absent where its part is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It is always there.
    Never,
    /// It is left out of JSON then, and null in columns.
    LeftOut,
    /// It is null then.
    Null,
}

/// The information elements of IPFIX that say what a field says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipfix {
    /// Whose numbers these are; 0: IANA's.
    pub enterprise: u32,
    /// Elements of the flow, or of its originator: one, or those for IPv4 and for IPv6.
    pub elements: &'static [u16],
    /// Elements of its responder.
    pub responder: Responder,
    /// Where the element says something else.
    pub remark: &'static str,
}

/// Elements of the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responder {
    /// The field is of the flow, or has no element for the responder.
    None,
    /// The reverse of the originator's (RFC 5103): the same numbers, of enterprise [`REVERSE`].
    Reverse,
    /// Elements of its own.
    Own(&'static [u16]),
}

/// The enterprise of reverse elements (RFC 5103, 6.1).
pub const REVERSE: u32 = 29305;

/// Zeek's names in conn.log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeek {
    /// Nothing there is like it.
    None,
    /// These have the same value, of a direction one each.
    Same(&'static [&'static str]),
    /// These have another one.
    Like(&'static str),
}

impl Get {
    /// What kind of value it is, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Get::U8(_) => "u8",
            Get::U16(_) => "u16",
            Get::U32(_) => "u32",
            Get::U64(_) => "u64",
            Get::F64(_) => "f64",
            Get::Bool(_) => "bool",
            Get::Time(_) => "time",
            Get::Id(_) => "id",
            Get::Name(_) => "word",
            Get::Address(_) | Get::Mac(_) => "address",
            Get::Text(_) => "text",
            Get::List(_) => "list",
            Get::Quality(_) => "bits",
        }
    }
}

impl Part {
    /// From which level on it is recorded.
    pub fn level(self) -> Level {
        match self {
            Part::Tcp | Part::TcpSide => Level::Tcp,
            Part::Stats | Part::StatsSide => Level::Stats,
            _ => Level::Counters,
        }
    }
}

impl Field {
    /// Whether both directions have it.
    pub const fn is_of_sides(&self) -> bool {
        matches!(self.path.as_bytes(), [b'*', ..])
    }

    /// Its path in JSON, of a direction.
    pub fn path_of(&self, side: usize) -> String {
        self.path.replacen('*', ["orig", "resp"][side & 1], 1)
    }

    /// The name of its column, of a direction: its path, joined by `_`. A column of times knows its unit itself.
    pub fn column_of(&self, side: usize) -> String {
        let name = self.path_of(side).replace('.', "_");
        match (self.get, name.strip_suffix("_ns")) {
            (Get::Time(_), Some(name)) => name.to_owned(),
            _ => name,
        }
    }

    /// The elements of IPFIX that say it of a direction: enterprise (0: IANA) and number, of addresses IPv4's and IPv6's.
    pub fn elements(&self, side: usize) -> impl Iterator<Item = (u32, u16)> {
        let Ipfix { enterprise, elements, responder, .. } = self.ipfix;
        let (enterprise, elements) = match (side, responder) {
            (0, _) => (enterprise, elements),
            (_, Responder::None) => (enterprise, &[][..]),
            (_, Responder::Reverse) => (REVERSE, elements),
            (_, Responder::Own(elements)) => (enterprise, elements),
        };
        elements.iter().map(move |element| (enterprise, *element))
    }

    /// The same counted in something.
    const fn unit(self, unit: &'static str) -> Field {
        Field { unit, ..self }
    }

    /// The same as elements of IANA; of a direction the responder's are their reverse.
    const fn iana(self, elements: &'static [u16]) -> Field {
        let responder = if self.is_of_sides() { Responder::Reverse } else { Responder::None };
        Field { ipfix: Ipfix { enterprise: 0, elements, responder, remark: self.ipfix.remark }, ..self }
    }

    /// The same as elements of an enterprise (0: IANA), others for the responder.
    const fn elements_of(self, enterprise: u32, elements: &'static [u16], responder: &'static [u16]) -> Field {
        let responder = if responder.is_empty() { Responder::None } else { Responder::Own(responder) };
        Field { ipfix: Ipfix { enterprise, elements, responder, remark: self.ipfix.remark }, ..self }
    }

    /// The same, with what to know of its element.
    const fn remark(self, remark: &'static str) -> Field {
        Field { ipfix: Ipfix { remark, ..self.ipfix }, ..self }
    }

    /// The same by Argus' names.
    const fn argus(self, argus: &'static str) -> Field {
        Field { argus, ..self }
    }

    /// The same by Zeek's names, which have the same value.
    const fn zeek(self, names: &'static [&'static str]) -> Field {
        Field { zeek: Zeek::Same(names), ..self }
    }

    /// The same with Zeek's names of what is alike.
    const fn zeek_like(self, names: &'static str) -> Field {
        Field { zeek: Zeek::Like(names), ..self }
    }

    /// The same by tstat's names.
    const fn tstat(self, tstat: &'static str) -> Field {
        Field { tstat, ..self }
    }
}

/// A field that is always there.
const fn always(part: Part, path: &'static str, get: Get, meaning: &'static str) -> Field {
    let ipfix = Ipfix { enterprise: 0, elements: &[], responder: Responder::None, remark: "" };
    let absence = Absence::Never;
    Field { path, part, get, absence, unit: "", meaning, ipfix, argus: "", zeek: Zeek::None, tstat: "" }
}

/// A field that is left out where it is absent.
const fn maybe(part: Part, path: &'static str, get: Get, meaning: &'static str) -> Field {
    Field { absence: Absence::LeftOut, ..always(part, path, get, meaning) }
}

/// A field that is null where it is absent.
const fn null(part: Part, path: &'static str, get: Get, meaning: &'static str) -> Field {
    Field { absence: Absence::Null, ..always(part, path, get, meaning) }
}

/// All fields in the order of columns, each with its direction: what is of the flow, of the originator, of the responder; then
/// the same of each level; then names.
pub fn columns() -> impl Iterator<Item = (&'static Field, usize)> {
    use Part::*;
    let groups: [&[Part]; 9] =
        [&[Flow], &[Headers], &[End, Side], &[Quality], &[Tcp], &[TcpSide], &[Stats], &[StatsSide], &[Names]];
    groups.into_iter().flat_map(|group| {
        let of = |part: Part| fields().filter(move |field| field.part == part);
        let sides = if group.iter().any(|part| of(*part).any(Field::is_of_sides)) { 2 } else { 1 };
        (0..sides).flat_map(move |side| group.iter().flat_map(move |part| of(*part)).map(move |field| (field, side)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_field_is_named_once_and_told() {
        let mut paths = BTreeSet::new();
        for field in fields() {
            let Field { path, part, unit, meaning, .. } = field;
            assert!(paths.insert(path), "{path} stands twice");
            let is_of_sides = matches!(part, Part::End | Part::Side | Part::TcpSide | Part::StatsSide);
            assert_eq!(field.is_of_sides(), is_of_sides, "{path}");
            assert_eq!(path.ends_with("_ns"), *unit == "ns", "{path}");
            assert!(meaning.len() > 6 && !meaning.ends_with('.') && !meaning.contains('|'), "{path}: {meaning}");
            assert!(!matches!(field.get, Get::Time(_)) || path.ends_with("_time_ns"), "{path}");
            let prefix = match part.level() {
                Level::Counters => "",
                Level::Tcp => "tcp.",
                Level::Stats => "stats.",
            };
            assert!(path.trim_start_matches("*.").starts_with(prefix), "{path} is not where its level is");
        }
    }

    #[test]
    fn every_field_is_a_column_and_no_two_are_one() {
        let all: Vec<_> = columns().map(|(field, side)| field.column_of(side)).collect();
        let wanted: usize = fields().map(|field| if field.is_of_sides() { 2 } else { 1 }).sum();
        assert_eq!(all.len(), wanted);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), wanted);
        assert_eq!(&all[..3], ["id", "community_id", "first_time"]);
    }

    #[test]
    fn the_elements_of_both_directions_differ() {
        let of = |path: &str| fields().find(|field| field.path == path).unwrap();
        let elements = |path: &str, side| of(path).elements(side).collect::<Vec<_>>();
        assert_eq!((elements("*.packets", 0), elements("*.packets", 1)), (vec![(0, 2)], vec![(REVERSE, 2)]));
        assert_eq!(elements("*_address", 1), [(0, 12), (0, 28)]);
        assert_eq!(elements("*.stats.gap_histogram", 1), [(8057, 1063)]);
        assert_eq!((elements("protocol", 0), elements("protocol", 1)), (vec![(0, 4)], vec![]));
        for field in fields().filter(|field| field.is_of_sides()) {
            let [one, other] = [0, 1].map(|side| field.elements(side).collect::<BTreeSet<_>>());
            assert!(one.is_disjoint(&other), "{}: {one:?}", field.path);
        }
    }
}
