//! The keys of a stream file: what each holds, in words for people and in JSON schema.

use std::fmt::Write;

/// A key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The types of its value.
    pub types: &'static [Type],
    /// What it says.
    pub about: &'static str,
    /// What can be written.
    pub legal: &'static str,
}

/// A type of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Text.
    Text,
    /// A whole number, 0 or more.
    Number,
    /// `true` or `false`.
    Flag,
    /// A table of frames and gap.
    Burst,
    /// The streams.
    Streams,
}

const fn key(name: &'static str, types: &'static [Type], about: &'static str, legal: &'static str) -> Key {
    Key { name, types, about, legal }
}

/// The keys of the file.
pub const SET: &[Key] = &[
    key(
        "order",
        &[Type::Text],
        "Streams one after the other, or all at once.",
        r#""sequential" or "interleaved" (the usual)"#,
    ),
    key("rate", &[Type::Text], "Of all streams together; their own rates then say how they share it.", RATE),
    key("seed", &[Type::Number], "Of all that is random: the same seed, the same frames.", "a number; 0 is the usual"),
    key(
        "key",
        &[Type::Number],
        "Of the check in trailers: trailers of other keys are not taken for one's own.",
        "a number",
    ),
    key("stream", &[Type::Streams], "The streams.", "[[stream]]"),
];

/// The keys of a stream.
pub const STREAM: &[Key] = &[
    key("name", &[Type::Text], "What the stream is called in tables and by next.", r#"text; "stream 1" is the usual"#),
    key(
        "packet",
        &[Type::Text],
        "The packet, layer by layer.",
        "layers with slashes between, as in eth/ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)/payload(random)",
    ),
    key("size", &[Type::Text, Type::Number], "Bytes of a frame, FCS included.", SIZE),
    key("rate", &[Type::Text], "How fast.", RATE),
    key("burst", &[Type::Burst], "So many frames at the rate, then a gap.", r#"{ frames = 10, gap = "1ms" }"#),
    key("poisson", &[Type::Flag], "Gaps drawn from an exponential distribution.", "true or false"),
    key("count", &[Type::Number], "How many frames; without it they do not end.", "a number, 1 or more"),
    key("start", &[Type::Text], "When its first frame is due, from the start of the run; not in a sequence.", TIME),
    key("for", &[Type::Text], "How long it is sent from then on; without it, it does not end by time.", TIME),
    key(
        "next",
        &[Type::Text],
        "What follows in a sequence. Back to NAME with x3, the streams from NAME to this one are sent 3 times in all.",
        r#""next" (the usual), "stop", "goto NAME" or "goto NAME x3""#,
    ),
    key(
        "check",
        &[Type::Text],
        "What a receiver knows the frames by.",
        r#""trailer" (the usual), "count" (the usual of raw and file) or "no""#,
    ),
    key(
        "id",
        &[Type::Number],
        "The number of the stream in trailers.",
        "a number below 16777216; by position from 1 is the usual",
    ),
];

/// The keys of a burst.
pub const BURST: &[Key] = &[
    key("frames", &[Type::Number], "Frames of a burst.", "a number, 1 or more"),
    key("gap", &[Type::Text], "Time between the end of a burst and the next one.", TIME),
];

const TIME: &str = r#"a time such as "250ns", "10us", "1ms", "2s""#;
const RATE: &str =
    "250kpps, 1.5mpps, 10gbps (layer 2), 10gbpsl1 (with preamble and gap), 50% (of the line, 100% at the most) or top";
const SIZE: &str = "64, 64..1518, 64..1518/100, random(64..1518), [64:7, 594:4, 1518:1], imix or genome(aabg); 64 or what the packet needs is the usual";

/// The JSON schema of stream files.
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
