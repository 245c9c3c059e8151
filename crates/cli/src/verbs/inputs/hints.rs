//! Notes on ports, and errors for words that are neither a port nor a filter.

use super::kinds::{check_filter, is_port};
use crate::exit::usage;
use crate::verbs::capture_files::no_such_file;
use linerate_backends::inventory::interfaces;
use linerate_burst::text::nearest;
use linerate_pcap::Compression;
use linerate_port::RxPort;
use std::path::Path;

/// Endings of flow records, which are not read.
const LINES: [&str; 5] = [".jsonl", ".json", ".csv", ".tsv", ".log"];

/// Returns the notes on an open port.
pub(crate) fn notes_of(port: &RxPort) -> impl Iterator<Item = String> {
    port.notes.iter().map(|note| format!("{}: {note}", port.name))
}

/// Endings of capture files.
const CAPTURES: [&str; 3] = [".pcap", ".pcapng", ".cap"];

/// Returns whether a word is an existing file other than flow records, or `-` for standard input.
pub(super) fn is_file(word: &str) -> bool {
    word == "-" || Path::new(word).is_file() && !is_of_records(word)
}

fn is_of_records(word: &str) -> bool {
    LINES.iter().any(|ending| word.contains(ending))
}

/// Returns whether a word is an existing capture file, by its ending.
pub(super) fn is_capture_file(word: &str) -> bool {
    let (_, plain) = Compression::of_path(word);
    CAPTURES.iter().any(|ending| plain.ends_with(ending)) && Path::new(word).is_file()
}

/// Returns whether the first of these words is an existing directory, and not part of a filter, such as `tcp`.
pub(super) fn is_directory(words: &[String], is_first: bool) -> bool {
    let is_input = |word: &String| is_first || word.contains('/') || check_filter(&words.join(" "), &[]).is_err();
    words.first().is_some_and(|word| Path::new(word).is_dir() && is_input(word))
}

/// Returns an error for a file or an interface in place of the filter; `words` may start with ports.
pub(super) fn misplaced(words: &[String], is_port: fn(&str) -> bool) -> Option<String> {
    let mut words = words.iter().filter(|word| !is_port(word));
    let (word, is_only) = (words.next()?, words.next().is_none());
    misplaced_file(word).or_else(|| misspelled_interface(word).or_else(|| stray_value(word)).filter(|_| is_only))
}

/// Returns an error for an address without `host`, or for a number that is the value of an option, as after `-t`.
fn stray_value(word: &str) -> Option<String> {
    if word.parse::<std::net::IpAddr>().is_ok() {
        return Some(format!("{word}: an address in place of the filter; write host {word}"));
    }
    let number = word.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    number.parse::<f64>().is_ok().then(|| {
        format!(
            "{word}: a number in place of the filter; as the value of an option write -T {word} (duration), -c {word} \
             (packets) or --OPTION={word}"
        )
    })
}

/// Returns an error if the first word looks like a capture file that does not exist.
pub(super) fn missing_file(words: &[String]) -> anyhow::Result<()> {
    match words.first().filter(|word| is_file_name(word) && !is_port(word)) {
        Some(word) => Err(usage(no_such_file(word))),
        None => Ok(()),
    }
}

fn is_file_name(word: &str) -> bool {
    CAPTURES.iter().any(|ending| word.contains(ending))
}

fn misplaced_file(word: &str) -> Option<String> {
    let exists = Path::new(word).is_file();
    let is_meant = exists || is_file_name(word);
    is_meant.then(|| match exists {
        true => format!("{word}: a file in place of the filter; write -r before each file"),
        false => no_such_file(word) + ", and not a filter",
    })
}

fn misspelled_interface(word: &str) -> Option<String> {
    let all = interfaces(None).unwrap_or_default();
    let near = nearest(word, all.iter().map(|one| one.name.as_str()))?;
    Some(format!("{word}: neither an interface nor a filter (did you mean {near}?)"))
}

/// Returns an error for a file in place of a port.
pub(super) fn no_port(name: &str) -> String {
    match is_of_records(name) {
        true => format!(
            "{name}: a file, not a port; linerate query reads flow records only from Parquet (-w flows.parquet or DIR/)"
        ),
        false => format!("{name}: a file, not a port; read it with -r {name}"),
    }
}
