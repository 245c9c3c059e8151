//! `generate` and `replay` on a port that builds packets itself.

use crate::live::testbed::Stage;
use linerate_backends::xdp_counter::CountAction;
use linerate_tests::support::program::{launch, run};
use linerate_tests::support::records::{self, assert_same_frames};
use linerate_tests::support::wire::{Wire, numbered, settle};
use linerate_tests::support::{Scratch, may_make_labs, tool, wait_until};
use rustix::process::Signal;

fn port(stage: &Stage) -> String {
    format!("xdp-live:eth0?netns={}", stage.namespace("a"))
}

#[test]
fn template_is_sent_and_accounted_for() {
    let Some(stage) = Stage::up() else { return };
    let counting = stage.counting(CountAction::Drop);
    let to = port(&stage);
    let udp = ["generate", "--json", "--to", &to, "--udp"];
    let json = run(&[&udp[..], &["-c", "50000", "--rate", "max", "--size", "1000"]].concat()).good().json();
    assert_eq!((json["frames"].as_u64(), json["bytes"].as_u64()), (Some(50_000), Some(50_000 * 996)));
    assert_eq!((json["balanced"].as_bool(), json["lost"].as_u64()), (Some(true), Some(0)));
    assert_eq!(counting.frames(), 50_000);
    let json = run(&[&udp[..], &["--rate", "2kpps", "--duration", "0.5"]].concat()).good().json();
    let frames = json["frames"].as_u64().unwrap();
    assert!((800..=1200).contains(&frames), "{json}");
    assert!(json["lateness_max_us"].as_f64() > Some(0.0));
    assert_eq!(counting.frames(), 50_000 + frames);
}

#[test]
fn recording_is_sent_unchanged() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch, sample) = (Wire::of(&["a:eth0,b:eth0"]), Scratch::new(), numbered(3000));
    tool("ip", &["netns", "exec", &wire.namespace("b"), "ethtool", "-K", "eth0", "gro", "on"]);
    let (file, output) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    records::write(&file, &sample);
    let capture = wire.capture(&output, &[]);
    let to = wire.port("a", "eth0", "").replace("packet:", "xdp-live:");
    let json = run(&["replay", "--json", "--to", &to, "-r", &file, "--rate", "max"]).good().json();
    assert_eq!(json["frames"].as_u64(), Some(3000), "{json}");
    settle(&output, &sample);
    capture.interrupt().good();
    assert_same_frames("xdp-live", &records::read(&output), &sample);
}

#[test]
fn ctrl_c_ends_a_run_and_kill_leaves_nothing() {
    let Some(stage) = Stage::up() else { return };
    let counting = stage.counting(CountAction::Drop);
    let to = port(&stage);
    let endless = ["generate", "--json", "--to", &to, "--udp", "-c", "0", "--rate", "max"];
    let running = launch(&endless);
    wait_until("packets are sent", || counting.frames() > 1000);
    let json = running.interrupt().good().json();
    assert_eq!((json["frames"].as_u64(), json["balanced"].as_bool()), (Some(counting.frames()), Some(true)));

    let running = launch(&endless);
    let before = counting.frames();
    wait_until("packets are sent again", || counting.frames() > before + 1000);
    let pid = running.pid();
    let programs = || programs_of(pid);
    assert!(!programs().is_empty(), "no BPF program is loaded while it runs");
    let loaded = programs();
    running.signal(Signal::KILL);
    running.end();
    wait_until("its BPF programs are unloaded", || loaded.iter().all(|id| !is_loaded(*id)));
    let frames = counting.frames();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(counting.frames(), frames, "packets are still sent");
    // The scratch interfaces are in an unnamed namespace, which is removed with its last descriptor.
    assert!(!tool("ip", &["-d", "link", "show"]).contains(" a@b"), "a scratch interface remains");
}

/// Ids of the BPF programs that a process holds.
fn programs_of(pid: u32) -> Vec<u32> {
    let infos = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten();
    let texts = infos.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let ids = texts.filter_map(|text| text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok()));
    ids.collect()
}

/// Returns true if a program is still loaded: its id can be turned into a descriptor.
fn is_loaded(id: u32) -> bool {
    linerate_backends::inventory::program_name(id).is_some()
}
