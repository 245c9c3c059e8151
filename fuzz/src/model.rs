//! Compares packets from the fast generator with the model.

use linerate_burst::Nanos;
use linerate_generate::stream::StreamSet;
use linerate_generate::timeline::Slot;
use linerate_generate::{Run, SenderPart, Timeline, Traffic};

/// Number of packets compared.
const COMPARED: usize = 40;
/// UTC nanoseconds at the start of a run.
const START: u64 = 1_700_000_000_123_456_789;

/// Checks that a parsed set of streams is valid, and that its packets equal those of the model.
pub fn compare(set: &StreamSet) {
    if let Err(wrong) = set.check() {
        panic!("{wrong}");
    }
    let mut runs = Vec::new();
    Timeline::new(set, SenderPart::WHOLE).unwrap().take(u64::MAX, COMPARED, &mut runs);
    let slots: Vec<Slot> = runs.into_iter().flat_map(Run::slots).collect();
    let mut traffic = Traffic::new(set, SenderPart::WHOLE).unwrap();
    let (mut done, mut elapsed) = (0, 0);
    while done < slots.len() {
        let due = traffic.next_due().expect("as many packets as the model has");
        assert!(due == slots[done].due && due >= elapsed);
        elapsed = due;
        let now = Nanos(START.wrapping_add(elapsed));
        let burst = traffic.offer(elapsed, now).expect("valid packets");
        assert!(!burst.is_empty());
        for ((_, frame), slot) in burst.iter().zip(&slots[done..]) {
            let stream = &set.streams[slot.stream as usize];
            assert!(frame == stream.frame(slot.number, now.0, &set.key), "{slot:?} of {stream:?}");
        }
        let shown = burst.len();
        traffic.consume(shown);
        done += shown;
    }
}
