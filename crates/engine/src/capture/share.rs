//! Sharing of the ordered stream: the writer of a block ring in the capture, with its acceptor in a separate thread.

mod accounts;

use self::accounts::{Accounts, named};
use crate::acceptor::AcceptorThread;
use crate::clock;
use crate::control::Stop;
use crate::error::ReceiveError;
use linerate_burst::{Block, CommitState, Count, Interface, Ledger, Nanos, Stage};
use linerate_port::events;
use linerate_share::{Acceptor, Access, Client, Error, ReaderReport, Writer};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Options of sharing.
#[derive(Clone, Debug)]
pub struct SharingOptions {
    /// Name of the ring, or the path of its socket.
    pub name: String,
    /// Size and memory of the ring.
    pub ring: linerate_share::Options,
    /// Users who may attach in addition to root and the user of this process, and whether as lossless readers.
    pub access: Access,
    /// Number of readers to wait for before the run starts.
    pub wait_for: usize,
    /// Longest time for which lossless readers may block the run before they are evicted; `None`: without a limit.
    pub patience: Option<Duration>,
}

/// A shared ring, before the run that fills it.
pub struct Sharing {
    options: SharingOptions,
    writer: Writer,
    acceptor: Acceptor,
}

/// Sleep of the writer before it checks again for a free block.
const HOLD_NAP: Duration = Duration::from_micros(20);
/// Time after which a reader that blocks the run is reported.
const LONG_HOLD: Duration = Duration::from_secs(1);
/// Time for which a stopped run continues to wait for a free block.
const LAST_WAIT: Duration = Duration::from_secs(5);
/// Time for readers to take the remaining blocks after the end, counted from the last one taken: a stopped reader
/// delays the end by this much, a working one is waited for.
const DRAIN: Duration = Duration::from_secs(1);
/// Upper bound of that time.
const LAST_DRAIN: Duration = Duration::from_secs(5);

impl Sharing {
    /// Creates the ring and its socket; readers are admitted when the run starts.
    pub fn create(options: SharingOptions) -> Result<Sharing, Error> {
        let (mut writer, acceptor) =
            Writer::create(&options.name, options.access.clone(), &options.ring, clock::now())?;
        writer.set_patience(options.patience);
        Ok(Sharing { options, writer, acceptor })
    }

    /// Returns notes for the user about the memory of the ring, one line each.
    pub fn notes(&self) -> &[String] {
        self.writer.notes()
    }

    /// Returns the number of minimum-size frames that the ring holds.
    pub fn room(&self) -> u64 {
        self.writer.room()
    }
}

pub(crate) struct SharedRing {
    name: String,
    writer: Writer,
    clients: Receiver<Client>,
    /// Closes the acceptor when dropped.
    acceptor: AcceptorThread,
    stop: Stop,
    /// Time at which the run ends by itself.
    until: Option<Instant>,
    state: CommitState,
    /// Frames lost upstream, as last read.
    drops: u64,
    /// Frames that were dropped for lack of a free block.
    no_block: u64,
    /// True if a stopped run has waited long enough for a block.
    given_up: bool,
    /// True if it was reported that no more readers can attach.
    is_shut: bool,
    /// Process that was last reported to block the writer.
    blamed: Option<i32>,
    accounts: Accounts,
}

impl SharedRing {
    /// Opens the acceptor and waits for the requested number of readers.
    pub(crate) fn open(sharing: Sharing, stop: Stop, duration: Option<Duration>) -> std::io::Result<SharedRing> {
        let Sharing { options, writer, acceptor } = sharing;
        let (acceptor, clients) = AcceptorThread::start(acceptor)?;
        let mut shared = SharedRing {
            name: options.name,
            writer,
            clients,
            acceptor,
            stop,
            until: None,
            state: CommitState::default(),
            drops: 0,
            no_block: 0,
            given_up: false,
            is_shut: false,
            blamed: None,
            accounts: Accounts::default(),
        };
        while shared.writer.readers().len() < options.wait_for && !shared.stop.is_requested() && !shared.has_failed() {
            std::thread::sleep(HOLD_NAP);
            shared.tick(clock::now());
        }
        shared.until = duration.map(|duration| Instant::now() + duration);
        Ok(shared)
    }

    /// Returns whether the acceptor has failed by a bug.
    pub(crate) fn has_failed(&self) -> bool {
        self.acceptor.is_dead()
    }

    /// Returns the block to fill, with its state; `None` if every block is in use.
    #[inline]
    pub(crate) fn block(&mut self) -> Option<(&mut Block, &mut CommitState)> {
        Some((self.writer.block()?, &mut self.state))
    }

    /// Returns whether there is a block to fill.
    #[inline]
    pub(crate) fn is_ready(&mut self) -> bool {
        self.writer.block().is_some()
    }

    /// Returns the writer, for forwarding frames.
    pub(crate) fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// Returns the block being filled, for reading.
    pub(crate) fn current(&self) -> Option<&Block> {
        self.writer.current()
    }

    /// Publishes the frames of the block to readers.
    pub(crate) fn commit(&mut self, interfaces: &[Interface], horizon: Nanos) -> Result<(), Error> {
        // Readers admitted before receive what is committed now.
        self.admit();
        self.writer.set_interfaces(interfaces)?;
        self.state.horizon = horizon;
        self.state.drops = self.drops;
        self.writer.commit(&self.state);
        Ok(())
    }

    /// Records duplicates that were not added to the block.
    pub(crate) fn count_duplicates(&mut self, duplicates: u64) {
        self.state.duplicates = self.state.duplicates.saturating_add(duplicates.min(u32::MAX.into()) as u32);
    }

    /// Starts another block with the next frame.
    pub(crate) fn turn(&mut self) {
        self.writer.close_block();
        self.state = CommitState { last_time: self.state.last_time, ..CommitState::default() };
    }

    /// Handles readers that attach, detach and return blocks; to be called once per round.
    pub(crate) fn tick(&mut self, now: Nanos) {
        self.writer.tick(now);
        self.admit();
        self.note_departures();
        if !self.is_shut && self.has_failed() {
            self.is_shut = true;
            let said =
                format!("{}: no more readers can attach (a bug); attached readers and the run continue", self.name);
            events::report(said.clone());
            self.accounts.report_event(said);
        }
    }

    fn note_departures(&mut self) {
        self.writer.take_departures().iter().for_each(|departure| self.accounts.record_departure(departure));
    }

    /// Waits for a free block; returns false if the run is over and none became free.
    pub(crate) fn hold(&mut self) -> bool {
        let started = Instant::now();
        let mut culprit = self.writer.waits_for().into_iter().next();
        let (mut over, mut due): (Option<Instant>, _) = (None, LONG_HOLD);
        let found = loop {
            std::thread::sleep(HOLD_NAP);
            self.tick(clock::now());
            if self.is_ready() {
                break true;
            }
            if started.elapsed() >= due {
                due += LONG_HOLD;
                // Others may have been slow at first; this one still is.
                culprit = self.writer.waits_for().into_iter().next().or(culprit);
                self.report_blocker(culprit.as_ref());
            }
            let is_over = self.stop.is_requested() || self.until.is_some_and(|until| Instant::now() >= until);
            // The backlog of the ports may take many rounds: they wait only once in total.
            self.given_up |= is_over && over.get_or_insert_with(Instant::now).elapsed() >= LAST_WAIT;
            self.given_up |= self.stop.is_forced();
            if self.given_up {
                break false;
            }
        };
        if let Some(report) = culprit {
            self.accounts.waited(&report, started.elapsed());
        }
        found
    }

    /// Reports who blocks the run, unless that was the last one reported.
    fn report_blocker(&mut self, culprit: Option<&ReaderReport>) {
        let Some(report) = culprit.filter(|report| self.blamed != Some(report.who.pid)) else { return };
        self.blamed = Some(report.who.pid);
        events::report(format!("shm:{}: every block is in use; waiting for {}", self.name, named(report)));
    }

    /// Records frames dropped for lack of a free block.
    pub(crate) fn lose(&mut self, frames: usize) {
        self.no_block += frames as u64;
    }

    /// Records the total of frames lost upstream; new losses are charged to the reader that blocked the writer.
    pub(crate) fn record_losses(&mut self, lost: u64) {
        let new = lost.saturating_sub(self.drops);
        self.drops = lost;
        self.accounts.record_upstream_loss(new);
    }

    /// Adds the counters so far.
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

    /// Ends the stream; readers get some time to finish. Adds the counters. Returns noteworthy events, and the failure,
    /// if any.
    pub(crate) fn finish(mut self, ledger: &mut Ledger) -> (Vec<String>, Option<ReceiveError>) {
        self.writer.close_block();
        self.count(ledger);
        let died = self.acceptor.close();
        self.writer.end();
        self.drain_readers();
        // Departures of the last round, which no tick follows.
        self.note_departures();
        (self.accounts.close(&self.writer.readers(), ledger), died.map(ReceiveError::ThreadPanic))
    }

    /// Waits until readers have finished their blocks, or make no progress.
    fn drain_readers(&mut self) {
        let began = Instant::now();
        let (mut moved, mut before) = (began, u64::MAX);
        while began.elapsed() < LAST_DRAIN && moved.elapsed() < DRAIN && !self.stop.is_forced() {
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
    fn an_acceptor_that_dies_is_reported_once_and_the_run_continues() {
        let name = format!("share-dies-{}", std::process::id());
        let ring = linerate_share::Options { slots: 8, slot_bytes: 512 << 10, huge: false, ..Default::default() };
        let options =
            SharingOptions { name: name.clone(), ring, access: Access::default(), wait_for: 0, patience: None };
        let mut shared = SharedRing::open(Sharing::create(options).unwrap(), Stop::new(), None).unwrap();
        shared.acceptor = AcceptorThread::dead();
        let news = events::listen();
        (0..3).for_each(|_| shared.tick(clock::now()));
        let said: Vec<String> = news.try_iter().filter(|said| said.contains(&name)).collect();
        assert!(said.len() == 1 && said[0].contains("no more readers can attach"), "{said:?}");
        assert!(shared.is_ready(), "the run continues");
        let (events, failure) = shared.finish(&mut Ledger::new());
        assert_eq!(events, said);
        assert!(matches!(failure, Some(ReceiveError::ThreadPanic(_))), "{failure:?}");
    }
}
