//! Printed frames: with a waiting run none is missing; otherwise each is accounted for, even if the reader has
//! disconnected or the writer has panicked.

use linerate_burst::{
    Block, Burst, Count, Desc, Horizon, Interface, Kind, Ledger, LinkType, Nanos, Stage, StampSource,
};
use linerate_engine::{CountConsumer, LineWriter, PrintConsumer, Receive, RunReport, Selection};
use linerate_port::{Feed, Head, PortError, RxPort, RxQueue};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A port that returns the same frames `times` times.
struct Again {
    block: Block,
    interfaces: [Interface; 1],
    times: u64,
    shown: u64,
}

/// Number of frames returned at a time, more than can be queued for a writer.
const SHOWN: u64 = 4096;
const MANY: u64 = SHOWN * 100;

impl Again {
    fn port(times: u64) -> RxPort {
        let mut block = Block::new(SHOWN as usize * 128, SHOWN as usize);
        for number in 0..SHOWN {
            assert!(block.push(&Desc::new(Nanos(number), 0, 60), &[number as u8; 60]));
        }
        let interfaces = [Interface::new("again", LinkType::ETHERNET, StampSource::User)];
        let queues: Vec<Box<dyn RxQueue>> = vec![Box::new(Again { block, interfaces, times, shown: 0 })];
        let name = "again".into();
        RxPort {
            name,
            queues,
            monitor: None,
            filter: String::new(),
            offset_ns: 0,
            feed: Feed::Stored,
            notes: Vec::new(),
        }
    }
}

impl RxQueue for Again {
    fn fill(&mut self, _: Nanos) -> Result<Head<'_>, PortError> {
        let is_over = self.shown >= self.times * SHOWN;
        let (shown, horizon) = if is_over { (0, Horizon::Ended) } else { (SHOWN as usize, Horizon::At(Nanos::MAX)) };
        Ok(Head { burst: self.block.burst().slice(0..shown), horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        self.shown += frames as u64;
    }

    fn detach(&mut self) {
        self.times = 0;
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Receive, "again");
        account.add(Count::Received, self.shown).add(Count::Delivered, self.shown);
    }
}

/// Counts what it writes, up to `most`.
struct Counted {
    written: Arc<Mutex<u64>>,
    most: u64,
    dies: bool,
    /// Time per block.
    pause: Duration,
}

impl LineWriter for Counted {
    fn write(&mut self, burst: Burst<'_>, interfaces: &[Interface]) -> usize {
        assert_eq!(interfaces[0].name, "again");
        std::thread::sleep(self.pause);
        let mut written = self.written.lock().unwrap();
        assert!(!self.dies || *written + (burst.len() as u64) < self.most, "the writer has a bug");
        let frames = (burst.len() as u64).min(self.most - *written);
        *written += frames;
        frames as usize
    }
}

fn printing(most: u64, dies: bool, is_lossy: bool) -> (PrintConsumer, Arc<Mutex<u64>>) {
    let written = Arc::default();
    let lines = Counted { written: Arc::clone(&written), most, dies, pause: Duration::ZERO };
    (PrintConsumer::new(Selection::default(), lines, is_lossy), written)
}

fn count(run: &RunReport, count: Count) -> u64 {
    assert_eq!(run.ledger.imbalances().len(), 0, "{:?}", run.ledger);
    run.ledger.accounts().iter().filter(|account| account.stage == Stage::Print).map(|account| account.get(count)).sum()
}

#[test]
fn lossless_writer_gets_every_frame() {
    let written = Arc::default();
    let pause = Duration::from_millis(3);
    let lines = Counted { written: Arc::clone(&written), most: u64::MAX, dies: false, pause };
    let mut printing = PrintConsumer::new(Selection::default(), lines, false);
    let run = Receive::all(vec![Again::port(100)]).run(&mut [&mut printing]);
    assert_eq!((count(&run, Count::Printed), run.ledger.lost(), *written.lock().unwrap()), (MANY, 0, MANY));
    assert_eq!(printing.done(), MANY);
}

/// Nothing is written before the frames have ended.
#[test]
fn a_lossy_writer_misses_frames_without_space() {
    let (mut printing, written) = printing(u64::MAX, false, true);
    let mut counting = CountConsumer::new(Selection::default(), false);
    let blocked = written.lock().unwrap();
    let run = std::thread::scope(|scope| {
        let run = scope.spawn(|| Receive::all(vec![Again::port(100)]).run(&mut [&mut printing, &mut counting]));
        // A run that waits would not end; one that does not ends soon, except for the writer.
        std::thread::sleep(Duration::from_millis(500));
        drop(blocked);
        run.join().unwrap()
    });
    let (printed, slow) = (count(&run, Count::Printed), count(&run, Count::PrintSlow));
    assert_eq!((printed + slow, printed, run.ledger.lost()), (MANY, *written.lock().unwrap(), slow));
    assert!((SHOWN..MANY).contains(&slow), "{slow} of {MANY}");
    assert_eq!(counting.done().all.traffic.frames, MANY);
}

/// Files are complete anyway, and soon.
#[test]
fn a_stalled_writer_only_delays_runs_that_wait_for_it() {
    let (mut printing, written) = printing(u64::MAX, false, true);
    let mut counting = CountConsumer::new(Selection::default(), false);
    let blocked = written.lock().unwrap();
    let run = Receive::all(vec![Again::port(100)]).run(&mut [&mut printing, &mut counting]);
    assert_eq!((count(&run, Count::Printed), count(&run, Count::PrintSlow)), (0, MANY));
    assert_eq!(counting.done().all.traffic.frames, MANY);
    drop(blocked);
}

#[test]
fn disconnected_reader_affects_nothing_else() {
    let (mut sole, _) = printing(5000, false, false);
    let run = Receive::all(vec![Again::port(u64::MAX / SHOWN)]).run(&mut [&mut sole]);
    assert_eq!((count(&run, Count::Printed), run.ledger.lost(), run.failure.is_none()), (5000, 0, true));
    assert!(count(&run, Count::PrintUnread) > 0);
    let (mut lossy, _) = printing(5000, false, false);
    let mut counting = CountConsumer::new(Selection::default(), false);
    let run = Receive::all(vec![Again::port(100)]).run(&mut [&mut lossy, &mut counting]);
    assert_eq!((count(&run, Count::PrintUnread), counting.done().all.traffic.frames), (MANY - 5000, MANY));
}

#[test]
fn panicked_writer_keeps_accounts_balanced() {
    let (mut printing, written) = printing(50_000, true, false);
    let run = Receive::all(vec![Again::port(100)]).run(&mut [&mut printing]);
    assert!(run.failure.as_ref().unwrap().to_string().contains("the writer has a bug"));
    assert!(count(&run, Count::PrintDied) > 0);
    assert_eq!(count(&run, Count::Printed), printing.done());
    assert!(written.is_poisoned() && run.ledger.sum(Stage::Print, Kind::Received) > 0);
}
