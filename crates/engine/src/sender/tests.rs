//! A schedule while the clock is set, and frames that are sent while an interface goes down.

use super::*;
use linerate_burst::Desc;
use linerate_generate::{Pacing, Schedule};
use linerate_port::TxQueue;
use std::sync::atomic::AtomicI64;

/// The clocks of this machine, with UTC shifted by this many nanoseconds.
struct Set(Arc<AtomicI64>);

impl Clock for Set {
    fn utc(&self) -> Nanos {
        SystemClock.utc().shifted(self.0.load(Ordering::Relaxed))
    }

    fn steady(&self) -> Nanos {
        SystemClock.steady()
    }
}

/// A hundred frames, 2 ms apart; the clock is set by 100 s during the run, back and forward.
#[test]
fn a_schedule_continues_while_the_clock_is_set() {
    let set = Arc::new(AtomicI64::new(0));
    let limits = Limits { duration: None, stop: Stop::new(), progress: Progress::new(), at_once: false };
    let mut sender = Sender::with(Vec::new(), limits, Box::new(Set(Arc::clone(&set))));
    let mut schedule = Schedule::new(Pacing::Recorded(1.0));
    let (began, mut sent) = (Instant::now(), 0);
    while sent < 100 {
        set.store([0, -100_000_000_000, 100_000_000_000][sent as usize / 20 % 3], Ordering::Relaxed);
        let (now, step) = sender.read_clock();
        schedule.follow(step);
        let desc = Desc::new(Nanos(sent * 2_000_000), 0, 60);
        let due = schedule.due_at(&desc, now);
        if due > now {
            assert!(sender.wait(due, now).is_ok());
            continue;
        }
        assert!(began.elapsed() >= Duration::from_millis((2 * sent).saturating_sub(1)), "too early");
        schedule.advance(&[desc]);
        sent += 1;
    }
    assert!(began.elapsed() < Duration::from_secs(20), "it waited for the clock");
}

/// Takes all frames; its interface goes down before they have left.
struct GoesDown {
    taken: u64,
    /// Numbers of frames after which it goes down next.
    downs: Vec<u64>,
    /// Frames that can leave; others are only taken.
    most_sent: u64,
}

impl TxQueue for GoesDown {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        self.taken += burst.len() as u64;
        Ok(burst.len())
    }

    fn flush(&mut self, _: Nanos) -> Result<bool, PortError> {
        let goes_down = self.downs.last() == Some(&self.taken);
        self.downs.truncate(self.downs.len() - usize::from(goes_down));
        if goes_down { Err(PortError::Down { port: "goes-down".into() }) } else { Ok(true) }
    }

    fn sent(&self) -> Sent {
        let frames = self.taken.min(self.most_sent);
        Sent { frames, bytes: 60 * frames }
    }

    fn counters(&self, ledger: &mut Ledger) {
        ledger.account(Stage::Send, "goes-down").add(Count::SendReceived, self.taken).add(Count::Sent, self.taken);
    }
}

/// An error of the flush that follows is reported, and frames that were taken before are not sent again.
#[test]
fn frames_accepted_before_link_down_are_sent_once() {
    assert_eq!(sent_and_downs(GoesDown { taken: 0, downs: vec![320, 32], most_sent: 320 }), (320, 2));
}

/// A queue accepts frames and then finds the interface still down: one event.
#[test]
fn link_down_is_reported_once() {
    assert_eq!(sent_and_downs(GoesDown { taken: 0, downs: vec![320, 32], most_sent: 32 }), (320, 1));
}

/// Sends 320 frames.
fn sent_and_downs(queue: GoesDown) -> (u64, u64) {
    let limits = Limits { duration: None, stop: Stop::new(), progress: Progress::new(), at_once: true };
    let queues: Vec<Box<dyn TxQueue>> = vec![Box::new(queue)];
    let port = TxPort { name: "goes-down".into(), queues, monitor: None };
    let mut sender = Sender::new(vec![port], limits);
    let mut block = linerate_burst::Block::new(1 << 16, 32);
    (0..32).for_each(|number| assert!(block.push(&Desc::new(Nanos(number), 0, 60), &[0; 60])));
    let mut left = 320;
    let step = |sender: &mut Sender, left: &mut usize| {
        let burst = block.burst();
        let now = sender.read_clock().0;
        *left -= sender.send(0, burst.slice(0..burst.len().min(*left)), now)?;
        Ok(*left > 0)
    };
    sender.run(&mut left, step, |_, _| {}).unwrap();
    let ledger = sender.finish(0).ledger;
    (ledger.total(Count::Sent), ledger.total(Count::SendLinkDown))
}
