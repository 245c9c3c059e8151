//! `lab`, ports inside a host, `demo`.

use linerate_tests::support::program::{Ended, launch, program, run};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, frames, has_tools, may_make_labs, records, tool, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Command;

/// Takes a lab down at the end of a test, also after a panic.
struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        run(&["lab", "down", "--name", &self.0]);
    }
}

fn listed(name: &str) -> Option<Value> {
    let json = run(&["lab", "list", "--json"]).good().json();
    assert_eq!(json["schema"], "linerate/labs/1");
    json["labs"].as_array().unwrap().iter().find(|lab| lab["name"] == name).cloned()
}

#[test]
fn lab_goes_up_runs_commands_and_goes_down() {
    if !may_make_labs() {
        return;
    }
    let name = format!("e2e-{}", std::process::id());
    let lab = Named(name.clone());
    let up = ["lab", "up", "--name", &name, "--link", "left:eth0=10.78.0.1/24,right:eth0,queues=2,mtu=9000"];
    assert!(run(&up).good().output.contains(&format!("{name}-left")));
    assert!(run(&up).good().output.contains("(unchanged)"));
    let other = ["lab", "up", "--name", &name, "--link", "left:eth0,elsewhere:eth0"];
    run(&other).with_status(1).says(&name);
    let found = listed(&name).expect("the lab");
    assert_eq!((&found["hosts"], &found["links"], &found["alive"]), (&2.into(), &1.into(), &true.into()));

    let inside = ["lab", "run", "--name", &name, "left", "--"];
    let shown = run(&[&inside[..], &["ip", "-br", "address"]].concat()).good().output;
    assert!(shown.contains("eth0") && shown.contains("10.78.0.1/24"), "{shown}");
    run(&[&inside[..], &["sh", "-c", "exit 42"]].concat()).with_status(42);
    run(&[&inside[..], &["sh", "-c", "kill -TERM $$"]].concat()).with_status(-1);
    run(&["lab", "run", "--name", &name, "nobody", "--", "true"]).with_status(1).says("left, right");
    run(&["lab", "run", "--name", &name, "left"]).with_status(2);

    run(&["lab", "down", "--name", &name]).good();
    assert!(listed(&name).is_none());
    assert!(!tool("ip", &["netns", "list"]).contains(&name));
    run(&["lab", "down", "--name", &name]).with_status(1).says("no such lab");
    drop(lab);
}

#[test]
fn ports_of_a_host_are_listed_with_their_backends() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0,b:eth0,queues=3,mtu=4000"]);
    wire.ip("b", &["link", "set", "eth0", "down"]);
    let json = run(&["ports", "--json", "--netns", &wire.namespace("b")]).good().json();
    assert_eq!(json["netns"], wire.namespace("b"));
    let port = json["interfaces"].as_array().unwrap().iter().find(|one| one["port"] == "eth0").unwrap().clone();
    assert_eq!((&port["driver"], &port["mtu_bytes"], &port["link"]), (&"veth".into(), &4000.into(), &"down".into()));
    assert_eq!((&port["rx_queues"], &port["tx_queues"]), (&3.into(), &3.into()));
    let verdict = port["backends"].as_array().unwrap().iter().find(|one| one["backend"] == "packet").unwrap();
    assert_eq!(verdict["works"], false);
    assert!(verdict["reason"].as_str().unwrap().contains("down"));
    for verb in ["capture", "count", "flows"] {
        let port = format!("packet:eth0?netns={}", wire.namespace("b"));
        run(&[verb, &port, "-T", "0.1"]).good().says(&format!(
            "{port}: interface is down; bring it up with: ip -n {} link set eth0 up",
            wire.namespace("b")
        ));
    }
    let port = format!("xdp:eth0?netns={}", wire.namespace("b"));
    run(&["capture", &port, "-T", "0.1"]).good().says("interface is down; bring it up");
    wire.ip("b", &["link", "set", "eth0", "up"]);
    let text = run(&["ports", "--netns", &wire.namespace("b")]).good().output;
    assert!(text.contains("packet:eth0  supported"), "{text}");
    run(&["ports", "--netns", "no-such-namespace"]).with_status(1).says("no-such-namespace");
}

/// Interfaces are those of the program's namespace; `/sys` may show those of another.
#[test]
fn interfaces_are_distinguished_from_filter_text() {
    if !may_make_labs() || !has_tools(&["unshare"]) {
        return;
    }
    let script = "ip link add inside7 type veth peer name inside8 && ip link set inside7 up && ip link set inside8 up && \
                  exec \"$0\" count inside7 inside8 udp -T 0.1 --json --interval 0";
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", script]).arg(program());
    let ended = Ended::of(command.output().expect("unshare")).good();
    let ports: Vec<Value> = ended.json()["by_port"].as_array().unwrap().iter().map(|one| one["port"].clone()).collect();
    assert_eq!(ports, ["packet:inside7", "packet:inside8"]);
}

#[test]
fn demo_loses_nothing_and_removes_its_lab() {
    if !may_make_labs() {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("sample.pcap");
    records::write(&file, &frames::sample());
    let demo = launch(&["demo", "--replay", &file]);
    let lab = format!("t{}-0", demo.pid());
    let ended = demo.end().good();
    let last = ended.output.lines().last().unwrap();
    assert!(last.starts_with("sent = captured, 0 lost"), "{}", ended.output);
    assert!(ended.output.contains("packets captured, 0 lost"));
    assert!(listed(&lab).is_none());

    let kept = scratch.file("kept");
    let json = run(&["demo", "--json", "--keep", &kept, "--replay", &file]).good().json();
    assert_eq!(json["ok"], true, "{json}");
    assert!(std::fs::read_dir(&kept).unwrap().count() >= 2);
}

#[test]
fn killed_demo_leaves_only_a_removable_lab() {
    if !may_make_labs() {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("sample.pcap");
    records::write(&file, &frames::sample());
    let demo = launch(&["demo", "--replay", &file]);
    let pid = demo.pid();
    let lab = Named(format!("t{pid}-0"));
    wait_until("the lab is up", || listed(&lab.0).is_some_and(|lab| lab["alive"] == true));
    std::thread::sleep(std::time::Duration::from_millis(100));
    demo.signal(Signal::KILL);
    assert_eq!(demo.end().status, -1);
    let left = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let left: Vec<_> =
        left.filter(|entry| entry.file_name().to_string_lossy().contains(&format!("demo-{pid}"))).collect();
    assert!(left.is_empty(), "{left:?}");
    // Creating another lab may already have removed it.
    if let Some(found) = listed(&lab.0) {
        assert_eq!(found["temporary"], true);
    }
    run(&["lab", "down", "--name", &lab.0]);
    assert!(listed(&lab.0).is_none());
    assert!(!tool("ip", &["netns", "list"]).contains(&lab.0));
}
