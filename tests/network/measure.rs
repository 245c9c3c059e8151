//! `measure` on devices of a known rate: slow bridges.

use linerate_tests::support::program::{Ended, Running, launch, program, run, start};
use linerate_tests::support::schema::assert_reported;
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, is_root, judge, may_make_labs, skip, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Rate of 256-byte frames at 20 Mb/s.
const RATE: f64 = 20e6 / (8.0 * 256.0);

/// Host `a`, a device in host `mid`, host `b`.
fn scene() -> Wire {
    Wire::of(&["a:eth0,mid:p0,offloads=off", "b:eth0,mid:p1,offloads=off"])
}

/// A bridge with these faults.
fn device(lab: &Wire, faults: &str) -> Running {
    let (one, other) = (lab.port("mid", "p0", ""), lab.port("mid", "p1", ""));
    let wire = start(&["bridge", &one, &other, "--json", "--faults", faults]);
    wire.wait_until_open();
    wire
}

fn measure(lab: &Wire, more: &[&str]) -> Vec<String> {
    let (to, check) = (lab.port("a", "eth0", ""), lab.port("b", "eth0", "&ring=32MiB"));
    let words = ["measure", "--to", &to, "--check", &check, "--size", "256", "--settle", "0.05"];
    words.iter().chain(more).map(|word| (*word).to_owned()).collect()
}

fn words(of: &[String]) -> Vec<&str> {
    of.iter().map(String::as_str).collect()
}

/// Asserts what holds for every report, however the run ended.
fn assert_whole(json: &Value) {
    assert_reported(json);
    for size in json["sizes"].as_array().unwrap() {
        let (least, greatest) = (size["min_load"].as_f64().unwrap(), size["max_load"].as_f64().unwrap());
        for (place, trial) in size["trials"].as_array().unwrap().iter().enumerate() {
            let number = |name: &str| trial[name].as_u64().unwrap();
            assert_eq!(number("trial") as usize, place + 1);
            assert_eq!(number("received") + number("lost"), number("sent"), "{trial}");
            let offered = trial["offered"].as_f64().unwrap();
            assert!(offered >= least && offered <= greatest, "{trial}");
            assert!(number("sent") + number("unsent") <= number("intended") + 1, "{trial}");
        }
    }
}

#[test]
fn rate_of_a_slow_bridge_is_found_in_all_reports() {
    if !may_make_labs() {
        return;
    }
    let (lab, scratch) = (scene(), Scratch::new());
    let wire = device(&lab, "rate=20mbps&queue=100");
    let files = ["json", "html", "md", "csv"].map(|form| scratch.file(&format!("report.{form}")));
    let goals =
        ["--goal", "ndr,pdr", "--trial", "0.3", "--sum", "0.9", "--width", "3%", "--max", "30kpps", "--min", "1kpps"];
    let written: Vec<&str> = files.iter().flat_map(|file| ["-w", file]).collect();
    let options = [&goals[..], &written, &["--json", "-Z", "root"]].concat();
    let json = run(&words(&measure(&lab, &options))).good().json();
    wire.interrupt();
    assert_whole(&json);
    assert_eq!(json["state"], "done", "{json}");
    let kept: Value = serde_json::from_str(&fs::read_to_string(&files[0]).unwrap()).unwrap();
    assert_eq!(kept, json, "the file differs from the printed report");
    let results = json["sizes"][0]["results"].as_array().unwrap();
    for result in results {
        let (lower, upper) = (result["lower"].as_f64(), result["upper"].as_f64());
        let (Some(lower), Some(upper)) = (lower, upper) else { panic!("no bounds: {result}") };
        assert!(lower < upper, "{result}");
        // The packets in the queue add to it, in each trial.
        assert!(lower <= (RATE + 100.0 / 0.3) * 1.01, "above the rate of the bridge: {result}");
        judge(upper >= RATE * 0.99 && result["verdict"] == "regular", &format!("{RATE}: {result}"));
        let shown = format!("<td>{}</td>", grouped(lower.round() as u64));
        assert!(fs::read_to_string(&files[1]).unwrap().contains(&shown), "{shown}");
        assert!(fs::read_to_string(&files[2]).unwrap().contains(&grouped(lower.round() as u64)));
    }
    let trials = json["sizes"][0]["trials"].as_array().unwrap().len();
    assert_eq!(fs::read_to_string(&files[3]).unwrap().lines().count(), trials + 1);
}

#[test]
fn interrupted_measurement_writes_its_report() {
    if !may_make_labs() {
        return;
    }
    let (lab, scratch) = (scene(), Scratch::new());
    let wire = device(&lab, "rate=20mbps&queue=100");
    let file = scratch.file("report.json");
    let options = ["--goal", "ndr", "--trial", "0.3", "--max", "30kpps", "--json", "-w", &file, "-Z", "root"];
    let running = launch(&words(&measure(&lab, &options)));
    // Interrupts some trial.
    wait_until("a trial was kept", || fs::read_to_string(&file).is_ok_and(|text| text.contains("\"trial\": 2")));
    std::thread::sleep(Duration::from_millis(130));
    running.signal(Signal::INT);
    let ended = running.end().with_status(1);
    wire.interrupt();
    let json = ended.json();
    assert_whole(&json);
    assert_eq!(json["state"], "interrupted", "{json}");
    assert!(json["sizes"][0]["trials"].as_array().unwrap().len() >= 2);
    assert_eq!(json["sizes"][0]["results"][0]["verdict"], "unfinished");
    let kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(kept, json);
}

/// The disk has room for some trials, but not for all.
#[test]
fn full_disk_keeps_the_last_report_and_the_result() {
    if !is_root() {
        return skip("mounting a tmpfs needs root");
    }
    let scratch = Scratch::new();
    let (tiny, rescued) = (scratch.file("tiny"), scratch.file("rescued.json"));
    fs::create_dir_all(&tiny).unwrap();
    let script = "mount -t tmpfs -o size=24k none \"$1\" || exit 77
        \"$0\" measure --to mem:full --check mem:full --size 128 --method mrr --repeat 12 --max 1kpps --trial 0.02 \
            --settle 0 --json -w \"$1/report.json\"; status=$?
        ls \"$1\" >&2; cp \"$1/report.json\" \"$2\"; exit $status";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(program()).args([&tiny, &rescued]);
    let ended = Ended::of(command.output().unwrap()).with_status(1).says("No space left on device");
    let trials = |json: &Value| json["sizes"][0]["trials"].as_array().unwrap().len();
    let (json, text) = (ended.json(), fs::read_to_string(&rescued).unwrap());
    assert_whole(&json);
    // A trial in which the tester was late is repeated.
    assert!(json["state"] == "done" && trials(&json) >= 12, "{json}");
    let kept: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(trials(&kept) > 0 && trials(&kept) < trials(&json) && kept["state"] == "running", "{text}");
    assert!(ended.errors.ends_with("report.json\n") && !ended.errors.contains(".part"), "{}", ended.errors);
    assert_eq!(ended.errors.matches("retrying after").count(), 1, "not reported once: {}", ended.errors);
}

/// While a link is down the trial gives no result about the device.
#[test]
fn link_down_ends_the_measurement_without_a_result() {
    if !may_make_labs() {
        return;
    }
    let (lab, scratch) = (scene(), Scratch::new());
    let wire = device(&lab, "");
    for (number, (host, link)) in [("b", "eth0"), ("mid", "p0")].into_iter().enumerate() {
        let file = scratch.file(&format!("{number}.json"));
        let options = ["--method", "mrr", "--trial", "1", "--repeat", "5", "--max", "2kpps", "--json", "-w", &file];
        let running = launch(&words(&measure(&lab, &[&options[..], &["-Z", "root"]].concat())));
        wait_until("a trial was kept", || fs::read_to_string(&file).is_ok_and(|text| text.contains("\"trial\": 1")));
        std::thread::sleep(Duration::from_millis(300));
        lab.ip(host, &["link", "set", link, "down"]);
        let ended = running.end().with_status(1).says("link went down");
        lab.ip(host, &["link", "set", link, "up"]);
        let json = ended.json();
        assert_whole(&json);
        assert_eq!(json["state"], "failed", "{json}");
        let size = &json["sizes"][0];
        let trials = size["trials"].as_array().unwrap();
        assert!(trials.len() < 5 && trials.last().unwrap()["failure"].is_string(), "{json}");
        // Failed trials do not count, nor trials with packets that a busy machine sent late.
        let counted = trials.iter().filter(|trial| trial["failure"].is_null() && trial["tester"].is_null()).count();
        assert_eq!(size["forwarding"]["rates"].as_array().map_or(0, Vec::len), counted, "{json}");
        let kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(kept, json);
    }
    wire.interrupt();
}

/// A load above the tester's own maximum gives no result about the device.
#[test]
fn load_beyond_the_tester_gives_no_result() {
    if !may_make_labs() {
        return;
    }
    let lab = scene();
    let wire = device(&lab, "");
    let goals =
        ["--goal", "own", "--trial", "0.1", "--sum", "0.1", "--width", "30%", "--max", "500mpps", "--min", "200mpps"];
    let json = run(&words(&measure(&lab, &[&goals[..], &["--json"]].concat()))).good().json();
    wire.interrupt();
    assert_whole(&json);
    let result = &json["sizes"][0]["results"][0];
    assert_eq!(result["verdict"], "limited by the tester", "{json}");
    let trial = &json["sizes"][0]["trials"][0];
    assert!(trial["tester"].as_str().unwrap().contains("did not send"), "{trial}");
}

#[test]
fn search_ends_by_time_and_invalid_options_are_rejected() {
    if !may_make_labs() {
        return;
    }
    let lab = scene();
    let wire = device(&lab, "rate=20mbps&queue=100");
    let goals = ["--trial", "0.2", "--max", "30kpps", "-T", "1", "--size", "64,128", "--json"];
    let json = run(&words(&measure(&lab, &goals))).good().json();
    wire.interrupt();
    assert_whole(&json);
    assert_eq!(
        (&json["state"], &json["sizes_left"]),
        (&"time is over".into(), &serde_json::json!([64, 128])),
        "{json}"
    );
    for (wrong, expected) in [
        (&["--loss", "1%"][..], "--goal"),
        (&["--goal", "ndr", "--loss", "1%"], "--goal own"),
        (&["--trial", "2", "--sum", "1"], "duration sum 1 s is shorter"),
        (&["--max", "max"], "expected a rate"),
        (&["--max", "1kpps", "--min", "2kpps"], "is not below the highest"),
        (&["-w", "report.pdf"], ".json, .csv, .md or .html"),
        (&["-k", "nonsense"], "--packet"),
        (&["--to", "pcap:x.pcap"], "given twice"),
    ] {
        run(&words(&measure(&lab, wrong))).with_status(2).says(expected);
    }
    run(&["measure", "--to", "pcap:x.pcap", "--check", "eth0"]).with_status(2).says("measure needs two interfaces");
}

#[test]
fn dry_run_prints_the_estimate_and_sends_nothing() {
    let ends = ["measure", "--to", "packet:nosuch0", "--check", "packet:nosuch1", "--dry-run"];
    let line = |more: &[&str]| run(&[&ends[..], more].concat()).good().output;
    let full = line(&["--method", "rfc2544", "--size", "rfc2544"]);
    assert!(full.starts_with("estimated duration ") && full.contains(" for 7 sizes: throughput "), "{full}");
    let [latency, recovery] = ["latency 4:5", "recovery 0:"].map(|test| full.contains(test));
    assert!(latency && recovery && full.lines().count() == 1, "{full}");
    assert_eq!(line(&["--method", "soak", "--rate", "1kpps", "--size", "64"]), "runs until Ctrl-C at one load\n");
    let soak = line(&["--method", "soak", "--rate", "1kpps", "--size", "64", "-T", "60"]);
    assert_eq!(soak, "estimated duration 0:01:00 for 1 size: soak 0:01:00\n");
    run(&[&ends[..], &["--json"]].concat()).with_status(2).says("--dry-run sends nothing");
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}
