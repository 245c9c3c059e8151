//! Measurements with every method at the ports of a server.

use super::server::Server;
use linerate_tests::support::{judge, wait_until};
use serde_json::{Value, json};

/// A device under test that forwards 2 Mbit/s and queues 20 frames.
const SLOW: &str = "&rate=2mbps&queue=20";

/// Builds a request for both ports, with further members. A busy machine receives late.
fn asked(more: Value) -> Value {
    let mut asked = json!({"to": "p1", "check": "p2", "size": "128", "settle": 0.3});
    if let (Some(asked), Value::Object(more)) = (asked.as_object_mut(), more) {
        asked.extend(more);
    }
    asked
}

/// Runs a measurement and returns its report.
fn measured(server: &Server, more: Value) -> Value {
    let asked = asked(more);
    let estimate = server.post("/api/v1/measure/estimate", &asked);
    assert!(estimate["seconds"].as_f64() > Some(0.0) && estimate["tests"][0]["test"].is_string(), "{estimate}");
    server.post("/api/v1/measure", &asked);
    wait_until("the measurement is done", || {
        server.ask("GET", "/api/v1/measure", b"").1["state"]["is_running"] == false
    });
    let (_, measured) = server.ask("GET", "/api/v1/measure", b"");
    assert_eq!(
        (&measured["state"]["failure"], &measured["report"]["failure"]),
        (&Value::Null, &Value::Null),
        "{measured}"
    );
    measured["report"].clone()
}

/// RFC 2544, 26.4 to 26.6, of a device with known rate and queue.
#[test]
fn back_to_back_recovery_and_reset_are_measured() {
    let marker = std::env::temp_dir().join(format!("linerate-reset-{}", std::process::id()));
    let command = format!("echo reset >> {}", marker.display());
    let Some(server) = Server::with("faulty:", SLOW, &["--reset-with", &command]) else { return };
    let short = json!({"method": "rfc2544", "short": true, "trial": 0.4, "width": "10%", "max": "4kpps", "repeat": 1, "burst-limit": 0.25});
    let tests = |tests: &str| {
        let mut short = short.clone();
        short["tests"] = tests.into();
        let report = measured(&server, short);
        report["sizes"][0].clone()
    };
    let bursts = tests("back-to-back");
    let (found, throughput) = (&bursts["bursts"], bursts["results"][0]["lower"].as_f64());
    assert!(throughput > Some(500.0) && throughput < Some(2500.0), "{bursts}");
    // At least the queue, plus what leaves it during the burst; a busy machine sends less densely, or late, which the
    // report states instead of a result.
    let (longest, tester) = (found["mean"].as_f64(), &found["tester"]);
    if judge(tester.is_null(), &format!("back-to-back: {tester}")) {
        assert!(longest >= Some(20.0) && longest < Some(1000.0), "{found}");
    } else {
        assert!(longest.is_none() && tester.as_str().is_some_and(|why| why.contains("late")), "{found}");
    }
    let recovery = tests("recovery");
    let run = &recovery["recovery"]["runs"][0][0];
    assert!(run["seconds"].as_f64() < Some(0.25), "{}", recovery["recovery"]);
    let reset = tests("reset");
    let run = &reset["reset"]["runs"][0];
    assert_eq!(run["command"], "exit status: 0", "{}", reset["reset"]);
    assert_eq!(std::fs::read_to_string(&marker).unwrap_or_default(), "reset\n");
    assert!(!reset.to_string().contains("echo"), "the report does not contain the command");
    let _ = std::fs::remove_file(marker);
}

#[test]
fn services_and_soak_are_measured() {
    let Some(server) = Server::start() else { return };
    let limits = [("loss", json!("0.1%")), ("delay_ms", json!(5000)), ("variation_ms", json!(5000))];
    let service = |name: &str, cir: &str| {
        let mut one = json!({"name": name, "packet": "ip/udp", "size": 128, "cir": cir});
        limits.iter().for_each(|(key, value)| one[key] = value.clone());
        one
    };
    let both = json!([service("voice", "200kbps"), service("data", "400kbps")]);
    let report =
        measured(&server, json!({"method": "y1564", "size": null, "trial": 0.2, "performance": 1.5, "services": both}));
    let steps = report["services"].as_array().unwrap();
    assert!(
        steps.len() >= 8 && steps.iter().all(|step| step["verdict"] != "fail" || step["step"] == "policing"),
        "{report}"
    );
    let rows = report["performance"].as_array().unwrap();
    let sent = |row: usize| rows[row]["sent"].as_u64().unwrap_or(0) as f64;
    // 1.5 s of 195 and of 391 frames a second.
    assert!((sent(0) - 293.0).abs() < 3.0 && (sent(1) - 586.0).abs() < 3.0, "{rows:?}");
    let text = "[[service]]\nname = \"a\"\npacket = \"ip/udp\"\nsize = 128\ncir = \"100kbps\"\nloss = \"1%\"\n\
                delay_ms = 5000\nvariation_ms = 5000\n";
    let report =
        measured(&server, json!({"method": "y1564", "size": null, "trial": 0.1, "performance": 0, "services": text}));
    assert_eq!(report["performance"], Value::Null, "{report}");
    let report = measured(&server, json!({"method": "soak", "rate": "500pps", "duration": 2.5}));
    let soak = &report["sizes"][0]["soak"];
    assert_eq!(soak["lost"], 0, "{report}");
    // A busy machine sends late, which the report states.
    assert!(soak["verdict"] == "kept" || soak["verdict"] == "limited by the tester", "{report}");
    let minutes = soak["minutes"].as_array().unwrap();
    let sum: u64 = minutes.iter().map(|minute| minute["sent"].as_u64().unwrap()).sum();
    assert_eq!((soak["lossy_seconds"].as_array().unwrap().len(), soak["sent"].as_u64()), (0, Some(sum)), "{soak}");
    // No port measures here how late frames leave.
    assert_eq!(report["sizes"][0]["trials"][0]["lateness_p99_us"], Value::Null, "{report}");
}

/// A measurement that is stopped early has a report with its verdict.
#[test]
fn endless_soak_can_be_stopped() {
    let Some(server) = Server::start() else { return };
    server.post("/api/v1/measure", &asked(json!({"method": "soak", "rate": "200pps"})));
    let state = || server.ask("GET", "/api/v1/measure", b"").1["state"].clone();
    wait_until("a second has passed", || state()["seconds"].as_f64() > Some(1.5));
    server.post("/api/v1/measure/stop", &json!({}));
    wait_until("the measurement is done", || state()["is_running"] == false);
    let (_, measured) = server.ask("GET", "/api/v1/measure", b"");
    let soak = &measured["report"]["sizes"][0]["soak"];
    assert_eq!((&soak["verdict"], measured["report"]["state"].as_str()), (&json!("kept"), Some("done")), "{measured}");
    assert!(soak["sent"].as_u64() > Some(100), "{soak}");
}

#[test]
fn invalid_measurements_are_rejected() {
    let Some(server) = Server::start() else { return };
    for (wrong, what) in [
        (json!({"method": "rfc2544", "tests": "reset", "max": "1kpps"}), "--reset-with"),
        (json!({"method": "rfc2544", "tests": ["throughput", "reset"], "max": "1kpps"}), "--reset-with"),
        (json!({"method": "rfc2544", "tests": "reset", "reset-with": "reboot", "max": "1kpps"}), "--reset-with"),
        (json!({"reset-with": "reboot"}), "unknown field"),
        (json!({"method": "soak"}), "rate"),
        (json!({"method": "y1564"}), "services"),
        (json!({"method": "y1564", "services": "/etc/passwd"}), "services"),
        (json!({"method": "y1564", "services": []}), "services"),
        (json!({"method": "y1564", "services": [{"name": "a"}]}), "packet"),
        (
            json!({"method": "y1564", "services": [{"name": "a", "packet": "ip", "size": 64, "cir": "max", "loss": "0", "delay_ms": 1, "variation_ms": 1}]}),
            "expected a layer 2 rate",
        ),
        (json!({"method": "rfc2544", "trial": 1e12, "max": "1kpps"}), "trial"),
        (json!({"method": "rfc2544", "trial": "1e12", "max": "1kpps"}), "trial"),
        (json!({"method": "rfc2544", "burst-limit": 1e9, "max": "1kpps"}), "burst-limit"),
        (json!({"method": "mrr", "repeat": 100_000, "max": "1kpps"}), "repeat"),
    ] {
        let mut asked = json!({"to": "p1", "check": "p2"});
        asked.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let (status, answer) = server.ask("POST", "/api/v1/measure", asked.to_string().as_bytes());
        assert!(status == 400 && answer.to_string().contains(what), "{wrong}: {answer}");
    }
}
