//! The sending side: frames are copied into chunks, and are sent when the chunks return.

use super::attach::Attachment;
use super::in_place::{InPlaceResources, InPlaceSender};
use crate::rtnl::{IFF_RUNNING, IFF_UP, Rtnetlink};
use crate::sys::area::Area;
use crate::sys::xsk_sender::XskSender;
use crate::sys::xsk_socket::XskSocket;
use linerate_burst::{Burst, Count, Ledger, Nanos, Stage};
use linerate_port::{HeldFrame, InterfaceInfo, PortError, Region, Sent, SubmitQueue, TxQueue};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of an Ethernet header; a shorter frame is invalid.
const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;
/// Interval at which the carrier is checked.
const LOOK_AFTER: Duration = Duration::from_millis(10);
/// Entries after which the ring is published to the kernel.
const KICK_AFTER: usize = 256;

pub(super) struct XdpTx {
    subject: String,
    socket: Arc<XskSocket>,
    sender: XskSender,
    /// Keeps a program attached for drivers that send only with one.
    _attachment: Option<Arc<Attachment>>,
    /// Longest frame that the interface sends, without a VLAN tag.
    longest: usize,
    /// Length of the frame that starts in each chunk; 0 for a continuation chunk.
    lengths: Vec<u32>,
    link: Link,
    counts: SendCounts,
    /// Resources to send in place, until a region is attached.
    way: Option<InPlaceResources>,
    direct: Option<InPlaceSender>,
    /// Frames submitted and released.
    done: Vec<HeldFrame>,
    copied: Vec<u8>,
}

/// State of the link, checked at intervals because a driver silently drops frames while it is down.
struct Link {
    netlink: Rtnetlink,
    interface: u32,
    runs: bool,
    looked: Nanos,
}

impl Link {
    fn look(&mut self) {
        let flags = self.netlink.flags(self.interface);
        self.runs = flags.is_some_and(|flags| flags & IFF_UP != 0 && flags & IFF_RUNNING != 0);
    }
}

#[derive(Default)]
struct SendCounts {
    received: u64,
    sent: Sent,
    /// Length of the last completed frame.
    last: u32,
    /// Frames completed because the driver dropped them.
    dropped: u64,
    /// Frames in the ring when the interface was removed.
    abandoned: u64,
    too_long: u64,
    too_short: u64,
    full: u64,
}

impl XdpTx {
    /// Creates a queue over a bound socket of an interface.
    pub(super) fn new(
        subject: String,
        (socket, sender): (Arc<XskSocket>, XskSender),
        attachment: Option<Arc<Attachment>>,
        found: &InterfaceInfo,
    ) -> io::Result<Self> {
        let longest = sender.longest().min(found.mtu as usize + ETHERNET);
        let mut link = Link { netlink: Rtnetlink::new()?, interface: found.index, runs: true, looked: Nanos::ZERO };
        link.look();
        let (lengths, counts) = (vec![0; sender.chunks()], SendCounts::default());
        let way = InPlaceResources::new(&subject, found);
        Ok(XdpTx {
            subject,
            socket,
            sender,
            _attachment: attachment,
            longest,
            lengths,
            link,
            counts,
            way,
            direct: None,
            done: Vec::new(),
            copied: Vec::new(),
        })
    }

    /// Fails if frames would only be dropped. Queries the kernel while no frame is in flight, when this is cheap.
    fn check_link(&mut self) -> Result<(), PortError> {
        if self.link.runs && self.sender.outstanding() > 0 {
            return Ok(());
        }
        if !self.link.runs {
            self.link.look();
        }
        let result = self.socket.kick_send();
        match result {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV)) => {
                self.handle_error(&error)?;
            }
            // Frames in the ring were tried and dropped.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                self.reclaim();
                self.handle_error(&error)?;
            }
            _ => {}
        }
        if self.link.runs { Ok(()) } else { Err(PortError::Down { port: self.subject.clone() }) }
    }

    /// Writes one frame into the send ring; false if it is full.
    fn push(&mut self, frame: &[u8]) -> bool {
        if frame.len() < ETHERNET {
            self.counts.too_short += 1;
            return true;
        }
        let tagged = matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8]);
        if frame.len() > self.longest + if tagged { VLAN_TAG } else { 0 } || frame.len() > self.sender.longest() {
            self.counts.too_long += 1;
            return true;
        }
        let Some(chunk) = self.sender.next_chunk() else { return false };
        if !self.sender.push(frame) {
            return false;
        }
        self.lengths[chunk] = frame.len() as u32;
        true
    }

    /// Counts completed frames.
    fn reclaim(&mut self) {
        let XdpTx { sender, lengths, counts, .. } = self;
        sender.reclaim(|chunk| {
            let length = std::mem::take(&mut lengths[chunk]);
            if length > 0 {
                counts.sent.frames += 1;
                counts.sent.bytes += u64::from(length);
                counts.last = length;
            }
        });
    }

    /// Abandons the frames in the ring after the interface was removed.
    fn abandon(&mut self) {
        self.reclaim();
        let waiting = self.lengths.iter_mut().filter(|length| **length > 0);
        self.counts.abandoned += waiting.map(std::mem::take).count() as u64;
    }

    /// Makes the kernel send the frames in the ring.
    fn kick(&mut self) -> Result<(), PortError> {
        self.sender.publish();
        if self.sender.waiting() == 0 || !self.sender.needs_wakeup() {
            self.reclaim();
            return Ok(());
        }
        let result = self.socket.kick_send();
        self.reclaim();
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.handle_error(&error),
        }
    }

    fn handle_error(&mut self, error: &io::Error) -> Result<(), PortError> {
        let port = self.subject.clone();
        match error.raw_os_error() {
            // The driver dropped the frame, and its chunk returned as if sent.
            Some(libc::EBUSY) => {
                self.counts.dropped += 1;
                self.counts.sent.frames -= 1;
                self.counts.sent.bytes -= u64::from(self.counts.last);
                self.link.look();
            }
            Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => self.counts.full += 1,
            Some(libc::ENETDOWN) => return Err(PortError::Down { port }),
            Some(libc::ENXIO | libc::ENODEV) => {
                self.abandon();
                return Err(PortError::removed(port));
            }
            _ => return Err(PortError::broken(port, format!("sending failed: {error}"))),
        }
        Ok(())
    }
}

impl TxQueue for XdpTx {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        self.check_link()?;
        let mut done = 0;
        for (_, frame) in burst.iter() {
            if !self.push(frame) {
                self.counts.full += 1;
                break;
            }
            done += 1;
            if done % KICK_AFTER == 0 {
                self.sender.publish();
            }
        }
        self.counts.received += done as u64;
        match self.kick() {
            // Accepted frames are in the ring; the error will recur.
            Err(_) if done > 0 => Ok(done),
            Err(error) => Err(error),
            Ok(()) => Ok(done),
        }
    }

    fn flush(&mut self, now: Nanos) -> Result<bool, PortError> {
        if now >= self.link.looked.after(LOOK_AFTER) || now < self.link.looked {
            self.link.looked = now;
            self.link.look();
        }
        self.kick()?;
        if let Some(mut direct) = self.direct.take() {
            direct.look(now);
            let result = self.run_direct(&mut direct);
            self.direct = Some(direct);
            result?;
        }
        Ok(self.sender.outstanding() == 0)
    }

    fn sent(&self) -> Sent {
        let (copied, direct) = (self.counts.sent, self.direct.as_ref().map_or(Sent::default(), InPlaceSender::sent));
        Sent { frames: copied.frames + direct.frames, bytes: copied.bytes + direct.bytes }
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd().as_fd())
    }

    fn counters(&self, ledger: &mut Ledger) {
        let counts = &self.counts;
        let account = ledger.account(Stage::Send, &self.subject);
        account.add(Count::SendReceived, counts.received).add(Count::Sent, counts.sent.frames);
        account.add(Count::SendDropped, counts.dropped);
        account.add(Count::TooLong, counts.too_long).add(Count::TooShort, counts.too_short);
        account.add(Count::SendFull, counts.full);
        account.add(Count::SendRefused, self.socket.statistics().invalid_send + counts.abandoned);
        if let Some(direct) = &self.direct {
            direct.counters(account);
        }
    }

    fn submitting(&mut self) -> Option<&mut dyn SubmitQueue> {
        (self.way.is_some() || self.direct.is_some()).then_some(self as &mut dyn SubmitQueue)
    }
}

impl SubmitQueue for XdpTx {
    fn attach(&mut self, region: &Region) -> bool {
        if let (Some(area), Some(way)) = (region.memory::<Area>(), self.way.take()) {
            self.direct = InPlaceSender::new(way, area).ok();
        }
        self.direct.as_ref().is_some_and(|direct| direct.is_over(region))
    }

    fn submit(&mut self, frames: &mut VecDeque<HeldFrame>) -> Result<usize, PortError> {
        let Some(mut direct) = self.direct.take() else { return Ok(0) };
        let before = frames.len();
        let result = self.submit_by(&mut direct, frames);
        self.direct = Some(direct);
        match result {
            // Accepted frames are in flight; the error will recur.
            Err(error) if frames.len() == before => Err(error),
            _ => Ok(before - frames.len()),
        }
    }

    fn completed(&mut self, done: &mut Vec<HeldFrame>) {
        done.append(&mut self.done);
    }
}

impl XdpTx {
    /// Sends each frame in place if possible, else by AF_XDP; earlier frames are sent first.
    fn submit_by(&mut self, direct: &mut InPlaceSender, frames: &mut VecDeque<HeldFrame>) -> Result<(), PortError> {
        while let Some(held) = frames.front() {
            if direct.suits(held.desc.captured as usize) {
                if self.sender.outstanding() > 0 {
                    self.kick()?;
                }
                if self.sender.outstanding() > 0 || !direct.has_room() {
                    break;
                }
                direct.extend(frames.pop_front());
            } else {
                self.run_direct(direct)?;
                if !self.push_copied(direct, held) {
                    break;
                }
                self.done.extend(frames.pop_front());
            }
        }
        Ok(())
    }

    /// Sends frames in place; copies those that cannot be sent so.
    fn run_direct(&mut self, direct: &mut InPlaceSender) -> Result<(), PortError> {
        let mut rest = Vec::new();
        direct.run(&mut self.done, &mut rest)?;
        for held in rest {
            if !self.push_copied(direct, &held) {
                self.kick()?;
                // Drop the frame after the retry: it must be released.
                let is_taken = self.push_copied(direct, &held);
                self.counts.received += u64::from(!is_taken);
                self.counts.abandoned += u64::from(!is_taken);
            }
            self.done.push(held);
        }
        Ok(())
    }

    /// Copies a frame; false if the ring is full.
    fn push_copied(&mut self, direct: &InPlaceSender, held: &HeldFrame) -> bool {
        let mut copied = std::mem::take(&mut self.copied);
        direct.copy(held, &mut copied);
        let is_taken = self.push(&copied);
        self.copied = copied;
        self.counts.received += u64::from(is_taken);
        self.counts.full += u64::from(!is_taken);
        is_taken
    }
}
