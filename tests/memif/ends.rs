//! Peers that go and come: descriptors and mappings are as many after a thousand as before.

use super::peer::{Client, Port, RINGS, frame, name};
use linerate_burst::{Block, Count, Desc, Nanos};
use linerate_tests::support::wait_until;
use std::process::Command;

/// Peers that come and go.
const ROUNDS: u32 = 1000;
/// Says that this process runs no other test.
const ALONE: &str = "LINERATE_MEMIF_ALONE";

fn held() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mappings = std::fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, mappings.lines().filter(|line| line.contains("memfd:memif")).count())
}

/// In a process of its own, since other tests open and close too.
#[test]
fn a_thousand_peers_leave_nothing_behind() {
    if std::env::var_os(ALONE).is_none() {
        let this = "memif::ends::a_thousand_peers_leave_nothing_behind";
        let alone = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this, "--nocapture"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stderr));
        assert!(String::from_utf8_lossy(&alone.stdout).contains("1 passed"));
        return;
    }
    let name = name();
    let before = held();
    let mut port = Port::open(&format!("memif:{name}?role=server&users=65534"));
    let mut one_open = None;
    let mut back = Block::new(1 << 16, 1);
    assert!(back.push(&Desc::new(Nanos(1), 0, 100), &frame(7, 100)));
    for round in 0..ROUNDS {
        let client = Client::connected(&name, &mut port);
        // Both ways, so that both have had the memory of this one.
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
        // The bell goes with the thread that rings it.
        let most = *one_open.get_or_insert_with(held);
        wait_until("what the peer had is closed", || held() <= most);
    }
    assert_eq!(port.count(Count::SendPeerGone) + port.count(Count::Sent), u64::from(ROUNDS));
    drop(port);
    wait_until("all is closed", || held() == before);
    // Our own client, whose server goes.
    let mut client = Port::open(&format!("memif:{name}"));
    let apart = held();
    for round in 0..3 {
        let mut server = Port::open(&format!("memif:{name}?role=server"));
        let began = std::time::Instant::now();
        while held().1 < 2 && began.elapsed().as_secs() < 10 {
            client.settle();
            server.settle();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(held().1, 2, "round {round}: it does not come back");
        drop(server);
        client.settle();
        wait_until("what the server had is closed", || held() == apart);
    }
}
