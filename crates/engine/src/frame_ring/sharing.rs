//! Finished frames for another process: creation of the shared memory, and exchange of frames in the thread of the run.

use super::about;
use crate::acceptor::AcceptorThread;
use crate::clock;
use crate::consumer::RunEnd;
use crate::control::Stop;
use linerate_burst::pool::OwnedBytes;
use linerate_burst::{Count, Stage};
use linerate_share::frame_ring::{Options, Writer};
use linerate_share::{Acceptor, Access, Client, Error};
use linerate_transport::frames::{Config, Frame};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Options of sharing frames.
#[derive(Clone, Debug)]
pub struct FrameSharingOptions {
    /// Name of the ring, or the path of its socket.
    pub name: String,
    /// Layout of the frames.
    pub frames: Config,
    /// Users who may attach in addition to root and the user of this process.
    pub access: Access,
    /// Use huge pages if available.
    pub huge: bool,
    /// Longest wait at the end of the run for a reader to take and return the last frames, counted from the last one
    /// returned.
    pub patience: Duration,
    /// Maximum number of frames that a reader may hold; others wait, where newer ones may replace them. `None` for all.
    pub most: Option<u64>,
}

/// Shared memory for frames, before the run that fills it.
pub struct FrameSharing {
    options: FrameSharingOptions,
    writer: Writer,
    acceptor: Acceptor,
}

/// Sleep at the end before the next check.
const NAP: Duration = Duration::from_micros(200);
/// Added to the pid of a reader: 0 stands for none.
const READS: u64 = 1 << 32;

impl FrameSharing {
    /// Creates the memory and its socket; readers are admitted when the run starts. Returns the frames too, for
    /// [`Frames::over`](linerate_transport::frames::Frames::over).
    ///
    /// # Errors
    /// If the name is in use, or the memory cannot be allocated.
    pub fn create(options: FrameSharingOptions) -> Result<(FrameSharing, Vec<OwnedBytes>), Error> {
        let Config { frames, size, granule, .. } = options.frames;
        let ring = Options {
            frames: u32::try_from(frames).unwrap_or(u32::MAX),
            frame_bytes: size,
            granule: u32::try_from(granule).unwrap_or(u32::MAX),
            huge: options.huge,
        };
        let (writer, acceptor, pieces) = Writer::create(&options.name, options.access.clone(), &ring, clock::now())?;
        Ok((FrameSharing { options, writer, acceptor }, pieces))
    }

    /// Returns notes for the user about the memory, one line each.
    pub fn notes(&self) -> &[String] {
        self.writer.notes()
    }

    /// Starts admitting readers; `stop`, if hurried, ends the wait at the end.
    pub(crate) fn open(self, stop: Stop, watch: FrameSharingWatch) -> std::io::Result<SharedFrames> {
        let FrameSharing { options, writer, acceptor } = self;
        let (acceptor, clients) = AcceptorThread::start(acceptor)?;
        Ok(SharedFrames {
            options,
            writer,
            acceptor,
            clients,
            stop,
            out: Vec::new(),
            waiting: VecDeque::new(),
            given: 0,
            back: 0,
            watch,
            events: Vec::new(),
        })
    }
}

/// Lets another thread read which process has the frames.
#[derive(Clone, Debug, Default)]
pub struct FrameSharingWatch {
    /// Pid of the reader plus [`READS`], or 0.
    reader: Arc<AtomicU64>,
    held: Arc<AtomicU64>,
    waiting: Arc<AtomicU64>,
}

/// State of the shared frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameRingState {
    /// Pid of the reader, if any; 0 if it is not visible in this pid namespace.
    pub reader: Option<u32>,
    /// Number of frames that it holds.
    pub held: u64,
    /// Number of frames that wait for a reader.
    pub waiting: u64,
}

impl FrameSharingWatch {
    /// Returns the current state.
    pub fn so_far(&self) -> FrameRingState {
        FrameRingState {
            reader: self.reader.load(Ordering::Relaxed).checked_sub(READS).map(|pid| pid as u32),
            held: self.held.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }
}

pub(crate) struct SharedFrames {
    options: FrameSharingOptions,
    writer: Writer,
    acceptor: AcceptorThread,
    clients: Receiver<Client>,
    stop: Stop,
    /// Frames passed on, by their entries.
    out: Vec<Option<Frame>>,
    /// Notices without memory for which there was no entry, and later frames. While some wait nothing is passed on, so
    /// that frames run out before memory does.
    waiting: VecDeque<Frame>,
    given: u64,
    back: u64,
    watch: FrameSharingWatch,
    events: Vec<String>,
}

impl SharedFrames {
    /// Passes a frame on, after those that wait.
    pub(crate) fn hand_over(&mut self, frame: Frame) {
        self.given += 1;
        self.waiting.push_back(frame);
        self.offer();
    }

    /// Returns whether more frames may be passed on now.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.options.most.is_none_or(|most| self.given - self.back < most)
    }

    /// Returns the number of frames not returned.
    pub(crate) fn out(&self) -> u64 {
        self.given - self.back
    }

    /// Returns an unused frame.
    pub(crate) fn returned(&mut self) -> Option<Frame> {
        let entry = self.writer.returned()?;
        self.back += 1;
        let frame = self.out.get_mut(entry as usize).and_then(Option::take);
        self.offer();
        frame
    }

    /// Handles readers that attach and detach; to be called periodically.
    pub(crate) fn tick(&mut self) {
        self.writer.tick(clock::now());
        for client in self.clients.try_iter() {
            self.writer.admit(client);
        }
        self.events.extend(self.writer.take_events());
        let (held, waiting) = self.writer.out();
        self.watch.held.store(held as u64, Ordering::Relaxed);
        self.watch.waiting.store((waiting + self.waiting.len()) as u64, Ordering::Relaxed);
        let reader = self.writer.reader().map_or(0, |who| READS + u64::from(who.pid.unsigned_abs()));
        self.watch.reader.store(reader, Ordering::Relaxed);
    }

    /// Returns whether the acceptor has failed by a bug.
    pub(crate) fn has_failed(&self) -> bool {
        self.acceptor.is_dead()
    }

    /// Ends the ring after all frames were passed on: waits for the last of them, and accounts for all.
    pub(crate) fn finish(&mut self, end: &mut RunEnd<'_>) {
        let mut moved = Instant::now();
        loop {
            let mut returned = false;
            while let Some(frame) = self.returned() {
                drop(frame);
                returned = true;
            }
            if returned {
                moved = Instant::now();
            }
            if self.waiting.is_empty() {
                self.writer.end();
            }
            self.tick();
            if self.out() == 0 || moved.elapsed() >= self.options.patience || self.stop.is_forced() {
                break;
            }
            std::thread::sleep(NAP);
        }
        // Readers without frames left must see the end.
        self.writer.end();
        let died = self.acceptor.close();
        let counts = self.writer.counts();
        let account = end.ledger.account(Stage::Store, "");
        account.add(Count::StoreReceived, self.given).add(Count::Stored, self.back);
        account.add(Count::StoreNotReturned, self.given - self.back);
        account.add(Count::StoreReaders, counts.readers).add(Count::StoreRefusedReaders, self.acceptor.refused());
        account.add(Count::StoreReadersEvicted, counts.evicted).add(Count::StoreHanded, counts.handed);
        account.add(Count::StoreRedelivered, counts.redelivered);
        self.report_end(end, counts.dropped_events);
        if let Some(died) = died {
            end.fail(died);
        }
    }

    fn report_end(&mut self, end: &mut RunEnd<'_>, dropped_events: u64) {
        end.events.append(&mut self.events);
        if dropped_events > 0 {
            end.events.push(format!(
                "{dropped_events} more readers of {} detached; their counters are summed",
                self.options.name
            ));
        }
        let left = self.out();
        if left > 0 {
            let who = self.writer.reader().map(|who| format!("held by {} (pid {})", who.name, who.pid));
            end.events.push(format!(
                "{left} frames shared as {} were not returned within {} s after the last: {}",
                self.options.name,
                self.options.patience.as_secs_f64(),
                who.as_deref().unwrap_or("no reader took them"),
            ));
        }
    }

    /// Offers waiting frames, as far as there are entries.
    fn offer(&mut self) {
        while let Some(frame) = self.waiting.pop_front() {
            let entry = self.writer.entry(frame.place());
            let is_offered = entry.is_some_and(|entry| {
                self.writer.offer(entry, &about(&frame), frame.missing(), frame.presence().words())
            });
            let Some(entry) = entry.filter(|_| is_offered) else { return self.waiting.push_front(frame) };
            let place = entry as usize;
            if self.out.len() <= place {
                self.out.resize_with(place + 1, || None);
            }
            self.out[place] = Some(frame);
        }
    }
}
