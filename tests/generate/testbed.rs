//! Hosts of a test network, runs of the program between them, and values of its reports.

use linerate_backends::inventory::interfaces;
use linerate_lab::within;
use linerate_tests::support::program::{Ended, program};
use linerate_tests::support::wire::{ROOMY, Wire};
use linerate_tests::support::{may_make_labs, tool};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use serde_json::Value;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

/// All backends that send on an interface.
pub(super) const SCHEMES: [&str; 3] = ["packet", "xdp", "xdp-live"];

/// Network of one test.
pub(super) struct Stage(pub Wire);

impl Stage {
    /// Connects hosts `a` and `b`; prints a note and returns `None` where labs cannot be created.
    pub(super) fn up() -> Option<Self> {
        let stage = Self::of(&["a:eth0,b:eth0"])?;
        stage.take_packets("b", "eth0");
        Some(stage)
    }

    /// Creates hosts joined by these links.
    pub(super) fn of(links: &[&str]) -> Option<Self> {
        may_make_labs().then(|| Stage(Wire::of(links)))
    }

    /// Creates a host `r` between `a` and `h` that forwards and answers ARP for itself.
    pub(super) fn routed() -> Option<Self> {
        let stage = Self::of(&["a:eth0,r:p0=10.9.0.1/24", "r:p1=10.9.1.1/24,h:eth0=10.9.1.2/24"])?;
        let forward = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
        within(&stage.0.namespace("r"), forward).unwrap().unwrap();
        stage.0.ip("h", &["route", "add", "10.9.0.0/24", "via", "10.9.1.1"]);
        stage.take_packets("r", "p0");
        Some(stage)
    }

    /// Lets an interface accept packets that its peer sends by XDP.
    pub(super) fn take_packets(&self, host: &str, interface: &str) {
        tool("ip", &["netns", "exec", &self.0.namespace(host), "ethtool", "-K", interface, "gro", "on"]);
    }

    /// Returns the port that sends on `eth0` of a host.
    pub(super) fn port(&self, scheme: &str, host: &str) -> String {
        format!("{scheme}:eth0?netns={}", self.0.namespace(host))
    }

    /// Returns the port that checks packets at a host, with room for all of them.
    pub(super) fn checking(&self, host: &str) -> String {
        self.0.port(host, "eth0", ROOMY)
    }

    /// Returns the MAC address of a host's interface.
    pub(super) fn mac(&self, host: &str, interface: &str) -> String {
        let found = interfaces(Some(&self.0.namespace(host))).unwrap();
        found.into_iter().find(|found| found.name == interface).unwrap().address
    }

    /// Returns the packets received by an interface, from its kernel counter.
    pub(super) fn received(&self, host: &str) -> u64 {
        let shown = tool("ip", &["-n", &self.0.namespace(host), "-s", "-j", "link", "show", "eth0"]);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        shown[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
    }

    /// Opens a socket on a host with a buffer for about ten thousand datagrams.
    pub(super) fn socket(&self, host: &str, address: &str) -> UdpSocket {
        let socket = within(&self.0.namespace(host), || UdpSocket::bind(address)).unwrap().unwrap();
        set_socket_recv_buffer_size_force(&socket, 16 << 20).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        socket
    }
}

/// Counts datagrams in a socket until it stays empty.
pub(super) fn datagrams(socket: &UdpSocket) -> usize {
    let mut got = 0;
    loop {
        match socket.recv(&mut [0; 2000]) {
            Ok(_) => got += 1,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return got,
        }
    }
}

/// Runs `generate` on one processor, so that the kernel keeps the order.
pub(super) fn generate(arguments: &[&str]) -> Ended {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(program()).args(["generate", "--json"]).args(arguments);
    Ended::of(command.output().expect("taskset"))
}

/// Returns a number of a report, or 0 if it is missing.
pub(super) fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or(0)
}

/// Sums a counter over all accounts of a sender or its check, both drops and notes.
pub(super) fn counted(ledger: &Value, name: &str) -> u64 {
    let accounts = ledger["accounts"].as_array().unwrap();
    accounts.iter().map(|account| number(&account["drops"], name) + number(&account["notes"], name)).sum()
}
