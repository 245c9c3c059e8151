//! Files are not paced: packets are written without waiting for their due times, and timestamps are exact.

use linerate_generate::{SenderPart, Timeline, file};
use linerate_tests::support::Scratch;
use linerate_tests::support::program::{linerate, program, run, start};
use linerate_tests::support::records::{self, Record};
use serde_json::Value;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Seconds: longer than any of these runs takes and shorter than each of their schedules.
const SOON: u64 = 40;
const SECOND: u64 = 1_000_000_000;

/// Returns the current time once the program is built.
fn begin() -> Instant {
    program();
    Instant::now()
}

/// Returns the packets that a run writes to a file, and its report; fails if the run takes long.
fn written(scratch: &Scratch, scheme: &str, arguments: &[&str]) -> (Vec<Record>, Value) {
    let (output, began) = (scratch.file("written.pcap"), begin());
    let to = format!("{scheme}:{output}");
    let json = run(&[&["generate", "--json", "--to", &to], arguments].concat()).good().json();
    assert!(began.elapsed().as_secs() < SOON, "{arguments:?} took {:?}", began.elapsed());
    let is_absent = |name: &str| json.get(name).is_none_or(Value::is_null);
    for name in ["lateness_mean_us", "lateness_p50_us", "lateness_p99_us", "lateness_max_us", "gap_error_p50_us"] {
        assert!(is_absent(name), "{name}: {json}");
    }
    assert_eq!((&json["written_at_once"], &json["lost"]), (&Value::from(true), &Value::from(0)), "{json}");
    (records::read(&output), json)
}

fn from_first(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.time - records[0].time).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Returns the due times that the timeline of a stream file gives, in packet order.
fn timeline(text: &str, frames: usize) -> Vec<u64> {
    let set = file::streams("streams.toml", text, &file::Setup::default()).unwrap();
    let (mut timeline, mut runs) = (Timeline::new(&set, SenderPart::WHOLE).unwrap(), Vec::new());
    while timeline.take(u64::MAX, frames, &mut runs) > 0 {}
    runs.iter().flat_map(|run| run.slots()).map(|slot| slot.due).take(frames).collect()
}

#[test]
fn one_bit_per_second_is_written_at_once_with_timestamps() {
    let (scratch, before) = (Scratch::new(), now());
    let (got, json) = written(&scratch, "pcap", &["--udp", "--rate", "1bps", "-c", "100"]);
    // 512 bits with FCS.
    assert_eq!(from_first(&got), (0..100).map(|frame| frame * 512 * SECOND).collect::<Vec<_>>());
    assert!(got[0].time > before && got[0].time < now() + SECOND, "timestamps start with the run");
    assert_eq!(json["seconds"].as_f64(), Some(100.0 * 512.0), "{json}");
    let text = run(&["generate", "--to", "pcap:/dev/null", "-k", "udp", "--rate", "1bps", "-c", "9"]).good();
    text.shows("written at full speed").shows("in 4608.000 s");
}

#[test]
fn shapes_and_streams_have_timeline_timestamps() {
    let (scratch, file) = (Scratch::new(), Scratch::new());
    let file = file.file("streams.toml");
    let burst =
        "[[stream]]\npacket = \"udp(dport=1)\"\nrate = \"2pps\"\ncount = 400\nburst = { frames = 7, gap = \"90s\" }\n";
    let even = "[[stream]]\npacket = \"tcp\"\nrate = \"0.37pps\"\ncount = 500\n";
    let poisson = "[[stream]]\npacket = \"udp(dport=3)\"\nrate = \"3pps\"\ncount = 300\npoisson = true\n";
    for order in ["sequential", "interleaved"] {
        let text = format!("order = \"{order}\"\n{burst}{even}{poisson}");
        std::fs::write(&file, &text).unwrap();
        let (got, _) = written(&scratch, "pcap", &["--streams", &file]);
        let wanted = timeline(&text, 1200);
        assert_eq!(from_first(&got), wanted.iter().map(|due| due - wanted[0]).collect::<Vec<_>>(), "{order}");
    }
}

#[test]
fn reported_seconds_match_the_timestamps() {
    let scratch = Scratch::new();
    let (got, json) = written(&scratch, "pcap", &["-k", "udp", "--rate", "10pps", "--duration", "3600"]);
    assert_eq!(from_first(&got), (0..36_000).map(|frame| frame * SECOND / 10).collect::<Vec<_>>());
    assert_eq!((json["frames"].as_u64(), json["seconds"].as_f64()), (Some(36_000), Some(3600.0)), "{json}");
    assert!((json["mpps"].as_f64().unwrap() - 1e-5).abs() < 1e-9, "{json}");
}

/// A wrapper delegates pacing to its inner port and shifts due times by its delay.
#[test]
fn fault_injection_into_a_file_is_not_paced() {
    let scratch = Scratch::new();
    let output = scratch.file("faulty.pcap");
    let to = format!("faulty:pcap:{output}?delay=20s");
    let began = begin();
    let json = run(&["generate", "--json", "--to", &to, "-k", "udp", "--rate", "1pps", "-c", "300"]).good().json();
    assert!(began.elapsed().as_secs() < SOON, "{:?}", began.elapsed());
    assert_eq!((&json["written_at_once"], &json["lost"]), (&Value::from(true), &Value::from(0)), "{json}");
    assert_eq!(from_first(&records::read(&output)), (0..300).map(|frame| frame * SECOND).collect::<Vec<_>>());
}

#[test]
fn pipe_gets_the_same_packets_at_once() {
    let began = begin();
    let what = ["generate", "-q", "--to", "pcap:-", "-k", "udp", "--rate", "1pps", "-c", "1000"];
    let piped = linerate(&what).output().unwrap();
    assert!(piped.status.success() && began.elapsed().as_secs() < SOON, "{:?}", began.elapsed());
    let scratch = Scratch::new();
    let (as_pcap, piped_to) = (scratch.file("piped.pcap"), scratch.file("piped"));
    std::fs::write(&piped_to, &piped.stdout).unwrap();
    run(&["capture", "-q", &format!("pcap:{piped_to}"), "-w", &as_pcap]).good();
    assert_eq!(from_first(&records::read(&as_pcap)), (0..1000).map(|frame| frame * SECOND).collect::<Vec<_>>());
}

#[test]
fn endless_run_ends_on_interrupt() {
    let running = start(&["generate", "--json", "--to", "pcap:/dev/null", "-k", "udp", "--rate", "1pps", "-c", "0"]);
    running.wait_until_open();
    let began = begin();
    let json = running.interrupt().good().json();
    assert!(began.elapsed().as_secs() < SOON, "{:?}", began.elapsed());
    assert!(json["balanced"] == true && json["failure"].is_null(), "{json}");
}

/// A memory port that takes receive timestamps is paced like a link.
#[test]
fn latency_measurement_is_paced() {
    let what = ["generate", "--json", "--to", "mem:measured", "--check", "mem:measured", "-k", "udp"];
    let began = begin();
    let json = run(&[&what[..], &["--rate", "20pps", "-c", "21"]].concat()).good().json();
    assert!(began.elapsed().as_secs_f64() > 0.99, "{:?}", began.elapsed());
    assert!(json["lateness_max_us"].is_number() && json.get("written_at_once").is_none(), "{json}");
}
