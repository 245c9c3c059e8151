//! Fields of flow records, each declared once: its names, its meaning and its value in a [`Flow`].
//!
//! JSON lines, columns, Zeek names and the tables of `docs/flows.md` are generated from these rows. Rows are in the
//! order of JSON; [`columns`] returns the order of columns.

mod flow;
mod names;
mod present_parts;
mod stats;
mod tcp;

pub use present_parts::PresentParts;

use linerate_burst::Nanos;
use linerate_headers::MacAddr;
use linerate_meter::{ConnState, Direction, EndReason, Flow, Level, Protocol, Quality, TunnelKind};
use std::borrow::Cow;
use std::net::IpAddr;

/// Returns all fields.
pub fn fields() -> impl Iterator<Item = &'static Field> {
    [flow::FIELDS, tcp::FIELDS, stats::FIELDS, names::FIELDS].into_iter().flatten()
}

/// Returns the fields found in payload.
pub(crate) fn names() -> &'static [Field] {
    names::FIELDS
}

/// Field of a record, with its names in other tools.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// JSON path, with dots; in fields of both directions `*` stands for `orig` and `resp`.
    pub path: &'static str,
    /// Group of the field.
    pub part: Part,
    /// Returns the value.
    pub get: Getter,
    /// Form of an absent value.
    pub absence: Absence,
    /// Unit; empty for values without one.
    pub unit: &'static str,
    /// Description.
    pub meaning: &'static str,
    /// IPFIX information elements.
    pub ipfix: Ipfix,
    /// Names in Argus.
    pub argus: &'static str,
    /// Names in Zeek's conn.log.
    pub zeek: Zeek,
    /// Names in tstat.
    pub tstat: &'static str,
}

/// Group of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Flow as a whole.
    Flow,
    /// Encapsulation of its packets.
    Headers,
    /// Each endpoint.
    End,
    /// Packets of each direction.
    Side,
    /// Limits of the measurement.
    Quality,
    /// TCP connection.
    Tcp,
    /// TCP, per direction.
    TcpSide,
    /// First packets.
    Stats,
    /// Packet lengths and gaps of each direction.
    StatsSide,
    /// Names found in payload.
    Names,
}

/// Returns a value of a flow for a direction, 0 for the originator; `None` if absent.
pub type Value<T> = fn(&Flow, usize) -> Option<T>;

/// Type of a field, with its getter.
#[derive(Clone, Copy, Debug)]
pub enum Getter {
    /// 8-bit number.
    U8(Value<u8>),
    /// 16-bit number.
    U16(Value<u16>),
    /// 32-bit number.
    U32(Value<u32>),
    /// 64-bit number.
    U64(Value<u64>),
    /// Floating-point number.
    F64(Value<f64>),
    /// Boolean.
    Bool(Value<bool>),
    /// Timestamp; the path ends in `_ns`.
    Time(Value<Nanos>),
    /// Identifier: hexadecimal in JSON, whose numbers are exact only up to 53 bits.
    Id(Value<u64>),
    /// Name from a fixed set.
    Name(Value<&'static str>),
    /// IPv4 or IPv6 address.
    Address(Value<IpAddr>),
    /// MAC address.
    Mac(Value<MacAddr>),
    /// Text.
    Text(for<'a> fn(&'a Flow, usize) -> Option<Cow<'a, str>>),
    /// Appends numbers; false: the list is absent.
    List(fn(&Flow, usize, &mut Vec<u64>) -> bool),
    /// Named bits: a list of names in JSON, one boolean column each.
    Quality(fn(&Flow) -> Quality),
}

/// Representation of an absent value, where the group of the field is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Never absent.
    Never,
    /// Omitted in JSON, null in columns.
    LeftOut,
    /// Null in JSON and in columns.
    Null,
}

/// IPFIX information elements that correspond to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipfix {
    /// Private enterprise number of the elements; 0: IANA.
    pub enterprise: u32,
    /// Elements of the flow or of its originator: one, or one each for IPv4 and IPv6.
    pub elements: &'static [u16],
    /// Elements of the responder.
    pub responder: Responder,
    /// Difference from the element.
    pub remark: &'static str,
}

/// Elements of the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Responder {
    /// None: the field belongs to the flow, or has no element for the responder.
    None,
    /// Reverse elements of the originator's (RFC 5103): the same numbers with enterprise [`REVERSE`].
    Reverse,
    /// Separate elements.
    Own(&'static [u16]),
}

/// Private enterprise number of reverse elements (RFC 5103, 6.1).
pub const REVERSE: u32 = 29305;

/// Names in Zeek's conn.log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeek {
    /// No corresponding field.
    None,
    /// Fields with the same value, one per direction.
    Same(&'static [&'static str]),
    /// Similar fields with a different value.
    Like(&'static str),
}

impl Getter {
    /// Returns the name of the type, for documentation.
    pub fn kind(&self) -> &'static str {
        match self {
            Getter::U8(_) => "u8",
            Getter::U16(_) => "u16",
            Getter::U32(_) => "u32",
            Getter::U64(_) => "u64",
            Getter::F64(_) => "f64",
            Getter::Bool(_) => "bool",
            Getter::Time(_) => "time",
            Getter::Id(_) => "id",
            Getter::Name(_) => "word",
            Getter::Address(_) | Getter::Mac(_) => "address",
            Getter::Text(_) => "text",
            Getter::List(_) => "list",
            Getter::Quality(_) => "bits",
        }
    }
}

impl Part {
    /// Returns the lowest level that records it.
    pub fn level(self) -> Level {
        match self {
            Part::Tcp | Part::TcpSide => Level::Tcp,
            Part::Stats | Part::StatsSide => Level::Stats,
            _ => Level::Counters,
        }
    }
}

impl Field {
    /// Returns whether both directions have it.
    pub const fn is_of_sides(&self) -> bool {
        matches!(self.path.as_bytes(), [b'*', ..])
    }

    /// Returns the JSON path for a direction.
    pub fn path_of(&self, side: usize) -> String {
        self.path.replacen('*', ["orig", "resp"][side & 1], 1)
    }

    /// Returns the column name for a direction: the path joined by `_`, without the unit of timestamps, whose type has
    /// it.
    pub fn column_of(&self, side: usize) -> String {
        let name = self.path_of(side).replace('.', "_");
        match (self.get, name.strip_suffix("_ns")) {
            (Getter::Time(_), Some(name)) => name.to_owned(),
            _ => name,
        }
    }

    /// Returns all values of a field of [`Getter::Name`]; empty for others.
    pub fn words(&self) -> Vec<&'static str> {
        match self.path {
            "tunnel.kind" => TunnelKind::ALL.map(TunnelKind::name).to_vec(),
            "end_reason" => EndReason::ALL.map(EndReason::name).to_vec(),
            "direction" => Direction::ALL.map(Direction::name).to_vec(),
            "service" => Protocol::ALL.map(Protocol::name).to_vec(),
            "tcp.state" => ConnState::ALL.map(ConnState::name).to_vec(),
            _ => Vec::new(),
        }
    }

    /// Returns its IPFIX elements for a direction: enterprise (0: IANA) and number; for addresses those of IPv4 and
    /// IPv6.
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

    /// Sets the unit.
    const fn unit(self, unit: &'static str) -> Field {
        Field { unit, ..self }
    }

    /// Sets IANA elements; the responder's are their reverse.
    const fn iana(self, elements: &'static [u16]) -> Field {
        let responder = if self.is_of_sides() { Responder::Reverse } else { Responder::None };
        Field { ipfix: Ipfix { enterprise: 0, elements, responder, remark: self.ipfix.remark }, ..self }
    }

    /// Sets elements of an enterprise (0: IANA), with separate ones for the responder.
    const fn elements_of(self, enterprise: u32, elements: &'static [u16], responder: &'static [u16]) -> Field {
        let responder = if responder.is_empty() { Responder::None } else { Responder::Own(responder) };
        Field { ipfix: Ipfix { enterprise, elements, responder, remark: self.ipfix.remark }, ..self }
    }

    /// Sets the remark about its element.
    const fn remark(self, remark: &'static str) -> Field {
        Field { ipfix: Ipfix { remark, ..self.ipfix }, ..self }
    }

    /// Sets the names in Argus.
    const fn argus(self, argus: &'static str) -> Field {
        Field { argus, ..self }
    }

    /// Sets the Zeek names with the same value.
    const fn zeek(self, names: &'static [&'static str]) -> Field {
        Field { zeek: Zeek::Same(names), ..self }
    }

    /// Sets the Zeek names with a similar value.
    const fn zeek_like(self, names: &'static str) -> Field {
        Field { zeek: Zeek::Like(names), ..self }
    }

    /// Sets the names in tstat.
    const fn tstat(self, tstat: &'static str) -> Field {
        Field { tstat, ..self }
    }
}

/// Returns a field that is always present.
const fn always(part: Part, path: &'static str, get: Getter, meaning: &'static str) -> Field {
    let ipfix = Ipfix { enterprise: 0, elements: &[], responder: Responder::None, remark: "" };
    let absence = Absence::Never;
    Field { path, part, get, absence, unit: "", meaning, ipfix, argus: "", zeek: Zeek::None, tstat: "" }
}

/// Returns a field that is omitted when absent.
const fn maybe(part: Part, path: &'static str, get: Getter, meaning: &'static str) -> Field {
    Field { absence: Absence::LeftOut, ..always(part, path, get, meaning) }
}

/// Returns a field that is null when absent.
const fn null(part: Part, path: &'static str, get: Getter, meaning: &'static str) -> Field {
    Field { absence: Absence::Null, ..always(part, path, get, meaning) }
}

/// Returns all fields in the order of columns, with their direction: the flow, the originator, the responder; then
/// the same per level; then names.
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
    fn every_field_has_one_name_and_a_description() {
        let mut paths = BTreeSet::new();
        for field in fields() {
            let Field { path, part, unit, meaning, .. } = field;
            assert!(paths.insert(path), "{path}: duplicate");
            let is_of_sides = matches!(part, Part::End | Part::Side | Part::TcpSide | Part::StatsSide);
            assert_eq!(field.is_of_sides(), is_of_sides, "{path}");
            assert_eq!(path.ends_with("_ns"), *unit == "ns", "{path}");
            assert!(meaning.len() > 6 && !meaning.ends_with('.') && !meaning.contains('|'), "{path}: {meaning}");
            assert!(!matches!(field.get, Getter::Time(_)) || path.ends_with("_time_ns"), "{path}");
            assert_eq!(matches!(field.get, Getter::Name(_)), !field.words().is_empty(), "{path}: words");
            let prefix = match part.level() {
                Level::Counters => "",
                Level::Tcp => "tcp.",
                Level::Stats => "stats.",
            };
            assert!(path.trim_start_matches("*.").starts_with(prefix), "{path}: not under the prefix of its level");
        }
    }

    #[test]
    fn every_field_has_its_own_column() {
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
