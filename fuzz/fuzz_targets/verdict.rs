//! For any verdicts at any time, each frame is passed or dropped once, in order per flow, and accounted for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_backends::{REGISTRY, open_rx};
use linerate_burst::{Block, Count, Desc, Nanos};
use linerate_engine::{Forward, Inspect, Policy, Progress, Receive, Verdict};
use linerate_port::{RxOptions, Spec, TxOptions};
use std::time::Duration;

/// One byte per frame: 2 bits of flow, 2 of verdict, 4 of rounds until the verdict (15: forever).
struct Script {
    bytes: Vec<u8>,
    /// Tickets, and the rounds of their verdicts.
    waiting: Vec<(u64, u32)>,
    rounds: u32,
}

impl Script {
    fn verdict(&self, ticket: u64) -> Verdict {
        [Verdict::Pass, Verdict::Changed, Verdict::Drop, Verdict::Pass]
            [usize::from(self.bytes[ticket as usize] >> 2 & 3)]
    }
}

impl Inspect for Script {
    fn inspect(&mut self, ticket: u64, _: &Desc, frame: &mut [u8]) -> Verdict {
        let verdict = self.verdict(ticket);
        if verdict == Verdict::Changed {
            frame[59] ^= 0xff;
        }
        match self.bytes[ticket as usize] >> 4 {
            0 => verdict,
            rounds => {
                self.waiting.push((ticket, self.rounds + u32::from(rounds)));
                Verdict::Hold
            }
        }
    }

    fn flow(&mut self, frame: &[u8]) -> u64 {
        (frame[0] & 3).into()
    }

    fn later(&mut self, verdicts: &mut Vec<(u64, Verdict)>) {
        self.rounds += 1;
        let due = |(ticket, at): &(u64, u32)| *at <= self.rounds && self.bytes[*ticket as usize] >> 4 != 15;
        let (now, later) = std::mem::take(&mut self.waiting).into_iter().partition(due);
        self.waiting = later;
        let now: Vec<(u64, u32)> = now;
        // In reverse order, one of them twice, and one for an unknown ticket.
        verdicts.extend(now.iter().rev().map(|(ticket, _)| (*ticket, self.verdict(*ticket))));
        verdicts.extend(now.first().map(|(ticket, _)| (*ticket, Verdict::Drop)));
        verdicts.push((u64::MAX, Verdict::Pass));
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [one, other] = ["mem:fuzz-in?chunk=256", "mem:fuzz-out?chunk=256"].map(|name| Spec::parse(name).unwrap());
    let tx = |spec: &Spec| REGISTRY.open_tx(spec, &TxOptions::default()).unwrap();
    let (mut into, mut from) = (tx(&one), open_rx(&one, &RxOptions::default()).unwrap());
    let (out, mut far) = (tx(&other), open_rx(&other, &RxOptions::default()).unwrap());
    let mut block = Block::new(1 << 20, bytes.len().max(1));
    for (number, byte) in bytes.iter().enumerate() {
        let mut frame = [*byte; 60];
        frame[1..3].copy_from_slice(&(number as u16).to_be_bytes());
        assert!(block.push(&Desc::new(Nanos(number as u64), 0, 60), &frame));
    }
    assert_eq!(into.queues[0].send(block.burst()).unwrap(), bytes.len());
    drop(into);
    let script = Script { bytes: bytes.to_vec(), waiting: Vec::new(), rounds: 0 };
    let fail_open = bytes.len().is_multiple_of(2);
    let policy = Policy { fail_open, deadline: Duration::from_millis(2), most: 1 + bytes.len() / 3 };
    let mut forward = Forward::inspected(&mut from, out, Progress::new(), (Box::new(script), policy)).unwrap();
    let run = Receive::all(vec![from]).run(&mut [&mut forward]);
    drop(forward);
    assert!(run.failure.is_none(), "{:?}", run.failure);
    assert_eq!(run.ledger.imbalances(), [], "{:#?}", run.ledger);
    let mut got: Vec<(u8, u16)> = Vec::new();
    loop {
        let burst = far.queues[0].fill(Nanos::ZERO).unwrap().burst;
        let shown = burst.len();
        got.extend(burst.iter().map(|(_, frame)| (frame[0] & 3, u16::from_be_bytes([frame[1], frame[2]]))));
        far.queues[0].consume(shown);
        if shown == 0 {
            break;
        }
    }
    assert_eq!(got.len() as u64, run.ledger.total(Count::VerdictPassed));
    assert_eq!(run.ledger.total(Count::VerdictReceived), bytes.len() as u64);
    for flow in 0..4 {
        let of_flow = got.iter().filter(|(of, _)| *of == flow).map(|(_, number)| *number);
        assert!(of_flow.is_sorted_by(|before, after| before < after), "flow {flow}: wrong order or duplicates");
    }
});
