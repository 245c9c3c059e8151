//! A host whose kernel sends, and a host with the port on which the program receives.

use linerate_tests::support::Scratch;
use linerate_tests::support::may_make_labs;
use linerate_tests::support::program::{Ended, Running, start};
use linerate_tests::support::wire::Wire;
use serde_json::Value;
use std::process::{Command, Stdio};

/// Addresses of the program, which no interface has.
pub(super) const OWN: &str = "10.7.0.9";
pub(super) const OWN6: &str = "fd07::9";
/// Addresses of the sending host.
const CLIENT: &str = "10.7.0.1/24";
const CLIENT6: &str = "fd07::1/64";

/// Receive path of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Read directly into their final place, including super-frames.
    Packet,
    /// From memory written by an XDP program.
    Xdp,
    /// In bursts, through a fault injector without faults.
    Bursts,
}

impl Way {
    pub(super) const ALL: [Way; 3] = [Way::Packet, Way::Xdp, Way::Bursts];
}

/// Hosts, which are removed on drop.
pub(super) struct Stage {
    pub wire: Wire,
    pub scratch: Scratch,
}

impl Stage {
    /// Prints a note and returns `None` where hosts cannot be created. Without offloads, frames fit the MTU
    /// and have checksums.
    pub(super) fn up(offloads: bool) -> Option<Stage> {
        if !may_make_labs() {
            return None;
        }
        let more = if offloads { "" } else { ",offloads=off" };
        let wire = Wire::of(&[&format!("client:eth0={CLIENT}+{CLIENT6},server:eth1{more}")]);
        let stage = Stage { wire, scratch: Scratch::new() };
        // The kernel resolves an address three times, once a second; a busy machine can take longer to answer.
        stage.exec(
            "client",
            "sysctl",
            &["-qw", "net.ipv4.neigh.eth0.mcast_solicit=30", "net.ipv6.neigh.eth0.mcast_solicit=30"],
        );
        Some(stage)
    }

    /// Returns the port of the receiving host.
    pub(super) fn port(&self, way: Way, more: &str) -> String {
        let packet = self.wire.port("server", "eth1", more);
        match way {
            Way::Packet => packet,
            Way::Xdp => packet.replace("packet:", "xdp:"),
            Way::Bursts => format!("faulty:{packet}"),
        }
    }

    /// Starts to receive streams to port 5001 of both addresses.
    pub(super) fn receive(&self, port: &str, arguments: &[&str]) -> Running {
        let (tcp, tcp6) = (format!("{OWN}:5001"), format!("[{OWN6}]:5001"));
        start(&[&["receive", port, "--tcp", &tcp, "--tcp", &tcp6, "--json", "-Z", "root"], arguments].concat())
    }

    /// Sends from the client with `linerate send`, which uses the kernel's TCP.
    pub(super) fn send(&self, to: &str, arguments: &[&str]) -> Ended {
        // Fail soon if the receiver is gone.
        let silence: &[&str] = if arguments.contains(&"--silence") { &[] } else { &["--silence", "20"] };
        self.wire.inside("client", &[&["send", to, "--json", "-q"], silence, arguments].concat())
    }

    /// Sends over a faulty link to a receiver that `receive` starts; returns its report. Retries with another seed if a
    /// loss burst hit the last packets: their retransmissions back off, and each can be lost in the burst.
    pub(super) fn send_over_faulty_link(
        &self,
        faults: &str,
        arguments: &[&str],
        receive: impl Fn(&str) -> Running,
    ) -> Value {
        for seed in 1..6 {
            let running = receive(&self.port(Way::Bursts, &format!("&{faults}&seed={seed}")));
            let sent = self.send(&format!("{OWN}:5001"), arguments);
            if faults.contains("burst=") && sent.errors.contains("no acknowledgement for") {
                eprintln!("{faults}: with seed {seed} the end of the stream was lost");
                continue;
            }
            sent.good();
            return running.end().good().json();
        }
        panic!("{faults}: no seed delivered every byte");
    }

    /// Returns the bytes sent by the client's interface.
    pub(super) fn sent(&self) -> u64 {
        let shown = self.exec("client", "ip", &["-s", "-j", "link", "show", "eth0"]);
        let link: Value = serde_json::from_str(&shown).expect("JSON of ip");
        link[0]["stats64"]["tx"]["bytes"].as_u64().expect("a count")
    }

    /// Runs a program on a host until it exits.
    ///
    /// # Panics
    /// If it fails.
    pub(super) fn exec(&self, host: &str, program: &str, arguments: &[&str]) -> String {
        Ended::of(self.command(host, program, arguments).output().expect(program)).good().output
    }

    /// Builds a command that runs on a host for at most a minute.
    pub(super) fn command(&self, host: &str, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60", "ip", "netns", "exec", &self.wire.namespace(host), program]);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Returns the report of a run without loss and with balanced packet accounting.
pub(super) fn sound(ended: Ended) -> Value {
    let report = ended.good().json();
    assert_eq!((&report["lost"], &report["balanced"]), (&0.into(), &true.into()), "{report:#}");
    report
}

/// Returns the end reason and the bytes of each stream.
pub(super) fn streams(report: &Value) -> Vec<(String, u64)> {
    let streams = report["by_stream"].as_array().expect("streams");
    let one = |stream: &Value| {
        (stream["ended"].as_str().expect("an end").to_owned(), stream["bytes"].as_u64().expect("bytes"))
    };
    streams.iter().map(one).collect()
}

/// Sums a counter of a stage over all ports.
pub(super) fn note(report: &Value, stage: &str, name: &str) -> u64 {
    let accounts = report["accounts"].as_array().expect("accounts").iter().filter(|one| one["stage"] == stage);
    accounts.flat_map(|one| [&one["notes"][name], &one["drops"][name]]).filter_map(Value::as_u64).sum()
}
