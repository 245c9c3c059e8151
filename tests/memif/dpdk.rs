//! `dpdk-testpmd` at the other end, in both roles. One that is left while frames flow may die (SIGSEGV): each test starts its own.

use crate::memif::PROCESSOR;
use linerate_tests::support::program::{run, start};
use linerate_tests::support::records::{Record, assert_same_frames, read};
use linerate_tests::support::{Scratch, has_tools, is_root, judge, skip, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashSet;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLockReadGuard};

/// One that runs; killed in the end.
struct Testpmd {
    child: Child,
    log: String,
    _processor: RwLockReadGuard<'static, ()>,
}

impl Testpmd {
    /// With these devices, doing that. Waits until it forwards.
    fn start(scratch: &Scratch, devices: &[String], does: &[&str]) -> Testpmd {
        static USED: AtomicU32 = AtomicU32::new(0);
        let _processor = PROCESSOR.read().unwrap_or_else(PoisonError::into_inner);
        let number = USED.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("--file-prefix=linerate{}-{number}", std::process::id());
        let log = scratch.file(&format!("testpmd{number}.log"));
        // Each line as it is said, though it goes to a file.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "dpdk-testpmd"]).args([
            "--no-huge",
            "-m",
            "256",
            "--no-pci",
            "--no-telemetry",
            "--lcores",
            "0@0,1@0",
            &prefix,
        ]);
        for device in devices {
            command.args(["--vdev", device]);
        }
        command.args(["--", "--total-num-mbufs=8192", "--no-mlockall", "--stats-period", "1"]).args(does);
        let out = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out);
        let testpmd = Testpmd { child: command.spawn().unwrap(), log, _processor };
        wait_until("testpmd forwards", || testpmd.said().contains("packet forwarding packets/burst"));
        testpmd
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Stops it, so that what it writes is written.
    fn stop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder for its socket; none, said aloud, where it cannot run.
fn stage() -> Option<Scratch> {
    if !is_root() {
        skip("dpdk-testpmd needs root");
        return None;
    }
    has_tools(&["dpdk-testpmd"]).then(Scratch::new)
}

fn device(scratch: &Scratch, role: &str, more: &str) -> String {
    format!("net_memif0,role={role},id=0,socket={},socket-abstract=no{more}", scratch.file("m.sock"))
}

fn port(scratch: &Scratch, more: &str) -> String {
    format!("memif:{}{more}", scratch.file("m.sock"))
}

#[test]
fn what_testpmd_sends_is_counted_in_both_roles() {
    for (own, other) in [("server", "client"), ("client", "server")] {
        let Some(scratch) = stage() else { return };
        let from = port(&scratch, &format!("?role={own}"));
        let arguments = ["count", &from, "-c", "200000", "--json", "--interval", "0", "-Z", "root"];
        let does = ["--forward-mode=txonly", "--txpkts=60"];
        let sizes = |count: linerate_tests::support::program::Ended| {
            let line = count.good().output.lines().last().unwrap().to_owned();
            assert!(line.contains("\"frames\":200000") && line.contains("\"bytes\":12000000"), "{line}");
        };
        // It does not try again: whoever is its server has to be there.
        if own == "server" {
            let count = start(&arguments);
            let _testpmd = Testpmd::start(&scratch, &[device(&scratch, other, "")], &does);
            sizes(count.end());
        } else {
            let _testpmd = Testpmd::start(&scratch, &[device(&scratch, other, "")], &does);
            sizes(run(&arguments));
        }
    }
}

/// Two of its interfaces come to one socket at once, and each finds the port of its own id.
#[test]
fn several_interfaces_of_testpmd_go_to_the_ports_of_their_ids() {
    let Some(scratch) = stage() else { return };
    let ports = ["?role=server", "?role=server&id=1"].map(|more| port(&scratch, more)).join(",");
    let count = start(&["count", &ports, "-c", "200000", "--json", "--interval", "0", "-Z", "root"]);
    let second = device(&scratch, "client", "").replace("net_memif0", "net_memif1").replace("id=0", "id=1");
    let devices = [second, device(&scratch, "client", "")];
    let _testpmd = Testpmd::start(&scratch, &devices, &["--forward-mode=txonly", "--txpkts=60"]);
    let json = count.end().good().json();
    let frames: Vec<u64> =
        json["accounts"].as_array().unwrap().iter().map(|account| account["received"].as_u64().unwrap_or(0)).collect();
    assert!(frames.len() == 2 && frames.iter().all(|&frames| frames > 0), "{json:#}");
}

/// Every frame, though the sender goes as soon as it has sent the last one. Its counters begin anew then: it writes a file.
#[test]
fn what_is_sent_to_testpmd_it_receives() {
    let Some(scratch) = stage() else { return };
    let (sent, got) = (scratch.file("sent.pcap"), scratch.file("got.pcap"));
    let devices = [device(&scratch, "server", ""), format!("net_pcap0,tx_pcap={got}")];
    let mut testpmd = Testpmd::start(&scratch, &devices, &["--forward-mode=io", "--no-flush-rx"]);
    let packet = "ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)";
    let what = ["-c", "20000", "--rate", "100kpps", "--size", "imix", "-q", "-Z", "root", "-k", packet];
    for to in [port(&scratch, ""), format!("pcap:{sent}")] {
        run(&[&["generate", "--to", &to], &what[..]].concat()).good();
    }
    testpmd.stop();
    assert_same_frames("testpmd", &read(&got), &read(&sent));
}

/// Frames over several buffers, whose marks testpmd leaves behind, and a ring that it writes over.
#[test]
fn mixed_frames_of_testpmd_are_not_glued() {
    let Some(scratch) = stage() else { return };
    let mixed = scratch.file("mixed.pcap");
    let made = ["-c", "2000", "--size", "imix", "-q", "-k", "ip(dst=10.0.0.1..10.0.200.200)/udp"];
    run(&[&["generate", "--to", &format!("pcap:{mixed}")], &made[..]].concat()).good();
    let sent: Vec<Record> = read(&mixed);
    let from = port(&scratch, "?role=server");
    let got = scratch.file("got.pcap");
    let capture = start(&["capture", &from, "-c", "200000", "-w", &got, "--json", "-Z", "root"]);
    let devices = [format!("net_pcap0,rx_pcap={mixed},infinite_rx=1"), device(&scratch, "client", ",bsize=256")];
    let _testpmd = Testpmd::start(&scratch, &devices, &["--forward-mode=io", "--no-flush-rx"]);
    let json = capture.end().good().json();
    let known: HashSet<&[u8]> = sent.iter().map(|record| record.content().1).collect();
    let got = read(&got);
    let wrong = got.iter().filter(|record| !known.contains(record.content().1)).count();
    println!("{wrong} of {} frames are none that were sent", got.len());
    // Without the rule about full buffers it is nearly half. What is left it wrote over before it said so, at the full ring of a
    // reader that is slower: of such a frame nobody can tell. That it does so is counted where it is still seen when it says so.
    assert!(got.len() == 200_000 && wrong * 100 <= got.len(), "{wrong} of {}", got.len());
    judge(wrong * 1000 <= got.len(), &format!("{wrong} of {} frames are none that were sent", got.len()));
    let of = &json["accounts"][0];
    judge(wrong == 0 || of["drops"]["peer_overrun"].as_u64() > Some(0), "no overrun of testpmd's was seen");
    assert!(of["notes"]["stale_next"].as_u64() > Some(1000), "testpmd left no marks: {json:#}");
}
