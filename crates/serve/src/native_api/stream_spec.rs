//! Streams in the format of `/api/v1`: the keys of a stream file, with the ports of each stream.

use crate::recordings::Recordings;
use crate::state::NO_FILES;
use linerate_generate::file::{self, keys};
use linerate_generate::stream::{Order, Stream};
use linerate_headers::Link;
use linerate_otg::read::Faults;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSpec {
    /// Name.
    pub name: String,
    /// Sending port.
    pub tx: String,
    /// Receiving ports.
    pub rx: Vec<String>,
    /// Keys of a stream file except the name, in the order of the keys.
    pub keys: Vec<(&'static str, Value)>,
    /// Recording that it replays, instead of a packet.
    pub replay: Option<String>,
    /// Sequence that it belongs to.
    pub sequence: Option<String>,
}

/// Error in a stream, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Index of the stream, from 0.
    pub stream: usize,
    /// Key; empty for the whole stream.
    pub key: String,
    /// Offset in characters in the value, if known.
    pub at: Option<usize>,
    /// Problem and remedy.
    pub what: String,
}

/// Maximum number of streams.
pub const MOST_STREAMS: usize = 1 << 17;
/// Maximum characters of a name.
const LONGEST_NAME: usize = 200;
/// Keys that do not apply where streams are controlled individually.
const NOT_HERE: &[&str] = &["name", "id"];
/// Keys that do not apply to a recording.
const OF_A_PACKET: &[&str] = &["packet", "size", "burst", "poisson", "check"];
/// Placeholder for the frames of a recording until they are set.
const PLACEHOLDER: &str = "packet = 'ip/udp'\nsize = '64'\n";
/// Default rate.
const USUAL_RATE: &str = "1kpps";

impl Fault {
    fn new(key: &str, what: impl Into<String>) -> Self {
        Fault { stream: 0, key: key.to_owned(), at: None, what: what.into() }
    }

    /// Returns it as JSON.
    pub fn json(&self) -> Value {
        json!({"stream": self.stream, "key": self.key, "at": self.at, "what": self.what})
    }

    /// Adds it to a list of errors, as a line.
    pub fn line(&self, faults: &mut Faults) {
        let key = if self.key.is_empty() { String::new() } else { format!(".{}", self.key) };
        faults.add(&format!("streams[{}]{key}", self.stream), &self.what);
    }
}

impl StreamSpec {
    /// Reads a stream.
    ///
    /// # Errors
    /// An error of this stream, as far as it is independent of the others.
    pub fn read(document: &Value) -> Result<Self, Fault> {
        let Some(fields) = document.as_object() else { return Err(Fault::new("", "expected an object")) };
        let (name, tx, rx, keys) = (String::new(), String::new(), Vec::new(), Vec::new());
        let mut read = StreamSpec { name, tx, rx, keys, replay: None, sequence: None };
        for (name, value) in fields {
            match name.as_str() {
                "name" => read.name = text(name, value)?.trim().to_owned(),
                "tx" => read.tx = text(name, value)?.to_owned(),
                "rx" => read.rx = ports(value)?,
                "sequence" if value.is_null() || value == "" => {}
                "sequence" => read.sequence = Some(text(name, value)?.to_owned()),
                "replay" if value.is_null() || value == "" => {}
                "replay" => read.replay = Some(text(name, value)?.to_owned()),
                _ => {
                    let known = keys::STREAM.iter().find(|key| key.name == name && !NOT_HERE.contains(&key.name));
                    let Some(key) = known else {
                        return Err(Fault::new(
                            name,
                            format!("unknown key; expected one of name, tx, rx, replay, sequence, {}", all()),
                        ));
                    };
                    // Forms send empty values for unset keys.
                    if !(value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty())) {
                        read.keys.push((key.name, fitting(key, value)?));
                    }
                }
            }
        }
        if read.sequence.is_none() && read.get("next").is_some() {
            return Err(Fault::new("next", "needs a sequence; set the same sequence in all of its streams"));
        }
        if read.replay.is_some()
            && let Some((key, _)) = read.keys.iter().find(|(key, _)| OF_A_PACKET.contains(key))
        {
            return Err(Fault::new(key, "does not apply to a recording; remove it"));
        }
        read.complete();
        match (read.name.chars().count(), read.tx.is_empty()) {
            (0, _) => Err(Fault::new("name", "missing name")),
            (_, true) => Err(Fault::new("tx", "missing sending port")),
            (LONGEST_NAME.., _) => Err(Fault::new("name", format!("at most {LONGEST_NAME} characters"))),
            _ => Ok(read),
        }
    }

    /// Sorts the keys, and adds the default rate.
    fn complete(&mut self) {
        // A recording has its own timing.
        if self.get("rate").is_none() && self.replay.is_none() {
            self.keys.push(("rate", USUAL_RATE.into()));
        }
        self.keys.sort_by_key(|(name, _)| keys::STREAM.iter().position(|key| key.name == *name));
    }

    /// Returns the value of a key, if present.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.keys.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Returns the text of a key; empty if absent.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns a description of its frames.
    pub fn message(&self) -> String {
        self.replay.as_ref().map_or_else(|| self.text("packet").to_owned(), |name| format!("replay of {name}"))
    }

    /// Sets the rate.
    pub fn pace(&mut self, rate: &str) {
        self.keys.retain(|(name, _)| *name != "rate");
        self.keys.push(("rate", rate.into()));
        self.complete();
    }

    /// Returns it as JSON.
    pub fn json(&self) -> Value {
        let mut fields = Map::new();
        fields.insert("name".into(), self.name.as_str().into());
        fields.insert("tx".into(), self.tx.as_str().into());
        fields.insert("rx".into(), self.rx.clone().into());
        fields.extend(self.sequence.as_ref().map(|name| ("sequence".to_owned(), name.as_str().into())));
        fields.extend(self.replay.as_ref().map(|name| ("replay".to_owned(), name.as_str().into())));
        fields.extend(self.keys.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Value::Object(fields)
    }
}

/// Origin of a line of a stream file: stream, key, and offset of the value in characters.
type Origin = Option<(usize, &'static str, usize)>;

/// Writes streams as a stream file, with the origin of each of its lines.
pub fn written(streams: &[&StreamSpec]) -> (String, Vec<Origin>) {
    let (mut text, mut places) = (String::new(), Vec::new());
    for (index, stream) in streams.iter().enumerate() {
        if index > 0 {
            text.push('\n');
            places.push(None);
        }
        text += "[[stream]]\n";
        places.push(None);
        let name = Value::from(stream.name.as_str());
        for (key, value) in [("name", &name)].into_iter().chain(stream.keys.iter().map(|(key, value)| (*key, value))) {
            let value = toml(value);
            let quoted = usize::from(value.starts_with(['\'', '"']));
            places.push(Some((index, key, key.len() + 3 + quoted)));
            // Writing to memory does not fail.
            let _ = writeln!(text, "{key} = {value}");
        }
        if stream.replay.is_some() {
            text += PLACEHOLDER;
            places.extend([None, None]);
            if stream.get("rate").is_none() {
                // A set needs a rate for each stream.
                let _ = writeln!(text, "rate = '{USUAL_RATE}'");
                places.push(None);
            }
        }
    }
    (text, places)
}

/// Compiles streams that leave through one port with this line rate at layer 1.
///
/// # Errors
/// The first error.
pub fn streams(all: &[&StreamSpec], line: Option<f64>, recordings: &Recordings) -> Result<Vec<Stream>, Fault> {
    let mut groups: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
    for (index, own) in all.iter().enumerate() {
        groups.entry(own.sequence.as_deref()).or_default().push(index);
    }
    let mut made: Vec<Option<Stream>> = all.iter().map(|_| None).collect();
    for (sequence, places) in groups {
        let some: Vec<&StreamSpec> = places.iter().map(|place| all[*place]).collect();
        let order = if sequence.is_some() { Order::Sequential } else { Order::Interleaved };
        let streams = together(&some, order, line, recordings)
            .map_err(|fault| Fault { stream: places.get(fault.stream).copied().unwrap_or_default(), ..fault })?;
        places.into_iter().zip(streams).for_each(|(place, stream)| made[place] = Some(stream));
    }
    Ok(made.into_iter().flatten().collect())
}

/// Compiles streams that are sent in parallel or in sequence.
fn together(
    all: &[&StreamSpec],
    order: Order,
    line: Option<f64>,
    recordings: &Recordings,
) -> Result<Vec<Stream>, Fault> {
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let (mut text, mut places) = written(all);
    if order == Order::Sequential {
        text.insert_str(0, "order = 'sequential'\n");
        places.insert(0, None);
    }
    let setup = file::Setup { link: Link::Ethernet, line, files: NO_FILES };
    let mut set = file::streams("streams", &text, &setup).map_err(|error| {
        let place = places.get(error.line.saturating_sub(1)).copied().flatten();
        let (stream, key, start) = place.unwrap_or_default();
        let at = place.and_then(|_| (error.column - 1).checked_sub(start));
        Fault { stream, key: key.to_owned(), at, what: error.what().to_owned() }
    })?;
    for (index, (own, stream)) in all.iter().zip(&mut set.streams).enumerate() {
        let Some(name) = &own.replay else { continue };
        let (has_rate, is_once) = (own.get("rate").is_some(), own.get("count").or(own.get("for")).is_none());
        let made = recordings.replay(name, stream, has_rate, is_once);
        made.map_err(|what| Fault { stream: index, ..Fault::new(if has_rate { "rate" } else { "replay" }, what) })?;
    }
    Ok(set.streams)
}

/// Reads the streams of a document.
///
/// # Errors
/// All errors.
pub fn read_all(document: &Value) -> Result<Vec<StreamSpec>, Faults> {
    let mut faults = Faults::default();
    let Some(list) = document.get("streams").and_then(Value::as_array) else {
        faults.add("streams", "expected a list of streams");
        return Err(faults);
    };
    if list.len() > MOST_STREAMS {
        faults.add("streams", format_args!("{} streams: at most {MOST_STREAMS}", list.len()));
        return Err(faults);
    }
    let (mut read, mut names) = (Vec::new(), BTreeSet::new());
    for (index, one) in list.iter().enumerate() {
        match StreamSpec::read(one) {
            Ok(one) if !names.insert(one.name.clone()) => {
                Fault { stream: index, ..Fault::new("name", "duplicate name") }.line(&mut faults);
            }
            Ok(one) => read.push(one),
            Err(fault) => Fault { stream: index, ..fault }.line(&mut faults),
        }
    }
    if faults.is_empty() { Ok(read) } else { Err(faults) }
}

fn text<'a>(key: &str, value: &'a Value) -> Result<&'a str, Fault> {
    value.as_str().ok_or_else(|| Fault::new(key, "expected a text"))
}

fn ports(value: &Value) -> Result<Vec<String>, Fault> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(name) if name.is_empty() => Ok(Vec::new()),
        Value::String(name) => Ok(vec![name.clone()]),
        Value::Array(names) => names.iter().map(|name| text("rx", name).map(str::to_owned)).collect(),
        _ => Err(Fault::new("rx", "expected names of ports")),
    }
}

/// Converts a value to a type that the key accepts.
fn fitting(key: &keys::Key, value: &Value) -> Result<Value, Fault> {
    let fits = |of: &keys::Type| match of {
        keys::Type::Text => value.is_string(),
        keys::Type::Number => value.is_u64(),
        keys::Type::Flag => value.is_boolean(),
        keys::Type::Burst => {
            let burst = value.as_object();
            burst.is_some_and(|burst| {
                burst.len() == 2
                    && burst.get("frames").is_some_and(Value::is_u64)
                    && burst.get("gap").is_some_and(Value::is_string)
            })
        }
        keys::Type::Streams => false,
    };
    if key.types.iter().any(fits) {
        return Ok(value.clone());
    }
    Err(Fault::new(key.name, format!("expected {}", key.legal)))
}

fn all() -> String {
    let names = keys::STREAM.iter().map(|key| key.name).filter(|name| !NOT_HERE.contains(name));
    names.collect::<Vec<_>>().join(", ")
}

/// Formats a value as TOML (TOML 1.0), with literal strings where possible.
pub fn toml(value: &Value) -> String {
    match value {
        Value::String(text) if !text.contains(|letter: char| letter == '\'' || letter.is_control()) => {
            format!("'{text}'")
        }
        Value::String(text) => {
            let mut quoted = String::from("\"");
            for letter in text.chars() {
                match letter {
                    '"' | '\\' => quoted.extend(['\\', letter]),
                    letter if letter.is_control() => {
                        let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
                    }
                    letter => quoted.push(letter),
                }
            }
            quoted + "\""
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name} = {}", toml(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(document: &Value) -> Result<StreamSpec, Fault> {
        StreamSpec::read(document)
    }

    #[test]
    fn errors_have_positions() {
        let fault = |packet: &str, key: &str, value: Value| {
            let mut document = json!({"name": "a", "tx": "p1", "packet": packet});
            document[key] = value;
            let one = match read(&document) {
                Ok(one) => one,
                Err(fault) => return (fault.key, fault.at),
            };
            let fault = streams(&[&one], None, &Recordings::default()).unwrap_err();
            (fault.key, fault.at)
        };
        assert_eq!(fault("ip/udp(dprt=53)", "count", json!(1)), ("packet".into(), Some(7)));
        // Escapes shift characters, so the error has no offset.
        assert_eq!(fault("ip/udp", "rate", json!("10 cows")), ("rate".into(), Some(0)));
        assert_eq!(fault("ip/udp", "rate", json!(10)), ("rate".into(), None));
        assert_eq!(fault("ip/udp", "cuont", json!(10)), ("cuont".into(), None));
        assert_eq!(fault("ip/udp", "next", json!("stop")), ("next".into(), None), "without a sequence");
        assert_eq!(fault("file(/etc/passwd#1)", "count", json!(1)).0, "packet");
    }

    #[test]
    fn any_text_round_trips_through_a_file() {
        for name in ["plain", "it's", "\"q\"", "a\\b", "line\nnext\u{1b}", "<img src=x onerror=alert(1)>", "'''"] {
            let document =
                json!({"name": name, "tx": "p1", "packet": "ip/udp", "burst": {"frames": 3, "gap": "1ms"}, "count": 9});
            let one = read(&document).unwrap();
            let made = streams(&[&one], None, &Recordings::default()).unwrap_or_else(|fault| panic!("{fault:?}"));
            assert_eq!((made[0].name.as_str(), made[0].count), (name, Some(9)));
        }
    }
}
