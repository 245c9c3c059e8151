//! Open vSwitch with DPDK between two of our ends, as `scripts/ovs` runs it: it is the server, and sends by its second ring.

use linerate_tests::support::program::{Ended, run, start};
use linerate_tests::support::records::{assert_same_frames, read};
use linerate_tests::support::{Scratch, has_tools, is_root, skip};
use std::path::Path;
use std::process::Command;

/// It, until this goes.
struct Ovs(Scratch);

fn script(words: &[&str]) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let output = Command::new(root.join("scripts/ovs")).args(words).current_dir(root).output().expect("scripts/ovs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

impl Ovs {
    fn up() -> Option<Ovs> {
        if !is_root() {
            skip("Open vSwitch with DPDK needs root");
            return None;
        }
        if !has_tools(&["apt-get", "taskset"]) {
            return None;
        }
        if let Err(said) = script(&["unpack"]) {
            skip(&format!("Open vSwitch with DPDK is not there: {said}"));
            return None;
        }
        let ovs = Ovs(Scratch::new());
        script(&["up", &ovs.0.file("")]).expect("Open vSwitch starts");
        Some(ovs)
    }

    fn port(&self, number: usize) -> String {
        format!("memif:{}?rings-in=2&rings-out=1", self.0.file(&format!("m{number}.sock")))
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        script(&["down", &self.0.file("")]).expect("it ends");
    }
}

/// Both ways, each frame with its bytes; then by other rules.
#[test]
fn open_vswitch_passes_on_what_is_sent_to_it() {
    for (to, from) in [(0, 1), (1, 0)] {
        // One that is left while frames flow may die: each way has its own.
        let Some(ovs) = Ovs::up() else { return };
        let (sent, got) = (ovs.0.file("sent.pcap"), ovs.0.file("got.pcap"));
        let packet = "ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)";
        let what = ["-c", "20000", "--rate", "20kpps", "--size", "imix", "-q", "-Z", "root", "-k", packet];
        run(&[&["generate", "--to", &format!("pcap:{sent}")], &what[..]].concat()).good();
        let capture = start(&["capture", &ovs.port(from), "-c", "20000", "-w", &got, "-q", "-Z", "root"]);
        let sender = run(&[&["generate", "--to", &ovs.port(to)], &what[..]].concat());
        let _: Ended = sender.good();
        capture.end().good();
        assert_same_frames("Open vSwitch", &read(&got), &read(&sent));
    }
}

#[test]
fn open_vswitch_is_told_other_rules() {
    let Some(ovs) = Ovs::up() else { return };
    let rules = ovs.0.file("other");
    std::fs::write(&rules, "in_port=1,udp,tp_dst=80,actions=mod_nw_tos:8,output:2\n").unwrap();
    script(&["flows", &ovs.0.file(""), &rules]).unwrap();
    let got = ovs.0.file("got.pcap");
    let capture = start(&["capture", &ovs.port(1), "-c", "500", "-w", &got, "-q", "-Z", "root"]);
    let what = ["-c", "1000", "--rate", "5kpps", "-q", "-Z", "root", "-k", "ip/udp(dport=80..81)"];
    run(&[&["generate", "--to", &ovs.port(0)], &what[..]].concat()).good();
    capture.end().good();
    let got = read(&got);
    assert!(got.len() == 500 && got.iter().all(|frame| frame.bytes[15] == 8 && frame.bytes[36..38] == [0, 80]));
}
