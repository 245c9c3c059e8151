//! `dpdk-testpmd` at the other end, in both roles. It may crash (SIGSEGV) when its peer disconnects while packets flow:
//! each test starts its own.

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

/// Running testpmd process, killed on drop.
struct Testpmd {
    child: Child,
    log: String,
    _processor: RwLockReadGuard<'static, ()>,
}

impl Testpmd {
    /// Starts testpmd with these devices and options, and waits until it forwards.
    fn start(scratch: &Scratch, devices: &[String], options: &[&str]) -> Testpmd {
        static USED: AtomicU32 = AtomicU32::new(0);
        let _processor = PROCESSOR.read().unwrap_or_else(PoisonError::into_inner);
        let number = USED.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("--file-prefix=linerate{}-{number}", std::process::id());
        let log = scratch.file(&format!("testpmd{number}.log"));
        // Line-buffered, although the output goes to a file.
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
        command.args(["--", "--total-num-mbufs=8192", "--no-mlockall", "--stats-period", "1"]).args(options);
        let out = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out);
        let testpmd = Testpmd { child: command.spawn().unwrap(), log, _processor };
        wait_until("testpmd forwards", || testpmd.output().contains("packet forwarding packets/burst"));
        testpmd
    }

    fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Stops it with SIGINT, so that it flushes its files.
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

/// Creates a folder for the socket; reports a skip and returns `None` where testpmd cannot run.
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
fn packets_from_testpmd_are_counted_in_both_roles() {
    for (own, other) in [("server", "client"), ("client", "server")] {
        let Some(scratch) = stage() else { return };
        let from = port(&scratch, &format!("?role={own}"));
        let arguments = ["count", &from, "-c", "200000", "--json", "--interval", "0", "-Z", "root"];
        let options = ["--forward-mode=txonly", "--txpkts=60"];
        let assert_counted = |count: linerate_tests::support::program::Ended| {
            let line = count.good().output.lines().last().unwrap().to_owned();
            assert!(line.contains("\"frames\":200000") && line.contains("\"bytes\":12000000"), "{line}");
        };
        // testpmd options not retry to connect: start the server first.
        if own == "server" {
            let count = start(&arguments);
            let _testpmd = Testpmd::start(&scratch, &[device(&scratch, other, "")], &options);
            assert_counted(count.end());
        } else {
            let _testpmd = Testpmd::start(&scratch, &[device(&scratch, other, "")], &options);
            assert_counted(run(&arguments));
        }
    }
}

/// Two interfaces of testpmd connect to one socket at the same time, each to the port with its ID.
#[test]
fn several_testpmd_interfaces_connect_to_the_ports_of_their_ids() {
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

/// Receives all packets although the sender exits after the last one. Its counters are reset then, so it writes a file.
#[test]
fn testpmd_receives_all_packets_sent_to_it() {
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

/// Packets over several buffers, where testpmd leaves stale NEXT flags and overwrites the ring.
#[test]
fn mixed_sizes_from_testpmd_are_not_joined() {
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
    println!("{wrong} of {} packets match no sent packet", got.len());
    // Without the rule about full buffers, nearly half are wrong. testpmd overwrote the rest before it published its
    // position, in the full ring of a slower reader; the reader cannot detect that. It counts overruns it can see.
    assert!(got.len() == 200_000 && wrong * 100 <= got.len(), "{wrong} of {}", got.len());
    judge(wrong * 1000 <= got.len(), &format!("{wrong} of {} packets match no sent packet", got.len()));
    let of = &json["accounts"][0];
    judge(wrong == 0 || of["drops"]["peer_overrun"].as_u64() > Some(0), "no overrun by testpmd was counted");
    assert!(of["notes"]["stale_next"].as_u64() > Some(1000), "testpmd left no stale flags: {json:#}");
}
