//! What is said of ports, and of what is none.

use linerate_backends::inventory::interfaces;
use linerate_generate::nearest;
use linerate_port::RxPort;
use std::path::Path;

/// Endings of flow records that nobody reads again.
const LINES: [&str; 5] = [".jsonl", ".json", ".csv", ".tsv", ".log"];

/// What was chosen for an open port, and why.
pub(crate) fn notes_of(port: &RxPort) -> impl Iterator<Item = String> {
    port.notes.iter().map(|note| format!("{}: {note}", port.name))
}

/// Endings of capture files.
const CAPTURES: [&str; 3] = [".pcap", ".pcapng", ".cap"];

/// Of a word among filter text that was meant as a file or an interface; `words` may begin with ports.
pub(super) fn stray(words: &[String], is_port: fn(&str) -> bool) -> Option<String> {
    let mut words = words.iter().filter(|word| !is_port(word));
    let (word, is_alone) = (words.next()?, words.next().is_none());
    stray_file(word).or_else(|| stray_interface(word).filter(|_| is_alone))
}

/// Of a file where filter text was to be, as a shell makes of `-r *.pcap`.
fn stray_file(word: &str) -> Option<String> {
    let is_file = CAPTURES.iter().any(|ending| word.contains(ending)) || Path::new(word).is_file();
    is_file.then(|| {
        format!(
            "{word} stands where filter text is expected; write -r in front of each file, as in -r a.pcap -r b.pcap"
        )
    })
}

/// Of a word that is nearly the name of an interface.
fn stray_interface(word: &str) -> Option<String> {
    let all = interfaces(None).unwrap_or_default();
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    let near = nearest(word, &names)?;
    Some(format!("{word} is neither an interface nor filter text (did you mean {near}?)"))
}

/// Of the name of a file where a port was to be.
pub(super) fn no_port(name: &str) -> String {
    match LINES.iter().any(|ending| name.contains(ending)) {
        true => format!(
            "{name} is a file, not a port; if it has flow records, only those of Parquet can be asked: write them by \
             -w flows.parquet, or into a folder"
        ),
        false => format!("{name} is a file, not a port: read it by -r {name}"),
    }
}
