//! Hosts with a client, a server, and a sensor that receives a copy of all frames between them.

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
/// Target of the flood, an address without a host.
pub(super) const TARGET: &str = "10.9.0.1";

/// Ports of the servers; there are two iperf3 servers, as each serves one client at a time.
pub(super) const IPERF_UDP: u16 = 5201;
pub(super) const IPERF_TCP: u16 = 5202;
pub(super) const HTTP: u16 = 80;
pub(super) const DNS: u16 = 53;

/// Files of the web server, by length.
pub(super) const FILES: [usize; 6] = [0, 1, 1460, 4097, 100_000, 3_000_000];

/// Programs that these tests run.
const TOOLS: [&str; 8] = ["ip", "tc", "ss", "iperf3", "curl", "dnsmasq", "drill", "python3"];
/// Both directions, one lane per processor, and rings for a program that stalls for seconds.
const PATIENT: &str = "&direction=inout&ring=128MiB&block=256KiB&timeout=20";
/// After this time without traffic, all frames of a host have been counted.
const SILENCE: Duration = Duration::from_millis(300);

/// Hosts `client` and `server`, joined by `eth0`; `client:tap` mirrors their frames to `sensor:mon`; `flood:eth0` leads
/// to `sensor:beside`. All are removed on drop, servers first.
pub(super) struct Stage {
    servers: Vec<Running>,
    pub wire: Wire,
    pub scratch: Scratch,
}

/// Source of the meter's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The client's interface, in both directions.
    Packet,
    /// The sensor's interface.
    Xdp,
    /// The client's interface, through another process that shares its frames.
    Shm,
}

impl Stage {
    /// Prints a note and returns `None` where hosts cannot be created or a program is missing.
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

    /// Builds a command that runs in a host.
    pub(super) fn exec(&self, host: &str, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.wire.namespace(host), program]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Returns the output of a command in a host, which may take at most 20 s.
    pub(super) fn ask(&self, host: &str, program: &str, arguments: &[&str]) -> String {
        tool("timeout", &[&["20", "ip", "netns", "exec", &self.wire.namespace(host), program], arguments].concat())
    }

    /// Waits until both hosts are silent.
    pub(super) fn settle(&self) {
        let (started, mut since, mut last) = (Instant::now(), Instant::now(), String::new());
        while since.elapsed() < SILENCE {
            assert!(started.elapsed() < Duration::from_secs(15), "the hosts keep sending: {last}");
            thread::sleep(Duration::from_millis(10));
            let shown = self.ask("client", "cat", &["/proc/net/dev"]);
            let eth0 = shown.lines().find(|line| line.trim_start().starts_with("eth0:")).expect("eth0").to_owned();
            if eth0 != last {
                (last, since) = (eth0, Instant::now());
            }
        }
    }

    /// Returns the port of one of the sensor's interfaces, or of the client's.
    pub(super) fn port(&self, way: Way) -> String {
        let packet = self.wire.port("client", "eth0", PATIENT);
        match way {
            Way::Packet | Way::Shm => packet,
            Way::Xdp => self.wire.port("sensor", "mon", "").replace("packet:", "xdp:"),
        }
    }

    /// Returns the port that receives the flood, with room for half a second of it.
    pub(super) fn flood_port(&self) -> String {
        self.wire.port("sensor", "beside", "&ring=65536").replace("packet:", "xdp:")
    }

    /// Returns the frames of the flood sent so far.
    pub(super) fn flood_frames(&self) -> u64 {
        let shown = self.ask("flood", "ip", &["-s", "-j", "link", "show", "eth0"]);
        let link: Value = serde_json::from_str(&shown).expect("JSON of ip");
        link[0]["stats64"]["tx"]["packets"].as_u64().expect("a count")
    }

    /// Mirrors every frame that enters or leaves the client to its `tap`.
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
        // Frames wait here while the ring of the sensor's interface is full.
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

/// `linerate flows` on the link between the hosts.
pub(super) struct Meter {
    /// Process that shares the frames, if any.
    sharer: Option<Running>,
    flows: Running,
    file: String,
}

impl Meter {
    /// Starts a meter and returns once it receives frames.
    pub(super) fn start(stage: &Stage, way: Way, more: &[&str]) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let file = stage.scratch.file(&format!("{number}.jsonl"));
        let (mut port, mut sharer) = (stage.port(way), None);
        if way == Way::Shm {
            let name = format!("flows-{}-{number}", std::process::id());
            let ring = ["--share", &name, "--lossless-readers", "--share-timeout", "60"];
            sharer = Some(start(&[&["capture", "-i", &port, "--lossless", "--json"][..], &ring].concat()));
            port = format!("shm:{name}?mode=lossless");
        }
        let flows = start(&[&["flows", "-i", &port, "--write", &file, "--json", "--id-seed", "t"], more].concat());
        Meter { sharer, flows, file }
    }

    /// Stops the meter; frames received so far are in the records.
    pub(super) fn end(self) -> Option<crate::flows::metered::Metered> {
        let shared = self.sharer.map(|sharer| sharer.interrupt().good().json());
        // The reader of a ring ends with the ring.
        let ended = if shared.is_some() { self.flows.end() } else { self.flows.interrupt() };
        crate::flows::metered::Metered::new(ended.good().json(), shared, &self.file)
    }
}

/// SYNs from random addresses to one target, sent to the sensor's other interface until stopped.
pub(super) struct Flood(Running);

impl Flood {
    pub(super) fn start(stage: &Stage, rate: &str) -> Self {
        let to = format!("xdp-live:eth0?netns={}", stage.wire.namespace("flood"));
        let packet = format!("ip(src=random, dst={TARGET})/tcp(sport=random, dport=80, flags=syn)");
        let arguments = ["generate", "--json", "--to", &to, "-k", &packet, "--rate", rate, "--duration", "60"];
        Flood(launch(&arguments))
    }

    /// Stops the flood and returns the number of frames sent.
    pub(super) fn end(self) -> u64 {
        self.0.signal(Signal::INT);
        let json = self.0.end().good().json();
        assert_eq!((&json["lost"], &json["balanced"]), (&0.into(), &true.into()), "{json}");
        json["frames"].as_u64().expect("frames")
    }
}
