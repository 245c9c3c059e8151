//! Tests specific to `mem:`: several senders with one name.

use crate::conformance::backends::{receive, transmit, unique};
use crate::conformance::frames::frames;
use crate::conformance::wire::{Receiver, block_of};
use linerate_burst::{Ledger, Nanos};
use linerate_port::RxOptions;

/// Two senders read their clocks, and the one with the earlier time sends later.
#[test]
fn late_sender_does_not_violate_the_horizon_of_another() {
    let name = format!("mem:{}?stamp=now", unique());
    let mut receiver = Receiver::new(receive(&name, &RxOptions::default()).queues);
    for (sender, now) in [(0, 1000), (1, 900), (0, 1100), (1, 1050)] {
        let mut port = transmit(&name, 0);
        let block = block_of(&frames(sender, 10, &[60]));
        assert_eq!(port.queues[0].send(block.burst()).unwrap(), 10);
        assert!(port.queues[0].flush(Nanos(now)).unwrap());
        receiver.round();
    }
    let outcome = receiver.finish(Ledger::new());
    let watch = &outcome.watches[0];
    assert_eq!((watch.frames, watch.broken, watch.back), (40, 0, 0), "{watch:?}");
    let times: Vec<u64> = outcome.got.chunks(10).map(|chunk| chunk[0].desc.time.0).collect();
    assert_eq!(times, [1000, 1000, 1100, 1100]);
}
