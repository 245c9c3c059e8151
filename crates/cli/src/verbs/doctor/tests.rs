//! Checks of simulated machines: a tree of files, and facts of a driver. `golden/NAME.txt` has the findings, line by line;
//! `UPDATE_DOCS=1` writes it.

use super::finding::{Machine, Severity};
use super::fix::{AppliedFixes, Fix, Step};
use super::port::Port;
use super::tree::Tree;
use super::{examine, steps};
use linerate_backends::interface::{
    Channels, InterfaceDetails, RssConfig, XDP_BASIC, XDP_BUFFERS, XDP_SENDS, XDP_ZERO_COPY,
};
use linerate_port::InterfaceInfo;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Temporary folder with files, removed on drop.
struct Files(PathBuf);

impl Files {
    fn new(name: &str, files: &[(&str, &str)]) -> Files {
        let root = std::env::temp_dir().join(format!("linerate-doctor-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        Files(root)
    }

    fn machine(&self) -> Machine {
        Machine { tree: Tree::at(&self.0), folder: None, rules: None }
    }

    fn port(&self, scheme: &str, facts: InterfaceDetails) -> Port {
        let name = format!("{scheme}:{}", facts.found.name);
        Port { name, is_xdp: scheme == "xdp", netns: None, facts, tree: Tree::at(&self.0) }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Common files: eight processors, a kernel with all features.
const COMMON: &[(&str, &str)] = &[
    ("proc/sys/kernel/osrelease", "6.8.0-45-generic"),
    ("sys/kernel/btf/vmlinux", "BTF"),
    ("proc/sys/net/core/bpf_jit_enable", "1"),
    ("proc/sys/net/core/bpf_jit_harden", "0"),
    ("proc/sys/net/core/netdev_budget", "300"),
    ("proc/sys/net/core/netdev_budget_usecs", "2000"),
    ("proc/sys/net/core/netdev_max_backlog", "1000"),
    ("proc/sys/net/core/busy_poll", "0"),
    ("proc/sys/net/core/busy_read", "0"),
    ("proc/sys/net/core/rmem_max", "212992"),
    ("proc/sys/net/core/optmem_max", "131072"),
    ("proc/self/limits", "Max open files 1024 524288 files\nMax locked memory 8388608 8388608 bytes"),
    ("proc/self/status", "CapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-7"),
    ("proc/meminfo", "MemTotal: 32768000 kB\nMemAvailable: 30000000 kB\nHugePages_Free: 0\nHugepagesize: 2048 kB"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
    ("sys/devices/system/cpu/online", "0-7"),
    ("sys/devices/system/cpu/isolated", ""),
    ("sys/devices/system/cpu/vulnerabilities/spectre_v2", "Mitigation: Enhanced / Automatic IBRS"),
    ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc"),
    ("sys/devices/system/node/node0/cpulist", "0-3"),
    ("sys/devices/system/node/node1/cpulist", "4-7"),
    ("proc/cpuinfo", "flags : fpu tsc"),
    ("proc/stat", "cpu  1000 0 1000 8000 0 0 0 0 0 0"),
    ("proc/net/softnet_stat", "00010000 00000000 00000001 0 0"),
];

/// Returns the common files with additions and replacements.
fn with(others: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let kept = COMMON.iter().filter(|(path, _)| !others.iter().any(|(other, _)| other == path));
    kept.chain(others).copied().collect()
}

/// Asserts that the findings match the golden file.
fn assert_golden(name: &str, machine: &Machine, ports: &[Port]) {
    let mut text = String::new();
    for one in examine(machine, ports) {
        let of = one.port.map_or("machine", |port| &port.name);
        writeln!(text, "{of} {:?} {}: {}", one.finding.severity, one.check, one.finding.now).unwrap();
        // Reasons of passing checks do not depend on the machine.
        if one.finding.severity > Severity::Ok {
            writeln!(text, "    {}", one.finding.why).unwrap();
        }
        for command in &one.finding.remedies {
            assert!(command.len() <= 76, "{name}: longer than a terminal line: {command}");
            writeln!(text, "  $ {command}").unwrap();
        }
        assert!(one.finding.fixes.len() <= 64, "{name}: {}", one.check);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/verbs/doctor/golden/{name}.txt"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text, "{name}: run with UPDATE_DOCS=1 to update");
}

/// Returns an interface that is up, with changeable offloads that are on.
fn card(name: &str, driver: &str, speed_mbps: Option<u64>, offloads: &[&str]) -> InterfaceDetails {
    let offloads: Vec<String> = offloads.iter().map(|one| (*one).to_owned()).collect();
    InterfaceDetails {
        found: InterfaceInfo {
            name: name.into(),
            index: 2,
            driver: driver.into(),
            mtu: 1500,
            up: true,
            running: true,
            speed_mbps,
            offloads: offloads.clone(),
            ..InterfaceInfo::default()
        },
        changeable: offloads,
        received: 1_000_000,
        ..InterfaceDetails::default()
    }
}

/// An older 10 Gb/s card with defaults: small rings, asymmetric hash, all interrupts on one processor, another NUMA node.
#[test]
fn ixgbe_with_defaults() {
    let files = Files::new(
        "ixgbe",
        &with(&[
            (
                "proc/interrupts",
                "  CPU0 CPU1 CPU2 CPU3 CPU4 CPU5 CPU6 CPU7\n 70: 5 0 0 0 0 0 0 0 PCI-MSI 0-edge eth4-TxRx-0\n \
                 71: 5 0 0 0 0 0 0 0 PCI-MSI 1-edge eth4-TxRx-1\n 72: 5 0 0 0 0 0 0 0 PCI-MSI 2-edge eth4-TxRx-2\n \
                 73: 5 0 0 0 0 0 0 0 PCI-MSI 3-edge eth4-TxRx-3\n 74: 1 0 0 0 0 0 0 0 PCI-MSI 4-edge eth4\nNMI: 0 0",
            ),
            ("sys/class/net/eth4/device/msi_irqs/70", "msix"),
            ("sys/class/net/eth4/device/msi_irqs/71", "msix"),
            ("sys/class/net/eth4/device/msi_irqs/72", "msix"),
            ("sys/class/net/eth4/device/msi_irqs/73", "msix"),
            ("proc/irq/70/smp_affinity_list", "0"),
            ("proc/irq/71/smp_affinity_list", "0"),
            ("proc/irq/72/smp_affinity_list", "0"),
            ("proc/irq/73/smp_affinity_list", "0"),
            ("sys/class/net/eth4/device/numa_node", "1"),
            ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave"),
            ("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state3/name", "C6"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state3/latency", "133"),
            ("sys/devices/system/cpu/vulnerabilities/spectre_v2", "Mitigation: Retpolines, IBPB: conditional"),
            ("proc/net/softnet_stat", "00010000 00000020 00000100 0\n00010000 00000000 00000100 0"),
            ("proc/4711/comm", "irqbalance"),
            ("sys/class/net/eth4/threaded", "0"),
            ("sys/class/net/eth4/carrier_down_count", "5"),
        ]),
    );
    let facts = InterfaceDetails {
        firmware: "0x800003df".into(),
        bus: "0000:81:00.0".into(),
        channels: Some(Channels { rx: 4, most_rx: 63, combined: true }),
        rx_ring: Some((512, 4096)),
        pause: Some([true, true, true]),
        spread: Some(RssConfig {
            table: vec![0, 1, 0, 1],
            key: (0..40).collect(),
            toeplitz: true,
            symmetric_input: false,
        }),
        hashed: vec![("tcp4", 0xf0), ("udp4", 0x30)],
        xdp_features: Some(XDP_BASIC | XDP_SENDS | XDP_ZERO_COPY),
        stamps_by: Some(0),
        losses: vec![("rx_missed".into(), 77), ("rx_dropped".into(), 5), ("rx_no_dma_resources".into(), 12)],
        ..card("eth4", "ixgbe", Some(10_000), &["rx-gro", "rx-lro", "rx-vlan-hw-parse"])
    };
    let machine = files.machine();
    let ports = [files.port("packet", facts)];
    assert_golden("ixgbe", &machine, &ports);
    let found = examine(&machine, &ports);
    let commands: Vec<String> = steps(&found).iter().map(|step| step.fix.command(step.port)).collect();
    assert_eq!(
        commands,
        [
            "echo performance > /sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
            "echo performance > /sys/devices/system/cpu/cpufreq/policy1/scaling_governor",
            "sysctl -w net.core.netdev_budget=600",
            "sysctl -w net.core.netdev_budget_usecs=8000",
            "sysctl -w net.core.netdev_max_backlog=10000",
            "ethtool -G eth4 rx 4096",
            "ethtool -K eth4 rx-gro off",
            "ethtool -K eth4 rx-lro off",
        ]
    );
}

/// A tuned 100 Gb/s card: no fix is left for XDP.
#[test]
fn tuned_ice() {
    let files = Files::new(
        "ice",
        &with(&[
            ("proc/self/status", "CapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-3"),
            ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance"),
            (
                "proc/interrupts",
                "  CPU0 CPU1\n 90: 5 0 PCI-MSI 0-edge ice-ens2f0-TxRx-0\n 91: 0 5 PCI-MSI 1-edge ice-ens2f0-TxRx-1",
            ),
            ("proc/irq/90/effective_affinity_list", "0"),
            ("proc/irq/91/effective_affinity_list", "1"),
            ("sys/class/net/ens2f0/device/numa_node", "0"),
            ("sys/class/net/ens2f0/gro_flush_timeout", "0"),
            ("sys/class/net/ens2f0/napi_defer_hard_irqs", "0"),
            ("sys/class/net/ens2f0/queues/rx-0/rps_cpus", "00000000"),
            ("sys/class/ptp/ptp0/clock_name", "ice-0000:3b:00.0-clk"),
        ]),
    );
    let facts = InterfaceDetails {
        firmware: "4.40 0x8001c967".into(),
        bus: "0000:3b:00.0".into(),
        channels: Some(Channels { rx: 8, most_rx: 64, combined: true }),
        rx_ring: Some((8160, 8160)),
        pause: Some([false, false, false]),
        spread: Some(RssConfig {
            table: (0..8).collect(),
            key: [0x6d, 0x5a].repeat(26),
            toeplitz: true,
            symmetric_input: false,
        }),
        hashed: vec![("tcp4", 0xf0), ("udp4", 0xf0)],
        xdp_features: Some(XDP_BASIC | XDP_SENDS | XDP_ZERO_COPY | XDP_BUFFERS),
        stamps_by: Some(0),
        ..card("ens2f0", "ice", Some(100_000), &["rx-gro"])
    };
    let (machine, ports) = (files.machine(), [files.port("xdp", facts)]);
    assert_golden("ice", &machine, &ports);
    assert!(steps(&examine(&machine, &ports)).is_empty());
}

/// An XDP program of another owner, a large MTU, hardware GRO, a slow clock, an old kernel, no capabilities.
#[test]
fn mlx5_in_use() {
    let files = Files::new(
        "mlx5",
        &with(&[
            ("proc/sys/kernel/osrelease", "5.15.0-91-generic"),
            ("proc/sys/net/core/bpf_jit_harden", "2"),
            ("proc/self/status", "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-7"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"),
            ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm"),
            ("sys/devices/system/cpu/smt/active", "1"),
            ("sys/class/net/p0/gro_flush_timeout", "20000"),
            ("sys/class/net/p0/napi_defer_hard_irqs", "2"),
            ("sys/class/net/p0/threaded", "1"),
        ]),
    );
    let mut facts = InterfaceDetails {
        firmware: "16.35.1012 (MT_0000000012)".into(),
        channels: Some(Channels { rx: 16, most_rx: 16, combined: true }),
        rx_ring: Some((1024, 8192)),
        pause: Some([false, true, false]),
        xdp_features: Some(XDP_BASIC | XDP_ZERO_COPY),
        xdp_program: Some((42, "other".into(), true)),
        disciplines: vec![("clsact".into(), 0), ("mq".into(), 70)],
        uses: vec!["it has the address 10.0.0.1".into()],
        losses: vec![("rx_out_of_buffer".into(), 9000)],
        ..card("p0", "mlx5_core", Some(25_000), &["rx-gro", "rx-gro-hw", "rx-vlan-hw-parse", "rx-fcs", "rx-all"])
    };
    facts.found.mtu = 9000;
    assert_golden("mlx5", &files.machine(), &[files.port("xdp", facts.clone()), files.port("packet", facts)]);
}

/// A host with drops at sockets, connection table, firewall, a qdisc and a bridge port.
#[test]
fn host_with_drops() {
    let files = Files::new(
        "host",
        &with(&[
            ("proc/uptime", "90000.12 170000.00"),
            (
                "proc/net/snmp",
                "Ip: Forwarding InReceives OutDiscards\nIp: 2 50000 40\nTcp: MaxConn InSegs InErrs\nTcp: -1 40000000 30\n\
                 Udp: InDatagrams NoPorts InErrors RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors\n\
                 Udp: 165 70 9901 9835 40 55 80 7",
            ),
            ("proc/net/netstat", "TcpExt: ListenOverflows ListenDrops\nTcpExt: 12 12\nIpExt: InNoRoutes\nIpExt: 3"),
            ("proc/net/snmp6", "Ip6InReceives   \t7\nUdp6InDatagrams\t0\nUdp6RcvbufErrors\t5"),
            (
                "proc/net/udp",
                "  sl  local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode ref pointer drops\n\
                 10: 0100007F:1389 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 4711 2 0 9800\n\
                 11: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 4712 2 0 3",
            ),
            (
                "proc/net/stat/nf_conntrack",
                "entries found drop early_drop\n00000010 0 0000000b 00000001\n00000010 0 00000001 0",
            ),
            ("proc/sys/net/netfilter/nf_conntrack_count", "65000"),
            ("proc/sys/net/netfilter/nf_conntrack_max", "65536"),
            ("sys/class/net/eth0/brport/state", "4"),
        ]),
    );
    let rules = "table inet filter {\n udp dport 53 counter packets 40 bytes 2400 drop\n tcp dport 22 counter packets 9 bytes 1 accept\n}\n\
                 :INPUT DROP [2:120]\n[7:420] -A INPUT -p udp -j DROP\n[5:300] -A INPUT -j ACCEPT\n";
    let machine = Machine { rules: Some(rules.into()), ..files.machine() };
    let facts = InterfaceDetails { disciplines: vec![("mq".into(), 70)], ..card("eth0", "virtio_net", None, &[]) };
    assert_golden("host", &machine, &[files.port("packet", facts)]);
}

/// A virtual machine with one queue, and an interface without a link.
#[test]
fn virtio_guest() {
    let files = Files::new(
        "virtio",
        &with(&[
            ("proc/cpuinfo", "flags : fpu tsc hypervisor"),
            ("proc/stat", "cpu  1000 0 1000 7000 0 0 0 1000 0 0"),
            // Damaged datagrams: larger buffers do not help.
            (
                "proc/net/snmp",
                "Ip: InReceives InHdrErrors OutDiscards\nIp: 1000 20 3\n\
                 Udp: InDatagrams InErrors RcvbufErrors InCsumErrors\nUdp: 1000 50 0 50",
            ),
            ("sys/class/net/eth0/device/modalias", "virtio:d00000001v00001AF4"),
            ("sys/class/net/eth0/queues/rx-0/rps_cpus", "00"),
            ("sys/class/net/eth0/queues/tx-0/xps_cpus", "00"),
            ("sys/class/net/eth1/queues/rx-0/rps_cpus", "0f"),
        ]),
    );
    let facts = InterfaceDetails {
        channels: Some(Channels { rx: 1, most_rx: 8, combined: true }),
        rx_ring: Some((256, 256)),
        ..card("eth0", "virtio_net", None, &["rx-gro"])
    };
    let mut dead = card("eth1", "virtio_net", None, &[]);
    dead.found.running = false;
    let ports = [files.port("packet", facts), files.port("packet", dead)];
    assert_golden("virtio", &files.machine(), &ports);
}

/// An empty machine: checks find nothing and do not fail.
#[test]
fn an_empty_machine_has_few_findings() {
    let files = Files::new("nothing", &[]);
    let ports = [files.port("packet", InterfaceDetails::default())];
    let found = examine(&files.machine(), &ports);
    assert!(found.iter().all(|one| one.port.is_some()), "{found:?}");
    assert!(found.iter().any(|one| one.check == "link" && one.finding.severity == Severity::Bad), "{found:?}");
}

#[test]
fn malformed_files_do_not_fail() {
    let strange: Vec<(&str, &str)> =
        COMMON.iter().map(|(path, _)| (*path, "[ \u{1b}-: 99999999999999999999 ffffffffffffffffff")).collect();
    let files = Files::new("strange", &strange);
    examine(&files.machine(), &[files.port("xdp", card("e;rm -rf", "x", Some(u64::MAX), &["rx-gro", "rx-lro"]))]);
}

#[test]
fn changes_are_restored_last_first() {
    let files = Files::new("restored", &[("proc/sys/net/core/x", "300"), ("sys/y", "powersave")]);
    let machine = files.machine();
    let text = |path: &str| machine.tree.text(path).unwrap();
    let step = |path: &str, value: &str| Step { port: None, fix: Fix::file(path, value) };
    let steps = vec![
        step("proc/sys/net/core/x", "600"),
        step("proc/none", "1"),
        step("proc/sys/net/core/x", "700"),
        step("sys/y", "performance"),
    ];
    let made = AppliedFixes::make(&machine.tree, steps);
    assert_eq!((made.len(), text("proc/sys/net/core/x"), text("sys/y")), (3, "700".into(), "performance".into()));
    drop(made);
    assert_eq!((text("proc/sys/net/core/x"), text("sys/y")), ("300".into(), "powersave".into()));
    assert!(!machine.tree.has("proc/none"), "a missing file was created");
}

#[test]
fn later_changes_of_others_are_kept() {
    let files = Files::new("kept", &[("sys/x", "1"), ("sys/y", "1")]);
    let machine = files.machine();
    let steps = ["sys/x", "sys/y"].map(|path| Step { port: None, fix: Fix::file(path, "2") });
    let made = AppliedFixes::make(&machine.tree, steps.into());
    machine.tree.replace("sys/x", "3").unwrap();
    drop(made);
    assert_eq!(["sys/x", "sys/y"].map(|path| machine.tree.text(path).unwrap()), ["3", "1"]);
}

#[test]
fn commands_quote_names() {
    let files = Files::new("names", &[]);
    let mut port = files.port("packet", card("e'0;rm", "x", None, &[]));
    assert_eq!(Fix::off("rx-gro").command(Some(&port)), r"ethtool -K 'e'\''0;rm' rx-gro off");
    port.netns = Some("lab-a".into());
    port.facts.found.name = "eth0".into();
    assert_eq!(Fix::RxRing(4096).command(Some(&port)), "ip netns exec lab-a ethtool -G eth0 rx 4096");
    assert_eq!(port.write("threaded", "0"), "echo 0 | ip netns exec lab-a tee /sys/class/net/eth0/threaded");
}
