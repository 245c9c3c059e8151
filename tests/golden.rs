//! Small captures in the repository with the expected output of several commands. Detects unintended changes.

use linerate_tests::support::program::linerate;
use std::fs::{read_to_string, write};
use std::path::Path;

#[test]
fn output_matches_the_golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let list = read_to_string(folder.join("LIST")).unwrap();
    let mut differences = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let (name, command) = line.split_once(": ").expect("a name and a command");
        let words: Vec<&str> = command.split(' ').collect();
        let done = linerate(&words).current_dir(&folder).output().unwrap();
        let output = String::from_utf8(done.stdout).unwrap();
        let path = folder.join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            write(&path, in_order(name, &output)).unwrap();
        } else if read_to_string(&path).unwrap_or_default() != in_order(name, &output) {
            differences.push(format!("{name}: linerate {command}\n{output}{}", String::from_utf8_lossy(&done.stderr)));
        }
    }
    assert!(differences.is_empty(), "different from tests/golden:\n{}", differences.join("\n"));
}

/// Sorts records, which have no defined order.
fn in_order(name: &str, output: &str) -> String {
    if !name.ends_with(".jsonl") && !name.ends_with(".log") {
        return output.to_owned();
    }
    let mut lines: Vec<&str> =
        output.lines().filter(|line| !line.starts_with("#open") && !line.starts_with("#close")).collect();
    lines.sort_unstable();
    lines.join("\n") + "\n"
}
