//! Hosts with a client, a server, and a sensor that sees a copy of all that passes between them.

use linerate_tests::support::program::{Running, launch, spawn, start};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, has_tools, may_make_labs, tool, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const CLIENT: &str = "10.7.0.1";
pub(super) const SERVER: &str = "10.7.0.2";
/// What the flood is sent to; nobody has this address.
pub(super) const TARGET: &str = "10.9.0.1";

/// Ports of the servers: two of iperf3, which serves one client at a time.
pub(super) const IPERF_UDP: u16 = 5201;
pub(super) const IPERF_TCP: u16 = 5202;
pub(super) const HTTP: u16 = 80;
pub(super) const DNS: u16 = 53;

/// Files of the web server, by length.
pub(super) const FILES: [usize; 6] = [0, 1, 1460, 4097, 100_000, 3_000_000];

/// What these tests run.
const TOOLS: [&str; 8] = ["ip", "tc", "ss", "iperf3", "curl", "dnsmasq", "drill", "python3"];
/// Both directions, over as many lanes as there are processors, and rings that bear a program that stands still for seconds.
const PATIENT: &str = "&direction=inout&ring=128MiB&block=256KiB&timeout=20";
/// Frames of a host that has not sent for so long are all counted.
const SILENCE: Duration = Duration::from_millis(300);

/// Hosts `client` and `server`, joined by `eth0`; `client:tap` repeats what passes to `sensor:mon`; `flood:eth0` leads to
/// `sensor:beside`. Removed when this is dropped, servers first.
pub(super) struct Stage {
    servers: Vec<Running>,
    pub wire: Wire,
    pub scratch: Scratch,
}

/// How a meter gets the frames between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From the client's own interface, both directions.
    Packet,
    /// From the sensor's interface.
    Xdp,
    /// From the client's interface, by another process that shares them.
    Shm,
}

impl Stage {
    /// `None`, said aloud, where hosts cannot be made or a program is missing.
    pub(super) fn up(offloads: bool) -> Option<Self> {
        if !may_make_labs() || !has_tools(&TOOLS) {
            return None;
        }
        let more = if offloads { "" } else { ",offloads=off" };
        let wire = Wire::of(&[
            &format!("client:eth0={CLIENT}/24,server:eth0={SERVER}/24{more}"),
            "client:tap,sensor:mon,offloads=off",
            "flood:eth0,sensor:beside",
        ]);
        let mut stage = Stage { servers: Vec::new(), wire, scratch: Scratch::new() };
        stage.mirror();
        stage.serve();
        Some(stage)
    }

    /// A command in a host.
    pub(super) fn exec(&self, host: &str, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.wire.namespace(host), program]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// What a command in a host prints; it fails if it takes longer than any here should.
    pub(super) fn ask(&self, host: &str, program: &str, arguments: &[&str]) -> String {
        tool("timeout", &[&["20", "ip", "netns", "exec", &self.wire.namespace(host), program], arguments].concat())
    }

    /// Waits until neither host has anything to say any more.
    pub(super) fn settle(&self) {
        let (started, mut since, mut last) = (Instant::now(), Instant::now(), String::new());
        while since.elapsed() < SILENCE {
            assert!(started.elapsed() < Duration::from_secs(15), "the hosts do not fall silent: {last}");
            thread::sleep(Duration::from_millis(10));
            let shown = self.ask("client", "cat", &["/proc/net/dev"]);
            let eth0 = shown.lines().find(|line| line.trim_start().starts_with("eth0:")).expect("eth0").to_owned();
            if eth0 != last {
                (last, since) = (eth0, Instant::now());
            }
        }
    }

    /// The port of one of the sensor's interfaces, or of the client's.
    pub(super) fn port(&self, way: Way) -> String {
        let packet = self.wire.port("client", "eth0", PATIENT);
        match way {
            Way::Packet | Way::Shm => packet,
            Way::Xdp => self.wire.port("sensor", "mon", "").replace("packet:", "xdp:"),
        }
    }

    /// The port that the flood arrives at, with room for half a second of it.
    pub(super) fn beside(&self) -> String {
        self.wire.port("sensor", "beside", "&ring=65536").replace("packet:", "xdp:")
    }

    /// Frames that have arrived where the flood does.
    pub(super) fn frames_beside(&self) -> u64 {
        let shown = self.ask("flood", "ip", &["-s", "-j", "link", "show", "eth0"]);
        let link: Value = serde_json::from_str(&shown).expect("JSON of ip");
        link[0]["stats64"]["tx"]["packets"].as_u64().expect("a count")
    }

    /// Every frame that enters or leaves the client is repeated on its `tap`.
    fn mirror(&self) {
        let namespace = self.wire.namespace("client");
        let tc = |arguments: &str| {
            let arguments: Vec<&str> = arguments.split(' ').collect();
            tool("tc", &[&["-n", &namespace], &arguments[..]].concat());
        };
        tc("qdisc add dev eth0 clsact");
        for direction in ["ingress", "egress"] {
            tc(&format!(
                "filter add dev eth0 {direction} protocol all u32 match u32 0 0 action mirred egress mirror dev tap"
            ));
        }
        // A full ring of the sensor's interface makes frames wait here.
        tc("qdisc replace dev tap root pfifo limit 100000");
    }

    /// Starts the servers and waits until they listen.
    fn serve(&mut self) {
        let folder = self.scratch.file("www");
        std::fs::create_dir(&folder).expect("a directory");
        for length in FILES {
            std::fs::write(format!("{folder}/{length}"), vec![b'x'; length]).expect("a file");
        }
        let (http, dns) = (HTTP.to_string(), DNS.to_string());
        let iperf = [IPERF_UDP, IPERF_TCP].map(|port| port.to_string());
        let listen = format!("--listen-address={SERVER}");
        let answer = "--address=/example.net/192.0.2.7";
        let dnsmasq = ["-k", "-C", "/dev/null", "-R", "-h", "-u", "root", "--pid-file=", "--bind-interfaces"];
        let servers = [
            ("iperf3", vec!["-s", "-p", &iperf[0]]),
            ("iperf3", vec!["-s", "-p", &iperf[1]]),
            ("python3", vec!["-m", "http.server", &http, "--bind", SERVER, "--directory", &folder]),
            ("dnsmasq", [&dnsmasq[..], &["-p", &dns, &listen, answer]].concat()),
        ];
        for (program, arguments) in servers {
            let server = spawn(&mut self.exec("server", program, &arguments));
            self.servers.push(server);
        }
        let wanted = [IPERF_UDP, IPERF_TCP, HTTP, DNS].map(|port| format!(":{port} "));
        wait_until("all servers listen", || {
            let shown = self.ask("server", "ss", &["-Hlntu"]);
            wanted.iter().all(|port| shown.contains(port.as_str()))
        });
    }
}

/// `linerate flows` on the wire between the hosts.
pub(super) struct Meter {
    /// Who shares the frames, if somebody does.
    sharer: Option<Running>,
    flows: Running,
    file: String,
}

impl Meter {
    /// Returns when frames are taken.
    pub(super) fn start(stage: &Stage, way: Way, more: &[&str]) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let file = stage.scratch.file(&format!("{number}.jsonl"));
        let (mut port, mut sharer) = (stage.port(way), None);
        if way == Way::Shm {
            let name = format!("flows-{}-{number}", std::process::id());
            let ring = ["--share", &name, "--lossless-readers", "--share-patience", "60"];
            sharer = Some(start(&[&["capture", "-i", &port, "--lossless", "--json"][..], &ring].concat()));
            port = format!("shm:{name}?mode=lossless");
        }
        let flows = start(&[&["flows", "-i", &port, "--write", &file, "--json", "--id-seed", "t"], more].concat());
        Meter { sharer, flows, file }
    }

    /// Ends it; what came by now is in the records.
    pub(super) fn end(self) -> Option<crate::flows::metered::Metered> {
        let shared = self.sharer.map(|sharer| sharer.interrupt().good().json());
        // Who reads a ring ends with it.
        let ended = if shared.is_some() { self.flows.end() } else { self.flows.interrupt() };
        crate::flows::metered::Metered::new(ended.good().json(), shared, &self.file)
    }
}

/// SYNs from made-up addresses to one target, thrown at the sensor's other interface until told to stop.
pub(super) struct Flood(Running);

impl Flood {
    pub(super) fn start(stage: &Stage, rate: &str) -> Self {
        let to = format!("xdp-live:eth0?netns={}", stage.wire.namespace("flood"));
        let packet = format!("ip(src=random, dst={TARGET})/tcp(sport=random, dport=80, flags=syn)");
        let arguments = ["generate", "--json", "--to", &to, "-k", &packet, "--rate", rate, "--duration", "60"];
        Flood(launch(&arguments))
    }

    /// How many were sent.
    pub(super) fn end(self) -> u64 {
        self.0.signal(Signal::INT);
        let json = self.0.end().good().json();
        assert_eq!((&json["lost"], &json["balanced"]), (&0.into(), &true.into()), "{json}");
        json["frames"].as_u64().expect("frames")
    }
}
