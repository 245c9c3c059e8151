//! The methods of `measure` on a bridge with known properties, and on the kernel's router.

use linerate_tests::support::program::{Running, launch, run, start};
use linerate_tests::support::schema::assert_reported;
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, judge, may_make_labs, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;

/// Rate of 256-byte frames at 20 Mb/s.
const RATE: f64 = 20e6 / (8.0 * 256.0);

fn scene() -> Wire {
    Wire::of(&["a:eth0,mid:p0,offloads=off", "b:eth0,mid:p1,offloads=off"])
}

/// A bridge with these faults in both directions.
fn device(lab: &Wire, faults: &str) -> Running {
    let (one, other) = (lab.port("mid", "p0", ""), lab.port("mid", "p1", ""));
    let wire = start(&["bridge", &one, &other, "--json", "--faults", faults, "--faults-reverse", faults]);
    wire.wait_until_open();
    wire
}

fn measure(lab: &Wire, more: &[&str]) -> Vec<String> {
    let (to, check) = (lab.port("a", "eth0", ""), lab.port("b", "eth0", "&ring=32MiB"));
    let words = ["measure", "--to", &to, "--check", &check, "--settle", "0.05", "--json"];
    words.iter().chain(more).map(|word| (*word).to_owned()).collect()
}

fn words(of: &[String]) -> Vec<&str> {
    of.iter().map(String::as_str).collect()
}

/// Returns true if SIGINT, bit 1 of `SigCgt`, is caught; see proc(5).
fn handles_sigint(running: &Running) -> bool {
    let caught = running.proc_status("SigCgt").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    caught.is_some_and(|mask| mask & 2 != 0)
}

/// Asserts for every trial that directions and streams add up, and that each sent packet was received or lost.
fn assert_adds_up(json: &Value, directions: usize) {
    assert_reported(json);
    let mut trials = 0;
    for trial in json["sizes"].as_array().unwrap().iter().flat_map(|size| size["trials"].as_array().unwrap()) {
        let ways = trial["directions"].as_array().unwrap();
        assert_eq!(ways.len(), directions, "{trial}");
        for name in ["intended", "sent", "unsent", "received", "lost", "duplicated", "foreign"] {
            let sum: u64 = ways.iter().map(|way| way[name].as_u64().unwrap()).sum();
            assert_eq!(trial[name].as_u64(), Some(sum), "{name}: {trial}");
        }
        for way in ways.iter().filter(|way| way["streams"].is_array()) {
            let sum = |name: &str| -> u64 {
                way["streams"].as_array().unwrap().iter().map(|stream| stream[name].as_u64().unwrap()).sum()
            };
            assert_eq!((Some(sum("sent")), Some(sum("lost"))), (way["sent"].as_u64(), way["lost"].as_u64()), "{way}");
            assert_eq!(sum("sent"), way["received"].as_u64().unwrap() + way["lost"].as_u64().unwrap(), "{way}");
        }
        trials += 1;
    }
    assert!(trials > 0, "{json}");
}

/// Asserts that docs/json.md has each key; it describes the keys of latencies once for all.
fn assert_documented(json: &Value) {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/json.md")).unwrap();
    let section = page.split("**measure** (`linerate/measure/1`)").nth(1).unwrap().split("**bridge**").next().unwrap();
    let size = &json["sizes"][0];
    let parts = [json, size, &size["trials"][0], &size["trials"][0]["directions"][0], &size["results"][0]];
    for key in parts.iter().flat_map(|part| part.as_object().unwrap().keys()) {
        let is_delay = ["latency_", "ipdv_", "pdv_"].iter().any(|of| key.starts_with(of));
        let is_documented =
            section.contains(&format!("`{key}`")) || is_delay || ["schema", "version", "sizes"].contains(&key.as_str());
        assert!(is_documented, "docs/json.md does not document {key}");
    }
}

#[test]
fn both_directions_are_measured_together() {
    if !may_make_labs() {
        return;
    }
    let lab = scene();
    let wire = device(&lab, "rate=20mbps&queue=100");
    let packets = ["-k", "ip(dst=198.19.0.1)/udp", "-k", "ip(dst=198.19.0.2)/udp(sport=1..9)"];
    let goals = ["--both", "--size", "256", "--goal", "own", "--loss", "1%", "--trial", "0.2", "--sum", "0.2"];
    let limits = ["--width", "10%", "--max", "30kpps", "--min", "2kpps"];
    let json = run(&words(&measure(&lab, &[&goals[..], &limits, &packets].concat()))).good().json();
    wire.interrupt();
    assert_eq!((&json["state"], &json["bidirectional"]), (&"done".into(), &true.into()), "{json}");
    assert_adds_up(&json, 2);
    for trial in json["sizes"][0]["trials"].as_array().unwrap() {
        let [there, back] = [0, 1].map(|way| &trial["directions"][way]);
        assert_eq!((&there["from"], &there["streams"][1]["stream"]), (&json["to"], &"packet2".into()));
        assert!(back["to"] == json["to"] && back["streams"].as_array().unwrap().len() == 2, "{back}");
        let apart = &trial["starts_apart_us"];
        judge(apart.as_f64().is_some_and(|micros| micros < 1000.0), &format!("directions start {apart} us apart"));
    }
    let result = &json["sizes"][0]["results"][0];
    assert!(result["upper"].is_number(), "no upper bound although 30,000 packets/s are too many: {json}");
    // In each direction; the packets in the queue add to it.
    let lower = result["lower"].as_f64().unwrap_or(0.0);
    judge((RATE * 0.9..=(RATE + 100.0 / 0.2) * 1.02).contains(&lower), &format!("{RATE}: {result}"));
}

/// A queue of 100 packets, drained at 9,766 packets/s: expected results of sections 26.2 to 26.5.
#[test]
fn rfc_2544_tests_find_the_properties_of_the_bridge() {
    if !may_make_labs() {
        return;
    }
    let (lab, scratch) = (scene(), Scratch::new());
    let wire = device(&lab, "rate=20mbps&queue=100&delay=5ms");
    let files = ["html", "md"].map(|form| scratch.file(&format!("report.{form}")));
    let how = ["--method", "rfc2544", "--short", "--trial", "0.25", "--repeat", "1", "--size", "256", "-Z", "root"];
    let limits = ["--width", "2%", "--max", "30kpps", "--min", "5kpps", "--burst-limit", "0.02"];
    let written: Vec<&str> = files.iter().flat_map(|file| ["-w", file]).collect();
    let json = run(&words(&measure(&lab, &[&how[..], &limits, &written].concat()))).good().json();
    wire.interrupt();
    assert_eq!(json["state"], "done", "{json}");
    assert_adds_up(&json, 1);
    assert_documented(&json);
    let size = &json["sizes"][0];
    let Some(throughput) = size["results"][0]["lower"].as_f64() else {
        judge(false, &format!("no throughput: {size}"));
        return;
    };
    judge((RATE * 0.97..=(RATE + 100.0 / 0.25) * 1.02).contains(&throughput), &format!("{RATE}: {throughput}"));
    let latency = &size["latency"];
    assert!(latency["tagged_mean_ns"].as_f64().is_none_or(|nanos| nanos >= 5e6), "below the delay of 5 ms: {latency}");
    assert!(latency["shortened"].as_str().unwrap().contains("1 of 20 runs, 0.25 of 120 s"), "{latency}");
    // 30,000 packets/s, 100 % of the load, lose two thirds; lower loads lose less, down to 0.
    let loss: Vec<f64> =
        size["loss"].as_array().unwrap().iter().map(|row| row["loss_ratio"].as_f64().unwrap()).collect();
    judge((loss[0] - (1.0 - RATE / 30e3)).abs() < 0.03, &format!("{loss:?}"));
    assert!(loss.len() <= 10 && loss[0] > 0.5, "{loss:?}");
    let bursts = &size["bursts"];
    let found = bursts["buffer_frames"].as_f64().unwrap_or(0.0);
    judge((found - 100.0).abs() <= 3.0, &format!("a queue of 100: {bursts}"));
    assert_eq!(bursts["frames"].as_array().unwrap().len(), usize::from(bursts["tester"].is_null()), "{bursts}");
    let recovery = &size["recovery"]["runs"][0][0];
    judge(recovery["seconds"].as_f64().unwrap() <= 0.012, &format!("the queue drains in 10 ms: {recovery}"));
    let [html, markdown] = files.map(|file| fs::read_to_string(file).unwrap());
    for text in ["26.1 (shortened)", "26.2", "26.3", "26.4, and RFC 9004", "26.5", "shortened: 1 of 50 runs"] {
        assert!(html.contains(text) && markdown.contains(text), "{text}");
    }
    for picture in ["loss over load", "latency distribution", "trials in order"] {
        assert!(html.contains(picture), "{picture}");
    }
    for other in ["<script", "<img", "<link", "url(", "http:", "https:", "@import"] {
        assert!(!html.contains(other), "the report loads other resources: {other}");
    }
}

#[test]
fn mrr_soak_and_y1564_are_measured() {
    if !may_make_labs() {
        return;
    }
    let (lab, scratch) = (scene(), Scratch::new());
    let wire = device(&lab, "rate=20mbps&queue=20");
    let mrr = ["--method", "mrr", "--size", "256", "--max", "20kpps", "--trial", "0.2", "--repeat", "3"];
    let json = run(&words(&measure(&lab, &mrr))).good().json();
    assert_adds_up(&json, 1);
    let forwarding = &json["sizes"][0]["forwarding"];
    assert_eq!(forwarding["rates"].as_array().unwrap().len(), 3, "{json}");
    judge(forwarding["max"].as_f64().unwrap() <= (RATE + 20.0 / 0.2) * 1.02, &forwarding.to_string());
    judge(forwarding["min"].as_f64().unwrap() >= RATE * 0.97, &forwarding.to_string());

    let soak = ["--method", "soak", "--size", "256", "--rate", "15kpps", "-T", "2.3", "--loss", "10%"];
    let json = run(&words(&measure(&lab, &soak))).good().json();
    assert_adds_up(&json, 1);
    let found = &json["sizes"][0]["soak"];
    let sum = |rows: &str, name: &str| {
        found[rows].as_array().unwrap().iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(Some(sum("minutes", "sent")), found["sent"].as_u64(), "{found}");
    // Packets that arrive late count as lost for a while.
    assert!(sum("lossy_seconds", "lost") >= found["lost"].as_u64().unwrap(), "{found}");
    let verdict = found["verdict"].as_str().unwrap();
    assert!(json["state"] == "done" && ["not kept", "limited by the tester"].contains(&verdict), "{found}");
    assert!(!found["events"].as_array().unwrap().is_empty() && found["minutes"][0]["lost"] == found["lost"], "{found}");

    let file = scratch.file("services.toml");
    let service = |name: &str, cir: &str, port: u32| {
        format!(
            "[[service]]\nname = \"{name}\"\npacket = \"ip(dst=198.19.0.1)/udp(dport={port})\"\nsize = 256\n\
             cir = \"{cir}\"\nloss = \"1%\"\ndelay_ms = 500\nvariation_ms = 500\nmargin = \"15%\"\n"
        )
    };
    fs::write(&file, service("voice", "2mbps", 5000) + &service("bulk <b>", "18.5mbps", 5001)).unwrap();
    let services = ["--method", "y1564", "--services", &file, "--trial", "0.3", "--performance", "1.2"];
    let json = run(&words(&measure(&lab, &services))).good().json();
    wire.interrupt();
    assert_adds_up(&json, 1);
    let steps = json["services"].as_array().unwrap();
    let verdict = |step: &Value| format!("{} {}: {}", step["service"], step["step"], step["verdict"]);
    let verdicts: Vec<String> = steps.iter().map(verdict).collect();
    assert_eq!(verdicts.len(), 10, "four shares and a policer per service: {verdicts:?}");
    // The bridge polices 20 Mb/s: 125 % of 18.5 Mb/s are cut to within the margin of 15 %; 125 % of 2 Mb/s pass: fail.
    let of = |service: &str, step: &str| {
        steps.iter().find(|one| one["service"] == service && one["step"] == step).unwrap()["verdict"] == "pass"
    };
    judge(
        !of("voice", "policing")
            && of("voice", "25 % of CIR")
            && of("bulk <b>", "100 % of CIR")
            && of("bulk <b>", "policing"),
        &format!("{verdicts:?}"),
    );
    let performance = json["performance"].as_array().unwrap();
    assert_eq!(performance.len(), 2, "{json}");
    // The sum of both exceeds the rate of the bridge.
    judge(performance.iter().any(|row| row["verdict"] == "fail"), &format!("{performance:?}"));
    for row in performance {
        assert!(row["lost"].as_u64() <= row["sent"].as_u64() && row["verdict"].is_string(), "{row}");
    }
}

/// The kernel's router between two hosts of the tester, in both directions.
#[test]
fn router_is_measured_in_both_directions() {
    if !may_make_labs() {
        return;
    }
    let lab =
        Wire::of(&["a:p0,r:r0=10.60.0.1/24,queues=2,offloads=off", "a:p1,r:r1=10.60.1.1/24,queues=2,offloads=off"]);
    linerate_lab::within(&lab.namespace("r"), || fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap()).unwrap();
    let (to, check) = (lab.port("a", "p0", "&ring=32MiB"), lab.port("a", "p1", "&ring=32MiB"));
    let to_send = lab.port("a", "p0", "");
    let route = ["--both", "--answer", "--gateway", "10.60.0.1,10.60.1.1", "-k", "ip(src=10.60.0.2,dst=10.60.1.2)/udp"];
    let what =
        ["--size", "64,1518", "--goal", "own", "--loss", "5%", "--trial", "0.1", "--sum", "0.1", "--width", "30%"];
    let ends = ["measure", "--to", &to_send, "--check", &check, "--settle", "0.02", "--max", "20kpps", "--json"];
    let json = run(&[&ends[..], &route, &what].concat()).good().json();
    assert_adds_up(&json, 2);
    assert!(!to.is_empty());
    for size in json["sizes"].as_array().unwrap() {
        let least = size["trials"].as_array().unwrap().iter().map(|trial| trial["loss_ratio"].as_f64().unwrap());
        assert!(least.fold(1.0, f64::min) < 0.5, "most packets are lost: {size}");
        judge(size["results"][0]["lower"].is_number(), &size["results"].to_string());
    }
    let one = [&ends[..], &what, &["--both", "--gateway", "10.60.0.1", "-k", "ip(src=10.60.0.2,dst=10.60.1.2)/udp"]];
    run(&one.concat()).with_status(2).says("two directions need two addresses");
}

/// Without a network: a reset, and a service of which no packet is received.
#[test]
fn unknown_values_are_null_in_a_report() {
    let scratch = Scratch::new();
    let file = scratch.file("services.toml");
    let service = "[[service]]\nname = \"lost\"\npacket = \"ip/udp\"\nsize = 128\ncir = \"1mbps\"\nloss = \"1%\"\n\
                   delay_ms = 500\nvariation_ms = 500\n";
    fs::write(&file, service).unwrap();
    let how = ["--settle", "0", "--json"];
    let services = ["--method", "y1564", "--services", &file, "--trial", "0.05", "--performance", "0.1"];
    let silent = run(&[&["measure", "--to", "null:x", "--check", "mem:none"], &services[..], &how].concat());
    let silent = silent.with_status(1).says("mem:none: nothing received");
    assert_eq!(silent.json()["state"], "failed");
    let reset =
        ["--method", "rfc2544", "--short", "--tests", "throughput,reset", "--reset-with", "true", "--repeat", "1"];
    let ends = ["measure", "--to", "mem:reset", "--check", "mem:reset", "--size", "128", "--max", "1kpps"];
    let json = run(&[&ends[..], &reset, &["--trial", "0.05"], &how].concat()).good().json();
    assert_adds_up(&json, 1);
    assert_eq!(json["sizes"][0]["reset"]["runs"][0]["command"], "exit status: 0", "{json}");
    let soak = ["--method", "soak", "--rate", "1kpps", "-T", "0.1"];
    run(&[&ends[..5], &["--size", "128"], &soak[..]].concat())
        .good()
        .says("estimated duration 0:00:01 for 1 size: soak 0:00:01");
}

#[test]
fn every_method_writes_its_report_when_interrupted() {
    if !may_make_labs() {
        return;
    }
    let (lab, scratch) = (scene(), Scratch::new());
    let wire = device(&lab, "rate=20mbps&queue=100");
    let methods = [
        &["--method", "rfc2544", "--short", "--trial", "1", "--tests", "loss"][..],
        &["--method", "mrr", "--trial", "0.3", "--repeat", "1000"],
        &["--method", "soak", "--rate", "5kpps", "-T", "600"],
    ];
    for (number, method) in methods.iter().enumerate() {
        let file = scratch.file(&format!("{number}.json"));
        let mut all = vec!["--size", "256", "-w", &file, "-Z", "root"];
        if !method.contains(&"soak") {
            all.extend(["--max", "30kpps"]);
        }
        let running = launch(&words(&measure(&lab, &[&all[..], method].concat())));
        // A soak writes its report every ten seconds.
        wait_until("it runs", || match method.contains(&"soak") {
            true => handles_sigint(&running),
            false => fs::read_to_string(&file).is_ok_and(|text| text.contains("\"trial\": 1")),
        });
        // Interrupts some trial.
        std::thread::sleep(std::time::Duration::from_millis(400));
        running.signal(Signal::INT);
        let json = running.end().with_status(1).json();
        assert_reported(&json);
        assert_eq!(json["state"], "interrupted", "{json}");
        let kept: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(kept, json);
    }
    wire.interrupt();
}

#[test]
fn options_without_effect_are_rejected() {
    for (wrong, expected) in [
        (&["--tests", "loss"][..], "--tests needs --method rfc2544"),
        (&["--method", "mrr", "--goal", "ndr"], "--goal needs --method search"),
        (&["--method", "soak", "--size", "64"], "--rate"),
        (&["--method", "soak", "--rate", "1kpps"], "single --size"),
        (&["--method", "y1564"], "--services FILE"),
        (&["--method", "y1564", "--services", "/nowhere.toml"], "/nowhere.toml"),
        (&["--method", "rfc2544", "--tests", "reset"], "--reset-with COMMAND"),
        (&["--method", "rfc2544", "--reset-with", "true"], "--tests reset"),
        (&["--repeat", "3"], "--repeat needs --method rfc2544 or mrr"),
        (&["--size", "63"], "rfc2544, rfc5180 or jumbo"),
        (&["--warm-up", "0"], "needs --max"),
        (&["--ipv6", "-k", "udp"], "cannot be used"),
        (&["--streams", "x.toml", "--size", "64"], "cannot be used"),
        (&["--streams", "x.toml", "--method", "rfc2544"], "--streams needs --method search or mrr"),
        (&["--streams", "/nowhere.toml"], "cannot read /nowhere.toml"),
    ] {
        let ends = ["measure", "--to", "mem:m1", "--check", "mem:m2"];
        let ended = run(&[&ends[..], wrong].concat());
        let status = if expected.starts_with('/') { 1 } else { 2 };
        ended.with_status(status).says(expected);
    }
}
