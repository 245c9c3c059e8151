//! Files are not the wire: nobody waits for frames to be due, and stamps are exact.

use linerate_generate::{Part, Timeline, file};
use linerate_tests::support::Scratch;
use linerate_tests::support::program::{linerate, program, run, start};
use linerate_tests::support::records::{self, Record};
use serde_json::Value;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Longer than any of these runs takes, and shorter than each of their schedules.
const SOON: u64 = 40;
const SECOND: u64 = 1_000_000_000;

/// The time from when the program is there, which may have to be built.
fn begin() -> Instant {
    program();
    Instant::now()
}

/// What a run writes into a file, and its report; the run has to end soon.
fn written(scratch: &Scratch, scheme: &str, arguments: &[&str]) -> (Vec<Record>, Value) {
    let (output, began) = (scratch.file("written.pcap"), begin());
    let to = format!("{scheme}:{output}");
    let json = run(&[&["generate", "--json", "--to", &to], arguments].concat()).good().json();
    assert!(began.elapsed().as_secs() < SOON, "{arguments:?} took {:?}", began.elapsed());
    let untold = |name: &str| json.get(name).is_none_or(Value::is_null);
    for name in ["behind_mean_us", "behind_p50_us", "behind_p99_us", "behind_max_us", "gap_error_p50_us"] {
        assert!(untold(name), "{name}: {json}");
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

/// What the timeline of a file of streams says, in the order of the frames.
fn timeline(text: &str, frames: usize) -> Vec<u64> {
    let set = file::streams("streams.toml", text, &file::Setup::default()).unwrap();
    let (mut timeline, mut runs) = (Timeline::new(&set, Part::WHOLE).unwrap(), Vec::new());
    while timeline.take(u64::MAX, frames, &mut runs) > 0 {}
    runs.iter().flat_map(|run| run.slots()).map(|slot| slot.due).take(frames).collect()
}

#[test]
fn a_bit_a_second_is_written_at_once_with_its_stamps() {
    let (scratch, before) = (Scratch::new(), now());
    let (got, json) = written(&scratch, "pcap", &["--udp", "--rate", "1bps", "-c", "100"]);
    // 512 bits with FCS.
    assert_eq!(from_first(&got), (0..100).map(|frame| frame * 512 * SECOND).collect::<Vec<_>>());
    assert!(got[0].time > before && got[0].time < now() + SECOND, "it begins when the run does");
    assert_eq!(json["seconds"].as_f64(), Some(100.0 * 512.0), "{json}");
    let text = run(&["generate", "--to", "pcap:/dev/null", "-k", "udp", "--rate", "1bps", "-c", "9"]).good();
    text.shows("written at full speed").shows("in 4608.000 s");
}

#[test]
fn shapes_and_several_streams_have_the_stamps_of_their_timeline() {
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
fn seconds_are_those_of_the_stamps() {
    let scratch = Scratch::new();
    let (got, json) = written(&scratch, "pcap", &["-k", "udp", "--rate", "10pps", "--duration", "3600"]);
    assert_eq!(from_first(&got), (0..36_000).map(|frame| frame * SECOND / 10).collect::<Vec<_>>());
    assert_eq!((json["frames"].as_u64(), json["seconds"].as_f64()), (Some(36_000), Some(3600.0)), "{json}");
    assert!((json["mpps"].as_f64().unwrap() - 1e-5).abs() < 1e-9, "{json}");
}

/// A wrapper is what it wraps, and delays by the same time.
#[test]
fn a_bad_wire_into_a_file_is_not_waited_for_either() {
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
fn a_pipe_gets_the_same_at_once() {
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
fn what_has_no_end_ends_when_asked_to() {
    let running = start(&["generate", "--json", "--to", "pcap:/dev/null", "-k", "udp", "--rate", "1pps", "-c", "0"]);
    running.wait_until_open();
    let began = begin();
    let json = running.interrupt().good().json();
    assert!(began.elapsed().as_secs() < SOON, "{:?}", began.elapsed());
    assert!(json["balanced"] == true && json["failure"].is_null(), "{json}");
}

/// Memory that says when frames came is a wire.
#[test]
fn who_measures_waits() {
    let what = ["generate", "--json", "--to", "mem:measured", "--check", "mem:measured", "-k", "udp"];
    let began = begin();
    let json = run(&[&what[..], &["--rate", "20pps", "-c", "21"]].concat()).good().json();
    assert!(began.elapsed().as_secs_f64() > 0.99, "{:?}", began.elapsed());
    assert!(json["behind_max_us"].is_number() && json.get("written_at_once").is_none(), "{json}");
}
