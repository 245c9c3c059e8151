//! Memory and processor time of an idle run.

use linerate_tests::support::program::{Running, start};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, judge, may_make_labs};
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Maximum resident memory, without code; of the rings only the one of 8 MiB counts.
const MOST: u64 = 20 * MIB;
/// Time over which processor time is measured, after the start of a run.
const LOOK: Duration = Duration::from_secs(4);

/// Returns resident bytes without code, and those of them in rings shared with the kernel.
fn resident(running: &Running) -> (u64, u64) {
    let maps = std::fs::read_to_string(format!("/proc/{}/smaps", running.pid())).unwrap();
    let code = std::fs::read_link(format!("/proc/{}/exe", running.pid())).unwrap();
    let is_code = |line: &str| line.ends_with(code.to_str().unwrap()) && !line.contains(" rw");
    let (mut all, mut rings, mut is_ring, mut counts) = (0, 0, false, true);
    for line in maps.lines() {
        if let Some(size) = line.strip_prefix("Rss:") {
            let bytes = size.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024;
            all += if counts { bytes } else { 0 };
            rings += if is_ring { bytes } else { 0 };
        } else if line.split(' ').next().is_some_and(|range| range.contains('-')) {
            is_ring = line.contains("socket:") || line.contains("bpf-map");
            counts = !is_code(line);
        }
    }
    (all, rings)
}

/// Processor time, in ticks of 10 ms.
fn ticks(running: &Running) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", running.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn idle_run_takes_little_memory_and_processor_time() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch) = (Wire::new(), Scratch::new());
    let file = scratch.file("out.pcapng");
    let packet = wire.port("b", "eth0", "");
    let (small, xdp) = (wire.port("b", "eth0", "&ring=8MiB"), packet.replace("packet:", "xdp:"));
    for arguments in [
        &["capture", &packet][..],
        // This ring of 8 MiB counts.
        &["capture", &small, "-w", &file],
        &["capture", &xdp, "-w", &file],
        &["count", &packet],
        &["count", &xdp],
        &["check", &packet],
    ] {
        let running = start(arguments);
        std::thread::sleep(Duration::from_secs(2));
        let before = ticks(&running);
        std::thread::sleep(LOOK);
        let share = (ticks(&running) - before) as f64 / 100.0 / LOOK.as_secs_f64();
        let (all, rings) = resident(&running);
        running.interrupt().good();
        let counted = all - if arguments[1] == small { 0 } else { rings };
        assert!(counted < MOST, "{arguments:?}: {all} bytes resident, {rings} of them in rings");
        judge(share <= 0.005, &format!("{arguments:?}: {:.2} % of a processor", share * 100.0));
    }
}
