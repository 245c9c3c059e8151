//! `linerate doctor` on ports of the tests: findings, fixes, and restoring the settings.

use linerate_tests::support::program::{Ended, linerate, program, run};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, has_tools, may_make_labs, tool, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::process::{Child, Command, Stdio};

/// Finding of a check, of a port or (`None`) of the machine.
fn finding<'a>(document: &'a Value, port: Option<&str>, check: &str) -> &'a Value {
    let findings = document["findings"].as_array().unwrap();
    let is_it = |one: &&Value| one["check"] == check && one["port"].as_str() == port;
    findings.iter().find(is_it).unwrap_or_else(|| panic!("no {check}: {document}"))
}

/// Returns true if GRO is on at a host's end of a wire, as reported by ethtool.
fn has_gro(wire: &Wire, host: &str) -> bool {
    let features = tool("ip", &["netns", "exec", &wire.namespace(host), "ethtool", "-k", "eth0"]);
    features.lines().any(|line| line.starts_with("generic-receive-offload: on"))
}

fn set_gro(wire: &Wire, host: &str, to: &str) {
    tool("ip", &["netns", "exec", &wire.namespace(host), "ethtool", "-K", "eth0", "gro", to]);
}

fn can_try() -> bool {
    may_make_labs() && has_tools(&["ethtool", "tc"])
}

/// Only one `doctor --fix` may run per machine: such tests take turns, also between processes.
fn turn() -> File {
    let path = std::env::temp_dir().join("linerate-tests-doctor-fix.lock");
    let file = File::options().create(true).truncate(false).write(true).open(path).unwrap();
    file.lock().unwrap();
    file
}

/// A running program.
struct Program(Child);

impl Program {
    fn start(arguments: &[&str]) -> Program {
        let mut command = linerate(arguments);
        Program(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn end_by(self, signal: Signal) -> Ended {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
        Ended::of(self.0.wait_with_output().unwrap())
    }
}

#[test]
fn machine_is_checked_without_a_port() {
    let json = run(&["doctor", "--json"]).good().json();
    assert_eq!(json["schema"], "linerate/doctor/1");
    for check in ["kernel", "processors", "memory", "clock-source", "softirq", "rights"] {
        let severity = finding(&json, None, check)["severity"].as_str().unwrap();
        assert!(["ok", "note", "warning", "error"].contains(&severity), "{check}: {severity}");
    }
    let text = run(&["doctor"]).good().output;
    assert!(text.starts_with("machine\n") && text.trim_end().ends_with(" ok"), "{text}");
    let scratch = Scratch::new();
    let folder = scratch.file("");
    let json = run(&["doctor", "lo", "--dir", &folder, "--json"]).good().json();
    assert!(finding(&json, None, "folder")["now"].as_str().unwrap().contains("GB free"), "{json}");
    assert!(finding(&json, Some("packet:lo"), "uses")["now"].as_str().unwrap().contains("127.0.0.1"), "{json}");
}

#[test]
fn ports_that_cannot_be_checked_are_errors() {
    run(&["doctor", "no-such-one"]).with_status(1).says("no such interface");
    run(&["doctor", "pcap:x"]).with_status(1).says("not an interface of this host");
    run(&["doctor", "packet:"]).with_status(2);
    run(&["doctor", "--dir", "/no/such/folder"]).with_status(1).says("no such directory");
    run(&["doctor", "--fix"]).with_status(2).says("--fix needs a port");
    run(&["doctor", "lo", "--", "true"]).with_status(2).says("needs --fix");
    run(&["doctor", "lo", "--yes"]).with_status(2).says("--yes needs --fix or --self-test");
    run(&["doctor", "lo", "--json", "--verbose"]).with_status(2);
    run(&["doctor", "lo", "--json", "--fix"]).with_status(2);
}

#[test]
fn findings_about_a_port_are_named() {
    if !can_try() {
        return;
    }
    let wire = Wire::of(&["a:eth0,b:eth0,queues=2"]);
    set_gro(&wire, "a", "on");
    let (port, netns) = (wire.port("a", "eth0", ""), wire.namespace("a"));
    tool("tc", &["-n", &netns, "qdisc", "add", "dev", "eth0", "clsact"]);
    let json = run(&["doctor", &port, "--json"]).good().json();
    let of = |check: &str| finding(&json, Some(&port), check).clone();
    assert_eq!(of("gro")["severity"], "warning");
    assert_eq!(of("gro")["fix"][0], format!("ip netns exec {netns} ethtool -K eth0 rx-gro off"));
    assert_eq!(of("gro")["fixed_by_fix"], true);
    assert_eq!(of("xdp-program")["severity"], "ok");
    assert!(of("driver")["now"].as_str().unwrap().starts_with("veth"));
    assert!(of("queues")["now"].as_str().unwrap().starts_with("2 of "));
    assert!(of("tc")["now"].as_str().unwrap().contains("clsact"));
    assert!(of("peer")["now"].as_str().unwrap().contains("another namespace"));
    assert_eq!(of("stamps")["severity"], "ok");
    // Files in /sys are those of the namespace.
    assert!(of("steering")["now"].as_str().unwrap().starts_with("RPS on 0 queues"));
    let rps = format!("ip netns exec {netns} sh -c 'echo 1 > /sys/class/net/eth0/queues/rx-1/rps_cpus'");
    tool("sh", &["-c", &rps]);
    let json = run(&["doctor", &port, "--json"]).good().json();
    assert!(finding(&json, Some(&port), "steering")["now"].as_str().unwrap().starts_with("RPS on 1 queue"), "{json}");
    // xdp: receives packets before GRO merges them.
    let xdp = port.replace("packet:", "xdp:");
    let json = run(&["doctor", &xdp, "--json"]).good().json();
    assert_eq!(finding(&json, Some(&xdp), "gro")["severity"], "ok");
    wire.ip("a", &["link", "set", "eth0", "down"]);
    run(&["doctor", &port]).good().shows("error    link: down").shows("link set eth0 up");
}

/// Datagrams that a full socket buffer drops after they crossed every interface.
#[test]
fn socket_buffer_drops_are_found() {
    if !can_try() {
        return;
    }
    let wire = Wire::of(&["a:eth0,b:eth0"]);
    let netns = wire.namespace("a");
    let look = || {
        let program = program();
        let text = tool("ip", &["netns", "exec", &netns, program.to_str().unwrap(), "doctor", "--json"]);
        finding(&serde_json::from_str(&text).unwrap(), None, "udp").clone()
    };
    assert_eq!(look()["severity"], "ok");
    let script = "import socket as s; r = s.socket(s.AF_INET, s.SOCK_DGRAM); r.setsockopt(s.SOL_SOCKET, s.SO_RCVBUF, 4096); \
                  r.bind(('127.0.0.1', 0)); t = s.socket(s.AF_INET, s.SOCK_DGRAM); \
                  [t.sendto(b'x' * 1000, r.getsockname()) for _ in range(1000)]";
    tool("ip", &["netns", "exec", &netns, "python3", "-c", script]);
    let udp = look();
    assert_eq!(udp["severity"], "error", "{udp}");
    assert!(udp["now"].as_str().unwrap().contains("Udp.RcvbufErrors 9"), "{udp}");
}

#[test]
fn xdp_program_of_another_process_is_found() {
    if !can_try() {
        return;
    }
    let wire = Wire::new();
    let port = wire.port("b", "eth0", "").replace("packet:", "xdp:");
    let holder = Program::start(&["capture", &port, "--quiet"]);
    let found = || finding(&run(&["doctor", &port, "--json"]).good().json(), Some(&port), "xdp-program").clone();
    wait_until("the program is attached", || found()["severity"] == "error");
    let busy = found();
    assert!(
        busy["now"].as_str().unwrap().ends_with(" in the driver")
            && busy["fix"][0].as_str().unwrap().ends_with("xdp off"),
        "{busy}"
    );
    holder.end_by(Signal::INT).good();
}

#[test]
fn fixes_for_a_command_are_restored() {
    if !can_try() {
        return;
    }
    let _turn = turn();
    let wire = Wire::new();
    set_gro(&wire, "b", "on");
    let (port, netns) = (wire.port("b", "eth0", ""), wire.namespace("b"));
    let inside = format!("ip netns exec {netns} ethtool -k eth0 | grep generic-receive; exit 7");
    let ended = run(&["doctor", &port, "--fix", "--", "sh", "-c", &inside]).with_status(7);
    assert!(ended.output.contains("generic-receive-offload: off"), "{}", ended.output);
    // The plan is printed before the fixes.
    let places: Vec<usize> = ["restored at the end:", "fixed: ", "restored: "]
        .iter()
        .map(|text| ended.errors.find(text).unwrap_or_else(|| panic!("{text}: {}", ended.errors)))
        .collect();
    assert!(places.is_sorted(), "{}", ended.errors);
    assert!(has_gro(&wire, "b"));
    run(&["doctor", &port, "--fix", "--", "/no/such/command"]).with_status(1).says("cannot run /no/such/command");
    assert!(has_gro(&wire, "b"), "not restored after the command could not be run");
    // It is not an error if nothing needs fixing.
    set_gro(&wire, "b", "off");
    run(&["doctor", &port, "--fix", "--", "true"]).good();
    assert!(!has_gro(&wire, "b"), "a setting that was off before stays off");
}

#[test]
fn signals_restore_all_settings() {
    if !can_try() {
        return;
    }
    let _turn = turn();
    let wire = Wire::new();
    set_gro(&wire, "b", "on");
    let port = wire.port("b", "eth0", "");
    let no_command = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].map(|signal| (signal, false));
    for (signal, command) in no_command.into_iter().chain([(Signal::TERM, true)]) {
        let rest: &[&str] = if command { &["--", "sleep", "60"] } else { &[] };
        let running = Program::start(&[&["doctor", &port, "--fix"], rest].concat());
        wait_until("GRO is off", || !has_gro(&wire, "b"));
        // A second instance would restore settings of the first.
        run(&["doctor", &port, "--fix", "--", "true"]).with_status(1).says("another linerate doctor --fix runs");
        assert!(!has_gro(&wire, "b"));
        let ended = running.end_by(signal);
        // A command killed by a signal gives status 128 + signal, as in a shell.
        assert_eq!(ended.status, if command { 128 + 15 } else { 0 }, "{}", ended.errors);
        assert!(has_gro(&wire, "b"), "{signal:?}: {}", ended.errors);
    }
}

#[test]
fn self_test_reports_loss_and_corruption() {
    if !can_try() {
        return;
    }
    run(&["doctor", "--self-test"])
        .good()
        .shows("20,000 sent, 20,000 received, 0 lost")
        .shows("passed: every packet arrived once, unchanged\n");
    let wire = Wire::new();
    let (one, other) = (wire.port("a", "eth0", ""), wire.port("b", "eth0", ""));
    let json = run(&["doctor", "--self-test", "--json", &one, &other]).good().json();
    assert_eq!((&json["self_test"]["ok"], &json["self_test"]["received"]), (&true.into(), &20_000.into()), "{json}");
    assert!(json["self_test"]["latency_min_ns"].as_i64().is_some_and(|ns| ns > 0), "{json}");
    let xdp = other.replace("packet:", "xdp:");
    run(&["doctor", "--self-test", &one, &xdp]).good().shows("20,000 sent, 20,000 received");
    // A veth pair has no loopback; a lossy and corrupting path is detected.
    run(&["doctor", "--self-test", &one]).with_status(1).shows("nothing received").shows("loopback on");
    let damaged = other.replace("packet:", "faulty:packet:") + "&drop=1%&corrupt=1%&seed=7";
    let ended = run(&["doctor", "--self-test", "--json", &one, &damaged]).with_status(1);
    let tested = &ended.json()["self_test"];
    assert!(tested["lost"].as_u64() > Some(100) && tested["ok"] == false, "{tested}");
    assert!(tested["corrupted"].as_u64().unwrap() + tested["damaged"].as_u64().unwrap() > 100, "{tested}");
}

/// A veth has no hardware clock: the doctor reports it, and a port with `stamp=hardware` fails.
#[test]
fn hardware_timestamps_are_rejected_without_a_clock() {
    if !can_try() {
        return;
    }
    let wire = Wire::new();
    let port = wire.port("b", "eth0", "");
    let json = run(&["doctor", &port, "--json"]).good().json();
    assert_eq!(finding(&json, Some(&port), "stamps")["now"], "kernel time stamps only");
    let hardware = format!("{port}&stamp=hardware");
    let refused = run(&["capture", &hardware, "-T", "0.1"]).with_status(1);
    assert!(
        refused.errors.contains("hardware timestamps") && refused.errors.contains("stamp=hardware"),
        "{}",
        refused.errors
    );
    let json = run(&["capture", &format!("{port}&stamp=software"), "-T", "0.1", "--json"]).good().json();
    assert!(!json.to_string().contains("card_clock"), "{json}");
}

#[test]
fn self_test_on_a_real_port_needs_yes() {
    run(&["doctor", "--self-test", "lo"]).with_status(2).says("would leave this host").says("--yes");
    run(&["doctor", "--self-test", "mem:x"]).with_status(2).says("interfaces of this host");
    run(&["doctor", "--self-test", "a", "b", "c"]).with_status(2).says("one port");
    run(&["doctor", "--self-test", "--fix", "lo"]).with_status(2);
}

/// A default route through the port, or through a bridge that has it as a member, in a namespace of its own.
/// A new host has received no datagram; this one has.
#[test]
fn counters_of_the_host_are_those_of_the_namespace_of_the_port() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::new();
    let found = run(&["doctor", &wire.port("a", "eth0", ""), "--json"]).good().json();
    let udp = finding(&found, None, "udp")["now"].as_str().unwrap().to_owned();
    assert!(udp.contains("0 of 0 datagrams"), "{udp}");
}

#[test]
fn fix_on_a_port_in_use_needs_yes() {
    if !can_try() || !has_tools(&["unshare"]) {
        return;
    }
    let _turn = turn();
    let started = |way: &str, yes: &str| {
        let script = format!(
            "ip link add one type veth peer name other && ip link set one up && ip link set other up && \
             ethtool -K one gro on && {way} && exec \"$0\" doctor one --fix $1 -- ethtool -k one"
        );
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", &script]).arg(program()).arg(yes);
        Ended::of(command.output().unwrap())
    };
    let route = "ip addr add 192.0.2.1/24 dev one && ip route add default dev one";
    started(route, "").with_status(2).says("the default route leaves through it").says("--yes");
    started(route, "--yes").good().shows("generic-receive-offload: off").says("restored: ethtool -K one rx-gro on");
    let below = "ip link add above type bridge && ip link set one master above && ip link set above up && \
                 ip addr add 192.0.2.1/24 dev above && ip route add default dev above";
    started(below, "").with_status(2).says("bridge or bond").says("--yes");
    started("true", "").good().shows("generic-receive-offload: off");
}
