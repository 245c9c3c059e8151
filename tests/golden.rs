//! Small captures in the repository, and what the program says of them: a change that nobody meant shows as a difference.

use linerate_tests::support::program::linerate;
use std::fs::{read_to_string, write};
use std::path::Path;

#[test]
fn the_program_says_of_captures_what_it_always_did() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let list = read_to_string(folder.join("LIST")).unwrap();
    let mut differences = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let (name, command) = line.split_once(": ").expect("a name and a command");
        let words: Vec<&str> = command.split(' ').collect();
        let done = linerate(&words).current_dir(&folder).output().unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        let path = folder.join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            write(&path, in_order(name, &said)).unwrap();
        } else if read_to_string(&path).unwrap_or_default() != in_order(name, &said) {
            differences.push(format!("{name}: linerate {command}\n{said}{}", String::from_utf8_lossy(&done.stderr)));
        }
    }
    assert!(differences.is_empty(), "not as in tests/golden:\n{}", differences.join("\n"));
}

/// Records have no order of their own.
fn in_order(name: &str, said: &str) -> String {
    if !name.ends_with(".jsonl") && !name.ends_with(".log") {
        return said.to_owned();
    }
    let mut lines: Vec<&str> =
        said.lines().filter(|line| !line.starts_with("#open") && !line.starts_with("#close")).collect();
    lines.sort_unstable();
    lines.join("\n") + "\n"
}
