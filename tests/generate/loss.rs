//! Loss is reported exactly during a run, per stream and in total.

use crate::generate::testbed::number;
use linerate_tests::support::Scratch;
use linerate_tests::support::program::{linerate, run};
use serde_json::Value;
use std::process::Stdio;

/// Returns every interval of a run, and its summary.
fn intervals(arguments: &[&str]) -> (Vec<Value>, Value) {
    let run = [&["generate", "--json", "--interval", "0.1"], arguments].concat();
    let output = linerate(&run).stderr(Stdio::inherit()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.pop().unwrap();
    assert_eq!((&summary["record"], lines.len() > 5), (&"summary".into(), true), "{text}");
    for line in &lines {
        let streams = line["streams"].as_array().unwrap();
        for (all, of_each) in [("frames", "sent"), ("received", "received"), ("lost", "lost")] {
            let sum: u64 = streams.iter().map(|stream| number(stream, of_each)).sum();
            assert_eq!(number(line, all), sum, "{all}: {line}");
        }
        assert!(number(line, "received") + number(line, "lost") <= number(line, "frames"), "{line}");
    }
    (lines, summary)
}

fn mem(name: &str) -> String {
    format!("mem:lost-{name}-{}", std::process::id())
}

/// Writes a stream file of two streams, each 1,000 packets per second for two seconds.
fn two_streams(scratch: &Scratch) -> String {
    let file = scratch.file("two.toml");
    let stream = |name| format!("[[stream]]\nname = \"{name}\"\npacket = \"ip/udp\"\nrate = \"1kpps\"\ncount = 2000\n");
    std::fs::write(&file, stream("one") + &stream("two")).unwrap();
    file
}

#[test]
fn streams_and_totals_agree_in_every_interval_and_the_report() {
    let (scratch, mem) = (Scratch::new(), mem("drop"));
    let (file, to) = (two_streams(&scratch), format!("faulty:{mem}?drop=10%&seed=7"));
    let (lines, summary) = intervals(&["--to", &to, "--check", &mem, "--streams", &file]);
    let lost = number(&summary["check"], "lost");
    assert!((200..600).contains(&lost) && number(&summary["check"], "received") == 4000 - lost, "{summary}");
    let live: Vec<u64> = lines.iter().map(|line| number(line, "lost")).collect();
    // A gap counts as lost after half a second: none in the first half second, some before the run ends.
    let early = lines.iter().filter(|line| line["seconds"].as_f64().unwrap() < 0.5);
    assert!(early.clone().count() > 0 && early.clone().all(|line| number(line, "lost") == 0), "{live:?}");
    let sending = lines.iter().filter(|line| number(line, "frames") < 4000);
    assert!(sending.map(|line| number(line, "lost")).max() > Some(50), "{live:?}");
    assert!(live.is_sorted() && live.iter().all(|so_far| *so_far <= lost), "{live:?} of {lost}");
}

#[test]
fn without_a_receiver_packets_are_lost_after_half_a_second() {
    let check = mem("nobody");
    let (lines, summary) = intervals(&["--to", "null:x", "--check", &check, "-k", "ip/udp", "-T", "1.5"]);
    assert_eq!(number(&summary["check"], "lost"), number(&summary, "frames"), "{summary}");
    let mut partly_lost = 0;
    for pair in lines.windows(2) {
        let (before, line) = (&pair[0], &pair[1]);
        assert!(number(before, "lost") <= number(line, "lost"), "{before}\n{line}");
        let since = |other: &Value| line["seconds"].as_f64().unwrap() - other["seconds"].as_f64().unwrap();
        // At least as many as were sent 0.8 s earlier, and no more than were sent 0.5 s earlier.
        let aged = lines.iter().rev().find(|other| since(other) >= 0.8);
        let young = lines.iter().find(|other| since(other) <= 0.5);
        assert!(number(line, "lost") >= aged.map_or(0, |aged| number(aged, "frames")), "{line}");
        assert!(number(line, "lost") <= young.map_or(0, |young| number(young, "frames")), "{line}");
        partly_lost += u64::from(number(line, "lost") > 0 && number(line, "lost") < number(line, "frames"));
    }
    assert!(partly_lost > 3, "{lines:?}");
}

#[test]
fn late_packets_no_longer_count_as_lost() {
    let mem = mem("late");
    let to = format!("faulty:{mem}?delay=1500ms");
    let (lines, summary) = intervals(&["--to", &to, "--check", &mem, "-k", "ip/udp", "-c", "1000"]);
    assert_eq!((number(&summary["check"], "lost"), number(&summary["check"], "received")), (0, 1000), "{summary}");
    let live: Vec<u64> = lines.iter().map(|line| number(line, "lost")).collect();
    let most = live.iter().max().unwrap();
    assert!(*most > 100 && live.last().unwrap() < most, "{live:?}");
}

/// `check` has only sequence numbers.
#[test]
fn gap_counts_as_lost_after_half_a_second() {
    let scratch = Scratch::new();
    let file = scratch.file("cut.pcap");
    let to = format!("faulty:pcap:{file}?drop=10%&seed=3");
    run(&["generate", "-q", "--to", &to, "-k", "ip/udp", "--stamp", "-c", "1000"]).good();
    let frames = std::fs::read(&file).unwrap();
    let mut counting = linerate(&["check", "-r", "-", "--json", "--interval", "0.1"]);
    let mut counting = counting.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // All bytes first, end of file 1.5 s later.
    let mut input = counting.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, &frames).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    drop(input);
    let text = String::from_utf8(counting.wait_with_output().unwrap().stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| -> Vec<i64> {
        let interval = lines.iter().filter(|line| line["record"] == "interval");
        interval.map(|line| line[name].as_i64().unwrap()).collect()
    };
    let summary = lines.last().unwrap();
    let (missing, lost) = (of("missing"), of("lost"));
    let all = summary["lost"].as_i64().unwrap();
    assert!(all > 50 && missing.iter().sum::<i64>() == all && lost.iter().sum::<i64>() == all, "{missing:?} {lost:?}");
    let first = |counts: &[i64]| counts.iter().position(|count| *count > 0).unwrap();
    assert!(first(&lost) >= first(&missing) + 4, "{missing:?} {lost:?}");
}
