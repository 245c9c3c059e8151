//! Sharing the ordered stream: the writer of a block ring beside the capture, its acceptor in a thread of its own.

mod accounts;

use self::accounts::Accounts;
use crate::acceptor::AcceptorThread;
use crate::clock;
use crate::control::Stop;
use crate::error::ReceiveError;
use linerate_burst::{Block, Committed, Count, Interface, Ledger, Nanos, Stage};
use linerate_port::news;
use linerate_share::{Acceptor, Access, Client, Error, Writer};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// How to share.
#[derive(Clone, Debug)]
pub struct SharingOptions {
    /// Name of the ring, or the path of its socket.
    pub name: String,
    /// How large the ring is, and of what memory.
    pub ring: linerate_share::Options,
    /// Who may attach beside root and the user who shares, and whether as a lossless reader.
    pub access: Access,
    /// Begin once so many readers have attached.
    pub wait_for: usize,
    /// How long lossless readers may block the run in one go before they are evicted; `None`: without a limit.
    pub patience: Option<Duration>,
}

/// A ring that is shared, before the run that fills it.
pub struct Sharing {
    options: SharingOptions,
    writer: Writer,
    acceptor: Acceptor,
}

/// How long the writer sleeps before it looks again for a free block.
const HOLD_NAP: Duration = Duration::from_micros(20);
/// How long a run that was asked to stop goes on waiting for a free block.
const LAST_WAIT: Duration = Duration::from_secs(5);
/// How long readers have after the end to take what they were promised, counted from when one last took something: one
/// that is stopped delays the end by this much, one that works on is waited for.
const DRAIN: Duration = Duration::from_secs(1);
/// How long they have altogether.
const LAST_DRAIN: Duration = Duration::from_secs(5);

impl Sharing {
    /// Makes the ring and its socket; nobody is let in before the run.
    pub fn create(options: SharingOptions) -> Result<Sharing, Error> {
        let (mut writer, acceptor) =
            Writer::create(&options.name, options.access.clone(), &options.ring, clock::now())?;
        writer.set_patience(options.patience);
        Ok(Sharing { options, writer, acceptor })
    }

    /// Of what memory the ring is and why, a line each, for people.
    pub fn notes(&self) -> &[String] {
        self.writer.notes()
    }

    /// Shortest frames that the whole ring holds.
    pub fn room(&self) -> u64 {
        self.writer.room()
    }
}

/// The ring of a run.
pub(crate) struct Shared {
    name: String,
    writer: Writer,
    clients: Receiver<Client>,
    /// Lets the acceptor close when dropped.
    acceptor: AcceptorThread,
    stop: Stop,
    /// When the run ends by itself.
    until: Option<Instant>,
    state: Committed,
    /// Frames lost before they got here, as last looked up.
    drops: u64,
    /// Frames that found no free block to the end.
    no_block: u64,
    /// Whether the run was asked to stop and has waited long enough for a block.
    given_up: bool,
    /// Whether it was said that nobody comes in any more.
    is_shut: bool,
    accounts: Accounts,
}

impl Shared {
    /// Opens the acceptor and waits for as many readers as the run is to begin with.
    pub(crate) fn open(sharing: Sharing, stop: Stop, duration: Option<Duration>) -> std::io::Result<Shared> {
        let Sharing { options, writer, acceptor } = sharing;
        let (acceptor, clients) = AcceptorThread::start(acceptor)?;
        let mut shared = Shared {
            name: options.name,
            writer,
            clients,
            acceptor,
            stop,
            until: None,
            state: Committed::default(),
            drops: 0,
            no_block: 0,
            given_up: false,
            is_shut: false,
            accounts: Accounts::default(),
        };
        while shared.writer.readers().len() < options.wait_for && !shared.stop.is_requested() && !shared.has_failed() {
            std::thread::sleep(HOLD_NAP);
            shared.tick(clock::now());
        }
        shared.until = duration.map(|duration| Instant::now() + duration);
        Ok(shared)
    }

    /// Whether nobody is let in any more, by a bug.
    pub(crate) fn has_failed(&self) -> bool {
        self.acceptor.is_dead()
    }

    /// The block to fill, with what is said about it; `None` when every block is in use.
    #[inline]
    pub(crate) fn block(&mut self) -> Option<(&mut Block, &mut Committed)> {
        Some((self.writer.block()?, &mut self.state))
    }

    /// Whether there is a block to fill.
    #[inline]
    pub(crate) fn is_ready(&mut self) -> bool {
        self.writer.block().is_some()
    }

    /// The writer itself, for who forwards the frames.
    pub(crate) fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// The block being filled, to be read.
    pub(crate) fn current(&self) -> Option<&Block> {
        self.writer.current()
    }

    /// Lets readers see what is in the block.
    pub(crate) fn commit(&mut self, interfaces: &[Interface], horizon: Nanos) -> Result<(), Error> {
        // Whoever was let in before gets what is committed now.
        self.admit();
        self.writer.set_interfaces(interfaces)?;
        self.state.horizon = horizon;
        self.state.drops = self.drops;
        self.writer.commit(&self.state);
        Ok(())
    }

    /// So many frames were left out of the block because they came a second time.
    pub(crate) fn leave_out(&mut self, duplicates: u64) {
        self.state.duplicates = self.state.duplicates.saturating_add(duplicates.min(u32::MAX.into()) as u32);
    }

    /// The next frame goes to another block.
    pub(crate) fn turn(&mut self) {
        self.writer.close_block();
        self.state = Committed { last_time: self.state.last_time, ..Committed::default() };
    }

    /// What is to be done once a round: readers come, go, and give blocks back.
    pub(crate) fn tick(&mut self, now: Nanos) {
        self.writer.tick(now);
        self.admit();
        self.note_departures();
        if !self.is_shut && self.has_failed() {
            self.is_shut = true;
            let said = format!(
                "nobody can attach to {} any more, by a bug; who is attached goes on, and so does the run",
                self.name
            );
            news::say(said.clone());
            self.accounts.tell(said);
        }
    }

    fn note_departures(&mut self) {
        self.writer.take_departures().iter().for_each(|departure| self.accounts.departed(departure));
    }

    /// Waits for a free block; false when the run is over and none came free.
    pub(crate) fn hold(&mut self) -> bool {
        let started = Instant::now();
        let culprit = self.writer.waits_for().into_iter().next();
        let mut over: Option<Instant> = None;
        let found = loop {
            std::thread::sleep(HOLD_NAP);
            self.tick(clock::now());
            if self.is_ready() {
                break true;
            }
            let is_over = self.stop.is_requested() || self.until.is_some_and(|until| Instant::now() >= until);
            // What is left in the ports may come in many rounds: they wait once, all together.
            self.given_up |= is_over && over.get_or_insert_with(Instant::now).elapsed() >= LAST_WAIT;
            self.given_up |= self.stop.is_hurried();
            if self.given_up {
                break false;
            }
        };
        if let Some(report) = culprit {
            self.accounts.waited(&report, started.elapsed());
        }
        found
    }

    /// Frames for which no block came free.
    pub(crate) fn lose(&mut self, frames: usize) {
        self.no_block += frames as u64;
    }

    /// Takes note of all frames lost before they got here; those that are new are charged to the reader that held the
    /// writer up meanwhile.
    pub(crate) fn look_at_losses(&mut self, lost: u64) {
        let new = lost.saturating_sub(self.drops);
        self.drops = lost;
        self.accounts.lost_meanwhile(new);
    }

    /// What was counted so far.
    pub(crate) fn counters(&self, ledger: &mut Ledger) {
        self.count(ledger);
        self.accounts.so_far(&self.writer.readers(), ledger);
    }

    fn count(&self, ledger: &mut Ledger) {
        let committed = self.writer.committed();
        let account = ledger.account(Stage::Share, &self.name);
        account.add(Count::ShareReceived, committed + self.no_block).add(Count::Shared, committed);
        account.add(Count::NoBlock, self.no_block);
    }

    /// Ends the stream; readers have a while to finish. Adds what was counted. What was noteworthy, and what went wrong.
    pub(crate) fn finish(mut self, ledger: &mut Ledger) -> (Vec<String>, Option<ReceiveError>) {
        self.writer.close_block();
        self.count(ledger);
        let died = self.acceptor.close();
        self.writer.end();
        self.drain_readers();
        // Those that went in the last round, which has had no tick behind it.
        self.note_departures();
        (self.accounts.close(&self.writer.readers(), ledger), died.map(ReceiveError::Died))
    }

    /// Waits until readers have finished what was promised to them, or seem not to.
    fn drain_readers(&mut self) {
        let began = Instant::now();
        let (mut moved, mut before) = (began, u64::MAX);
        while began.elapsed() < LAST_DRAIN && moved.elapsed() < DRAIN && !self.stop.is_hurried() {
            let left = self.writer.readers().iter().map(|report| report.tally.outstanding).sum();
            if left == 0 {
                return;
            }
            if left != before {
                (moved, before) = (Instant::now(), left);
            }
            std::thread::sleep(HOLD_NAP);
            self.tick(clock::now());
        }
    }

    fn admit(&mut self) {
        for client in self.clients.try_iter() {
            self.writer.admit(client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acceptor_that_dies_is_said_once_and_the_run_goes_on() {
        let name = format!("share-dies-{}", std::process::id());
        let ring = linerate_share::Options { slots: 8, slot_bytes: 512 << 10, huge: false, ..Default::default() };
        let options =
            SharingOptions { name: name.clone(), ring, access: Access::default(), wait_for: 0, patience: None };
        let mut shared = Shared::open(Sharing::create(options).unwrap(), Stop::new(), None).unwrap();
        shared.acceptor = AcceptorThread::dead();
        let news = news::listen();
        (0..3).for_each(|_| shared.tick(clock::now()));
        let said: Vec<String> = news.try_iter().filter(|said| said.contains(&name)).collect();
        assert!(said.len() == 1 && said[0].starts_with("nobody can attach to"), "{said:?}");
        assert!(shared.is_ready(), "the run goes on");
        let (events, failure) = shared.finish(&mut Ledger::new());
        assert_eq!(events, said);
        assert!(matches!(failure, Some(ReceiveError::Died(_))), "{failure:?}");
    }
}
