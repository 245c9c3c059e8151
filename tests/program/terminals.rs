//! Output in terminals of 80 and 200 columns: no line is wider, and no column is missing.

use linerate_tests::support::program::{linerate, program};
use linerate_tests::support::terminal::{assert_fits, in_terminal, plain};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, frames, has_tools, may_make_labs, records};
use std::net::TcpListener;

#[test]
fn reports_fit_the_terminal_with_all_columns() {
    if !has_tools(&["script", "stty"]) {
        return;
    }
    let scratch = Scratch::new();
    let (input, checked) = (scratch.file("in.pcap"), scratch.file("checked.pcap"));
    records::write(&input, &frames::sample());
    let to = format!("pcap:{checked}");
    let made = linerate(&["generate", "-q", "--to", &to, "-k", "ip/udp", "--stamp", "-c", "50"]).status().unwrap();
    assert!(made.success());
    let (copy, out) = (scratch.file("copy.pcap"), scratch.file("out"));
    std::fs::copy(&checked, &copy).unwrap();
    let from = format!("pcap:{copy}");
    let mem = format!("mem:terminals-{}", std::process::id());
    let flows = scratch.file("flows.jsonl");
    let stored = scratch.file("flows.parquet");
    assert!(linerate(&["flows", "-q", "-r", &input, "-w", &stored]).status().unwrap().success());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sink = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|mut stream| drop(std::io::copy(&mut stream, &mut std::io::sink())));
    });
    let cases: &[(&[&str], &[&str])] = &[
        (
            &["send", &sink, "--chunk", "64KiB,1MiB", "--chunks", "3"],
            &["average us", "p99 us", "max us", "bytes acknowledged", "min RTT"],
        ),
        (&["capture", "-r", &input, "-w", "/dev/null", "--format", "pcap"], &["bytes written", "packets read, 0 lost"]),
        (&["capture", "-r", &input, "-v", "--stats", "udp"], &["received", "delivered", "refused", "lost", "filtered"]),
        (&["count", "-r", &input, "--protocols"], &["packets", "lost", "peak L1", "1519-", "unknown"]),
        (&["check", "-r", &checked], &["lost", "reordered", "corrupted", "p99.9", "ipdv"]),
        (&["flows", "-r", &input, "-w", &flows], &["packets", "bytes rev", "seconds", "written to"]),
        (
            &[
                "flows",
                "-r",
                &input,
                "--by",
                "orig_address,resp_address,port",
                "--every",
                "20ms",
                "--sum",
                "records,bytes,bps",
            ],
            &["records", "bytes", "bps", "% of", "other", "spread evenly", "both of its ends"],
        ),
        (&["query", &stored, "--by", "port", "--sort", "pps"], &["row group", "packets", "pps", "total"]),
        (&["query", &stored], &["row group", "bytes rev", "seconds"]),
        (
            &["generate", "--to", &mem, "--check", &mem, "-k", "ip/udp", "-c", "1200", "--interval", "1"],
            &["received", "lost", "p99.9", "ipdv"],
        ),
        (
            &["generate", "--to", "pcap:/dev/null", "-k", "ip/udp", "-k", "ip/tcp", "-v"],
            &["packet2", "delivered", "lost"],
        ),
        (&["switch", &to, &from, "--out", &out], &["packets in", "bytes in", "packets out", "full", "down", "learned"]),
        (&["find", &input, "-w", "/dev/null", "udp"], &["no index", "bytes found", "without an index"]),
        (&["ports"], &["offloads", "queues rx/tx", "speed"]),
        (&["doctor"], &["machine", "note"]),
        (&["doctor", "lo", "--dir", "/", "--verbose"], &["kernel: ", "folder: ", "queues", "drops: "]),
    ];
    for (arguments, words) in cases {
        for columns in [80, 200] {
            assert_fits(program(), arguments, columns, words);
        }
    }
}

#[test]
fn demos_fit_the_terminal() {
    if !has_tools(&["script", "stty"]) {
        return;
    }
    let scratch = Scratch::new();
    let input = scratch.file("in.pcap");
    records::write(&input, &frames::sample());
    let memory = ["demo", "--memory", "--replay", &input];
    let mut cases = vec![memory.to_vec(), [&memory[..], &["--verbose"]].concat()];
    if may_make_labs() {
        cases.push(vec!["demo", "--replay", &input]);
    }
    for arguments in cases {
        for columns in [80, 200] {
            assert_fits(program(), &arguments, columns, &["sent = captured", "equal", "lost", "rate"]);
        }
    }
}

/// Live views fit too, and show losses.
#[test]
fn live_views_fit_the_terminal() {
    if !may_make_labs() || !has_tools(&["script", "stty"]) {
        return;
    }
    let wire = Wire::new();
    let (port, other) = (wire.port("b", "eth0", "&lanes=2"), wire.port("a", "eth0", ""));
    for columns in [80, 200] {
        assert_fits(program(), &["doctor", &port, "--verbose"], columns, &["xdp: ", "gro: ", "steering: "]);
    }
    for (arguments, word) in [
        (&["count", &port, "--interval", "0.2", "-T", "0.7"][..], "lost"),
        (&["capture", &port, "--interval", "0.2", "-T", "0.7"], "0 lost"),
        (&["check", &port, "--interval", "0.2", "-T", "0.7"], "0 lost"),
        (&["bridge", &port, &other, "--faults", "drop=1%&delay=5ms", "--interval", "0.2", "-T", "0.7", "-v"], "0 lost"),
        (&["inline", &port, &other, "--share", "terminals", "--interval", "0.2", "-T", "0.7", "-v"], "0 lost"),
    ] {
        for columns in [80, 200] {
            let text = in_terminal(columns, program(), arguments);
            let shown = plain(&text);
            assert!(shown.contains(word), "{arguments:?} at {columns}:\n{shown}");
            let widest = shown.lines().map(|line| line.chars().count()).max().unwrap_or_default();
            assert!(widest <= usize::from(columns), "{widest} of {columns}: {arguments:?}\n{shown}");
        }
    }
}
