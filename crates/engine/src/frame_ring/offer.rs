//! Finished frames for another process: where its memory is made, and how they go and come back in the thread of the run.

use super::about;
use crate::acceptor::AcceptorThread;
use crate::clock;
use crate::consumer::End;
use crate::control::Stop;
use linerate_burst::pool::Piece;
use linerate_burst::{Count, Stage};
use linerate_receive::frames::{Config, Frame};
use linerate_share::frame_ring::{Options, Writer};
use linerate_share::{Acceptor, Access, Client, Error};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// How to share frames.
#[derive(Clone, Debug)]
pub struct FrameSharingOptions {
    /// Name of the ring, or the path of its socket.
    pub name: String,
    /// How they are.
    pub frames: Config,
    /// Who may take them beside root and the user who shares.
    pub access: Access,
    /// Use huge pages where there are any.
    pub huge: bool,
    /// How long the end of the run waits for a reader to take the last frames and to give them back, counted from when one came back.
    pub patience: Duration,
    /// How many of them a reader may have at a time; others wait where newer ones may take their place. `None` for all.
    pub most: Option<u64>,
}

/// Memory for frames that is shared, before the run that fills it.
pub struct FrameSharing {
    options: FrameSharingOptions,
    writer: Writer,
    acceptor: Acceptor,
}

/// How long the end sleeps before it looks again.
const NAP: Duration = Duration::from_micros(200);
/// Added to the number of a process that reads: 0 is for none.
const READS: u64 = 1 << 32;

impl FrameSharing {
    /// Makes the memory and its socket; nobody is let in before the run. With it come the frames themselves, for
    /// [`Frames::over`](linerate_receive::frames::Frames::over).
    ///
    /// # Errors
    /// If the name is taken, or there is no such memory.
    pub fn create(options: FrameSharingOptions) -> Result<(FrameSharing, Vec<Piece>), Error> {
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

    /// Of what memory they are and why, a line each, for people.
    pub fn notes(&self) -> &[String] {
        self.writer.notes()
    }

    /// Lets readers in; `stop` ends waiting at the end where it is hurried.
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

/// To be asked who has the frames, by another thread.
#[derive(Clone, Debug, Default)]
pub struct FrameSharingWatch {
    /// The process that reads, and whether one does.
    reader: Arc<AtomicU64>,
    held: Arc<AtomicU64>,
    waiting: Arc<AtomicU64>,
}

/// Who has the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedSoFar {
    /// The process that reads, if one does; 0 where it cannot be seen from here.
    pub reader: Option<u32>,
    /// Frames that it has.
    pub held: u64,
    /// Frames that wait for a reader.
    pub waiting: u64,
}

impl FrameSharingWatch {
    /// As it is now.
    pub fn so_far(&self) -> SharedSoFar {
        SharedSoFar {
            reader: self.reader.load(Ordering::Relaxed).checked_sub(READS).map(|pid| pid as u32),
            held: self.held.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }
}

/// Frames that are shared, in a run.
pub(crate) struct SharedFrames {
    options: FrameSharingOptions,
    writer: Writer,
    acceptor: AcceptorThread,
    clients: Receiver<Client>,
    stop: Stop,
    /// Frames handed over, by their entries.
    out: Vec<Option<Frame>>,
    /// News without memory for which there was no entry, and what came behind it. As long as some wait nothing is handed over, so that
    /// frames run out before memory does.
    waiting: VecDeque<Frame>,
    given: u64,
    back: u64,
    watch: FrameSharingWatch,
    events: Vec<String>,
}

impl SharedFrames {
    /// Hands a frame over, behind those that wait.
    pub(crate) fn hand_over(&mut self, frame: Frame) {
        self.given += 1;
        self.waiting.push_back(frame);
        self.offer();
    }

    /// Whether more may be handed over now.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.options.most.is_none_or(|most| self.given - self.back < most)
    }

    /// Frames that have not come back.
    pub(crate) fn out(&self) -> u64 {
        self.given - self.back
    }

    /// A frame that nobody needs any more.
    pub(crate) fn returned(&mut self) -> Option<Frame> {
        let entry = self.writer.returned()?;
        self.back += 1;
        let frame = self.out.get_mut(entry as usize).and_then(Option::take);
        self.offer();
        frame
    }

    /// What is to be done now and then: readers come and go.
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

    /// Whether nobody is let in any more, by a bug.
    pub(crate) fn has_failed(&self) -> bool {
        self.acceptor.is_dead()
    }

    /// All frames were handed over: waits for the last of them, and accounts for all.
    pub(crate) fn finish(&mut self, end: &mut End<'_>) {
        let mut moved = Instant::now();
        loop {
            let mut came = false;
            while let Some(frame) = self.returned() {
                drop(frame);
                came = true;
            }
            if came {
                moved = Instant::now();
            }
            if self.waiting.is_empty() {
                self.writer.end();
            }
            self.tick();
            if self.out() == 0 || moved.elapsed() >= self.options.patience || self.stop.is_hurried() {
                break;
            }
            std::thread::sleep(NAP);
        }
        // Who has nothing left to take is to learn that this is the end.
        self.writer.end();
        let died = self.acceptor.close();
        let counts = self.writer.counts();
        let account = end.ledger.account(Stage::Store, "");
        account.add(Count::StoreReceived, self.given).add(Count::Stored, self.back);
        account.add(Count::StoreUntaken, self.given - self.back);
        account.add(Count::StoreReaders, counts.readers).add(Count::StoreRefusedReaders, self.acceptor.refused());
        account.add(Count::StorePutOut, counts.put_out).add(Count::StoreHanded, counts.handed);
        account.add(Count::StoreOfferedAgain, counts.offered_again);
        self.tell(end, counts.untold);
        if let Some(died) = died {
            end.fail(died);
        }
    }

    fn tell(&mut self, end: &mut End<'_>, untold: u64) {
        end.events.append(&mut self.events);
        if untold > 0 {
            end.events.push(format!("{untold} more readers of {} went; counters have their sum", self.options.name));
        }
        let left = self.out();
        if left > 0 {
            let who = self.writer.reader().map(|who| format!("{} (pid {}) has them", who.name, who.pid));
            end.events.push(format!(
                "{left} frames shared as {} had not come back {} s after the last: {}",
                self.options.name,
                self.options.patience.as_secs_f64(),
                who.as_deref().unwrap_or("nobody took them"),
            ));
        }
    }

    /// Offers what waits here, as far as there are entries.
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
