//! Keys of a stream file: their values, as text and as JSON schema.

use std::fmt::Write;

/// Key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name of the key.
    pub name: &'static str,
    /// Types of its value.
    pub types: &'static [Type],
    /// Description.
    pub about: &'static str,
    /// Valid values.
    pub legal: &'static str,
}

/// Type of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// String.
    Text,
    /// Whole number, 0 or more.
    Number,
    /// `true` or `false`.
    Flag,
    /// Table of frames and gap.
    Burst,
    /// Array of streams.
    Streams,
}

const fn key(name: &'static str, types: &'static [Type], about: &'static str, legal: &'static str) -> Key {
    Key { name, types, about, legal }
}

/// Keys of the file.
pub const SET: &[Key] = &[
    key(
        "order",
        &[Type::Text],
        "Order of streams: one after the other, or all at once.",
        r#""sequential" or "interleaved" (default)"#,
    ),
    key("rate", &[Type::Text], "Common rate of all streams; their own rates then define their shares.", RATE),
    key(
        "seed",
        &[Type::Number],
        "Seed of all random values: the same seed makes the same frames.",
        "a number; default 0",
    ),
    key(
        "key",
        &[Type::Number],
        "Key of the check in trailers: trailers with other keys are not counted as one's own.",
        "a number",
    ),
    key("stream", &[Type::Streams], "The streams.", "[[stream]]"),
];

/// Keys of a stream.
pub const STREAM: &[Key] = &[
    key("name", &[Type::Text], "Name of the stream in tables and for next.", r#"text; default "stream 1""#),
    key(
        "packet",
        &[Type::Text],
        "The packet, layer by layer.",
        "layers with slashes between, as in eth/ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)/payload(random)",
    ),
    key("size", &[Type::Text, Type::Number], "Bytes of a frame, FCS included.", SIZE),
    key("rate", &[Type::Text], "Rate.", RATE),
    key(
        "burst",
        &[Type::Burst],
        "Number of frames sent at the rate, and the gap after them.",
        r#"{ frames = 10, gap = "1ms" }"#,
    ),
    key("poisson", &[Type::Flag], "Gaps drawn from an exponential distribution.", "true or false"),
    key("count", &[Type::Number], "Number of frames; without it the stream is endless.", "a number, 1 or more"),
    key("start", &[Type::Text], "Time of its first frame, from the start of the run; not in a sequence.", TIME),
    key("for", &[Type::Text], "Duration from then on; without it the stream does not end by time.", TIME),
    key(
        "next",
        &[Type::Text],
        "Successor in a sequence. With a jump back to NAME x3, the streams from NAME to this one are sent 3 times in all.",
        r#""next" (default), "stop", "goto NAME" or "goto NAME x3""#,
    ),
    key(
        "check",
        &[Type::Text],
        "Identification of the frames at the receiver.",
        r#""trailer" (default), "count" (default of raw and file) or "no""#,
    ),
    key(
        "id",
        &[Type::Number],
        "The number of the stream in trailers.",
        "a number below 16777216; default: position, from 1",
    ),
];

/// Keys of a burst.
pub const BURST: &[Key] = &[
    key("frames", &[Type::Number], "Frames of a burst.", "a number, 1 or more"),
    key("gap", &[Type::Text], "Time between the end of a burst and the next one.", TIME),
];

const TIME: &str = r#"a time such as "250ns", "10us", "1ms", "2s""#;
const RATE: &str =
    "250kpps, 1.5mpps, 10gbps (layer 2), 10gbpsl1 (with preamble and gap), 50% (of line rate, up to 100%) or max";
const SIZE: &str = "64, 64..1518, 64..1518/100, random(64..1518), [64:7, 594:4, 1518:1], imix or genome(aabg); default 64, or what the packet needs";

/// Returns the JSON schema of stream files.
pub fn schema() -> String {
    let stream = object(STREAM, &["packet"], 6);
    let keys = object(SET, &["stream"], 0).replacen("{\n", &head(), 1);
    keys.replace("\"$STREAM\"", &stream).replace("\"$BURST\"", &object(BURST, &["frames", "gap"], 10)) + "\n"
}

fn head() -> String {
    let draft = "https://json-schema.org/draft/2020-12/schema";
    format!("{{\n  \"$schema\": \"{draft}\",\n  \"title\": \"Streams of linerate generate\",\n")
}

fn object(keys: &[Key], required: &[&str], indent: usize) -> String {
    let space = " ".repeat(indent);
    let mut text = format!("{{\n{space}  \"type\": \"object\",\n{space}  \"additionalProperties\": false,\n");
    let required: Vec<String> = required.iter().map(|name| format!("\"{name}\"")).collect();
    let _ = writeln!(text, "{space}  \"required\": [{}],\n{space}  \"properties\": {{", required.join(", "));
    for (index, key) in keys.iter().enumerate() {
        let about = format!("{} {}.", key.about, key.legal).replace('\\', "\\\\").replace('"', "\\\"");
        let types: Vec<&str> = key.types.iter().map(|of| json(*of)).collect();
        let types =
            if types.len() == 1 { types[0].to_owned() } else { format!("\"anyOf\": [{{ {} }}]", types.join(" }, { ")) };
        let comma = if index + 1 < keys.len() { "," } else { "" };
        let _ = writeln!(text, "{space}    \"{}\": {{ \"description\": \"{about}\", {types} }}{comma}", key.name);
    }
    text + &format!("{space}  }}\n{space}}}")
}

fn json(of: Type) -> &'static str {
    match of {
        Type::Text => "\"type\": \"string\"",
        Type::Number => "\"type\": \"integer\", \"minimum\": 0",
        Type::Flag => "\"type\": \"boolean\"",
        Type::Burst => "\"allOf\": [\"$BURST\"]",
        Type::Streams => "\"type\": \"array\", \"minItems\": 1, \"items\": \"$STREAM\"",
    }
}
