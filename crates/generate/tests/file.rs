//! Stream files: parsed streams, errors with their positions, and the published schema and examples.

use linerate_generate::file::{Setup, keys, schema, streams};
use linerate_generate::stream::{Mark, Next, Order, Shape, Span};
use linerate_generate::{Layer, Rate};
use proptest::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

const FULL: &str = r#"
order = "sequential"
seed = 7

[[stream]]
name = "dns"
packet = "ip(src=10.0.0.1..10.0.0.9 @c)/udp(sport=1025..1033 @c, dport=53)/payload(noise)"
size = "[64:7, 594:4, 1518:1]"
rate = "50%"
burst = { frames = 10, gap = "1.5us" }
count = 100

[[stream]]
packet = "tcp(flags=syn)"
size = 128
rate = "1kpps"
poisson = true
check = "count"
id = 77
count = 5
next = "goto dns x3"

[[stream]]
name = "last"
packet = "arp"
count = 1
next = "stop"
"#;

#[test]
fn files_define_streams() {
    let setup = Setup { line: Some(1e10), ..Setup::default() };
    let set = streams("full.toml", FULL, &setup).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((set.order, set.rate, set.streams.len()), (Order::Sequential, None, 3));
    let [dns, syn, last] = &set.streams[..] else { panic!() };
    assert_eq!((dns.rate, dns.count, dns.id, dns.next), (Rate::Bits(5e9, Layer::L1), Some(100), 1, Next::Following));
    assert_eq!((dns.shape.clone(), dns.mark), (Shape::Bursts { frames: 10, gap: 1500 }, Mark::Trailer));
    assert_eq!((dns.variants.len(), dns.selectors.len(), dns.variants[0].frame.len()), (3, 1, 60));
    assert_eq!((syn.rate, syn.mark, syn.id), (Rate::Frames(1000.0), Mark::Count, 77));
    assert_eq!(syn.next, Next::Goto { stream: 0, times: Some(2) }, "three times in all");
    assert!(matches!(syn.shape, Shape::Poisson { .. }) && syn.name == "stream 2");
    assert_eq!((last.next, last.id, last.count), (Next::Stop, 3, Some(1)));
    let frames: Vec<_> = (0..9).map(|n| dns.frame(n, 0, &set.key)).collect();
    assert!(frames.iter().all(|frame| frame[29] == frame[35]), "linked: 10.0.0.n from port 1024 + n");
}

#[test]
fn errors_have_positions() {
    for (from, to, expected) in [
        (
            "dport=53",
            "dport=70000",
            ":7:72: stream 1, packet: \"70000\": too large for 16 bits; expected at most 65535",
        ),
        ("seed = 7", "sed = 7", ":3:1: sed: no such key; did you mean seed?"),
        ("seed = 7", "seed = true", ":3:8: seed: expected a number"),
        ("seed = 7", "seed = -7", ":3:8: seed: out of range"),
        ("seed = 7", "key = 0", ":3:7: key: invalid key 0"),
        (
            "\"50%\"",
            "\"50 percent\"",
            ":9:9: stream 1, rate: invalid rate \"50 percent\"; expected a rate such as 250kpps",
        ),
        ("\"50%\"", "50", ":9:8: stream 1, rate: expected 250kpps"),
        ("\"1.5us\"", "\"soon\"", ":10:31: stream 1, burst, gap: invalid value \"soon\"; expected a time such as"),
        ("frames = 10", "frames = 0", "stream 1, burst, frames: expected { frames = 10"),
        ("frames = 10", "frame = 10", ":10:11: stream 1, burst, frame: no such key; did you mean frames?"),
        ("count = 5", "count = 0", "stream 2, count: expected a number, 1 or more"),
        ("order = \"sequential\"\n", "", "stream 3, rate: interleaved streams need all a rate or all \"max\""),
        ("count = 100", "", "stream 1, count: an endless stream blocks the rest"),
        ("\"count\"", "\"yes\"", "stream 2, check: invalid value \"yes\"; expected \"trailer\""),
        ("id = 77", "id = 3", "stream 3, id: duplicate number 3"),
        ("id = 77", "id = 16777216", "stream 2, id: expected a number below 16777216"),
        ("\"last\"", "\"dns\"", "stream 3, name: duplicate name \"dns\""),
        ("goto dns", "goto dsn", "stream 2, next: no stream is called \"dsn\"; did you mean dns?"),
        ("goto dns x3", "goto dns x0", "stream 2, next: invalid value \"goto dns x0\"; expected \"next\""),
        ("goto dns x3", "goto dns", "stream 3: unreachable stream"),
        ("goto dns x3", "stop", "stream 3: unreachable stream"),
        ("packet = \"arp\"\ncount = 1", "packet = \"arp\"", ":26:8: stream 3, next: an endless stream has no next"),
        ("seed = 7", "rate = \"1gbps\"", ":9:8: stream 1, rate: streams in a sequence use the common rate"),
        ("goto dns x3", "again", "stream 2, next: invalid value \"again\"; expected \"next\""),
        ("\"tcp(flags=syn)\"", "\"tcp(flags=sin)\"", ":14:21: stream 2, packet: \"sin\": expected names of flags"),
        ("size = 128", "size = 73", ":15:8: stream 2, size: frames of 73 bytes are too small"),
        ("size = 128", "size = \"128..\"", "stream 2, size: "),
        ("packet = \"arp\"", "", "stream 3, packet: missing packet"),
        ("poisson = true", "poisson = true\nburst = { frames = 1, gap = \"1s\" }", "remove one"),
        (
            "order = \"sequential\"",
            "order = \"random\"",
            ":2:10: order: invalid value \"random\"; expected \"sequential\"",
        ),
        ("[[stream]]\nname = \"dns\"", "[[stream]\nname = \"dns\"", ":5:"),
    ] {
        assert!(FULL.contains(from), "{from}");
        // A trailer in the SYN, so that its size can be too small.
        let text = FULL.replace(from, to).replace("size = 73", "size = 73\ncheck = \"trailer\"");
        let text = if to == "size = 73" { text.replace("check = \"count\"\n", "") } else { text };
        let setup = Setup { line: Some(1e10), ..Setup::default() };
        let error = streams("full.toml", &text, &setup).err().unwrap_or_else(|| panic!("{to} is right")).to_string();
        assert!(error.starts_with("full.toml:") && error.contains(expected), "{to}: {error}");
    }
    let timed = "[[stream]]\npacket = \"udp\"\nrate = \"1kpps\"\nstart = \"2s\"\nfor = \"1.5ms\"\n";
    for (from, to, expected) in [
        (
            "[[stream]]",
            "order = \"sequential\"\n[[stream]]",
            ":5:10: stream 1, start: streams in a sequence begin when",
        ),
        ("[[stream]]", "rate = \"1gbps\"\n[[stream]]", ":5:10: stream 1, start: needs a rate per stream"),
        ("rate = \"1kpps\"\n", "", ":3:10: stream 1, start: needs a rate; set one"),
        ("start = \"2s\"\n", "order = 3\n", "stream 1, order: no such key"),
        ("2s", "soon", ":4:10: stream 1, start: invalid value \"soon\"; expected a time such as"),
        ("2s", "-2s", "stream 1, start: invalid value \"-2s\"; expected a time such as"),
        ("1.5ms", "0s", ":5:8: stream 1, for: the duration is 0"),
    ] {
        let error = streams("timed.toml", &timed.replace(from, to), &Setup::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
    let timed = streams("timed.toml", timed, &Setup::default()).unwrap();
    assert_eq!(timed.streams[0].span, Span { start: 2_000_000_000, length: Some(1_500_000) });
    let error = streams("full.toml", FULL, &Setup::default()).unwrap_err().to_string();
    assert!(error.contains("the line rate is unknown"), "{error}");
    assert!(streams("empty.toml", "", &Setup::default()).unwrap_err().to_string().contains("[[stream]]"));
}

#[test]
fn keys_without_effect_are_rejected() {
    let plain = "[[stream]]\npacket = \"udp\"\nrate = \"1kpps\"\ncount = 5\n";
    for (from, to, expected) in [
        ("count = 5\n", "next = \"stop\"\n", ":4:8: stream 1, next: interleaved streams have no next"),
        ("count = 5\n", "next = \"next\"\n", ":4:8: stream 1, next: interleaved streams"),
        ("count = 5\n", "next = \"goto stream 1 x3\"\n", "stream 1, next: interleaved streams"),
        (
            "[[stream]]",
            "order = \"interleaved\"\n[[stream]]\nnext = \"stop\"",
            ":3:8: stream 1, next: interleaved streams",
        ),
        ("[[stream]]", "key = 7\n[[stream]]\ncheck = \"no\"", ":1:7: key: no stream has a trailer"),
        ("[[stream]]", "key = 7\n[[stream]]\ncheck = \"count\"", ":1:7: key: no stream has a trailer"),
        ("[[stream]]", "rate = \"1gbps\"\n[[stream]]", ":4:8: stream 1, rate: a single stream uses the common rate"),
        (
            "[[stream]]\npacket = \"udp\"\nrate = \"1kpps\"\n",
            "rate = \"1gbps\"\n[[stream]]\npacket = \"udp\"\nburst = { frames = 3, gap = \"1s\" }\n",
            ":4:9: stream 1, burst: a single stream uses the common rate",
        ),
        ("rate = \"1kpps\"", "poisson = true", ":3:11: stream 1, poisson: needs a rate in its [[stream]]"),
        ("rate = \"1kpps\"", "rate = \"max\"\npoisson = true", ":4:11: stream 1, poisson: needs a rate"),
    ] {
        let text = plain.replace(from, to);
        let error = streams("plain.toml", &text, &Setup::default()).err().unwrap_or_else(|| panic!("{to} is right"));
        assert!(error.to_string().contains(expected), "{to}: {error}");
    }
}

/// `docs/streams.schema.json` is made from the table of keys: `UPDATE_DOCS=1 cargo test --workspace --test tests file`
/// writes it.
#[test]
fn the_schema_is_up_to_date() {
    let path = root().join("docs/streams.schema.json");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, schema()).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(published, schema(), "run UPDATE_DOCS=1 cargo test --workspace --test tests file");
    let schema: Value = serde_json::from_str(&published).unwrap();
    let stream = &schema["properties"]["stream"]["items"];
    let burst = &stream["properties"]["burst"]["allOf"][0];
    for (object, keys) in [(&schema, keys::SET), (stream, keys::STREAM), (burst, keys::BURST)] {
        let properties = object["properties"].as_object().unwrap();
        assert_eq!(properties.len(), keys.len());
        assert!(keys.iter().all(|key| properties.contains_key(key.name)));
    }
}

#[test]
fn examples_are_parsed_and_conform_to_the_schema() {
    let schema: Value = serde_json::from_str(&schema()).unwrap();
    let page = std::fs::read_to_string(root().join("docs/streams.md")).unwrap();
    let files = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut read = 0;
    for text in files.chain([FULL]) {
        let setup = Setup { line: Some(1e10), files: &|_, _| Ok(vec![0; 60]), ..Setup::default() };
        streams("example.toml", text, &setup).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let document: Value = toml::from_str(text).unwrap();
        conforms(&schema, &document, "");
        read += 1;
    }
    assert!(read > 2, "{read} examples");
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let packets = lines
        .iter()
        .filter_map(|line| line.split('`').nth(1))
        .filter(|text| text.contains("/udp") || text.contains("/payload"));
    for packet in packets {
        let setup = linerate_generate::packet::Setup { files: &|_, _| Ok(vec![0; 60]), ..Default::default() };
        linerate_generate::packet::frames(packet, &setup).unwrap_or_else(|wrong| panic!("{packet}: {wrong}"));
    }
}

/// Validates the parts of JSON schema that ours uses.
fn conforms(schema: &Value, value: &Value, at: &str) {
    let is = |of: &str| match of {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_i64().is_some_and(|value| value >= 0),
        other => panic!("{other}"),
    };
    if let Some(any) = schema["anyOf"].as_array() {
        let fits = |of: &Value| match of["type"].as_str() {
            Some("string") => value.is_string(),
            Some("integer") => value.is_i64() || value.is_u64(),
            _ => false,
        };
        assert!(any.iter().any(fits), "{at}: {value}");
    } else if let Some(all) = schema["allOf"].as_array() {
        return all.iter().for_each(|schema| conforms(schema, value, at));
    } else {
        assert!(is(schema["type"].as_str().unwrap()), "{at}: {value} is not a {}", schema["type"]);
    }
    if let Some(object) = value.as_object() {
        for (name, value) in object {
            let schema = &schema["properties"][name];
            assert!(!schema.is_null(), "{at}: {name} is in no schema");
            conforms(schema, value, name);
        }
        for required in schema["required"].as_array().into_iter().flatten() {
            assert!(object.contains_key(required.as_str().unwrap()), "{at} has no {required}");
        }
    }
    for item in value.as_array().into_iter().flatten() {
        conforms(&schema["items"], item, at);
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_file_is_parsed_without_panic(text in ".{0,80}", at in any::<prop::sample::Index>(), damage in "[\\PC\n]{0,6}") {
        let _ = streams("x", &text, &Setup::default());
        let mut at = at.index(FULL.len());
        while !FULL.is_char_boundary(at) {
            at -= 1;
        }
        let damaged = format!("{}{damage}{}", &FULL[..at], &FULL[at..]);
        if let Err(error) = streams("x", &damaged, &Setup { line: Some(1e9), ..Setup::default() }) {
            prop_assert!(error.line >= 1 && error.column >= 1 && !error.to_string().is_empty());
        }
    }
}
