//! Returned blocks and departures of readers: detached, evicted for breaking the protocol, or evicted for blocking the
//! writer.

use super::{AttachedReader, Departure, ReaderIdentity, Writer};
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

/// Maximum time counted between two ticks: a clock that is set forward does not expire the patience.
const JUMP: Duration = Duration::from_millis(100);
/// Reason for the eviction of a lossless reader, which requested every frame and is never made lossy.
const TOO_SLOW: &str = "it blocked the writer for longer than the limit; as a lossless reader it cannot skip frames";
/// Maximum number of departures kept for [`Writer::take_departures`]: more than the readers possible between two ticks.
const DEPARTURES: usize = 1024;

/// Returns a descriptor that becomes ready when a process ends (Linux 5.3); `None` if it is not visible from here. The
/// socket of a process that has already ended is shut down.
pub(super) fn process_of(who: &ReaderIdentity, socket: &OwnedFd) -> Option<OwnedFd> {
    let opened = pidfd_open(Pid::from_raw(who.pid)?, PidfdFlags::empty());
    if opened.as_ref().is_err_and(|error| *error == Errno::SRCH) {
        let _ = shutdown(socket, Shutdown::Both);
    }
    opened.ok()
}

impl Writer {
    /// Returns the readers that detached, died or were evicted since the last call.
    pub fn take_departures(&mut self) -> Vec<Departure> {
        std::mem::take(&mut self.departures)
    }

    /// Evicts a reader: reclaims all blocks that it holds except the one that it may be reading, and closes the
    /// connection. That block is reused once the reader has closed its end too. (Beyond the limit of lossless readers
    /// no block is kept: the frames that an evicted lossy reader is reading may then change.)
    pub fn evict(&mut self, reader: u32, reason: impl Into<String>) {
        let Some(Some(attached)) = self.readers.get(reader as usize) else { return };
        attached.control.set_evicted();
        index::turned();
        // Blocks returned before it could see the eviction are not the one that it is reading.
        self.reclaim_from(reader);
        let Some(mut report) = self.report(reader) else { return };
        let Some(attached) = self.readers[reader as usize].take() else { return };
        let (_, keeps) = self.slots.evict(reader);
        report.tally.take_back();
        let reason: String = reason.into();
        self.engine_detached(reader, Some(&reason));
        if keeps {
            attached.registration.count_as_lossless();
            let _ = shutdown(&attached.socket, Shutdown::Write);
            self.kept.push(attached);
        }
        self.note_departure(Departure { report, evict: Some(reason) });
    }

    pub(super) fn take_back(&mut self) {
        bits(self.slots.present()).for_each(|number| self.reclaim_from(number));
    }

    /// Evicts lossless readers that have blocked the writer for longer than the patience.
    pub(super) fn evict_blocking_readers(&mut self, now: Nanos) {
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

    pub(super) fn remove_gone_readers(&mut self) {
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
                    drop::<AttachedReader>(self.kept.swap_remove(at));
                }
                None => self.part(number, None),
            }
        }
    }

    fn reclaim_from(&mut self, number: u32) {
        while let Some(attached) = &mut self.readers[number as usize] {
            let most = u64::from(self.slots.held(number));
            let slot = match attached.returned.take(&attached.control.returned(), most) {
                Ok(None) => break,
                Ok(Some(slot)) => slot,
                Err(Overrun) => {
                    self.part(number, Some("it broke the protocol: it returned more blocks than it holds".into()));
                    break;
                }
            };
            if let Err(violation) = self.slots.return_slot(number, slot) {
                self.part(number, Some(format!("it broke the protocol: {violation}")));
            }
        }
    }

    /// Detaches a reader, without keeping a block for it.
    pub(super) fn part(&mut self, number: u32, evict: Option<String>) {
        let Some(mut report) = self.report(number) else { return };
        let Some(attached) = self.readers[number as usize].take() else { return };
        if evict.is_some() {
            attached.control.set_evicted();
        }
        self.engine_detached(number, evict.as_deref());
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
