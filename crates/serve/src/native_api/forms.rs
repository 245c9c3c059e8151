//! Streams in external forms: a stream file, a command, a script for `snappi`; and back.

use super::snappi;
use super::stream_spec::{StreamSpec, written};
use crate::tester::Tester;
use linerate_otg::read::Faults;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Delimiters of a document within a script.
pub(crate) const BEGIN: &str = "CONFIG = r'''";
/// End delimiter.
pub(crate) const END: &str = "'''";

/// Writes streams in a form: the text, and a file name.
///
/// # Errors
/// Properties that the form cannot express.
pub(crate) fn write(tester: &Tester, streams: &[StreamSpec], form: &str) -> Result<Value, Faults> {
    let mut faults = Faults::default();
    for (index, name) in streams.iter().enumerate().filter_map(|(index, one)| Some((index, one.replay.as_ref()?))) {
        faults.add(
            &format!("streams[{index}].replay"),
            format_args!("frames of {name:?} are not included; store the file separately"),
        );
    }
    for (index, _) in streams.iter().enumerate().filter(|(_, one)| one.sequence.is_some()) {
        faults.add(&format!("streams[{index}].sequence"), "sequences cannot be mixed with other streams");
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let (text, name) = match form {
        "file" => (file(streams), "streams.toml"),
        "command" => (command(tester, streams, &mut faults), "generate.sh"),
        "snappi" => (snappi::script(tester, streams, &mut faults), "streams.py"),
        _ => {
            faults.add("form", format_args!("{form:?}: expected file, command or snappi"));
            return Err(faults);
        }
    };
    if faults.is_empty() { Ok(json!({"text": text, "name": name})) } else { Err(faults) }
}

/// Writes a stream file; ports are not keys, and are in comments.
fn file(streams: &[StreamSpec]) -> String {
    let mut text = "# Streams of linerate generate: docs/streams.md\n".to_owned();
    for stream in streams {
        let (table, _) = written(&[stream]);
        let ports = json!({"tx": stream.tx, "rx": stream.rx});
        text += &format!("\n{PORTS}{ports}\n{table}");
    }
    text
}

/// Comment in a file with the ports of the next stream.
const PORTS: &str = "# ports ";

/// Writes one shell command per stream.
fn command(tester: &Tester, streams: &[StreamSpec], faults: &mut Faults) -> String {
    let mut lines = Vec::new();
    for (index, stream) in streams.iter().enumerate() {
        let path = format!("streams[{index}]");
        let mut words =
            vec!["linerate".to_owned(), "generate".into(), "--to".into(), quoted(&tester.spec_of(&stream.tx))];
        let check = stream.text("check");
        if let Some(rx) = stream.rx.first().filter(|_| !["no", "count"].contains(&check)) {
            words.extend(["--check".into(), quoted(&tester.spec_of(rx))]);
        }
        let (mut is_counted, mut is_timed) = (false, false);
        for (key, value) in &stream.keys {
            let plain = || value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match *key {
                "packet" => words.extend(["-k".into(), quoted(&plain())]),
                "size" => words.extend(["--size".into(), quoted(&plain())]),
                "rate" => words.extend(["--rate".into(), quoted(&plain())]),
                "count" => {
                    is_counted = true;
                    words.extend(["-c".into(), plain()]);
                }
                "poisson" => words.extend((value == &Value::Bool(true)).then(|| "--poisson".to_owned())),
                "burst" => {
                    let gap = value["gap"].as_str().unwrap_or_default();
                    words.extend(["--burst".into(), quoted(&format!("{}/{gap}", value["frames"]))]);
                }
                "for" => match seconds(value.as_str().unwrap_or_default()) {
                    Some(seconds) => {
                        is_timed = true;
                        words.extend(["-T".into(), seconds.to_string()]);
                    }
                    None => faults.add(&path, "commands do not support this duration; save a stream file"),
                },
                "start" => {
                    faults.add(&format!("{path}.start"), "commands do not support a start time; save a stream file")
                }
                _ => {}
            }
        }
        words.extend((!is_counted && !is_timed).then(|| "-c 0".to_owned()));
        lines.push(format!("# {}\n{} --seed 0", stream.name.replace(char::is_control, " "), words.join(" ")));
    }
    lines.join("\n") + "\n"
}

/// Converts a time of a stream file to seconds.
fn seconds(text: &str) -> Option<f64> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, unit) = units.iter().find_map(|(name, unit)| Some((text.trim().strip_suffix(name)?, unit)))?;
    Some(number.trim().parse::<f64>().ok()? * unit)
}

/// Quotes a word for a shell (POSIX, section 2.2.2).
fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=+@%,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Reads streams from a text in any of these forms, which is detected by its content.
///
/// # Errors
/// The text cannot be read.
pub(crate) fn read(tester: &Tester, text: &str) -> Result<Value, Faults> {
    let mut faults = Faults::default();
    let streams = if text.contains(BEGIN) || text.trim_start().starts_with('{') {
        snappi::read(tester, text, &mut faults)
    } else if text.lines().any(|line| line.trim_start().starts_with("linerate ")) {
        commands(tester, text, &mut faults)
    } else {
        from_file(tester, text, &mut faults)
    };
    if faults.is_empty() { Ok(json!({"streams": streams})) } else { Err(faults) }
}

/// Returns the default ports of a stream: the first one sends, the second receives.
fn usual(tester: &Tester) -> (String, Vec<String>) {
    let mut names = tester.names();
    (names.next().unwrap_or_default().to_owned(), names.next().map(str::to_owned).into_iter().collect())
}

fn from_file(tester: &Tester, text: &str, faults: &mut Faults) -> Vec<Value> {
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(error) => {
            faults.add("", format_args!("not a stream file, command or script: {}", error.message()));
            return Vec::new();
        }
    };
    let mut ports = text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix(PORTS)?).ok());
    for (key, value) in &table {
        let is_usual = key == "order" && value.as_str() == Some("interleaved");
        if !["stream", "seed", "key"].contains(&key.as_str()) && !is_usual {
            faults.add(key, "not supported here: each stream has its own rate, and all run in parallel");
        }
    }
    let list = table.get("stream").and_then(toml::Value::as_array).cloned().unwrap_or_default();
    let mut streams = Vec::new();
    for (index, stream) in list.into_iter().enumerate() {
        let Ok(mut fields) = serde_json::to_value(stream) else { continue };
        let (tx, rx) = usual(tester);
        let own = ports.next().unwrap_or_else(|| json!({"tx": tx, "rx": rx}));
        if let Some(fields) = fields.as_object_mut() {
            fields.remove("id");
            fields.entry("name").or_insert_with(|| format!("stream {}", index + 1).into());
            fields.extend([("tx".to_owned(), own["tx"].clone()), ("rx".to_owned(), own["rx"].clone())]);
        }
        streams.push(fields);
    }
    if streams.is_empty() {
        faults.add("", "no [[stream]] found");
    }
    streams
}

fn commands(tester: &Tester, text: &str, faults: &mut Faults) -> Vec<Value> {
    let mut streams = Vec::new();
    let mut name = None;
    for line in text.replace("\\\n", " ").lines() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            name = Some(comment.trim().to_owned()).filter(|name| !name.is_empty());
        } else if !line.is_empty() {
            let usual = format!("stream {}", streams.len() + 1);
            streams.extend(one_command(tester, &words(line), name.take().unwrap_or(usual), faults));
        }
    }
    streams
}

/// Reads a command: one stream per packet.
fn one_command(tester: &Tester, words: &[String], name: String, faults: &mut Faults) -> Vec<Value> {
    let (tx, rx) = usual(tester);
    let (mut tx, mut rx, mut packets, mut fields) = (tx, rx, Vec::new(), BTreeMap::<&str, Value>::new());
    let mut words = words.iter().map(String::as_str).skip_while(|word| *word != "generate").skip(1);
    while let Some(word) = words.next() {
        let (option, own) = match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value)),
            _ => (word, None),
        };
        if option == "--poisson" {
            fields.insert("poisson", true.into());
            continue;
        }
        let Some(value) = own.or_else(|| words.next()) else {
            faults.add(option, "missing value");
            break;
        };
        match option {
            "--to" => tx = tester.name_of(value),
            "--check" => rx = vec![tester.name_of(value)],
            "-k" | "--packet" => packets.push(value.to_owned()),
            "--size" | "--rate" => drop(fields.insert(&option[2..], value.into())),
            "-c" | "--packets" => match value.parse::<u64>() {
                Ok(0) => {}
                Ok(count) => drop(fields.insert("count", count.into())),
                Err(_) => faults.add(option, "expected a number"),
            },
            "-T" | "--duration" => drop(fields.insert("for", format!("{value}s").into())),
            "--burst" => {
                let (frames, gap) = value.split_once('/').unwrap_or((value, ""));
                let frames = frames.parse::<u64>().unwrap_or(0);
                fields.insert("burst", json!({"frames": frames, "gap": gap}));
            }
            "--seed" => {}
            _ => faults.add(option, "option not supported for streams"),
        }
    }
    if packets.is_empty() {
        faults.add("-k", "missing packet");
    }
    let is_one = packets.len() == 1;
    let stream = |(index, packet): (usize, String)| {
        let name = if is_one { name.clone() } else { format!("{name} {}", index + 1) };
        let mut stream = json!({"name": name, "tx": tx, "rx": rx, "packet": packet});
        fields.iter().for_each(|(key, value)| stream[*key] = value.clone());
        stream
    };
    packets.into_iter().enumerate().map(stream).collect()
}

/// Splits a line into words like a shell: quotes and backslashes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut open) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (open, letter) {
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, '\'' | '"') => {
                open = Some(letter);
                word.get_or_insert_default();
            }
            (Some(mark), _) if mark == letter => open = None,
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(letters.next()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_split_like_in_a_shell() {
        assert_eq!(words(r#"a 'b c' "d \"e" f\ g '' --x='1 2'"#), ["a", "b c", "d \"e", "f g", "", "--x=1 2"]);
    }

    proptest! {
        #[test]
        fn quoted_text_is_one_word(text in "[ -~]{0,20}") {
            prop_assert_eq!(words(&quoted(&text)), [text]);
        }
    }
}
