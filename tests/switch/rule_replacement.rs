//! All rules of a switch are replaced under traffic: no frame is lost, and the longest gap is reported.

use super::program::ctl;
use linerate_tests::support::program::start;
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, judge, may_make_labs, records, wait_until};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

const RULES: u32 = 65_536;
/// Minimum duration of the traffic, and minimum number of replacements.
const MIN_DURATION: Duration = Duration::from_secs(4);
const MIN_REPLACEMENTS: u32 = 2;

/// Every frame matches one rule of each set, and both sets send it to port 2; without a match it would be dropped.
fn rules(scratch: &Scratch, field: &str) -> String {
    let file = scratch.file(field);
    let lines = (0..RULES).map(|port| format!("priority=7,udp,in_port=1,{field}={port},actions=output:2\n"));
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    file
}

#[test]
fn replacing_thousands_of_rules_loses_no_frame() {
    if !may_make_labs() {
        return;
    }
    let links = ["a:eth0,mid:p0,offloads=off", "b:eth0,mid:p1,offloads=off"];
    let (wire, scratch) = (Wire::of(&links), Scratch::new());
    let [socket, file] = ["control", "came.pcap"].map(|name| scratch.file(name));
    let sets = ["tp_dst", "tp_src"].map(|field| rules(&scratch, field));
    let port = |host, interface| wire.port(host, interface, "&ring=32MiB&block=64KiB&timeout=1");
    let switch =
        start(&["switch", &port("mid", "p0"), &port("mid", "p1"), "--rules", &sets[0], "--control", &socket, "--json"]);
    wait_until("the switch listens", || Path::new(&socket).exists() && ctl(&socket, &["dump-ports"]).is_ok());
    let capture =
        start(&["capture", "-i", &port("b", "eth0"), "-w", &file, "-f", "udp dst portrange 2000-6095", "--json"]);
    capture.wait_until_open();
    let (to, check) = (wire.port("a", "eth0", ""), wire.port("b", "eth0", "&ring=32MiB&lanes=1"));
    let flows = "ip/udp(sport=1000..5095,dport=2000..6095)";
    let sender =
        start(&["generate", "--json", "--to", &to, "--check", &check, "-k", flows, "-c", "1000000", "--rate", "4kpps"]);
    sender.wait_until_open();
    let (began, mut replaced) = (Instant::now(), 0);
    while replaced < MIN_REPLACEMENTS || began.elapsed() < MIN_DURATION {
        replaced += 1;
        ctl(&socket, &["replace-flows", &sets[replaced as usize % 2]]).unwrap();
    }
    let sent = sender.interrupt().good().json();
    let json = switch.interrupt().good().json();
    capture.interrupt().good();
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{sent:#}\n{json:#}"));
    let (frames, check) = (number(&sent["frames"]), &sent["streams"][0]["check"]);
    assert!(frames > 4000, "{sent:#}");
    assert_eq!((number(&check["received"]), number(&sent["check"]["lost"])), (frames, 0), "{sent:#}\n{json:#}");
    assert_eq!(json["ports"][1]["port_full"], 0, "{json:#}");
    assert_eq!(json["rules"].as_array().map(Vec::len), Some(RULES as usize));
    let times: Vec<u64> = records::read(&file).iter().map(|record| record.time).collect();
    assert_eq!(times.len() as u64, frames, "every frame was captured");
    let gap = times.windows(2).map(|two| Duration::from_nanos(two[1].saturating_sub(two[0]))).max().unwrap();
    println!("{RULES} rules were replaced {replaced} times under {frames} frames: longest gap {gap:?}");
    judge(gap < Duration::from_millis(250), &format!("gap of {gap:?} while {RULES} rules were replaced"));
}
