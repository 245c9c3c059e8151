//! Effects of file and folder names.

use linerate_tests::support::program::run;
use linerate_tests::support::{Scratch, files, frames, has_tools, records, tool};

/// The file name selects the compression, as for captures.
#[test]
fn lines_are_compressed_by_gzip_and_zstd() {
    let scratch = Scratch::new();
    let capture = scratch.file("sample.pcap");
    records::write(&capture, &frames::sample());
    let write = |name: &str| {
        let path = scratch.file(name);
        run(&["flows", "-q", "-r", &capture, "--id-seed", "x", "--level", "tcp", "-w", &path]).good();
        path
    };
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text
            .lines()
            .filter(|line| !line.starts_with("#close") && !line.starts_with("#open"))
            .map(str::to_owned)
            .collect();
        lines.sort_unstable();
        lines
    };
    for (plain, tool_of) in [("flows.jsonl", "gzip"), ("conn.log", "gzip"), ("flows.jsonl", "zstd")] {
        if !has_tools(&[tool_of]) {
            continue;
        }
        let ending = if tool_of == "gzip" { "gz" } else { "zst" };
        let compressed = write(&format!("{plain}.{ending}"));
        let unpacked = tool(tool_of, &["-dc", &compressed]);
        assert!(unpacked.lines().count() > 5, "{compressed}");
        assert_eq!(sorted(&unpacked), sorted(&std::fs::read_to_string(write(plain)).unwrap()), "{compressed}");
    }
}

#[test]
fn folder_with_records_needs_append() {
    let scratch = Scratch::new();
    let (capture, folder) = (scratch.file("sample.pcap"), scratch.file("flows/"));
    records::write(&capture, &frames::sample());
    let command = ["flows", "-q", "-r", &capture, "-w", &folder];
    run(&command).good();
    let before = files(folder.as_ref());
    run(&command).with_status(1).says("--append");
    assert_eq!(files(folder.as_ref()), before);
    run(&[&command[..], &["--append"]].concat()).good();
    assert_eq!(files(folder.as_ref()).len(), 2 * before.len());
}
