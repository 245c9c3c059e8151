//! Damaged, truncated and foreign files: an error that names the file, and no other effect.

use super::samples::{flows, write};
use linerate_meter::Flow;
use linerate_query::{Filter, Key, Question, Store, stored};
use linerate_tests::support::Scratch;
use linerate_tests::support::flows::full_flow;
use linerate_tests::support::program::run;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::path::Path;
use std::sync::Arc;

/// Runs every kind of query on a file and returns the failures.
fn ask(path: &Path) -> Vec<String> {
    let store = Store::new(stored(path).unwrap(), 0, u64::MAX);
    let text = "src net 10.0.0.0/8 or bytes > 100 or tcp_history ~ S";
    let filter = Filter::parse(text, linerate_burst::Nanos(0)).unwrap();
    let mut question = Question { keys: Key::parse("address/24,vlan").unwrap(), ..Question::new(filter.clone()) };
    question.measure(Some("bytes,bps,payload_bytes"), None).unwrap();
    let (_, scan) = store.ask(&Arc::new(question), None, 2, &|| true);
    let question = Arc::new(Question { top: 3, ..Question::new(filter.clone()) });
    let (asked, _) = store.ask(&question, Some(None), 1, &|| true);
    let _ = store.records(asked);
    store.each(&filter, &|| true, &mut drop::<Flow>);
    scan.failures
}

#[test]
fn damaged_file_is_reported_without_other_effects() {
    let mut runner = TestRunner::deterministic();
    let mut some: Vec<Flow> = (0..3).flat_map(|_| flows().new_tree(&mut runner).unwrap().current()).collect();
    some.push(full_flow());
    let scratch = Scratch::new();
    let path = scratch.file("flows.parquet");
    let path = Path::new(&path);
    write(path, &some, 40);
    let whole = std::fs::read(path).unwrap();
    assert_eq!(ask(path), Vec::<String>::new());
    let tried = |bytes: &[u8]| {
        std::fs::write(path, bytes).unwrap();
        let failures = ask(path);
        assert!(failures.iter().all(|failure| failure.starts_with(path.to_str().unwrap())), "{failures:?}");
        usize::from(!failures.is_empty())
    };
    let cut: usize = (0..40).map(|cut| tried(&whole[..whole.len() * cut / 40])).sum();
    assert_eq!(cut, 40, "every truncated file fails");
    let mut failed = 0;
    let places = (0..whole.len(), 0..3usize, any::<u8>());
    for _ in 0..160 {
        // Two thirds of the damage hits the last quarter of the file, which holds sizes and types.
        let (place, where_, byte) = places.new_tree(&mut runner).unwrap().current();
        let place = if where_ == 0 { place } else { whole.len() - 1 - place % (whole.len() / 4) };
        let mut bytes = whole.clone();
        bytes[place] = byte;
        failed += tried(&bytes);
    }
    assert!(failed > 20, "{failed}");
}

#[test]
fn query_continues_after_a_damaged_file_and_reports_it() {
    let scratch = Scratch::new();
    let folder = scratch.file("flows/");
    std::fs::create_dir(&folder).unwrap();
    run(&["query", &folder]).with_status(1).says("no records found; no file ends in .parquet");
    write(Path::new(&format!("{folder}good.parquet")), &[full_flow()], 10);
    std::fs::write(format!("{folder}bad.parquet"), b"PAR1 and nothing else PAR1").unwrap();
    std::fs::write(format!("{folder}other.txt"), b"no records").unwrap();
    let ended = run(&["query", &folder, "--json"]).with_status(1).says("bad.parquet");
    let lines: Vec<serde_json::Value> = ended.output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (lines.len(), &lines[1]["query"]["records"], &lines[1]["failed"]),
        (2, &1.into(), &1.into()),
        "{lines:?}"
    );
    run(&["query", &format!("{folder}none.parquet")]).with_status(1).says("none.parquet: No such file");
}

/// A Parquet file without flow records.
#[test]
fn parquet_files_without_flow_records_are_rejected() {
    use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    let scratch = Scratch::new();
    let path = scratch.file("other.parquet");
    let write = |columns: Vec<(&str, ArrayRef)>| {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut writer = ArrowWriter::try_new(std::fs::File::create(&path).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    };
    write(vec![("a", Arc::new(Int32Array::from(vec![1, 2])))]);
    run(&["query", &path]).with_status(1).says("not a file of flow records: column first_time is missing");
    write(vec![("first_time", Arc::new(StringArray::from(vec!["now"])))]);
    run(&["query", &path]).with_status(1).says("column first_time: unexpected type Utf8");
}
