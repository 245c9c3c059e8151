//! A capture copied by two threads delivers the same to its sinks as one copied by one thread.

use linerate_burst::block::View;
use linerate_burst::{Block, Desc, Horizon, Interface, Ledger, LinkType, Nanos, Sink, SinkError, StampSource};
use linerate_engine::{Capture, Receive, Selection, WaitStrategy};
use linerate_port::{Feed, Head, PortError, RxPort, RxQueue};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

const PORTS: usize = 4;
/// Number of frames that each port returns at a time, and of all: rounds of thousands, for which the second thread is
/// used.
const SHOWN: usize = 1500;
const FRAMES: usize = 6 * SHOWN;

/// A port that returns its frames once.
struct Prepared {
    block: Block,
    interfaces: [Interface; 1],
    next: usize,
}

impl Prepared {
    /// Every fourth of all frames; short ones, then long ones, of which a block holds less than a round.
    fn port(port: usize) -> RxPort {
        let mut block = Block::new(8 << 20, FRAMES);
        for index in 0..FRAMES {
            let number = index * PORTS + port;
            let length = number % if index < FRAMES / 2 { 90 } else { 1500 };
            let frame: Vec<u8> = (0..length).map(|at| (number * 7 + at) as u8).collect();
            assert!(block.push(&Desc::new(Nanos(number as u64 * 100_003), 0, length as u32), &frame));
        }
        let name = format!("prepared:{port}");
        let interfaces = [Interface::new(name.clone(), LinkType::ETHERNET, StampSource::User)];
        let queues: Vec<Box<dyn RxQueue>> = vec![Box::new(Prepared { block, interfaces, next: 0 })];
        RxPort {
            name,
            queues,
            feed: Feed::Stored,
            monitor: None,
            filter: String::new(),
            offset_ns: 0,
            notes: Vec::new(),
        }
    }
}

impl RxQueue for Prepared {
    fn fill(&mut self, _now: Nanos) -> Result<Head<'_>, PortError> {
        let end = (self.next + SHOWN).min(FRAMES);
        let horizon = self.block.descs().get(end).map_or(Horizon::Ended, |desc| Horizon::At(desc.time));
        Ok(Head { burst: self.block.burst().slice(self.next..end), horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        self.next += frames;
    }

    fn detach(&mut self) {}

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, _: &mut Ledger) {}
}

/// Keeps all descs, without their offsets, and all records.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<(Vec<Desc>, Vec<u8>)>>);

impl Sink for Kept {
    fn accept(&mut self, view: View<'_>) -> Result<(), SinkError> {
        let mut kept = self.0.lock().unwrap();
        let burst = view.burst();
        kept.0.extend(burst.descs().iter().map(|desc| Desc { offset: 0, ..*desc }));
        kept.1.extend_from_slice(view.records(0..burst.len()));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self, _: &Ledger) -> Result<(), SinkError> {
        Ok(())
    }

    fn counters(&self, _: &mut Ledger) {}
}

fn captured(copy_with_helper: bool, selection: Selection) -> (Vec<Desc>, Vec<u8>) {
    let kept = Kept::default();
    let ports = (0..PORTS).map(Prepared::port).collect();
    let mut capture = Capture::new(selection, vec![Box::new(kept.clone())]).copy_with_helper(copy_with_helper);
    let report = Receive { waiting: WaitStrategy::Spin, ..Receive::all(ports) }.run(&mut [&mut capture]);
    assert!(report.failure.is_none() && report.quiesced, "{report:?}");
    let kept = std::mem::take(&mut *kept.0.lock().unwrap());
    assert_eq!(capture.done().frames, kept.0.len() as u64);
    kept
}

#[test]
fn two_threads_deliver_the_same_as_one() {
    let (descs, records) = captured(false, Selection::default());
    assert_eq!(descs.len(), PORTS * FRAMES);
    assert!(descs.windows(2).all(|pair| pair[0].time < pair[1].time));
    for _ in 0..5 {
        let by_two = captured(true, Selection::default());
        assert!(by_two == (descs.clone(), records.clone()), "two threads hand on other frames");
    }
}

#[test]
fn selection_gives_the_same_with_two_threads() {
    let some = || Selection { frames: Some(20_000), ..Selection::default() };
    assert!(captured(true, some()) == captured(false, some()));
}
