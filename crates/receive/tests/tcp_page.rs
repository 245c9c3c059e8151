//! `docs/tcp.md` names tests: they exist, and each test of a clause is named there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn the_page_of_clauses_names_the_tests_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/tcp.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    let named: BTreeSet<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let mut there = BTreeSet::new();
    let files: Vec<String> = fs::read_dir(root.join("tests/tcp"))
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    for file in &files {
        for test in file.split("#[test]\n").skip(1) {
            there.extend(test.strip_prefix("fn ").and_then(|test| test.split('(').next()));
        }
    }
    let missing: Vec<_> = named.difference(&there).collect();
    assert!(missing.is_empty(), "docs/tcp.md names tests that are not there: {missing:?}");
    // Those that are about the interface of the endpoint, not about a rule.
    let others = BTreeSet::from([
        "data_may_come_with_the_end_of_the_handshake_or_before_it",
        "packets_without_a_link_header",
        "payload_may_have_been_read_elsewhere",
    ]);
    let unnamed: Vec<_> = there.difference(&named).filter(|name| !others.contains(*name)).collect();
    assert!(unnamed.is_empty(), "docs/tcp.md does not name {unnamed:?}");
    assert!(named.len() > 50);
}
