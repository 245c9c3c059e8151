//! A ring for tests, and frames that carry their number.
#![allow(dead_code)]

use linerate_burst::{Burst, CommitState, Desc, Interface, LinkType, Nanos, StampSource};
use linerate_share::{Acceptor, Access, AttachOptions, Error, Options, Reader, Writer};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Returns the options of the smallest possible ring, with this number of blocks.
pub(crate) fn options(slots: u32) -> Options {
    Options { slots, slot_bytes: 512 << 10, huge: false, ..Options::default() }
}

/// Returns a unique name.
pub(crate) fn unique() -> String {
    static USED: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), USED.fetch_add(1, Ordering::Relaxed))
}

/// A writer with its acceptor, both run by the test itself.
pub(crate) struct Ring {
    pub name: String,
    pub writer: Writer,
    pub acceptor: Acceptor,
    /// The test's clock.
    pub now: Nanos,
}

impl Ring {
    pub(crate) fn new(slots: u32) -> Ring {
        Ring::with(&unique(), Access::default(), slots).unwrap()
    }

    pub(crate) fn with(name: &str, access: Access, slots: u32) -> Result<Ring, Error> {
        let now = Nanos::from_parts(1_700_000_000, 0);
        let access = Access { lossless: true, ..access };
        let (mut writer, acceptor) = Writer::create(name, access, &options(slots), now)?;
        writer.set_interfaces(&[Interface::new("eth0", LinkType::ETHERNET, StampSource::Kernel)])?;
        Ok(Ring { name: name.to_owned(), writer, acceptor, now })
    }

    /// Attaches a reader and admits it.
    pub(crate) fn attach(&mut self, attach: &AttachOptions) -> Result<Reader, Error> {
        let attaching = attach.begin(&self.name)?;
        self.let_in();
        // A lossless reader without room is rejected after a delay.
        for client in self.acceptor.step(Nanos(self.now.0 + 200_000_000)) {
            self.writer.admit(client);
        }
        attaching.finish()
    }

    pub(crate) fn lossless(&mut self) -> Reader {
        self.attach(&AttachOptions { lossless: true, ..AttachOptions::default() }).unwrap()
    }

    pub(crate) fn lossy(&mut self, quota: u32) -> Reader {
        self.attach(&AttachOptions { quota, ..AttachOptions::default() }).unwrap()
    }

    /// Admits the readers at the acceptor.
    pub(crate) fn let_in(&mut self) {
        for client in self.acceptor.step(self.now) {
            self.writer.admit(client);
        }
    }

    /// Advances the clock enough for the writer to check for readers that are gone.
    pub(crate) fn tick(&mut self) {
        self.now = Nanos(self.now.0 + 20_000_000);
        self.writer.tick(self.now);
    }

    /// Advances the clock until this many readers are left: a process that another test has just started may hold a
    /// socket open for a moment.
    pub(crate) fn wait_for(&mut self, readers: usize) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.writer.readers().len() != readers {
            assert!(Instant::now() < deadline, "{} readers instead of {readers}", self.writer.readers().len());
            self.let_in();
            self.tick();
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Writes and commits as many of `frames` frames as there is room for; returns their number.
    pub(crate) fn write(&mut self, frames: u64) -> u64 {
        let first = self.writer.committed();
        let mut pushed = 0;
        while pushed < frames {
            let Some(block) = self.writer.block() else { break };
            let id = first + pushed;
            if block.push(&desc(id), &frame(id)) {
                pushed += 1;
            } else {
                self.commit(id);
                self.writer.close_block();
            }
        }
        self.commit(first + pushed);
        pushed
    }

    /// Commits all frames before this one.
    pub(crate) fn commit(&mut self, next: u64) {
        let horizon = time(next);
        self.writer.commit(&CommitState { last_time: horizon, horizon, ..CommitState::default() });
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) {
        for report in self.writer.readers() {
            assert_balanced(&report.tally);
        }
    }
}

pub(crate) fn assert_balanced(tally: &linerate_share::Tally) {
    let sum = tally.finished + tally.reclaimed + tally.outstanding + tally.skipped_frames;
    assert_eq!(tally.committed, sum, "{tally:?}");
}

pub(crate) fn time(id: u64) -> Nanos {
    Nanos(1_700_000_000_000_000_000 + id * 1000)
}

pub(crate) fn desc(id: u64) -> Desc {
    Desc { hash: id as u32, ..Desc::new(time(id), 0, 0) }
}

/// Returns a frame that starts with its number; lengths vary.
pub(crate) fn frame(id: u64) -> Vec<u8> {
    let length = 8 + (id * 7919 % 1500) as usize;
    let mut bytes = id.to_le_bytes().to_vec();
    bytes.extend((8..length).map(|at| (id as usize * 31 + at) as u8));
    bytes
}

/// Returns the numbers of a burst's frames; checks every byte of them.
pub(crate) fn ids(burst: Burst<'_>) -> Vec<u64> {
    burst
        .iter()
        .map(|(found, bytes)| {
            let id = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(bytes, frame(id), "frame {id} has other bytes");
            let expected = Desc { offset: found.offset, captured: bytes.len() as u32, ..desc(id) };
            assert_eq!(*found, Desc { wire: 0, ..expected }, "desc of frame {id}");
            id
        })
        .collect()
}

/// Takes all available frames.
pub(crate) fn drain(reader: &mut Reader) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        let got = ids(reader.fill(100));
        if got.is_empty() {
            return all;
        }
        reader.consume(got.len());
        all.extend(got);
    }
}
