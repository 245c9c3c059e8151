//! Checks the tests named in `docs/tcp.md`: they exist, and each test of a clause is named there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn page_of_clauses_names_the_existing_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/tcp.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    let named: BTreeSet<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let there = tests_in(&root.join("tests/tcp"));
    let there: BTreeSet<&str> = there.iter().map(String::as_str).collect();
    // End to end, and compared with the kernel.
    let elsewhere = ["../../tests/receive", "../../tests/oracle", "../generate/src/answer", "src/datagrams"];
    let elsewhere: BTreeSet<String> = elsewhere.iter().flat_map(|folder| tests_in(&root.join(folder))).collect();
    let missing: Vec<_> = named.iter().filter(|name| !there.contains(**name) && !elsewhere.contains(**name)).collect();
    assert!(missing.is_empty(), "docs/tcp.md names tests that do not exist: {missing:?}");
    // Tests of the interface of the endpoint, not of a rule.
    let others = BTreeSet::from([
        "data_may_arrive_with_or_before_the_last_handshake_ack",
        "packets_without_a_link_header",
        "payload_may_be_placed_by_the_port",
    ]);
    let unnamed: Vec<_> = there.difference(&named).filter(|name| !others.contains(*name)).collect();
    assert!(unnamed.is_empty(), "docs/tcp.md does not name {unnamed:?}");
    assert!(named.len() > 50);
}

/// Returns the names of the tests in the files of a folder, and of its subfolders.
fn tests_in(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names.extend(tests_in(&path));
            continue;
        }
        let file = fs::read_to_string(path).unwrap();
        for test in file.split("#[test]\n").skip(1) {
            let name = test.trim_start().strip_prefix("fn ").and_then(|test| test.split('(').next());
            names.extend(name.map(str::to_owned));
        }
    }
    names
}
