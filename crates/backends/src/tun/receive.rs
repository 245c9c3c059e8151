//! The receiving side: one system call per frame.

use super::device::{Device, Queue};
use crate::virtio;
use linerate_burst::{
    Block, Count, Desc, Flags, Horizon, Interface, Ledger, LinkType, MAX_FRAME, Nanos, Stage, StampSource,
};
use linerate_port::{Head, PortError, RxOptions, RxQueue, ScatterQueue, ScatteredFrame};
use rustix::io::Errno;
use std::cell::Cell;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Batch: frames, and room for the bytes of some super-frames.
const FRAMES: usize = 512;
const BYTES: usize = 2 << 20;
/// Longest frame that the kernel delivers.
const LONGEST: usize = 65_535 + 18;
const _: () = assert!(BYTES > 2 * MAX_FRAME && LONGEST <= MAX_FRAME);

pub(super) struct TunRx {
    subject: String,
    interfaces: [Interface; 1],
    device: Arc<Device>,
    queue: Queue,
    snap: usize,
    /// True if frames are read directly to their destination, and none is shown.
    is_scattered: bool,
    shown: Block,
    used: usize,
    consumed: usize,
    buffer: Vec<u8>,
    delivered: u64,
    super_frames: u64,
    partial: u64,
    downs: u64,
    dropped: Cell<u64>,
    /// Number of frames still to be read after the detach.
    left: Option<u32>,
}

impl TunRx {
    /// Opens a queue; `None` if it is already open for receiving.
    pub(super) fn new(subject: String, device: Arc<Device>, queue: Queue, options: &RxOptions) -> Option<Self> {
        if !device.claim(&queue) {
            return None;
        }
        let link = if device.is_ethernet { LinkType::ETHERNET } else { LinkType::RAW };
        let name = subject.strip_prefix("tun:").and_then(|name| name.split('@').next()).unwrap_or_default();
        let room = if options.scatter { (1 << 17, 1) } else { (BYTES, FRAMES) };
        Some(TunRx {
            interfaces: [Interface::new(name, link, StampSource::User)],
            subject,
            device,
            queue,
            snap: if options.snap == 0 { usize::MAX } else { options.snap as usize },
            is_scattered: options.scatter,
            shown: Block::new(room.0.max(MAX_FRAME), room.1),
            used: 0,
            consumed: 0,
            buffer: vec![0; if options.scatter { 0 } else { LONGEST }],
            delivered: 0,
            super_frames: 0,
            partial: 0,
            downs: 0,
            dropped: Cell::new(0),
            left: None,
        })
    }

    /// Reads the next frame into these pieces.
    fn next(&mut self, pieces: &mut [IoSliceMut<'_>]) -> Result<Option<ScatteredFrame>, PortError> {
        if self.left == Some(0) {
            return Ok(None);
        }
        let read = match virtio::read_frame(&*self.queue.fd, pieces) {
            Ok(read) => read,
            Err(error) => return self.failed(error),
        };
        self.left = self.left.map(|left| left - 1);
        self.super_frames += u64::from(read.flags.contains(Flags::SUPER_FRAME));
        self.partial += u64::from(read.flags.contains(Flags::CHECKSUM_PARTIAL));
        Ok(Some(read))
    }

    /// Translates the error of a system call.
    fn failed(&mut self, error: Errno) -> Result<Option<ScatteredFrame>, PortError> {
        let port = self.subject.clone();
        match error {
            Errno::AGAIN | Errno::INTR => {
                // All frames that had arrived are read.
                self.left = self.left.map(|_| 0);
                Ok(None)
            }
            Errno::BADFD | Errno::NODEV | Errno::FAULT if self.device.is_up().is_none() => {
                Err(PortError::removed(port))
            }
            Errno::IO | Errno::NETDOWN => {
                self.downs += 1;
                Err(PortError::Down { port })
            }
            other => Err(PortError::broken(port, other.to_string())),
        }
    }

    /// Reads frames, as far as there is room.
    fn receive_frames(&mut self, now: Nanos) -> Result<(), PortError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = loop {
            if self.shown.len() == FRAMES || self.used + LONGEST > BYTES - MAX_FRAME {
                break Ok(());
            }
            match self.next(&mut [IoSliceMut::new(&mut buffer)]) {
                Ok(Some(ScatteredFrame { len, flags, .. })) => {
                    let kept = len.min(self.snap);
                    let desc = Desc { wire: len as u32, flags, ..Desc::new(now, 0, kept as u32) };
                    let has_room = self.shown.push(&desc, &buffer[..kept]);
                    assert!(has_room, "a block of {BYTES} bytes is full at {}", self.used);
                    self.used += kept + linerate_burst::RECORD_HEADER;
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.buffer = buffer;
        result
    }

    fn unconsumed(&self) -> usize {
        self.shown.len() - self.consumed
    }
}

impl RxQueue for TunRx {
    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError> {
        if !self.is_scattered && self.unconsumed() == 0 {
            self.shown.clear();
            (self.used, self.consumed) = (0, 0);
            let taken = self.receive_frames(now);
            if self.shown.is_empty() {
                taken?;
            }
        }
        let ended = self.left == Some(0) && self.unconsumed() == 0;
        let burst = self.shown.burst().slice(self.consumed..self.shown.len());
        // Later reads have a later time; frames that are shown must not be overtaken by the horizon.
        let horizon =
            if ended { Horizon::Ended } else { Horizon::At(burst.descs().first().map_or(now, |desc| desc.time)) };
        Ok(Head { burst, horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        let shown = self.unconsumed();
        assert!(frames <= shown, "{frames} frames consumed, {shown} shown");
        self.consumed += frames;
        self.delivered += frames as u64;
    }

    fn detach(&mut self) {
        if self.left.is_none() {
            self.left = Some(self.device.depth);
            // Read the counter first: packets filtered from here on are not lost.
            self.dropped.set(self.device.dropped());
            self.device.retire();
        }
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.fd.as_fd())
    }

    fn counters(&self, ledger: &mut Ledger) {
        if self.left.is_none() {
            self.dropped.set(self.device.dropped());
        }
        // The kernel's counter is common to all queues.
        let dropped = if self.queue.number == 0 { self.dropped.get() } else { 0 };
        let received = self.delivered + self.unconsumed() as u64 + dropped;
        let account = ledger.account(Stage::Receive, &self.subject);
        account.add(Count::Received, received).add(Count::Delivered, self.delivered);
        account.add(Count::RingFull, dropped).add(Count::LinkDown, self.downs);
        account.add(Count::SuperFrames, self.super_frames).add(Count::ChecksumPartial, self.partial);
    }

    fn scatter(&mut self) -> Option<&mut dyn ScatterQueue> {
        if self.is_scattered { Some(self) } else { None }
    }
}

impl ScatterQueue for TunRx {
    fn read(&mut self, pieces: &mut [IoSliceMut<'_>]) -> Result<Option<ScatteredFrame>, PortError> {
        let read = self.next(pieces)?;
        self.delivered += u64::from(read.is_some());
        Ok(read)
    }
}

impl Drop for TunRx {
    fn drop(&mut self) {
        if self.left.is_none() {
            self.device.retire();
        }
        self.queue.release_receiver();
    }
}
