//! How blocks come back and readers go: by themselves, for breaking the protocol, or for keeping everybody waiting.

use super::{Attached, Departure, Who, Writer};
use crate::index::{self, Overrun};
use crate::slots::bits;
use linerate_burst::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::iter::once;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Between two ticks no more time passes than this: a clock that is set forward does not end anybody's patience.
const JUMP: Duration = Duration::from_millis(100);
/// Why a lossless reader is evicted: one that has asked for every frame is not made lossy.
const TOO_SLOW: &str = "it blocked the writer for longer than its patience, and frames after that would be lost to it";
/// Departures kept until somebody asks: more than there can be readers between two ticks.
const DEPARTURES: usize = 1024;

/// A descriptor that tells when a process ends (Linux 5.3); none where it cannot be seen from here. Of one that has ended, the socket
/// is as good as closed.
pub(super) fn process_of(who: &Who, socket: &OwnedFd) -> Option<OwnedFd> {
    let opened = pidfd_open(Pid::from_raw(who.pid)?, PidfdFlags::empty());
    if opened.as_ref().is_err_and(|error| *error == Errno::SRCH) {
        let _ = shutdown(socket, Shutdown::Both);
    }
    opened.ok()
}

impl Writer {
    /// Readers that have left, died or were evicted since this was last asked.
    pub fn take_departures(&mut self) -> Vec<Departure> {
        std::mem::take(&mut self.departures)
    }

    /// Takes back all that a reader holds but the block that it may be looking at, and hangs up. That block is used again
    /// once the reader has hung up too. (Beyond the number of lossless readers that a ring takes no block is kept: what
    /// a lossy reader that is evicted is looking at may then change under it.)
    pub fn evict(&mut self, reader: u32, reason: impl Into<String>) {
        let Some(Some(attached)) = self.readers.get(reader as usize) else { return };
        attached.control.set_put_out();
        index::turned();
        // What it gave back before it could know is not what it is looking at.
        self.take_back_from(reader);
        let Some(mut report) = self.report(reader) else { return };
        let Some(attached) = self.readers[reader as usize].take() else { return };
        let (_, keeps) = self.slots.evict(reader);
        report.tally.take_back();
        let reason: String = reason.into();
        self.engine_parted(reader, Some(&reason));
        if keeps {
            attached.registration.count_as_lossless();
            let _ = shutdown(&attached.socket, Shutdown::Write);
            self.kept.push(attached);
        }
        self.note_departure(Departure { report, evict: Some(reason) });
    }

    pub(super) fn take_back(&mut self) {
        bits(self.slots.present()).for_each(|number| self.take_back_from(number));
    }

    /// Loses patience with lossless readers while no block is free.
    pub(super) fn bear(&mut self, now: Nanos) {
        let passed = now.since(self.wait.ticked).min(JUMP);
        self.wait.ticked = now;
        if !self.wait.wanted || self.slots.current().is_some() || self.slots.any_free() {
            (self.wait.wanted, self.wait.so_far) = (false, Duration::ZERO);
            return;
        }
        self.wait.so_far += passed;
        let Some(patience) = self.wait.patience else { return };
        while self.wait.so_far >= patience && !self.slots.any_free() {
            let Some(holder) = self.waits_for().into_iter().find(|report| report.lossless) else { return };
            self.evict(holder.reader, TOO_SLOW);
        }
    }

    pub(super) fn look_for_the_gone(&mut self) {
        let watched = self.readers.iter().flatten().chain(&self.kept).flat_map(|attached| {
            let socket = PollFd::new(&attached.socket, PollFlags::empty());
            let process = attached.process.as_ref().map(|process| PollFd::new(process, PollFlags::IN));
            once(socket).chain(process).map(|fd| (attached.registration.number, fd))
        });
        let (numbers, mut polled): (Vec<u32>, Vec<PollFd<'_>>) = watched.unzip();
        if polled.is_empty() || poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0) {
            return;
        }
        let ends = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL | PollFlags::IN;
        let is_gone = |fd: &PollFd<'_>| fd.revents().intersects(ends);
        let gone = numbers.iter().zip(&polled).filter(|(_, fd)| is_gone(fd)).map(|(number, _)| *number);
        let mut gone: Vec<u32> = gone.collect();
        gone.dedup();
        for number in gone {
            match self.kept.iter().position(|attached| attached.registration.number == number) {
                Some(at) => {
                    self.slots.forget(number);
                    drop::<Attached>(self.kept.swap_remove(at));
                }
                None => self.part(number, None),
            }
        }
    }

    fn take_back_from(&mut self, number: u32) {
        while let Some(attached) = &mut self.readers[number as usize] {
            let most = u64::from(self.slots.held(number));
            let slot = match attached.returned.take(&attached.control.returned(), most) {
                Ok(None) => break,
                Ok(Some(slot)) => slot,
                Err(Overrun) => {
                    self.part(number, Some("it broke the protocol: it gave back more than it holds".into()));
                    break;
                }
            };
            if let Err(violation) = self.slots.give_back(number, slot) {
                self.part(number, Some(format!("it broke the protocol: {violation}")));
            }
        }
    }

    /// A reader is attached no more, and nothing is kept for it.
    pub(super) fn part(&mut self, number: u32, evict: Option<String>) {
        let Some(mut report) = self.report(number) else { return };
        let Some(attached) = self.readers[number as usize].take() else { return };
        if evict.is_some() {
            attached.control.set_put_out();
        }
        self.engine_parted(number, evict.as_deref());
        self.slots.leave(number);
        report.tally.take_back();
        self.note_departure(Departure { report, evict });
    }

    fn note_departure(&mut self, departure: Departure) {
        if self.departures.len() < DEPARTURES {
            self.departures.push(departure);
        }
    }
}
