//! Peers that connect and disconnect: descriptors and mappings return to the same number after a thousand peers.

use super::peer::{Client, Port, RINGS, frame, name};
use linerate_burst::{Block, Count, Desc, Nanos};
use linerate_tests::support::wait_until;
use std::process::Command;

/// Number of peers.
const ROUNDS: u32 = 1000;
/// Environment variable set in the process that runs only this test.
const SINGLE: &str = "LINERATE_MEMIF_SINGLE";

fn held() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mappings = std::fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, mappings.lines().filter(|line| line.contains("memfd:memif")).count())
}

/// Runs in its own process, since other tests also open and close descriptors.
#[test]
fn a_thousand_peers_leak_no_descriptors_or_mappings() {
    if std::env::var_os(SINGLE).is_none() {
        let this = "memif::leaks::a_thousand_peers_leak_no_descriptors_or_mappings";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this, "--nocapture"])
            .env(SINGLE, "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
        return;
    }
    let name = name();
    let before = held();
    let mut port = Port::open(&format!("memif:{name}?role=server&users=65534"));
    let mut limit_open = None;
    let mut back = Block::new(1 << 16, 1);
    assert!(back.push(&Desc::new(Nanos(1), 0, 100), &frame(7, 100)));
    for round in 0..ROUNDS {
        let client = Client::connected(&name, &mut port);
        // Both directions, so that both map the memory of this client.
        assert_eq!(port.tx.queues[0].send(back.burst()).unwrap(), 1, "round {round}");
        assert_eq!(
            (client.memory.half(RINGS[1] + 64), client.memory.length(RINGS[1], 0)),
            (1, (100, 0)),
            "round {round}"
        );
        client.memory.head(RINGS[0], client.memory.frame(0, &frame(round as u8, 60)));
        if round % 2 == 0 {
            assert_eq!(port.step().unwrap(), [frame(round as u8, 60)]);
        }
        drop(client);
        port.settle();
        // The eventfd is closed by the thread that signals it.
        let limit = *limit_open.get_or_insert_with(held);
        wait_until("the peer's descriptors and mappings are closed", || held() <= limit);
    }
    assert_eq!(port.count(Count::SendPeerGone) + port.count(Count::Sent), u64::from(ROUNDS));
    drop(port);
    wait_until("all descriptors and mappings are closed", || held() == before);
    // A linerate client whose server disconnects.
    let mut client = Port::open(&format!("memif:{name}"));
    let unconnected = held();
    for round in 0..3 {
        let mut server = Port::open(&format!("memif:{name}?role=server"));
        let start = std::time::Instant::now();
        while held().1 < 2 && start.elapsed().as_secs() < 10 {
            client.settle();
            server.settle();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(held().1, 2, "round {round}: the client does not reconnect");
        drop(server);
        client.settle();
        wait_until("the server's descriptors and mappings are closed", || held() == unconnected);
    }
}
