//! `linerate` with the DPDK plugin: missing, broken and working; `devices`: each virtual device of DPDK.

mod devices;

use linerate_tests::support::dpdk::plugin;
use linerate_tests::support::frames::sample;
use linerate_tests::support::program::{Ended, bench, linerate, program, spawn};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, has_tools, may_make_labs, tool, wait_until};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs linerate with this plugin, or folder of plugins.
fn run_with(plugin: &Path, arguments: &[&str]) -> Ended {
    Ended::of(linerate(arguments).env("LINERATE_DPDK", plugin).output().expect("the program"))
}

#[test]
fn missing_plugin_is_reported_with_the_remedy() {
    let scratch = Scratch::new();
    let folder = scratch.file("");
    let ended = run_with(Path::new(&folder), &["count", "dpdk:net_null0", "-c", "1"]).with_status(1);
    for part in ["dpdk:net_null0: no plugin for DPDK", "linerate-dpdk.so.N", "make dpdk", "dpdk-dev"] {
        assert!(ended.errors.contains(part), "{part:?} is missing in: {}", ended.errors);
    }
    assert_eq!((ended.output.as_str(), ended.errors.lines().count()), ("", 1), "{}", ended.errors);
}

/// Plugin table of the right layout, with one change.
const FAKE: &str = r#"
#include "linerate_dpdk.h"
static int start(const struct linerate_dpdk_start *s, char *why) { (void)s; (void)why; return 0; }
static const struct linerate_dpdk_plugin table = {
    .abi = LINERATE_DPDK_ABI, .size = sizeof(table), .version = "none",
    .sizes = { 32, sizeof(struct linerate_dpdk_start), sizeof(struct linerate_dpdk_open), sizeof(struct linerate_dpdk_info),
               sizeof(struct linerate_dpdk_take), sizeof(struct linerate_dpdk_put), sizeof(struct linerate_dpdk_stats),
               sizeof(struct linerate_dpdk_counter), sizeof(struct linerate_dpdk_classic) },
    .start = start,
    CHANGE
};
const struct linerate_dpdk_plugin *ENTRY(void) { return TABLE; }
"#;

#[test]
fn broken_plugin_is_rejected_with_the_reason() {
    if !has_tools(&["cc"]) {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let scratch = Scratch::new();
    let (source, fake) = (scratch.file("fake.c"), scratch.file("linerate-dpdk.so.23"));
    // A plugin in a folder that other users can write to is rejected.
    std::fs::set_permissions(scratch.file(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    let entry = "linerate_dpdk_plugin";
    for (change, entry, table, part) in [
        (".abi = 1", entry, "&table", "version 1 of the interface, this program needs 3"),
        (".size = sizeof(table) - 8", entry, "&table", "its table has"),
        (".sizes[4] = 7", entry, "&table", "its structure 4 has 7 bytes"),
        (".abi = 3", entry, "&table", "a function is missing"),
        (".abi = 3", entry, "(void *)0", "no table of functions"),
        (".abi = 3", "linerate_other", "&table", "no symbol linerate_dpdk_plugin"),
    ] {
        let text = FAKE.replace("CHANGE", change).replace("ENTRY", entry).replace("TABLE", table);
        std::fs::write(&source, text).unwrap();
        let include = root.join("c");
        tool("cc", &["-w", "-shared", "-fPIC", "-I", include.to_str().unwrap(), "-o", &fake, &source]);
        let ended = run_with(Path::new(&fake), &["count", "dpdk:net_null0", "-c", "1"]).with_status(1);
        assert!(
            ended.errors.contains(part) && ended.errors.contains(&fake),
            "{part:?} is missing in: {}",
            ended.errors
        );
        assert_eq!(ended.output, "");
    }
    std::fs::write(&fake, "no shared object").unwrap();
    // A folder may have several plugins, so the error starts with the file name.
    let folder = scratch.file("");
    run_with(Path::new(&folder), &["count", "dpdk:net_null0", "-c", "1"]).with_status(1).says("linerate-dpdk.so.23: ");
}

/// linerate starts without DPDK.
#[test]
fn program_is_not_linked_with_dpdk() {
    if has_tools(&["ldd"]) {
        let libraries = tool("ldd", &[program().to_str().unwrap()]);
        assert!(libraries.contains("libc.so") && !libraries.contains("librte"), "{libraries}");
    }
}

/// Rounds times to microseconds, the resolution of DPDK.
fn in_micros(records: &[Record]) -> Vec<Record> {
    records.iter().map(|record| Record { time: record.time / 1000 * 1000, ..record.clone() }).collect()
}

#[test]
fn file_is_copied_through_dpdk() {
    let Some(plugin) = plugin() else { return };
    let scratch = Scratch::new();
    let (file, copy, sent) = (scratch.file("in.pcap"), scratch.file("copy.pcap"), scratch.file("sent.pcap"));
    let complete: Vec<Record> =
        sample().into_iter().filter(|record| record.wire as usize == record.bytes.len()).collect();
    records::write(&file, &complete);
    let (count, port) = (complete.len().to_string(), format!("dpdk:net_pcap0,rx_pcap={file}"));
    // The comma is part of the device name, with and without `-i`.
    for named in [&["-i", port.as_str()][..], &[port.as_str()]] {
        let arguments = [&["capture", "-w", &copy, "-c", &count, "--json"], named].concat();
        let json = run_with(plugin, &arguments).good().json();
        assert_eq!((&json["balanced"], &json["lost"]), (&true.into(), &0.into()), "{json:#}");
        let mut copied = records::read(&copy);
        // A merge writes in time order.
        let mut expected = in_micros(&complete);
        for records in [&mut copied, &mut expected] {
            records.sort_by(|record, other| (record.time, &record.bytes).cmp(&(other.time, &other.bytes)));
        }
        assert_eq!(copied, expected);
    }
    let to = format!("dpdk:net_pcap1,tx_pcap={sent}");
    run_with(plugin, &["replay", "-q", "-r", &file, "--rate", "max", "--to", &to]).good();
    records::assert_same_frames("sent", &records::read(&sent), &complete);
}

/// The plugin prints nothing on standard output, leaves no files, and its counters balance.
#[test]
fn run_is_quiet_and_leaves_no_files() {
    let Some(plugin) = plugin() else { return };
    let child = spawn(
        linerate(&["count", "dpdk:net_null0,size=60@0-1", "-c", "200000", "--json", "--interval", "0"])
            .env("LINERATE_DPDK", plugin)
            .stdout(Stdio::piped()),
    );
    let pid = child.pid();
    let json = child.end().good().json();
    assert_eq!((&json["frames"], &json["balanced"]), (&200_000.into(), &true.into()), "{json:#}");
    for folder in ["/var/run/dpdk", "/tmp/dpdk"] {
        assert!(!Path::new(folder).join(format!("linerate-{pid}")).exists(), "{folder} has files of this run");
    }
}

#[test]
fn benchmark_has_a_row_per_method() {
    let Some(plugin) = plugin() else { return };
    let rows = {
        let arguments = ["--quick", "burst", "--dpdk", "--size", "64", "--json"];
        Ended::of(bench(&arguments).env("LINERATE_DPDK", plugin).output().unwrap()).good().output
    };
    let rows: Vec<serde_json::Value> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    let cases = rows.iter().map(|row| row["case"].as_str().unwrap());
    let case_names: Vec<&str> =
        cases.filter(|case| !case.starts_with("testpmd") && !case.contains("another node")).collect();
    let record = ["ours, received", "ours, copied"];
    let four = ["mbufs copied by three threads", "ours, merged, copied", "ours, to shared memory"];
    assert_eq!(case_names, [&record[..], &four].concat());
    for row in &rows {
        assert_eq!((&row["bench"], &row["size"]), (&"burst".into(), &64.into()));
        let (ns, mpps) = (row["ns"].as_f64().unwrap(), row["mpps"].as_f64().unwrap());
        assert!(ns > 0.1 && (ns * mpps - 1000.0).abs() < 1.0, "{row}");
    }
    if has_tools(&["dpdk-testpmd"]) {
        let mut peers = rows.iter().filter_map(|row| row["peers"].as_array()).flatten();
        assert!(peers.any(|peer| peer["name"].as_str().is_some_and(|name| name.contains("testpmd"))), "{rows:?}");
    }
}

/// A frame shorter than an Ethernet header is counted and not sent; the frames around it are sent.
#[test]
fn too_short_frames_are_counted() {
    let Some(plugin) = plugin() else { return };
    let scratch = Scratch::new();
    let (file, sent) = (scratch.file("in.pcap"), scratch.file("sent.pcap"));
    let record = |time: u64, length: usize| Record { time, bytes: vec![2; length], wire: length as u32 };
    let frames: Vec<Record> =
        [60, 13, 0, 14, 100, 5].into_iter().zip(1..).map(|(length, time)| record(time, length)).collect();
    records::write(&file, &frames);
    let to = format!("dpdk:net_pcap1,tx_pcap={sent}");
    let arguments = ["replay", "--json", "-r", &file, "--rate", "max", "--to", &to];
    let json = run_with(plugin, &arguments).good().json();
    assert!(json["balanced"] == true, "{json:#}");
    let accounts = json["accounts"].as_array().expect("accounts");
    let send = accounts.iter().find(|account| account["stage"] == "send").expect("the send stage");
    assert_eq!((&send["drops"]["too_short"], &send["delivered"]), (&3.into(), &3.into()), "{json:#}");
    let complete: Vec<Record> = frames.into_iter().filter(|record| record.bytes.len() >= 14).collect();
    records::assert_same_frames("sent", &records::read(&sent), &complete);
}

/// Library preloaded before DPDK: its driver reports for a while that packets are not sent yet.
const DRIVER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <rte_ethdev.h>
static int looks;
static int status(void *queue, uint16_t offset) {
    (void)queue; (void)offset;
    return ++looks < 30 ? RTE_ETH_TX_DESC_FULL : RTE_ETH_TX_DESC_DONE;
}
int rte_eth_dev_start(uint16_t port) {
    int (*real)(uint16_t) = dlsym(RTLD_NEXT, "rte_eth_dev_start"), error = real(port);
    rte_eth_fp_ops[port].tx_descriptor_status = status;
    return error;
}
int rte_eth_dev_stop(uint16_t port) {
    int (*real)(uint16_t) = dlsym(RTLD_NEXT, "rte_eth_dev_stop");
    fprintf(stderr, "stopped after %d looks\n", looks);
    return real(port);
}
"#;

/// Runs linerate with this plugin and the preloaded driver.
fn run_with_driver(plugin: &Path, scratch: &Scratch, arguments: &[&str]) -> Ended {
    let (source, library) = (scratch.file("driver.c"), scratch.file("driver.so"));
    std::fs::write(&source, DRIVER).unwrap();
    let flags = tool("pkg-config", &["--cflags", "libdpdk"]);
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let own = ["-w", "-shared", "-fPIC", "-o", &library, &source, "-Wl,--no-as-needed", "-lrte_ethdev", "-ldl"];
    tool("cc", &[&flags[..], &own].concat());
    let mut command = linerate(arguments);
    Ended::of(command.env("LINERATE_DPDK", plugin).env("LD_PRELOAD", &library).output().expect("the program"))
}

/// Packets accepted and not sent by a driver are waited for: a stopped driver drops them.
#[test]
fn busy_driver_is_waited_for() {
    let Some(plugin) = plugin() else { return };
    let scratch = Scratch::new();
    let sent = scratch.file("sent.pcap");
    let to = format!("dpdk:net_pcap1,tx_pcap={sent}");
    let arguments = ["generate", "-q", "-k", "ip/udp", "-c", "10", "--rate", "max", "--to", &to];
    let ended = run_with_driver(plugin, &scratch, &arguments).good();
    let looks =
        ended.errors.split("stopped after ").nth(1).and_then(|text| text.split(' ').next()?.parse::<u32>().ok());
    assert!(looks.is_some_and(|looks| looks >= 30), "{}", ended.errors);
}

/// An MTU is set or rejected.
#[test]
fn mtu_is_set_or_rejected() {
    let Some(plugin) = plugin() else { return };
    // This driver cannot send frames of several buffers.
    for (mtu, status) in [("9000", 1), ("2026", 0)] {
        let to = format!("dpdk:net_null0?mtu={mtu}");
        let ended = run_with(plugin, &["generate", "-q", "-k", "ip/udp", "-c", "1", "--to", &to]).with_status(status);
        let is_refused = ended.errors.contains("sends only frames of one buffer; use mtu=2026 or less");
        assert_eq!(is_refused, status == 1, "{}", ended.errors);
    }
    if !may_make_labs() {
        return;
    }
    // The kernel interface of a driver gets the MTU too.
    let wire = Wire::of(&["a:eth0,b:eth0"]);
    let device = "dpdk:net_af_packet0,iface=eth0?mtu=1400";
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &wire.namespace("a")]).arg(program());
    command.args(["generate", "-q", "--yes", "-k", "ip/udp", "-c", "1", "--to", device]).env("LINERATE_DPDK", plugin);
    Ended::of(command.output().unwrap()).good();
    let link = tool("ip", &["-n", &wire.namespace("a"), "link", "show", "eth0"]);
    assert!(link.contains("mtu 1400"), "{link}");
}

/// A killed benchmark leaves no testpmd process.
#[test]
fn killed_benchmark_leaves_no_process() {
    let Some(plugin) = plugin() else { return };
    if !has_tools(&["dpdk-testpmd"]) {
        return;
    }
    let arguments = ["burst", "--dpdk", "--size", "64", "--ports", "1", "--json"];
    let bench = spawn(bench(&arguments).env("LINERATE_DPDK", plugin).stdout(Stdio::null()));
    let parent = bench.pid().to_string();
    // Fields of /proc/PID/stat: name in parentheses, state, parent.
    let is_child = |stat: &str| {
        let (name, fields) = stat.rsplit_once(") ").unwrap_or_default();
        name.contains("(dpdk-testpmd") && fields.split(' ').nth(1) == Some(&parent)
    };
    let stat = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let child = || {
        let names =
            std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.parse::<u32>().is_ok()).find(|pid| is_child(&stat(pid)))
    };
    wait_until("testpmd has started", || child().is_some());
    let pid = child().unwrap();
    bench.signal(rustix::process::Signal::KILL);
    bench.end();
    let is_running = || {
        let stat = stat(&pid);
        stat.contains("(dpdk-testpmd") && !stat.contains(") Z ")
    };
    wait_until("testpmd has ended", || !is_running());
}

/// Frames cross a kernel interface from DPDK to linerate and back.
#[test]
fn frames_cross_a_veth_pair_in_both_directions() {
    let Some(plugin) = plugin() else { return };
    if !may_make_labs() {
        return;
    }
    let (wire, scratch) = (Wire::of(&["a:eth0,b:eth0"]), Scratch::new());
    let (file, there, back) = (scratch.file("in.pcap"), scratch.file("there.pcap"), scratch.file("back.pcap"));
    // The driver restores 802.1ad tags as 802.1Q tags, and lets the kernel hold back fragments until reassembly.
    let is_plain = |record: &Record| {
        let at = if record.bytes[12] == 0x81 { 18 } else { 14 };
        let is_fragment = record.bytes[at - 2..at] == [8, 0] && record.bytes[at + 6..at + 8] != [0, 0];
        (60..=1514).contains(&record.bytes.len()) && record.bytes[12] < 0x88 && record.bytes[16] != 0x81 && !is_fragment
    };
    let frames: Vec<Record> = sample().into_iter().filter(is_plain).collect();
    assert!(frames.len() > 50);
    records::write(&file, &frames);
    let count = frames.len().to_string();
    let device = "dpdk:net_af_packet0,iface=eth0,framecnt=4096,framesz=2048,blocksz=65536";
    let in_a = |arguments: &[&str]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &wire.namespace("a")]).arg(program()).args(arguments);
        spawn(command.env("LINERATE_DPDK", plugin).stdin(Stdio::null()).stdout(Stdio::piped()))
    };
    let capture = wire.capture(&there, &["-c", &count]);
    in_a(&["replay", "-q", "--yes", "-r", &file, "--rate", "5kpps", "--to", device]).end().good();
    capture.end().good();
    records::assert_same_frames("from DPDK", &records::read(&there), &frames);
    let capture = in_a(&["capture", "-i", device, "-w", &back, "-c", &count, "-T", "60", "--json", "-Z", "root"]);
    capture.wait_until_open();
    let from = wire.port("b", "eth0", "");
    let sent = ["replay", "-q", "-r", &file, "--rate", "5kpps", "--to", &from];
    Ended::of(linerate(&sent).output().unwrap()).good();
    let json = capture.end().good().json();
    assert_eq!((&json["balanced"], &json["lost"]), (&true.into(), &0.into()), "{json:#}");
    records::assert_same_frames("to DPDK", &records::read(&back), &frames);
}
