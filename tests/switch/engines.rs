//! The verb with engines that inspect frames of some rules: between hosts, killed, and from a generator to a receiver.

use super::program::{account, ctl};
use linerate_tests::support::program::{Running, launch, run, start};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, may_make_labs, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// Number of engines to kill; `LINERATE_KILLS` overrides it.
const KILLS: u32 = 12;
/// Options of rings that hold all frames of these tests while a process is stopped.
const ROOMY: &str = "&ring=32MiB&timeout=1";
const DNS: &[&str] = &["-k", "ip/udp(sport=1000..1040, dport=53)", "-k", "ip/udp(sport=1000..1040, dport=80)"];

/// Host `a`, two ports of a switch in host `mid`, host `b`.
struct Scene {
    wire: Wire,
    scratch: Scratch,
    ring: String,
}

impl Scene {
    fn up() -> Option<Scene> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let ring = format!("switched-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let links = ["a:eth0,mid:p0,offloads=off", "b:eth0,mid:p1,offloads=off"];
        may_make_labs().then(|| Scene { wire: Wire::of(&links), scratch: Scratch::new(), ring })
    }

    fn socket(&self) -> String {
        self.scratch.file("control")
    }

    /// Starts a switch that inspects frames of this kind from port 1 and forwards all others to the other port.
    fn switch(&self, of: &str, options: &[&str]) -> Running {
        let ports = ["p0", "p1"].map(|port| self.wire.port("mid", port, ROOMY));
        let rule = format!("priority=9,{of},in_port=1,actions=inspect:{},output:2", self.ring);
        let (rest, socket) = ("priority=1,actions=normal", self.socket());
        let words = ["switch", &ports[0], &ports[1], "--inspect", &self.ring, "--rule", &rule, "--rule", rest];
        let switch = start(&[&words[..], &["--control", &socket, "--json"], options].concat());
        wait_until("the switch listens", || ctl(&socket, &["dump-ports"]).is_ok());
        switch
    }

    fn engine(&self, options: &[&str]) -> Running {
        launch(&[&["inspect", &format!("shm:{}", self.ring), "--json"], options].concat())
    }

    /// Starts a run from host a that checks packets at host b.
    fn send(&self, arguments: &[&str]) -> Running {
        let (to, check) = (self.wire.port("a", "eth0", ""), self.wire.port("b", "eth0", "&ring=32MiB&lanes=1"));
        launch(&[&["generate", "--json", "--to", &to, "--check", &check], arguments].concat())
    }
}

fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or_else(|| panic!("no {name} in {json:#}"))
}

fn by_fault(json: &Value) -> [u64; 4] {
    ["lost", "duplicated", "reordered", "corrupted"].map(|name| number(&json["check"], name))
}

/// Returns the verdict counters of the engine and checks every identity between them.
fn verdicts(json: &Value) -> Value {
    assert_eq!((&json["balanced"], &json["quiesced"]), (&true.into(), &true.into()), "{json:#}");
    let of = |name: &str| number(&json["engines"][0]["verdicts"], name);
    let dropped = of("blocked") + of("policy_dropped") + of("unfit") + of("no_block");
    assert_eq!(of("received"), of("passed") + of("replaced") + of("policy_passed") + dropped, "{json:#}");
    assert_eq!(of("policy_passed") + of("policy_dropped"), of("no_engine") + of("overload") + of("held_too_long"));
    json["engines"][0]["verdicts"].clone()
}

#[test]
fn blocked_frames_are_dropped_and_other_frames_bypass_the_engine() {
    let Some(scene) = Scene::up() else { return };
    // The budget allows for an engine that is descheduled on a busy machine.
    let switch = scene.switch("udp,tp_dst=53", &["--engine", "ids", "--budget", "5000"]);
    let ids = scene.engine(&["--name", "ids", "--drop", "udp src portrange 1000-1019"]);
    ids.wait_until_open();
    let sent = scene.send(&[DNS, &["-c", "4100", "--rate", "20kpps"]].concat()).end().good().json();
    let rule = format!("actions=inspect:{},output:2", scene.ring);
    let flows = ctl(&scene.socket(), &["dump-flows", "udp,tp_dst=53"]).unwrap();
    assert!(flows.contains(&rule) && flows.contains("n_packets=4100, "), "{flows}");
    // The output of dump-flows is valid input, and counters survive.
    let file = scene.scratch.file("rules");
    std::fs::write(&file, ctl(&scene.socket(), &["dump-flows"]).unwrap()).unwrap();
    ctl(&scene.socket(), &["replace-flows", &file]).unwrap();
    let again = ctl(&scene.socket(), &["dump-flows", "udp,tp_dst=53"]).unwrap();
    assert!(again.contains("n_packets=4100, "), "{again}");
    let unknown = ctl(&scene.socket(), &["add-flow", "ip,actions=inspect:nobody,output:2"]).unwrap_err();
    assert!(unknown.contains("no such ring; start linerate switch with --inspect NAME"), "{unknown}");
    let said = ids.interrupt().good().json();
    let json = switch.interrupt().good().json();
    let of = verdicts(&json);
    assert_eq!((by_fault(&sent), &sent["streams"][1]["check"]["lost"]), ([2000, 0, 0, 0], &0.into()), "{sent:#}");
    assert_eq!(
        [number(&of, "blocked"), number(&of, "passed"), number(&of, "received")],
        [2000, 2100, 4100],
        "{json:#}"
    );
    assert_eq!((number(&said, "blocked"), number(&said, "passed")), (2000, 2100), "{said:#}");
    let ring = account(&json, &scene.ring);
    assert_eq!((&ring["received"], &ring["delivered"]), (&2100.into(), &2100.into()), "{ring:#}");
}

/// The engine sees only the first frames of each flow; the switch drops the rest itself.
#[test]
fn blacklisted_flow_is_dropped_by_the_switch() {
    let Some(scene) = Scene::up() else { return };
    let switch = scene.switch("udp", &["--budget", "5000"]);
    let ids = scene.engine(&["--blacklist", "udp port 53"]);
    ids.wait_until_open();
    let sent = scene.send(&[DNS, &["-c", "4100", "--rate", "10kpps"]].concat()).end().good().json();
    ids.interrupt().good();
    let json = switch.interrupt().good().json();
    let (of, own) = (verdicts(&json), account(&json, ""));
    let listed = number(&own["drops"], "blacklisted");
    assert_eq!((by_fault(&sent), &sent["streams"][1]["check"]["lost"]), ([4100, 0, 0, 0], &0.into()), "{sent:#}");
    assert_eq!(listed + number(&of, "blocked"), 4100, "{json:#}");
    assert!(listed > 1000 && number(&of, "blocked") >= 41, "{json:#}");
}

/// Kills engines at random moments: policies apply without an engine, no frame is duplicated, order is kept.
fn killed(how: &str) {
    let Some(scene) = Scene::up() else { return };
    let kills = std::env::var("LINERATE_KILLS").ok().map_or(KILLS, |text| text.parse().expect("a number of kills"));
    let switch = scene.switch("udp", &["--on-death", how, "--on-overload", how, "--budget", "2000"]);
    let seconds = format!("{}", kills / 10 + 3);
    let sending = scene.send(&[DNS, &["--rate", "15kpps", "-T", &seconds]].concat());
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for kill in 0..kills {
        let ids = scene.engine(&["--drop", "udp port 53"]);
        // One in four is killed at any point, even before it opens; the others get time to decide on a busy machine.
        if kill % 4 != 3 {
            ids.wait_until_open();
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        thread::sleep(Duration::from_millis(20 + random % 80));
        ids.signal(Signal::KILL);
        let ended = ids.end();
        assert!(ended.status == -1, "the engine exited on its own: {}", ended.errors);
    }
    let sent = sending.end().good().json();
    let json = switch.interrupt().good().json();
    let of = verdicts(&json);
    let [lost, repeated, reordered, corrupted] = by_fault(&sent);
    let engines = number(&json["engines"][0], "engines");
    eprintln!("{kills} engines killed, {engines} of them returned verdicts: {of}");
    assert_eq!((repeated, reordered, corrupted), (0, 0, 0), "{sent:#}\n{json:#}");
    assert!(engines >= u64::from(kills) / 4 && number(&of, "no_engine") > 100, "{json:#}");
    if how == "open" {
        assert_eq!(lost, number(&of, "blocked"), "only blocked frames are lost: {sent:#}\n{json:#}");
        assert_eq!((number(&of, "policy_dropped"), number(&sent["streams"][1]["check"], "lost")), (0, 0), "{json:#}");
    } else {
        let dns = number(&sent["streams"][0]["check"], "received");
        assert_eq!(
            (dns, number(&of, "policy_passed")),
            (0, 0),
            "no frame passed without inspection: {sent:#}\n{json:#}"
        );
        assert_eq!(lost, number(&of, "blocked") + number(&of, "policy_dropped"), "{sent:#}\n{json:#}");
    }
    assert!(number(&of, "blocked") > 100 && number(&of, "passed") > 100, "{json:#}");
}

#[test]
fn killed_engines_with_fail_open_lose_no_frame() {
    killed("open");
}

#[test]
fn killed_engines_with_fail_closed_pass_no_frame() {
    killed("closed");
}

/// Invalid ring options and names are rejected.
#[test]
fn invalid_rings_are_rejected() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap");
    run(&["generate", "--to", &format!("pcap:{file}"), "--udp", "-c", "5"]).good();
    let (port, out) = (format!("pcap:{file}"), scratch.file("out"));
    let with = |words: &[&str]| run(&[&["switch", &port, "mem:x", "--out", &out][..], words].concat());
    with(&["--on-death", "open"]).with_status(2).says("--on-death needs --inspect");
    with(&["--inspect", "a,b"]).with_status(2).says("without commas and blanks");
    with(&["--inspect", "one", "--inspect", "one"]).with_status(2).says("invalid or duplicate name");
    with(&["--inspect", "shm:one"]).with_status(2).says("--inspect one");
    with(&["--rule", "actions=inspect:ids,2"]).with_status(2).says("start linerate switch with --inspect NAME");
}
