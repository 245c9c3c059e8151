//! `inline` and `inspect` between two hosts, with engines that are stopped and killed.

use linerate_tests::support::may_make_labs;
use linerate_tests::support::program::{Ended, Running, launch, linerate, spawn, start};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, has_tools, judge, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Default of `LINERATE_KILLS`, the number of engines to kill.
const KILLS: u32 = 20;
/// Rings large enough for all packets of these tests during a stall.
const ROOMY: &str = "&ring=32MiB&timeout=1";

/// Host `a`, two ports in host `mid`, host `b`.
pub(super) struct Scene(pub Wire);

impl Scene {
    pub(super) fn up() -> Option<Scene> {
        let links = ["a:eth0=10.81.0.1/24,mid:p0,offloads=off", "b:eth0=10.81.0.2/24,mid:p1,offloads=off"];
        may_make_labs().then(|| Scene(Wire::of(&links)))
    }

    pub(super) fn inline(&self, ring: &str, options: &[&str]) -> Running {
        let (one, other) = (self.0.port("mid", "p0", ROOMY), self.0.port("mid", "p1", ROOMY));
        start(&[&["inline", &one, &other, "--share", ring, "--json"], options].concat())
    }

    /// Starts to send from a to b, which checks the received packets.
    fn send(&self, arguments: &[&str]) -> Running {
        let (to, check) = (self.0.port("a", "eth0", ""), self.0.port("b", "eth0", "&ring=32MiB&lanes=1"));
        launch(&[&["generate", "--json", "--to", &to, "--check", &check], arguments].concat())
    }
}

pub(super) fn ring_name() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    format!("inline-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}

fn engine(ring: &str, options: &[&str]) -> Running {
    launch(&[&["inspect", &format!("shm:{ring}"), "--json"], options].concat())
}

/// Waits until the engine decides.
fn attached(engine: &Running) {
    engine.wait_until_open();
}

pub(super) fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or_else(|| panic!("no {name} in {json:#}"))
}

/// Returns the verdicts on frames from a to b, after checking all sums.
fn verdicts(json: &Value) -> Value {
    assert_eq!((&json["balanced"], &json["quiesced"]), (&true.into(), &true.into()), "{json:#}");
    for way in json["directions"].as_array().unwrap() {
        let of = |name: &str| number(&way["verdicts"], name);
        let sent = of("passed") + of("replaced") + of("policy_passed");
        let dropped = of("blocked") + of("policy_dropped") + of("unfit");
        assert_eq!(of("received"), sent + dropped, "{json:#}");
        assert_eq!(number(way, "frames"), sent, "{json:#}");
        assert_eq!(of("policy_passed") + of("policy_dropped"), of("no_engine") + of("overload") + of("held_too_long"));
    }
    json["directions"][0]["verdicts"].clone()
}

fn by_fault(json: &Value) -> [u64; 4] {
    ["lost", "duplicated", "reordered", "corrupted"].map(|name| number(&json["check"], name))
}

const DNS: &[&str] = &["-k", "ip/udp(sport=1000..1040, dport=53)", "-k", "ip/udp(sport=1000..1040, dport=80)"];

#[test]
fn blocked_frames_are_dropped_and_others_arrive() {
    let Some(scene) = Scene::up() else { return };
    let ring = ring_name();
    // On a busy machine an engine may stop for a while.
    let inline = scene.inline(&ring, &["--engine", "ids", "--budget", "5000", "--lossless"]);
    let refused = engine(&ring, &["--name", "other"]).end();
    assert!(refused.status == 1 && refused.errors.contains("called ids, not"), "{}", refused.errors);
    let ids = engine(&ring, &["--name", "ids", "--drop", "udp port 53"]);
    attached(&ids);
    let second = engine(&ring, &["--name", "ids"]).end();
    assert!(second.status == 1 && second.errors.contains("another engine is already attached"), "{}", second.errors);
    let sent = scene.send(&[DNS, &["-c", "4000", "--rate", "20kpps"]].concat()).end().good().json();
    let report = ids.interrupt().good().json();
    let json = inline.interrupt().good().json();
    let of = verdicts(&json);
    assert_eq!(by_fault(&sent), [4000, 0, 0, 0], "{sent:#}");
    assert_eq!(sent["streams"][1]["check"]["lost"], 0, "{sent:#}");
    // Neighbour discovery adds some packets.
    assert_eq!(number(&of, "blocked"), 4000, "{json:#}");
    assert_eq!((number(&of, "policy_dropped"), number(&of, "policy_passed")), (0, 0), "{json:#}");
    assert!(number(&of, "passed") >= 4000 && number(&json, "engines") == 1, "{json:#}");
    assert!(number(&report, "blocked") == 4000 && number(&report, "passed") >= 4000, "{report:#}");
}

/// `--lossless` counts frames dropped without an engine as loss.
#[test]
fn frames_dropped_by_the_policy_are_lost() {
    let Some(scene) = Scene::up() else { return };
    for (on_death, status) in [("closed", 3), ("open", 0)] {
        let inline = scene.inline(&ring_name(), &["--on-death", on_death, "--lossless"]);
        inline.wait_until_open();
        scene.send(&["--udp", "-c", "10"]).end().good();
        let ended = inline.interrupt();
        assert_eq!(ended.status, status, "{}", ended.output);
        assert!(number(&verdicts(&ended.json()), "no_engine") >= 10);
    }
}

#[test]
fn blacklisted_flow_is_not_inspected_again() {
    let Some(scene) = Scene::up() else { return };
    let ring = ring_name();
    let inline = scene.inline(&ring, &["--budget", "5000"]);
    let ids = engine(&ring, &["--blacklist", "udp port 53"]);
    attached(&ids);
    thread::sleep(Duration::from_millis(100));
    let sent = scene.send(&[DNS, &["-c", "4000", "--rate", "20kpps"]].concat()).end().good().json();
    let report = ids.interrupt().good().json();
    let json = inline.interrupt().good().json();
    let of = verdicts(&json);
    assert_eq!((by_fault(&sent), number(&of, "blocked")), ([4000, 0, 0, 0], 4000), "{sent:#}\n{json:#}");
    assert_eq!(sent["streams"][1]["check"]["lost"], 0, "{sent:#}");
    let (asked, listed) = (number(&report, "blocked"), number(&of, "listed"));
    assert!((41..3000).contains(&asked) && listed > 1000, "{asked} asked about, {listed} listed: {report:#}");
    assert_eq!((asked + listed, number(&report, "settled")), (4000, listed), "{report:#}");
}

/// Compiles the example in C with all warnings as errors.
#[test]
fn c_engine_decides() {
    let Some(scene) = Scene::up() else { return };
    let (ring, scratch) = (ring_name(), Scratch::new());
    let program = scratch.file("ring_engine");
    let flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2", "-I", "c", "-o", &program];
    let sources = ["examples/c/ring_engine.c", "c/linerate_ring.c"];
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let output = Command::new("cc").args(flags).args(sources).current_dir(root).output().expect("cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let inline = scene.inline(&ring, &["--budget", "5000", "--engine", "ring_engine"]);
    let engine = spawn(Command::new(&program).args([&ring, "53"]).stdout(Stdio::piped()));
    let maps = || std::fs::read_to_string(format!("/proc/{}/maps", engine.pid())).unwrap_or_default();
    wait_until("the engine has attached", || maps().contains("linerate-control"));
    thread::sleep(Duration::from_millis(100));
    let sent = scene.send(&[DNS, &["-c", "2000", "--rate", "20kpps"]].concat()).end().good().json();
    let json = inline.interrupt().good().json();
    let (of, engine) = (verdicts(&json), engine.end().good());
    assert_eq!((by_fault(&sent), number(&of, "blocked")), ([2000, 0, 0, 0], 2000), "{sent:#}\n{json:#}");
    assert!(number(&of, "passed") >= 2000 && engine.output == "2000 blocked\n", "{json:#}");
    // A ring without verdicts rejects engines.
    let mut sharing = linerate(&["capture", "-r", "-", "--share", &ring, "-q"]);
    let sharing = spawn(sharing.stdin(Stdio::piped()).stdout(Stdio::null()));
    sharing.wait_until_open();
    let refused = Command::new(&program).args([&ring, "53"]).output().expect("the engine");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no verdicts are wanted"), "{refused:?}");
}

/// Frames that arrive without an engine, and frames in flight when the engine is killed: with `open` every one passes,
/// once and in order; with `closed` none passes without a verdict.
fn killed(how: &str) {
    let Some(scene) = Scene::up() else { return };
    let ring = ring_name();
    // A starting engine may be slow on a busy machine, hence the large budget: this test is about killed engines.
    let inline = scene.inline(&ring, &["--on-death", how, "--on-overload", how, "--budget", "2000"]);
    let sending = scene.send(&[DNS, &["--rate", "15kpps", "-T", "3600"]].concat());
    let longest = kill(how, &ring, inline, sending);
    if how == "open" {
        judge(longest <= 20.0, &format!("maximum latency {longest:.1} ms while engines were killed"));
    }
}

/// The same at full rate over memif, which loses nothing: a full ring blocks its sender.
fn killed_at_full_rate(how: &str) {
    let (ring, names) = (ring_name(), [ring_name(), ring_name()]);
    let [one, other] = names.each_ref().map(|name| format!("memif:{name}?role=server"));
    // Little memory, so that even a slow engine never has a queue longer than its budget.
    let small = ["--share-memory", "8MiB", "--share-block", "512KiB", "--budget", "2000"];
    let options = ["inline", &one, &other, "--share", &ring, "--json", "--on-death", how, "--on-overload", how];
    let inline = start(&[&options[..], &small].concat());
    let [to, from] = names.map(|name| format!("memif:{name}"));
    let sending =
        launch(&[&["generate", "--json", "--to", &to, "--check", &from, "--rate", "max", "-T", "3600"], DNS].concat());
    kill(how, &ring, inline, sending);
}

/// Kills engines while frames pass, checks all verdicts, and returns the maximum latency in milliseconds.
fn kill(how: &str, ring: &str, inline: Running, sending: Running) -> f64 {
    let kills = std::env::var("LINERATE_KILLS").ok().map_or(KILLS, |text| text.parse().expect("a number of kills"));
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for kill in 0..kills {
        let ids = engine(ring, &["--drop", "udp port 53"]);
        // Every fourth is killed at any point of its start; the others decide first, also on a busy machine.
        if kill % 4 != 3 {
            attached(&ids);
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        thread::sleep(Duration::from_millis(20 + random % 80));
        ids.signal(Signal::KILL);
        let ended = ids.end();
        assert!(ended.status == -1, "the engine ended by itself: {}", ended.errors);
    }
    let sent = sending.interrupt().good().json();
    let json = inline.interrupt().good().json();
    let of = verdicts(&json);
    let [lost, repeated, reordered, corrupted] = by_fault(&sent);
    let engines = number(&json, "engines");
    let longest = number(&sent["check"], "latency_max_ns") as f64 / 1e6;
    eprintln!("{how}: {kills} killed, {engines} of them decided; maximum latency {longest:.1} ms: {of}");
    assert_eq!((repeated, reordered, corrupted), (0, 0, 0), "{sent:#}\n{json:#}");
    assert!(engines >= u64::from(kills) / 4 && number(&of, "no_engine") > 100, "{json:#}");
    let dns = number(&sent["streams"][0]["check"], "received");
    if how == "open" {
        assert_eq!(lost, number(&of, "blocked"), "frames that were not blocked are missing: {sent:#}\n{json:#}");
        assert_eq!((number(&of, "policy_dropped"), number(&sent["streams"][1]["check"], "lost")), (0, 0), "{json:#}");
    } else {
        assert_eq!((dns, number(&of, "policy_passed")), (0, 0), "frames passed without a verdict: {sent:#}\n{json:#}");
        assert_eq!(lost, number(&of, "blocked") + number(&of, "policy_dropped"), "{sent:#}\n{json:#}");
    }
    // An engine has decided on both kinds of frames.
    assert!(number(&of, "blocked") > 100 && number(&of, "passed") > 100, "{json:#}");
    longest
}

#[test]
fn killed_engines_lose_no_frame_with_open() {
    killed("open");
}

#[test]
fn killed_engines_pass_no_frame_with_closed() {
    killed("closed");
}

#[test]
fn killed_engines_at_full_rate_lose_no_frame_with_open() {
    killed_at_full_rate("open");
}

#[test]
fn killed_engines_at_full_rate_pass_no_frame_with_closed() {
    killed_at_full_rate("closed");
}

/// A stopped engine is not dead: the overload policy applies to frames that it does not decide in time, and it resumes
/// afterwards.
#[test]
fn stopped_engine_is_overload_not_death() {
    let Some(scene) = Scene::up() else { return };
    let ring = ring_name();
    let inline = scene.inline(&ring, &["--on-death", "closed", "--on-overload", "open", "--budget", "100"]);
    let ids = engine(&ring, &[]);
    attached(&ids);
    let sending = scene.send(&["-k", "ip/udp(sport=1000..1040)", "-c", "20000", "--rate", "10kpps"]);
    thread::sleep(Duration::from_millis(500));
    let started = Instant::now();
    ids.signal(Signal::STOP);
    thread::sleep(Duration::from_millis(600));
    ids.signal(Signal::CONT);
    let stopped = started.elapsed();
    let sent = sending.end().good().json();
    ids.interrupt().good();
    let json = inline.interrupt().good().json();
    let of = verdicts(&json);
    assert_eq!(by_fault(&sent), [0; 4], "{sent:#}\n{json:#}");
    assert_eq!((number(&of, "no_engine"), number(&of, "policy_dropped")), (0, 0), "{json:#}");
    assert!(number(&of, "overload") > 1000 && number(&of, "passed") > 1000, "{json:#}");
    let longest = number(&sent["check"], "latency_max_ns");
    judge(longest < 400_000_000, &format!("maximum latency {longest} ns; the engine was stopped for {stopped:?}"));
}

/// An engine written only from the numbers of the format: invalid answers evict it, and lose no frame.
#[test]
fn engine_with_invalid_answers_is_evicted() {
    if !has_tools(&["python3"]) {
        return;
    }
    for how in ["correct", "seven", "settled", "ahead", "back", "scribble", "returns", "unsaid"] {
        let Some(scene) = Scene::up() else { return };
        let ring = ring_name();
        let inline = scene.inline(&ring, &["--on-death", "open", "--on-overload", "open", "--budget", "3000"]);
        let mut liar = Command::new("python3");
        let liar = spawn(
            liar.args([concat!(env!("CARGO_MANIFEST_DIR"), "/inline/liar.py"), &ring, how]).stdout(Stdio::piped()),
        );
        let maps = || std::fs::read_to_string(format!("/proc/{}/maps", liar.pid())).unwrap_or_default();
        wait_until("the engine has attached", || maps().contains("linerate-control"));
        let sent = scene.send(&["-k", "ip/udp(sport=1000..1040)", "--size", "1500", "-c", "3000", "--rate", "5kpps"]);
        let sent = sent.end().good().json();
        let json = inline.interrupt().good().json();
        let (of, liar) = (verdicts(&json), liar.end());
        let [lost, duplicated, reordered, corrupted] = by_fault(&sent);
        // Other flows overtake a frame that is held.
        assert_eq!([lost, duplicated, corrupted], [0; 3], "{how}: {sent:#}\n{json:#}");
        assert!(reordered == 0 || how == "unsaid", "{how}: {sent:#}\n{json:#}");
        let events = json["events"].to_string();
        if how == "correct" {
            assert_eq!((number(&of, "no_engine"), json["events"].as_array().map(Vec::len)), (0, Some(0)), "{json:#}");
            assert!(liar.output.contains("hung up"), "{}", liar.output);
        } else {
            assert!(number(&of, "no_engine") > 100, "{how}: {json:#}");
            assert!(events.contains("it broke the protocol") && liar.output.contains("evicted"), "{how}: {events}");
        }
    }
}

/// The log reports each attach and detach of an engine at once, and the policy for frames without one.
#[test]
fn attach_and_detach_of_engines_are_reported_at_once() {
    let Some(scene) = Scene::up() else { return };
    let ring = ring_name();
    let (one, other) = (scene.0.port("mid", "p0", ROOMY), scene.0.port("mid", "p1", ROOMY));
    let mut inline = start(&["inline", &one, &other, "--share", &ring, "--on-death", "open", "--interval", "0"]);
    let heard = inline.collect_errors();
    let count = |what: &str| heard.lock().unwrap().matches(what).count();
    for round in 1..=2 {
        let ids = engine(&ring, &["--name", "ids"]);
        let attached = format!("s  engine ids (pid {}) attached", ids.pid());
        let detached = format!("s  engine ids (pid {}) detached: ", ids.pid());
        wait_until("the attach is reported", || count(&attached) == 1);
        assert_eq!(count(&detached), 0);
        match round {
            1 => drop(ids.interrupt().good()),
            _ => {
                ids.signal(Signal::KILL);
                ids.end();
            }
        }
        wait_until("the detach is reported", || count(&detached) == 1);
        assert_eq!(count("pending and all new frames pass until an engine attaches"), round);
    }
    inline.interrupt().good();
    assert_eq!(heard.lock().unwrap().matches("engine ids").count(), 4, "each once: {}", heard.lock().unwrap());
}

/// An engine is the process that attached: it is dead even if its children keep the socket.
#[test]
fn engine_is_dead_although_its_child_lives() {
    if !has_tools(&["python3"]) {
        return;
    }
    let (ring, names) = (ring_name(), [ring_name(), ring_name()]);
    let [one, other] = names.map(|name| format!("memif:{name}?role=server"));
    let mut inline = start(&["inline", &one, &other, "--share", &ring, "--interval", "0"]);
    let heard = inline.collect_errors();
    let contains = |what: &str| heard.lock().unwrap().contains(what);
    let mut liar = Command::new("python3");
    let liar = liar.args([concat!(env!("CARGO_MANIFEST_DIR"), "/inline/liar.py"), &ring, "forks"]);
    let mut liar = spawn(liar.stdout(Stdio::piped()));
    let mut lines = BufReader::new(liar.take_output().unwrap()).lines().map_while(Result::ok);
    let name = format!("engine liar (pid {})", liar.pid());
    wait_until("the attach is reported", || contains(&format!("{name} attached")));
    assert!(lines.any(|line| line == "child waits"));
    liar.signal(Signal::KILL);
    wait_until("the detach is reported", || contains(&format!("{name} detached")));
    assert!(lines.any(|line| line == "child hung up"));
    liar.end();
    inline.interrupt().good();
}

#[test]
fn usage_errors_are_reported_before_ports_are_opened() {
    for (arguments, expected) in [
        (&["inline", "packet:x?netns=y", "packet:x?netns=y", "--share", "r"][..], "is given twice"),
        (&["inline", "packet:x?netns=y", "packet:z?netns=y", "--share", "r", "--hold=-1"], "invalid duration"),
        (
            &["inline", "packet:x?netns=y", "packet:z?netns=y", "--share", "shm:r"],
            "expected the name without shm:, such as --share r",
        ),
        (&["capture", "packet:x?netns=y", "--share", "shm:r"], "expected the name without shm:, such as --share r"),
        (
            &["receive", "packet:x?netns=y", "--tcp", "10.0.0.9:1", "--share", "shm:r"],
            "expected the name without shm:, such as --share r",
        ),
        (&["frames", "shm:r"], "expected the name without shm:, such as frames r"),
        (&["inspect", "pcap:x"], "expected shm:NAME"),
        (&["inspect", "shm:r", "--drop", "udp prot 53"], "syntax error"),
    ] {
        let ended: Ended = Ended::of(linerate(arguments).stdin(Stdio::null()).output().unwrap());
        assert!(ended.status == 2 && ended.errors.contains(expected), "{arguments:?}: {}", ended.errors);
    }
    let ring = ring_name();
    let absent = engine(&ring, &[]).end();
    let wanted = format!("{ring}: not shared; start linerate inline PORT PORT --share {ring}");
    assert!(absent.status == 1 && absent.errors.contains(&wanted), "{}", absent.errors);
    // A ring without verdicts.
    let mut sharing = linerate(&["capture", "-r", "-", "--share", &ring, "-q"]);
    let sharing = spawn(sharing.stdin(Stdio::piped()).stdout(Stdio::null()));
    sharing.wait_until_open();
    let refused = engine(&ring, &[]).end();
    assert!(refused.status == 1 && refused.errors.contains("no verdicts are wanted"), "{}", refused.errors);
}
