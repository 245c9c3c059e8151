//! CSV and Zeek TSV, read by other programs.

use super::{directions, flows_of, lines_of, mix, python, sum};
use linerate_tests::support::program::run;
use linerate_tests::support::{Scratch, has_tools};
use std::collections::BTreeSet;
use std::process::Command;

/// Selects columns by name from the `#fields` line, as `zeek-cut` does.
const CUT: &str = r##"
    BEGIN { FS = "\t"; wanted = split(NAMES, names, ",") }
    /^#fields/ { for (i = 2; i <= NF; i++) at[$i] = i - 1; next }
    /^#/ { next }
    { line = $at[names[1]]; for (i = 2; i <= wanted; i++) line = line "\t" $at[names[i]]; print line }"##;

fn cut(path: &str, names: &str) -> Vec<Vec<String>> {
    let output = Command::new("awk").args(["-v", &format!("NAMES={names}"), CUT, path]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn python_reads_the_same_flows_from_csv() {
    let Some(capture) = mix().filter(|_| has_tools(&["python3"])) else { return };
    let scratch = Scratch::new();
    let [plain, packed] = ["flows.csv", "packed.csv.gz"].map(|name| scratch.file(name));
    let flows = flows_of(&capture, &["--level", "stats", "-w", &plain, "-w", &packed]);
    let found = python("csv_sums.py", &[&plain]);
    assert_eq!(found, python("csv_sums.py", &[&packed]));
    let one_way = flows.iter().filter(|flow| flow["quality"].as_array().unwrap().contains(&"one_way".into())).count();
    let states: BTreeSet<&str> = flows.iter().map(|flow| flow["tcp"]["state"].as_str().unwrap_or("")).collect();
    assert_eq!(found["records"], flows.len());
    assert_eq!(found["packets"], sum(&flows, "packets"));
    assert_eq!(found["bytes"], sum(&flows, "packet_bytes"));
    assert_eq!(found["one_way"], one_way);
    assert_eq!(found["states"], serde_json::json!(states));
    let columns = linerate_export::encode::columns::schema();
    let columns: Vec<&str> = columns.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(found["columns"], serde_json::json!(columns), "same columns as Parquet");
}

#[test]
fn zeek_cut_reads_the_same_connections_from_tsv_as_from_json() {
    let Some(capture) = mix().filter(|_| has_tools(&["awk"])) else { return };
    let scratch = Scratch::new();
    let [tsv, json] = ["conn.tsv", "conn.log"].map(|name| scratch.file(name));
    run(&["flows", "-r", &capture, "-q", "--level", "tcp", "--id-seed", "t", "-w", &tsv, "-w", &json]).good();
    let names =
        "ts,uid,id.orig_h,id.resp_p,proto,duration,conn_state,history,orig_pkts,resp_ip_bytes,tunnel_parents,vlan";
    let rows = cut(&tsv, names);
    let conns = lines_of(&json);
    assert!(rows.len() == conns.len() && rows.len() > 1000);
    for (row, conn) in rows.iter().zip(&conns) {
        for (name, text) in names.split(',').zip(row) {
            let value = &conn[name];
            let is_same = match value {
                serde_json::Value::Null => text == "-",
                serde_json::Value::String(word) => text == word || word.is_empty() && text == "(empty)",
                serde_json::Value::Array(list) => *text == list[0].as_str().unwrap(),
                number if name == "ts" || name == "duration" => {
                    text.split_once('.').is_some_and(|(_, digits)| digits.len() == 6)
                        && (text.parse::<f64>().unwrap() - number.as_f64().unwrap()).abs() < 1e-6
                }
                number => serde_json::from_str::<serde_json::Value>(text).is_ok_and(|text| text == *number),
            };
            assert!(is_same, "{name}: {text} is not {value}");
        }
    }
    let text = std::fs::read_to_string(&tsv).unwrap();
    let count = |head: &str| text.lines().find(|line| line.starts_with(head)).unwrap().split('\t').count();
    assert!(text.starts_with("#separator \\x09\n") && count("#fields") == 26 && count("#types") == 26);
}

/// `--compress` applies to folders, standard output, and names without a compression ending.
#[test]
fn text_is_compressed_by_name_or_option() {
    let Some(capture) = mix().filter(|_| has_tools(&["zstd", "gzip"])) else { return };
    let scratch = Scratch::new();
    let [folder, plain, named] = ["flows/", "plain", "named.tsv.gz"].map(|name| scratch.file(name));
    let flows = flows_of(&capture, &[]);
    let arguments = ["flows", "-r", &capture, "-q", "--compress", "zstd", "--format", "csv"];
    run(&[&arguments[..], &["-w", &folder, "-w", &plain, "-w", &named]].concat()).good();
    let lines = |tool: &str, path: &str| {
        let output = Command::new(tool).args(["-dc", path]).output().unwrap();
        assert!(output.status.success(), "{path}");
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    assert_eq!(lines("zstd", &plain), flows.len() + 1);
    assert_eq!(lines("gzip", &named), flows.len() + 1, "the name takes precedence over the option");
    let files = linerate_tests::support::files(folder.as_ref());
    assert!(!files.is_empty() && files.iter().all(|file| file.to_str().unwrap().ends_with(".csv.zst")), "{files:?}");
    let all: usize = files.iter().map(|file| lines("zstd", file.to_str().unwrap()) - 1).sum();
    assert_eq!(all, flows.len());
    // Existing files are detected, compressed or not.
    run(&[&arguments[..], &["-w", &folder]].concat()).with_status(1).says("add to them with --append");
    for (more, error) in [
        (&["-w", "a.parquet", "--compress", "zstd"][..], "parquet compresses its columns itself"),
        (&["-w", "ipfix+udp://127.0.0.1", "--compress", "gzip"], "--compress needs a file"),
        (&["--compress", "gzip"], "--compress needs --write"),
    ] {
        run(&[&["flows", "-r", &capture][..], more].concat()).with_status(2).says(error);
    }
    assert!(directions(&flows) >= flows.len() as u64);
}
