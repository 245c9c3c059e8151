//! Exit statuses, messages, JSON.

use linerate_tests::support::program::{Ended, program, run};
use linerate_tests::support::{Scratch, frames, may_change_user, records};
use serde_json::Value;
use std::process::Command;

#[test]
fn usage_errors_exit_with_2_and_a_message() {
    let no_number = "10: --count takes no number; -c 10 stops after 10 packets";
    let cases: [(&[&str], &str); 49] = [
        (&[], "Usage"),
        (&["fly"], "fly"),
        (&["capture"], "no port given"),
        (&["capture", "-r", "x.pcap", "--duration=-1"], "invalid duration"),
        (&["capture", "-r", "x.pcap", "--lag=nan"], "invalid duration"),
        (&["capture", "--spin", "--sleep", "eth0"], "--sleep"),
        (&["capture", "-r", "x.pcap", "-f", "tcp", "udp"], "given twice"),
        (&["capture", "nosuch0", "tcp", "or"], "syntax error"),
        (&["capture", "-r", "/dev/null", "tcp", "or"], "syntax error"),
        (&["capture", "-r", "/dev/null", "tcp.port", "==", "443"], "use pcap-filter text, as in tcp port 443"),
        (&["capture", "-y", "EN10MB", "-r", "x.pcap"], "-y: not supported"),
        (&["count", "-tttt", "-r", "x.pcap"], "-t: linerate capture has it; -T S stops"),
        (&["capture", "-r", "x.pcap", "y.pcap", "-w", "z.pcap"], "y.pcap: no such file"),
        (&["capture", ""], "empty port name"),
        (&["generate", "lo"], "lo: unexpected argument; name the port with --to lo"),
        (&["replay", "a.pcap", "b.pcap"], "b.pcap: unexpected argument; linerate replay --help shows the usage"),
        (&["flows", "-r", "x.pcap", "--sort", "time"], "flows are sorted by bytes or packets"),
        (
            &["flows", "-r", "x.pcap", "-w", "10.0.0.2:4739"],
            "needs a scheme, as in ipfix+udp://10.0.0.2:4739; write ./10.0.0.2:4739 for",
        ),
        (&["capture", "-r", "/dev/null", "--flows", "null"], "null: writes no records; write ./null for a file"),
        (&["collect", ":4739"], "ipfix://:4739 listens at an address"),
        (&["send", "10.0.0.2", "-P", "4"], "-P: use --connections N"),
        (&["count", "eth0", "--netns", "x"], "write the port as 'eth0?netns=NAME'"),
        (&["mergecap", "x.pcap"], "mergecap: no such command (did you mean linerate merge?)"),
        (&["collect", "ipfix://:99999"], "expected ipfix://HOST:PORT"),
        (&["count", "-D"], "-D: linerate capture has it"),
        (&["flows", "-r", "x.pcap", "-C", "1"], "-C: linerate capture has it"),
        (&["bench", "dissect"], "now a program of its own, linerate-bench"),
        (&["capture", "nosuch0", "--count", "10", "tcp"], no_number),
        (&["capture", "--count", "10", "nosuch0"], no_number),
        (&["capture", "-r", "/dev/null", "--count", "10"], no_number),
        (&["capture", "-r", "x.pcap", "--shard", "0/4"], "from 1 to 4"),
        (&["capture", "-r", "x.pcap", "--shard", "5/4"], "an index from 1 to 4"),
        (&["capture", "-r", "x.pcap", "--shard", "half"], "INDEX/COUNT"),
        (&["capture", "-r", "x.pcap", "--shard-inner"], "--shard"),
        (&["capture", "-r", "x.pcap", "--slice", "l5"], "l4+64"),
        (&["capture", "-r", "x.pcap", "--slice", "l4", "-s", "96"], "--snap"),
        (&["capture", "-r", "x.pcap", "--dedup=-1"], "invalid duration"),
        (&["capture", "-r", "x.pcap", "--dedup=soon"], "soon"),
        (&["generate", "--udp"], "--to"),
        (&["generate", "--to", "pcap:/dev/null"], "linerate replay"),
        (&["replay", "--to", "pcap:/dev/null"], "FILE"),
        (&["generate", "--to", "pcap:/dev/null", "--udp", "--rate", "quick"], "quick"),
        (&["replay", "--to", "pcap:/dev/null", "-r", "x", "--speed", "0"], "expected a factor above 0"),
        (&["generate", "--to", "pcap:/dev/null", "--udp", "--dst-ip", "::1"], "different address families"),
        // Reported before ports are opened.
        (&["inline", "no0", "no1", "--share", "x", "--share-memory", "1MiB"], "expected at least 8 blocks of 1MiB"),
        (&["measure", "--to", "no0", "--check", "no1", "--threads", "0"], "expected 1 to 1024"),
        (&["send", "127.0.0.1:9", "--udp", "--size", "1", "--datagram", "8"], "expected 9 to 65507"),
        (&["ctl", "/nosuch", "--json", "dump-flows"], "--json works with streams only"),
        (&["ctl", "/nosuch", "add-flow"], "<RULE>"),
    ];
    for (arguments, text) in cases {
        let ended = run(arguments);
        assert_eq!(ended.status, 2, "{arguments:?}: {}", ended.errors);
        assert!(ended.errors.contains(text), "{arguments:?}: {}", ended.errors);
        assert_eq!(ended.output, "", "{arguments:?}");
    }
}

#[test]
fn invalid_ports_are_usage_errors_in_every_verb() {
    let receive = [
        "packet:lo?nope=1",
        "packet:lo?ring=much",
        "packet:lo?ring=1",
        "packet:lo?ring=64KiB",
        "packet:lo?ring=4GiB",
        "packet:lo?block=1",
        "packet:lo?lanes=0",
        "packet:lo?lanes=65",
        "packet:lo?timeout=0",
        "xdp:lo?ring=1",
        "xdp:lo?busy-poll=0",
        "mem:x?blocks=0",
        "packet:lo?direction=up",
        "packet:lo?stamp=soon",
        "packet:lo?offset=soon",
        "packet:lo@0-1",
        "packet:lo@x",
        "xdp:lo?mode=fast",
        "xdp:lo?copy=never",
        "xdp:lo?pass=maybe",
        "xdp:lo?pass=yes&mode=af_xdp",
        "xdp-live:lo",
        "mem:x?blocks=few",
        "mem:x@0-99",
        "shm:x?mode=quick",
        "shm:x@1",
        "pcap:x?nope=1",
        "faulty:packet:lo?drop=lots",
        "nosuch:x",
        "packet:",
    ];
    let send = [
        "packet:lo?ring=1MiB",
        "xdp:lo?nope=1",
        "xdp-live:lo@1",
        "xdp-live:lo?nope=1",
        "mem:x?stamp=soon",
        "shm:x?memory=much",
        "shm:x@1",
        "pcap:x?nope=1",
        "faulty:mem:x?drop=lots",
        "nosuch:x",
        "packet:lo@x",
    ];
    let udp = ["--udp", "-c", "1"];
    let mut all: Vec<Vec<&str>> = Vec::new();
    for port in receive {
        all.extend([vec!["capture", port], vec!["capture", "-i", port], vec!["count", "-i", port]]);
        all.extend([vec!["flows", "-i", port], vec!["check", "-i", port]]);
        all.push([&["generate", "--to", "mem:y", "--check", port], &udp[..]].concat());
    }
    for port in send {
        all.push([&["generate", "--to", port], &udp[..]].concat());
        all.push(vec!["replay", "--to", port, "-r", "/dev/null"]);
    }
    for port in ["packet:lo?nope=1", "nosuch:x", "packet:lo@x"] {
        all.extend([vec!["bridge", port, "packet:nosuch0"], vec!["bridge", "--yes", port, "packet:nosuch0"]]);
    }
    for arguments in all {
        let ended = run(&arguments);
        assert_eq!((ended.status, ended.output.as_str()), (2, ""), "{arguments:?}: {}", ended.errors);
        assert_eq!(ended.errors.lines().count(), 1, "{arguments:?}: {}", ended.errors);
    }
}

#[test]
fn open_failures_exit_with_1_and_name_the_object() {
    let scratch = Scratch::new();
    let (missing, garbage) = (scratch.file("missing.pcap"), scratch.file("garbage.pcap"));
    std::fs::write(&garbage, "not a capture file, but long enough to have a header").unwrap();
    let nowhere = scratch.file("no/such/folder.pcap");
    let sample = scratch.file("sample.pcap");
    records::write(&sample, &frames::sample());
    let cases: [(&[&str], &str); 7] = [
        (&["capture", "-r", &missing], &missing),
        (&["capture", "-r", &garbage], &garbage),
        (&["capture", "-r", &sample, "-w", &nowhere], &nowhere),
        (&["capture", "-r", &sample, "-Z", "nosuchuser"], "nosuchuser"),
        (&["capture", "packet:nosuch0"], "nosuch0"),
        (&["generate", "--to", "packet:nosuch0", "--udp"], "nosuch0"),
        (&["replay", "--to", "pcap:/dev/null", "-r", &missing], &missing),
    ];
    for (arguments, text) in cases {
        run(arguments).with_status(1).says(text);
    }
    let misspelled = scratch.file("smaple.pcap");
    for words in [["print", "-r", &misspelled], ["count", "-r", &misspelled], ["find", "-r", &misspelled]] {
        let ended = run(&words).with_status(1).says(&format!("no such file (did you mean {sample}?)"));
        assert!(!ended.errors.contains("os error"), "{}", ended.errors);
    }
    run(&["capture", "-r", &sample, "-w", &nowhere]).says("no such directory; create it first");
    for verb in ["capture", "count", "flows"] {
        let ended = run(&[verb, "-r", &garbage]).with_status(1);
        let printed = format!("{}{}", ended.output, ended.errors);
        assert_eq!(printed.matches("not a pcap").count(), 1, "{printed}");
        assert!(!printed.contains("0 lost"), "a report without packets: {printed}");
    }
    assert_eq!(scratch.names(), ["garbage.pcap", "sample.pcap"]);
}

#[test]
fn errors_leave_the_output_file_unchanged() {
    let scratch = Scratch::new();
    let (sample, output) = (scratch.file("sample.pcap"), scratch.file("precious"));
    records::write(&sample, &frames::sample());
    std::fs::write(&output, "precious").unwrap();
    let missing = scratch.file("missing");
    run(&["capture", "-r", &missing, "-w", &output]).with_status(1);
    run(&["capture", "-r", &sample, "-w", &output, "tcp or or"]).with_status(2);
    run(&["capture", "packet:nosuch0", "-w", &output]).with_status(1);
    run(&["capture", "-r", &sample, "-w", &output, "-Z", "nosuchuser"]).with_status(1);
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "precious");

    run(&["capture", "-r", &sample, "-w", &output, "-d"]).with_status(2).says("--write has no effect with -d");
    run(&["convert", "-r", &sample, "-w", "mem:x"]).with_status(2).says("mem:x is a port, not a file");
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "precious");

    let before = std::fs::read(&sample).unwrap();
    run(&["capture", "-r", &sample, "-w", &sample]).with_status(2).says("both");
    assert!(std::fs::read(&sample).unwrap() == before, "an input was emptied as output");
}

#[test]
fn every_verb_has_help() {
    for verb in
        ["capture", "generate", "lab", "ports", "doctor", "demo", "bridge", "inline", "switch", "inspect", "find"]
    {
        let help = run(&[verb, "--help"]).good().output;
        assert!(help.contains("Usage: linerate"), "{help}");
    }
    assert!(run(&["--version"]).good().output.starts_with("linerate "));
}

#[test]
fn capture_json_has_its_documented_keys() {
    let scratch = Scratch::new();
    let (file, output) = (scratch.file("sample.pcap"), scratch.file("out.pcapng"));
    let sample = frames::sample();
    records::write(&file, &sample);
    let json = run(&["capture", "-r", &file, "-w", &output, "--json", "udp"]).good().json();
    assert_eq!(json["schema"], "linerate/capture/1");
    assert_eq!(json["ports"][0], format!("pcap:{file}"));
    assert_eq!(json["filter"], "udp");
    assert_eq!(json["received"], sample.len());
    assert_eq!(json["delivered"], json["frames"]);
    let filtered = sample.len() as u64 - json["frames"].as_u64().unwrap();
    assert_eq!(json["drops"]["filtered"], filtered);
    assert_eq!(
        (&json["lost"], &json["late"], &json["balanced"]),
        (&Value::from(0), &Value::from(0), &Value::from(true))
    );
    assert!(json["first_time_ns"].as_u64() < json["last_time_ns"].as_u64());
    for name in ["bytes", "wire_bytes", "seconds", "mpps", "gbps_l1", "gbps_l2"] {
        assert!(json[name].is_number(), "{name}: {json}");
    }
    for name in ["events", "imbalances", "accounts", "driver"] {
        assert!(json[name].is_array(), "{name}: {json}");
    }
    assert_eq!(json["failure"], Value::Null);
    assert_eq!(json["quiesced"], true);
    let stages: Vec<&str> =
        json["accounts"].as_array().unwrap().iter().map(|one| one["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["receive", "merge", "select", "write"]);
}

#[test]
fn quiet_prints_nothing() {
    let scratch = Scratch::new();
    let file = scratch.file("sample.pcap");
    let ended = run(&["generate", "-q", "--to", &format!("pcap:{file}"), "--udp", "--rate", "max"]).good();
    assert_eq!((ended.output.as_str(), ended.errors.as_str()), ("", ""));
    let ended = run(&["capture", "-q", "-r", &file, "-w", "/dev/null", "--format", "pcap"]).good();
    assert_eq!((ended.output.as_str(), ended.errors.as_str()), ("", ""));
    let ended = run(&["capture", "-r", &file, "-c", "5", "-w", "/dev/null", "--format", "pcap"]).good();
    assert!(ended.output.ends_with("\n  5 packets read, 0 lost\n"), "{}", ended.output);
}

#[test]
fn missing_privileges_are_named() {
    if !may_change_user() {
        return;
    }
    use std::os::unix::process::CommandExt;
    // Other users may not have access to the checkout.
    let scratch = Scratch::new();
    let copy = scratch.file("linerate");
    std::fs::copy(program(), &copy).unwrap();
    for arguments in [&["capture", "lo"][..], &["generate", "--to", "lo", "--udp"], &["lab", "up", "--link", "a:x,b:x"]]
    {
        let output = Command::new(&copy).args(arguments).uid(65534).gid(65534).output().unwrap();
        Ended::of(output).with_status(1).says("root");
    }
}

/// Each example is one complete line without unquoted special characters of a shell.
#[test]
fn help_examples_can_be_pasted() {
    let verbs = [
        "capture", "count", "flows", "find", "generate", "bridge", "inline", "switch", "inspect", "ports", "doctor",
        "demo", "lab", "lab up", "top",
    ];
    for verb in verbs {
        let words: Vec<&str> = verb.split(' ').chain(["--help"]).collect();
        let shown = run(&words).good().output;
        let help = shown.replace("\\\n    ", "");
        let examples: Vec<&str> = help.lines().filter_map(|line| line.strip_prefix("  linerate ")).collect();
        assert!(examples.len() > 2, "{help}");
        for example in examples {
            let bare: String = example.split('\'').step_by(2).collect();
            assert!(
                !bare.contains(['?', '&', '*', '(', '[', ';', '<', '\\']),
                "{verb}: unquoted special character in {example}"
            );
            assert!(!example.contains("  "), "{verb}: text after the command: {example}");
            let words = words_of(example);
            // Unknown options are rejected before help is shown.
            run(&words.iter().map(String::as_str).chain(["--help"]).collect::<Vec<_>>()).good();
            let packets = words.windows(2).filter(|two| two[0] == "-k").map(|two| &two[1]);
            packets.for_each(|packet| drop(run(&["generate", "--to", "pcap:-", "-k", packet, "--dry-run"]).good()));
        }
        let all = shown.split("Examples:").nth(1).unwrap();
        assert!(
            all.lines().take_while(|line| line.starts_with(' ') || line.is_empty()).all(|line| line.len() <= 80),
            "{all}"
        );
    }
}

/// Splits an example into words as a shell does, up to a pipe, redirection or `--`.
fn words_of(example: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_within = false;
    for (place, part) in example.split('\'').enumerate() {
        let is_quoted = place % 2 == 1;
        for (at, piece) in part.split(|letter| letter == ' ' && !is_quoted).enumerate() {
            is_within &= at == 0;
            match words.last_mut() {
                Some(word) if is_within => word.push_str(piece),
                _ if !piece.is_empty() || is_quoted => words.push(piece.to_owned()),
                _ => continue,
            }
            is_within = true;
        }
    }
    words.into_iter().take_while(|word| !["|", ">", "2>", "--"].contains(&word.as_str())).collect()
}

#[test]
fn help_fits_80_columns() {
    let verbs = run(&["--help"]).good().output;
    let verbs = verbs.split("Commands:").nth(1).expect("commands").split("\n\n").next().expect("their list");
    let verbs = verbs
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|verb| !["", "help"].contains(verb));
    let mut seen = 0;
    for verb in verbs {
        let help = run(&[verb, "--help"]).good().output;
        let long: Vec<_> = help.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{verb}: {long:#?}");
        seen += 1;
    }
    assert!(seen > 15, "{seen} verbs");
}

#[test]
fn capture_files_can_be_arguments() {
    let scratch = Scratch::new();
    let file = scratch.file("sample.pcap");
    records::write(&file, &frames::sample());
    let other = scratch.file("other.pcap");
    for verb in ["capture", "count", "flows", "check", "streams"] {
        let more: &[&str] = if verb == "capture" { &["-w", &other, "udp"] } else { &["udp"] };
        let given = run(&[&[verb, &file], more].concat()).good();
        let option = run(&[&[verb, "-r", &file], more].concat()).good();
        assert_eq!(given.output.lines().last(), option.output.lines().last(), "{verb}");
        let missing = scratch.file("missing.pcap");
        run(&[verb, &missing]).with_status(2).says(&format!("{missing}: no such file"));
        run(&[verb, "-i", "lo", &file]).with_status(2).says("a file in place of the filter");
        run(&[verb, "-i", "lo", "3600"]).with_status(2).says("3600: a number in place of the filter; as the value");
        run(&[verb, "-i", "lo", "10.0.0.1"]).with_status(2).says("write host 10.0.0.1");
    }
    let records = scratch.file("flows.jsonl");
    run(&["flows", "-q", &file, "-w", &records]).good();
    run(&["count", &records]).with_status(2).says("a file, not a port; linerate query reads flow records only from");
    run(&["generate", "--to", "sample.pcap", "-k", "udp"])
        .with_status(1)
        .says("for a capture file use pcap:sample.pcap");
}

/// A shell expands `-r *.pcap` to one option value and further words.
#[test]
fn words_after_read_are_files() {
    let scratch = Scratch::new();
    let [first, second, out] = ["a.pcap", "b.pcap", "out.pcap"].map(|name| scratch.file(name));
    for file in [&first, &second] {
        records::write(file, &frames::sample());
    }
    run(&["capture", "-r", &first, &second, "-w", &out]).good();
    assert_eq!(records::read(&out).len(), 2 * frames::sample().len());
    let found = run(&["capture", "-r", &first, &second, "--count", "greater", "0"]).good().output;
    assert_eq!(found.trim(), (2 * frames::sample().len()).to_string());
}

#[test]
fn file_names_of_unsupported_formats_are_rejected() {
    let scratch = Scratch::new();
    let file = scratch.file("sample.pcap");
    records::write(&file, &frames::sample());
    for (verb, name) in [
        ("capture", "x.csv"),
        ("capture", "x.json"),
        ("capture", "x.parquet"),
        ("capture", "x.pcap.bz2"),
        ("capture", "x.pcapng.xz"),
        ("flows", "x.xml"),
        ("flows", "x.pcap"),
        ("flows", "x.jsonl.xz"),
        ("flows", "x.parquet.zst"),
    ] {
        let path = scratch.file(name);
        run(&[verb, "-r", &file, "-w", &path]).with_status(2).says(name);
    }
    run(&["generate", "--to", &format!("pcap:{}", scratch.file("x.csv")), "--udp"]).with_status(2).says(".csv");
    run(&["capture", "-q", "-r", &file, "-w", &scratch.file("x.csv"), "--format", "pcap"]).good();
    assert_eq!(scratch.names(), ["sample.pcap", "x.csv"]);
}
