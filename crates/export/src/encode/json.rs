//! JSON lines with our own names (`linerate/flow/1`), generated from the table of fields; and a writer of JSON
//! documents.

use super::lines::Lines;
use super::{Encoder, Origin, Settings, text};
use crate::fields::{Absence, Field, Getter, PresentParts, fields};
use linerate_meter::Flow;
use serde::Serialize;
use std::io;
use std::io::Write;
use std::sync::LazyLock;

/// Document of our own format.
static RECORD: LazyLock<Document> = LazyLock::new(|| {
    let mut record = Document::new("{\"schema\":\"linerate/flow/1\",");
    let all: Vec<&Field> = fields().collect();
    // Fields of one direction are adjacent.
    for run in all.chunk_by(|one, other| one.is_of_sides() && other.is_of_sides()) {
        for side in 0..if run[0].is_of_sides() { 2 } else { 1 } {
            run.iter().for_each(|field| record.add(&field.path_of(side), field.needs(), Source::of(field, side)));
        }
    }
    record
});

/// Returns a flow as a JSON document, without a newline.
pub fn record(flow: &Flow) -> String {
    let mut text = Vec::new();
    RECORD.write(flow, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns flows as lines with their origin: `sensor`, `run` (hexadecimal), `batch`, `row`.
pub fn lines_from(flows: &[&Flow], origin: &Origin) -> Vec<u8> {
    let (mut text, Origin { sensor, run, batch }) = (Vec::new(), origin);
    for (row, flow) in flows.iter().enumerate() {
        text.extend_from_slice(b"{\"sensor\":");
        json(Some(sensor), &mut text);
        text.extend_from_slice(format!(",\"run\":\"{run:016x}\",\"batch\":{batch},\"row\":{row},").as_bytes());
        let begin = text.len();
        RECORD.write(flow, &mut text);
        // The opening brace is already written.
        text.copy_within(begin + 1.., begin);
        text.pop();
        text.push(b'\n');
    }
    text
}

pub(super) fn start(out: Box<dyn Write + Send>, _: &Settings) -> io::Result<Box<dyn Encoder>> {
    Lines::start(out, "", |flow, text| RECORD.write(flow, text))
}

/// JSON document of a flow. Names are built once: only values are written per flow.
pub(super) struct Document {
    begin: &'static str,
    members: Vec<Member>,
}

pub(super) struct Member {
    /// Includes quotes and colon.
    name: String,
    /// Parts that a flow must have for this member.
    needs: PresentParts,
    source: Source,
}

/// Source of a member's value.
pub(super) enum Source {
    /// Value of a field for a direction.
    Value { get: Getter, side: usize, absence: Absence },
    /// Function that appends JSON; false: it appended nothing.
    Text(fn(&Flow, &mut Vec<u8>) -> bool),
    /// Object, absent if it has no members.
    Object(Vec<Member>),
}

impl Source {
    /// Returns the source for a field and a direction.
    pub(super) fn of(field: &Field, side: usize) -> Source {
        Source::Value { get: field.get, side, absence: field.absence }
    }
}

impl Document {
    pub(super) fn new(begin: &'static str) -> Self {
        Document { begin, members: Vec::new() }
    }

    /// Adds a member at a path with dots between its parts.
    pub(super) fn add(&mut self, path: &str, needs: PresentParts, source: Source) {
        add(&mut self.members, path.split('.'), needs, source);
    }

    /// Adds a top-level member; its name may contain dots.
    pub(super) fn add_flat(&mut self, name: &str, source: Source) {
        self.members.push(Member::new(name, PresentParts::NOTHING, source));
    }

    pub(super) fn write(&self, flow: &Flow, text: &mut Vec<u8>) {
        text.extend_from_slice(self.begin.as_bytes());
        write_members(&self.members, flow, PresentParts::of(flow), text);
        close(text, b'}');
    }
}

impl Member {
    fn new(name: &str, needs: PresentParts, source: Source) -> Self {
        Member { name: format!("\"{name}\":"), needs, source }
    }
}

fn add<'a>(
    members: &mut Vec<Member>,
    mut path: impl Iterator<Item = &'a str> + Clone,
    needs: PresentParts,
    source: Source,
) {
    let Some(name) = path.next() else { return };
    if path.clone().next().is_none() {
        members.push(Member::new(name, needs, source));
        return;
    }
    let quoted = format!("\"{name}\":");
    let index = members.iter().position(|member| member.name == quoted).unwrap_or_else(|| {
        members.push(Member::new(name, needs, Source::Object(Vec::new())));
        members.len() - 1
    });
    let object = &mut members[index];
    // Parts that all members need.
    object.needs = object.needs.and(needs);
    if let Source::Object(members) = &mut object.source {
        add(members, path, needs, source);
    }
}

/// Writes members, each followed by a comma.
fn write_members(members: &[Member], flow: &Flow, has: PresentParts, text: &mut Vec<u8>) {
    for Member { name, source, .. } in members.iter().filter(|member| has.covers(member.needs)) {
        let begin = text.len();
        text.extend_from_slice(name.as_bytes());
        let is_there = match source {
            Source::Value { get, side, absence } => {
                write_value(get, flow, *side, text) || *absence == Absence::Null && put(Some("null"), text)
            }
            Source::Text(write) => write(flow, text),
            Source::Object(members) => {
                let before = text.len();
                text.push(b'{');
                write_members(members, flow, has, text);
                close(text, b'}');
                text.len() > before + 2
            }
        };
        if is_there {
            text.push(b',');
        } else {
            text.truncate(begin);
        }
    }
}

/// Replaces a trailing comma by the closing character.
fn close(text: &mut Vec<u8>, end: u8) {
    if text.last() == Some(&b',') {
        text.pop();
    }
    text.push(end);
}

/// Appends a value; returns false, without appending, if it is absent.
pub(crate) fn write_value(get: &Getter, flow: &Flow, side: usize, text: &mut Vec<u8>) -> bool {
    match get {
        Getter::U8(get) => json(get(flow, side), text),
        Getter::U16(get) => json(get(flow, side), text),
        Getter::U32(get) => json(get(flow, side), text),
        Getter::U64(get) => json(get(flow, side), text),
        Getter::F64(get) => json(get(flow, side), text),
        Getter::Bool(get) => put(get(flow, side).map(|is_so| if is_so { "true" } else { "false" }), text),
        Getter::Time(get) => json(get(flow, side).map(|time| time.0), text),
        Getter::Id(get) => quoted(get(flow, side), text, text::hex),
        Getter::Name(get) => quoted(get(flow, side), text, word),
        Getter::Address(get) => quoted(get(flow, side), text, text::address),
        Getter::Mac(get) => quoted(get(flow, side), text, text::display),
        Getter::Text(get) => json(get(flow, side), text),
        Getter::List(get) => {
            let mut list = Vec::new();
            get(flow, side, &mut list) && json(Some(list), text)
        }
        Getter::Quality(get) => {
            text.push(b'[');
            for name in get(flow).names() {
                quoted(Some(name), text, word);
                text.push(b',');
            }
            close(text, b']');
            true
        }
    }
}

fn json(value: Option<impl Serialize>, text: &mut Vec<u8>) -> bool {
    value.is_some_and(|value| serde_json::to_writer(text, &value).is_ok())
}

fn put(value: Option<&str>, text: &mut Vec<u8>) -> bool {
    value.inspect(|value| text.extend_from_slice(value.as_bytes())).is_some()
}

fn word(word: &str, text: &mut Vec<u8>) {
    text.extend_from_slice(word.as_bytes());
}

/// Writes a text that needs no JSON escaping.
fn quoted<T>(value: Option<T>, text: &mut Vec<u8>, write: impl FnOnce(T, &mut Vec<u8>)) -> bool {
    let is_there = value.is_some();
    if let Some(value) = value {
        text.push(b'"');
        write(value, text);
        text.push(b'"');
    }
    is_there
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Part;
    use std::collections::BTreeSet;

    #[test]
    fn an_object_without_members_is_absent() {
        let flow = crate::tests::flow();
        let mut document = Document::new("{");
        let value = |get, absence| Source::Value { get, side: 0, absence };
        document.add("a.b.c", PresentParts::NOTHING, value(Getter::U8(|_, _| None), Absence::LeftOut));
        document.add("d", PresentParts::NOTHING, value(Getter::U8(|_, _| None), Absence::Null));
        document.add("a.b.e", PresentParts::NOTHING, value(Getter::U64(|flow, _| Some(flow.flows)), Absence::Never));
        document.add("f.g", PresentParts::NOTHING, value(Getter::U8(|_, _| None), Absence::LeftOut));
        document.add_flat("h.i", Source::Text(|_, text| put(Some("[1]"), text)));
        let mut text = Vec::new();
        document.write(&flow, &mut text);
        assert_eq!(String::from_utf8(text).unwrap(), r#"{"a":{"b":{"e":1}},"d":null,"h.i":[1]}"#);
        let mut empty = Document::new("{");
        empty.add("f.g", PresentParts::NOTHING, value(Getter::U8(|_, _| None), Absence::LeftOut));
        let mut text = Vec::new();
        empty.write(&flow, &mut text);
        assert_eq!(text, b"{}");
    }

    #[test]
    fn all_fields_of_a_flow_are_in_its_document() {
        let flow = crate::tests::flow();
        let document: serde_json::Value = serde_json::from_str(&record(&flow)).unwrap();
        let is_always =
            |field: &&Field| field.part.level() == linerate_meter::Level::Counters && field.part != Part::Names;
        let counters = fields().filter(is_always);
        let mut missing = BTreeSet::new();
        for (field, side) in counters.flat_map(|field| [(field, 0), (field, 1)]) {
            let path = field.path_of(side).replace('.', "/");
            if document.pointer(&format!("/{path}")).is_none() {
                missing.insert(field.path);
            }
        }
        let absent = ["*.mac", "*.mpls_labels", "*.teid", "extension_headers", "inner_vlan", "vlan"];
        let of_others = ["exporter.address", "exporter.domain", "exporter.egress", "exporter.ingress"];
        let of_tunnels = ["tunnel.id", "tunnel.kind", "tunnel.parent"];
        assert_eq!(missing, absent.into_iter().chain(of_others).chain(of_tunnels).collect());
    }
}
