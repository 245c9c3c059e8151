//! The thread that has a port: what is due first is sent, and commands are taken up in between.

use super::{Beginning, Command, Doing, Sending};
use crate::clock;
use crate::sender::Sender;
use linerate_burst::Nanos;
use linerate_generate::Traffic;
use linerate_port::PortError;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender as Commands};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a thread without anything to send waits for commands.
const IDLE: Duration = Duration::from_millis(20);
/// How long to wait before asking again whether what was taken has left.
const NAP: Duration = Duration::from_millis(1);

type Leaving = (Option<Arc<Sending>>, Option<Commands<()>>);

/// The thread.
pub(super) struct Work {
    sender: Sender,
    taken: Receiver<Command>,
    jobs: BTreeMap<usize, Job>,
    /// When the next frame of each stream is due, of those that send.
    due: BinaryHeap<Reverse<(Nanos, usize, u64)>>,
    /// Streams whose last frame was taken, and who wants to know when it has left.
    leaving: Vec<Leaving>,
    told: Arc<Mutex<Option<String>>>,
    /// Changes of all streams so far.
    turns: u64,
}

/// A stream that is sent.
struct Job {
    traffic: Traffic,
    sending: Arc<Sending>,
    /// The clock stood here when the stream's own time was `own`, in nanoseconds.
    since: Nanos,
    own: f64,
    /// How fast that goes on.
    factor: f64,
    /// For how many nanoseconds it may still be sent from `since` on.
    left: f64,
    holds: bool,
    /// Its last change: older places in the heap mean nothing.
    turn: u64,
}

impl Job {
    /// The stream's own time, in nanoseconds.
    fn own_at(&self, now: Nanos) -> f64 {
        if self.holds { self.own } else { self.own + now.0.saturating_sub(self.since.0) as f64 * self.factor }
    }

    /// When its next frame is due; none behind the last.
    fn due(&self) -> Option<Nanos> {
        let wait = (self.traffic.next_due()? as f64 - self.own).max(0.0) / self.factor;
        (wait < self.left).then(|| Nanos(self.since.0.saturating_add(wait as u64)))
    }

    /// Goes on from now, at another pace, or not at all.
    fn change(&mut self, now: Nanos, factor: f64, holds: bool) {
        let own = self.own_at(now);
        if !self.holds {
            self.left -= now.0.saturating_sub(self.since.0) as f64;
        }
        (self.own, self.since, self.factor, self.holds) = (own, now.max(self.since), factor, holds);
    }
}

impl Work {
    pub fn new(sender: Sender, taken: Receiver<Command>, told: Arc<Mutex<Option<String>>>) -> Self {
        let (jobs, due, leaving) = (BTreeMap::new(), BinaryHeap::new(), Vec::new());
        Work { sender, taken, jobs, due, leaving, told, turns: 0 }
    }

    /// Goes on until it is to stop.
    pub fn run(&mut self) {
        while !self.sender.is_over() {
            if let Err(error) = self.step() {
                if matches!(error, PortError::Down { .. }) {
                    self.wait_until_up();
                    continue;
                }
                *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                self.give_up();
            }
        }
        self.give_up();
    }

    /// Takes up commands, and sends what is due first.
    fn step(&mut self) -> Result<(), PortError> {
        let is_idle = self.jobs.values().all(|job| job.holds) && self.leaving.is_empty();
        loop {
            let command = if is_idle && self.due.is_empty() {
                self.taken.recv_timeout(IDLE).ok()
            } else {
                self.taken.try_recv().ok()
            };
            let Some(command) = command else { break };
            self.obey(command);
            if is_idle {
                break;
            }
        }
        let (now, set) = self.sender.look_at_clock();
        if set != 0 {
            self.jobs.values_mut().for_each(|job| job.since = job.since.shifted(set));
            self.again();
        }
        if !self.leaving.is_empty() {
            self.see_off(now)?;
        }
        let Some(Reverse((due, slot, turn))) = self.due.peek().copied() else { return Ok(()) };
        if due > now {
            return self.sender.wait(due, now);
        }
        self.due.pop();
        let Some(job) = self.jobs.get_mut(&slot).filter(|job| job.turn == turn) else { return Ok(()) };
        // It is due, however numbers are rounded.
        let elapsed = (job.own_at(now) as u64).max(job.traffic.next_due().unwrap_or(0));
        let offered = job.traffic.offer(elapsed, now);
        let burst = offered.map_err(|bug| PortError::broken("transmit", format!("a frame cannot be made: {bug}")))?;
        let sent = self.sender.send(0, burst, now);
        let done = match sent {
            Ok(done) => done,
            Err(error) => {
                self.due.push(Reverse((due, slot, turn)));
                return Err(error);
            }
        };
        let bytes: u64 = burst.descs()[..done].iter().map(|desc| u64::from(desc.wire)).sum();
        job.traffic.consume(done);
        job.sending.bytes.fetch_add(bytes, Ordering::Release);
        job.sending.frames.fetch_add(done as u64, Ordering::Release);
        match job.due() {
            Some(due) => self.due.push(Reverse((due, slot, turn))),
            None => self.leave(slot),
        }
        Ok(())
    }

    fn obey(&mut self, command: Command) {
        let now = clock::now();
        match command {
            Command::Begin(all) => all.into_iter().for_each(|(beginning, traffic)| self.begin(beginning, traffic, now)),
            Command::End(slots, answer) => {
                for slot in self.chosen(slots) {
                    self.leave(slot);
                }
                self.leaving.push((None, Some(answer)));
            }
            Command::Hold(slots, answer) => {
                for slot in self.chosen(slots) {
                    self.change(slot, now, None, true, Doing::Paused);
                }
                let _ = answer.send(());
            }
            Command::GoOn(slots, answer) => {
                for slot in self.chosen(slots) {
                    self.change(slot, now, None, false, Doing::Started);
                }
                let _ = answer.send(());
            }
            Command::Pace(slot, factor, answer) => {
                if let Some(job) = self.jobs.get(&slot) {
                    let (holds, doing) = (job.holds, job.sending.doing());
                    self.change(slot, now, Some(factor), holds, doing);
                }
                let _ = answer.send(());
            }
        }
    }

    fn begin(&mut self, beginning: Beginning, traffic: Traffic, now: Nanos) {
        let Beginning { slot, delay, span, sending, .. } = beginning;
        self.leave(slot);
        self.turns += 1;
        let turn = self.turns;
        let job = Job {
            traffic,
            since: now.after(delay),
            own: 0.0,
            factor: 1.0,
            left: span.map_or(f64::INFINITY, |span| span.as_nanos() as f64),
            holds: false,
            turn,
            sending: Arc::clone(&sending),
        };
        sending.frames.store(0, Ordering::Release);
        sending.bytes.store(0, Ordering::Release);
        sending.set(Doing::Started);
        let due = job.due();
        self.jobs.insert(slot, job);
        match due {
            Some(due) => self.due.push(Reverse((due, slot, turn))),
            None => self.leave(slot),
        }
    }

    fn chosen(&self, slots: Vec<usize>) -> Vec<usize> {
        slots.into_iter().filter(|slot| self.jobs.contains_key(slot)).collect()
    }

    fn change(&mut self, slot: usize, now: Nanos, factor: Option<f64>, holds: bool, doing: Doing) {
        let Some(job) = self.jobs.get_mut(&slot) else { return };
        let factor = factor.unwrap_or(job.factor);
        job.change(now, factor, holds);
        self.turns += 1;
        job.turn = self.turns;
        job.sending.set(doing);
        if let Some(due) = job.due().filter(|_| !holds) {
            self.due.push(Reverse((due, slot, job.turn)));
        }
    }

    /// A stream sends no more; what it has sent is on its way.
    fn leave(&mut self, slot: usize) {
        if let Some(job) = self.jobs.remove(&slot) {
            self.leaving.push((Some(job.sending), None));
        }
    }

    /// Says of streams that their last frame has left, when that is so.
    fn see_off(&mut self, now: Nanos) -> Result<(), PortError> {
        if !self.sender.flush(now)? {
            if self.due.is_empty() {
                std::thread::sleep(NAP);
            }
            return Ok(());
        }
        self.answer_all();
        Ok(())
    }

    /// Streams that were to leave have done so.
    fn answer_all(&mut self) {
        for (sending, answer) in self.leaving.drain(..) {
            if let Some(sending) = sending {
                sending.set(Doing::Stopped);
            }
            if let Some(answer) = answer {
                // Who asked may be gone.
                let _ = answer.send(());
            }
        }
    }

    /// All places in the heap anew.
    fn again(&mut self) {
        self.due.clear();
        for (slot, job) in self.jobs.iter().filter(|(_, job)| !job.holds) {
            self.due.extend(job.due().map(|due| Reverse((due, *slot, job.turn))));
        }
    }

    /// The interface is down: schedules wait.
    fn wait_until_up(&mut self) {
        let before = clock::now();
        std::thread::sleep(10 * NAP);
        while let Ok(command) = self.taken.try_recv() {
            self.obey(command);
        }
        // What is to leave cannot: whoever waits for it is told so.
        self.answer_all();
        let waited = clock::now().since(before);
        self.jobs.values_mut().for_each(|job| job.since = job.since.after(waited));
        self.again();
    }

    /// Nothing is sent any more.
    pub fn give_up(&mut self) {
        let slots: Vec<usize> = self.jobs.keys().copied().collect();
        slots.into_iter().for_each(|slot| self.leave(slot));
        self.due.clear();
        let _ = self.sender.flush(clock::now());
        self.answer_all();
    }
}
