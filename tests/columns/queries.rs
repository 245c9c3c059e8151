//! The queries of docs/queries.md, run by DuckDB and ClickHouse and compared with totals of the meter.

use super::destinations::MIX;
use linerate_tests::support::program::run;
use linerate_tests::support::{Scratch, corpus, has_peer};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Query of the page, with its heading.
struct Query {
    heading: String,
    text: String,
}

/// Returns the Python that has DuckDB and ClickHouse, or notes that it is missing (`scripts/setup peers` installs it).
fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/python/bin/python");
    has_peer(python.exists(), "DuckDB and ClickHouse in target/python").then_some(python)
}

/// Returns the view that a database needs, and all queries of the page.
fn page(database: &str) -> (String, Vec<Query>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/queries.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (mut heading, mut view, mut queries) = (String::new(), None, Vec::new());
    for part in page.split("\n```") {
        let (kind, text) = part.split_once('\n').unwrap_or_default();
        if kind == "sql" {
            queries.push(Query { heading: heading.clone(), text: text.to_owned() });
        } else if kind.strip_prefix("sql ") == Some(database) {
            view = Some(text.to_owned());
        }
        if let Some(found) = part.lines().rev().find_map(|line| line.strip_prefix("## ")) {
            heading = found.to_owned();
        }
    }
    (view.expect("a view"), queries)
}

/// Returns the database's answer to each query of the page.
fn ask(python: &Path, database: &str, folder: &str) -> Vec<(String, Vec<Value>)> {
    let (view, queries) = page(database);
    assert!(queries.len() >= 10, "the queries were not found");
    let statements: Vec<&str> =
        [view.as_str()].into_iter().chain(queries.iter().map(|query| query.text.as_str())).collect();
    let mut child = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("columns/ask.py"))
        .arg(database)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&serde_json::to_vec(&statements).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{database}: {}", String::from_utf8_lossy(&output.stderr));
    let answers: Vec<Vec<Value>> = serde_json::from_slice(&output.stdout).unwrap();
    queries.into_iter().map(|query| query.heading).zip(answers.into_iter().skip(1)).collect()
}

/// Parses a number: ClickHouse writes 64-bit numbers as text.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        _ => match (number(one), number(other)) {
            (Some(one), Some(other)) => (one - other).abs() <= 1e-6 * one.abs().max(1e-3),
            _ => one == other,
        },
    }
}

#[test]
fn both_databases_agree_on_every_query_of_the_page() {
    let (Some(capture), Some(python)) = (corpus(MIX), python()) else { return };
    let scratch = Scratch::new();
    let folder = scratch.file("flows/");
    let arguments = ["flows", "-r", capture.to_str().unwrap(), "--level", "stats", "--write", &folder, "--json"];
    let summary = run(&arguments).good().json();
    let answers = ask(&python, "duckdb", &scratch.file(""));
    for ((heading, one), (_, other)) in answers.iter().zip(&ask(&python, "clickhouse", &scratch.file(""))) {
        let (one, other) = (Value::from(one.clone()), Value::from(other.clone()));
        assert!(same(&one, &other), "{heading}: DuckDB\n{one}\nClickHouse\n{other}");
    }
    let rows = |heading: &str| &answers.iter().find(|(name, _)| name == heading).unwrap().1;
    let sum = |heading: &str, column: usize| rows(heading).iter().map(|row| number(&row[column]).unwrap()).sum::<f64>();
    let counted = |name: &str| summary[name].as_f64().unwrap();
    assert_eq!(sum("Traffic by hour", 2), counted("flows") - counted("inner_flows"));
    assert_eq!(sum("Traffic by hour", 3), counted("frames") - counted("not_ip") - counted("malformed"));
    let bytes = counted("bytes") - counted("not_ip_bytes") - counted("malformed_bytes");
    assert_eq!(sum("Traffic by hour", 4), bytes);
    assert_eq!(sum("Traffic by minute", 1), bytes);
    assert_eq!(sum("Data quality", 0), counted("records_written"));
    let top = &rows("Top talkers")[0];
    let best = &summary["top"][0];
    assert!(
        number(&top[3]).unwrap() + number(&top[4]).unwrap() >= {
            best["orig"]["frame_bytes"].as_f64().unwrap() + best["resp"]["frame_bytes"].as_f64().unwrap()
        }
    );
    assert!(!rows("One-way flows").is_empty());
    tcp(&answers);
}

/// Checks the answers that need level `tcp`, if the meter recorded TCP.
fn tcp(answers: &[(String, Vec<Value>)]) {
    let by_state = &answers.iter().find(|(name, _)| name == "Connections by state").unwrap().1;
    for (heading, rows) in answers {
        let wants_tcp = heading.starts_with("Slow") || heading.starts_with("Retrans");
        assert!(!wants_tcp || by_state.is_empty() || !rows.is_empty(), "{heading}: no answer");
    }
}
