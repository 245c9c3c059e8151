//! Network of one test, and linerate on its ends.

use super::program::{Ended, Running, linerate, program, spawn, start};
use super::records::{self, Record};
use linerate_lab::{Plan, TemporaryLab};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Receive rings that hold any capture of these tests completely, so that no packet is lost on a slow machine.
pub const ROOMY: &str = "&lanes=1&ring=32MiB&block=256KiB&timeout=20";

/// Lab, removed on drop.
pub struct Wire {
    lab: TemporaryLab,
}

impl Wire {
    /// Creates hosts `a` and `b`, connected by their `eth0` with an MTU of 22,000 bytes.
    pub fn new() -> Self {
        Self::of(&["a:eth0,b:eth0,mtu=22000"])
    }

    /// Creates hosts connected by these links.
    ///
    /// # Panics
    /// If they cannot be created.
    pub fn of(links: &[&str]) -> Self {
        let links = links.iter().map(|link| link.parse().expect("a link")).collect();
        let plan = Plan::from_links("wire", links).expect("a plan");
        Wire { lab: TemporaryLab::up(&plan).expect("a lab") }
    }

    /// Returns the namespace of a host.
    ///
    /// # Panics
    /// If the host is unknown.
    pub fn namespace(&self, host: &str) -> String {
        self.lab.host(host).expect("a host").to_owned()
    }

    /// Returns the port of `interface` of `host`, with additional options such as `&name=value`.
    pub fn port(&self, host: &str, interface: &str, options: &str) -> String {
        format!("packet:{interface}?netns={}{options}", self.namespace(host))
    }

    /// Starts a capture on `b:eth0` into `file`, with rings that hold all packets.
    pub fn capture(&self, file: &str, arguments: &[&str]) -> Running {
        let port = self.port("b", "eth0", ROOMY);
        start(&[&["capture", "-i", &port, "-w", file, "--json"], arguments].concat())
    }

    /// Sends into `a:eth0`, from one processor, so that the kernel has no reason to change the order.
    ///
    /// # Panics
    /// If it fails.
    pub fn send(&self, arguments: &[&str]) -> Ended {
        self.send_by("generate", arguments)
    }

    fn send_by(&self, verb: &str, arguments: &[&str]) -> Ended {
        let port = self.port("a", "eth0", "");
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(program()).args([verb, "--json", "--to", &port]).args(arguments);
        Ended::of(command.output().expect("taskset")).good()
    }

    /// Replays a file into `a:eth0` at max rate.
    pub fn replay(&self, file: &str) -> Ended {
        self.replay_with(&["-r", file, "--rate", "max"])
    }

    /// Replays into `a:eth0` from one processor.
    ///
    /// # Panics
    /// If it fails.
    pub fn replay_with(&self, arguments: &[&str]) -> Ended {
        self.send_by("replay", arguments)
    }

    /// Runs `ip` in a host.
    ///
    /// # Panics
    /// If it fails.
    pub fn ip(&self, host: &str, arguments: &[&str]) {
        super::tool("ip", &[&["-n", &self.namespace(host)], arguments].concat());
    }

    /// Runs linerate in the namespace of a host.
    ///
    /// # Panics
    /// If it cannot be run.
    pub fn inside(&self, host: &str, arguments: &[&str]) -> Ended {
        let mut command = self.lab.exec(host, program()).expect("a host");
        Ended::of(command.args(arguments).output().expect("the program"))
    }

    /// Starts linerate in the namespace of a host.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_inside(&self, host: &str, arguments: &[&str]) -> Running {
        let mut command = self.lab.exec(host, program()).expect("a host");
        spawn(command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()))
    }

    /// Returns a `generate` command to `a:eth0`, not started yet.
    pub fn sender(&self, arguments: &[&str]) -> Command {
        let port = self.port("a", "eth0", "");
        linerate(&[&["generate", "--json", "--to", &port], arguments].concat())
    }
}

impl Default for Wire {
    fn default() -> Self {
        Self::new()
    }
}

/// Waits until a pcap file has the size for these frames, for at most 10 seconds, and a little longer, so that excess
/// frames show too.
pub fn settle(file: &str, wanted: &[Record]) {
    let (size, start) = (records::file_size(wanted), Instant::now());
    while !wanted.is_empty()
        && std::fs::metadata(file).map_or(0, |data| data.len()) < size
        && start.elapsed() < Duration::from_secs(60)
    {
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(30));
}

/// Returns frames of many lengths that contain their number.
pub fn numbered(count: u32) -> Vec<Record> {
    let frame = |number: u32| {
        let mut bytes = [[0x02, 0, 0, 0, 0, 0x0b], [0x02, 0, 0, 0, 0, 0x0a]].concat();
        bytes.extend([0x88, 0xb5]);
        bytes.extend(number.to_be_bytes());
        bytes.extend((0..number % 1400).map(|at| (at ^ number) as u8));
        Record { time: u64::from(number) * 1000, wire: bytes.len() as u32, bytes }
    };
    (0..count).map(frame).collect()
}

/// Checks that these are consecutive [`numbered`] frames, starting anywhere and wrapping at the end.
///
/// # Panics
/// If they are not.
pub fn assert_consecutive(what: &str, got: &[Record], all: &[Record]) {
    let number = |record: &Record| u32::from_be_bytes(record.bytes[14..18].try_into().unwrap()) as usize;
    let Some(first) = got.first().map(number) else { return };
    for (at, record) in got.iter().enumerate() {
        let wanted = &all[(first + at) % all.len()];
        assert!(
            record.content() == wanted.content(),
            "{what}: frame {at} of {} is not number {}",
            got.len(),
            number(wanted)
        );
    }
}
