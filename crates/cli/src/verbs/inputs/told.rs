//! What is said of ports, and of what is none.

use linerate_port::RxPort;

/// Endings of flow records that nobody reads again.
const LINES: [&str; 5] = [".jsonl", ".json", ".csv", ".tsv", ".log"];

/// What was chosen for an open port, and why.
pub fn notes_of(port: &RxPort) -> impl Iterator<Item = String> {
    port.notes.iter().map(|note| format!("{}: {note}", port.name))
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
