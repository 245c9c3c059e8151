//! Frames of memory from a writer to one reader after the other: bytes, order, rejections, readers that detach, die or
//! break the protocol. The hostile readers are written from the numbers of `docs/frame-ring.md`.

use crate::raw::{self, Map, connected, control, read_message, send_message};
use crate::support::{self, unique};
use linerate_burst::Nanos;
use linerate_burst::pool::OwnedBytes;
use linerate_share::frame_ring::{End, Ending, FrameMetadata, Options, Reader, TakenFrame, Writer};
use linerate_share::{Acceptor, Access, AttachOptions, Error};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

const SIZE: usize = 100_000;

/// A writer with the frames that it fills, all run by the test itself.
struct Host {
    name: String,
    writer: Writer,
    acceptor: Acceptor,
    pieces: Vec<OwnedBytes>,
    now: Nanos,
}

impl Host {
    fn new(frames: u32) -> Host {
        let (name, now) = (unique(), Nanos::from_parts(1_700_000_000, 0));
        let options = Options { frames, frame_bytes: SIZE, granule: 4096, huge: false };
        let (writer, acceptor, pieces) = Writer::create(&name, Access::default(), &options, now).unwrap();
        Host { name, writer, acceptor, pieces, now }
    }

    /// Fills a frame, and offers it.
    fn offer(&mut self, frame: u32, id: u64) {
        self.pieces[frame as usize].bytes_mut().fill(id as u8);
        let gaps: &[std::ops::Range<u64>] = &[10..20, 50_000..50_001];
        assert!(self.writer.offer(frame, &about(id), gaps, &[u64::MAX]));
    }

    fn let_in(&mut self) {
        for wait in [0, 200_000_000] {
            for client in self.acceptor.step(Nanos(self.now.0 + wait)) {
                self.writer.admit(client);
            }
        }
    }

    fn attach(&mut self) -> Result<Reader, Error> {
        let name = self.name.clone();
        let thread = std::thread::spawn(move || {
            AttachOptions { name: "a reader".into(), ..AttachOptions::default() }.frames(&name)
        });
        while !thread.is_finished() {
            self.let_in();
            std::thread::yield_now();
        }
        thread.join().unwrap()
    }

    /// Lets the writer check for readers that are gone.
    fn look(&mut self) {
        self.now.0 += 20_000_000;
        self.writer.tick(self.now);
    }

    fn raw(&mut self) -> Raw {
        let socket = connected(&self.name);
        let mut hello = raw::hello(1, true, 0);
        hello[24] = 1;
        send_message(&socket, &hello, &[]);
        self.let_in();
        let (bytes, fds) = read_message(&socket).expect("an answer");
        assert_eq!((&bytes[..4], &bytes[12..16]), (&b"LRWe"[..], &[0; 4][..]));
        let [arena, control] = fds.try_into().expect("two descriptors");
        Raw {
            _socket: socket,
            arena: Map::new(arena.as_fd(), false).unwrap(),
            control_fd: control.try_clone().unwrap(),
            control: Map::new(control.as_fd(), true).unwrap(),
        }
    }

    fn returned(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.writer.returned()).collect()
    }
}

fn about(id: u64) -> FrameMetadata {
    FrameMetadata {
        id,
        stream: 3,
        from: if id == 2 { "[fd00::1]:4000" } else { "10.0.0.1:4000" }.parse().unwrap(),
        to: if id == 2 { "[fd00::9]:5001" } else { "10.0.0.9:5001" }.parse().unwrap(),
        number: id * 2,
        offset: id * SIZE as u64,
        len: SIZE as u64 - 1,
        missing: 11,
        crc32c: Some(id as u32),
        first: Nanos(id),
        last: Nanos(id + 1),
        repeated: 5,
        late: 6,
        ending: (id == 2).then_some(Ending::Reset),
        offered: 0,
        is_coarse: false,
    }
}

fn ids(taken: &[TakenFrame]) -> Vec<u64> {
    taken.iter().map(|taken| taken.about.id).collect()
}

fn all(reader: &mut Reader) -> Vec<TakenFrame> {
    std::iter::from_fn(|| reader.take()).collect()
}

/// A reader written from the format's numbers.
struct Raw {
    _socket: OwnedFd,
    arena: Map,
    control_fd: OwnedFd,
    control: Map,
}

impl Raw {
    fn give(&self, count: u64, entries: &[u64]) {
        let capacity = self.control.word(control::CAPACITY).load(Relaxed) as usize;
        for (place, entry) in entries.iter().enumerate() {
            self.control.long(control::RINGS + (capacity + place % capacity) * 8).store(*entry, Relaxed);
        }
        self.control.long(control::RETURNED).store(count, Release);
    }
}

#[test]
fn frame_equals_the_offered_one_and_returns_on_drop() {
    let mut host = Host::new(3);
    host.offer(1, 1);
    let mut reader = host.attach().unwrap();
    host.offer(0, 2);
    // Notice of an end, without memory.
    let entry = host.writer.entry(None).unwrap();
    assert!(entry >= 3 && host.writer.offer(entry, &FrameMetadata { len: 0, missing: 0, ..about(3) }, &[], &[]));
    let taken = all(&mut reader);
    assert_eq!((reader.frames(), taken[0].about.clone(), taken[1].about.clone()), ((3, SIZE), about(1), about(2)));
    assert_eq!((taken[0].gaps.clone(), taken[2].bytes()), (vec![10..20, 50_000..50_001], &[][..]));
    assert!(taken[0].bytes() == vec![1; SIZE - 1] && taken[1].bytes() == vec![2; SIZE - 1]);
    assert_eq!((host.writer.out(), host.returned()), ((3, 0), vec![]));
    let [first, second, third] = <[TakenFrame; 3]>::try_from(taken).unwrap();
    drop(second);
    assert_eq!((host.returned(), host.writer.out()), (vec![0], (2, 0)));
    // If only the memory is kept the frame is held too.
    let memory = first.into_memory();
    drop(third);
    assert_eq!((host.returned(), memory.bytes()[99]), (vec![entry], 1));
    std::thread::spawn(move || drop(memory)).join().unwrap();
    assert_eq!((host.returned(), reader.frames_returned(), host.writer.counts().handed), (vec![1], 3, 3));
}

#[test]
fn frames_are_reused_and_a_sleeping_reader_is_woken() {
    let mut host = Host::new(2);
    let mut reader = host.attach().unwrap();
    let taker = std::thread::spawn(move || {
        let mut ids = Vec::new();
        while reader.ended().is_none() {
            match reader.take() {
                Some(taken) => {
                    ids.push((taken.about.id, taken.bytes().iter().all(|byte| *byte == taken.about.id as u8)))
                }
                None => reader.wait(Duration::from_secs(20)),
            }
        }
        (ids, reader.ended())
    });
    let (mut free, mut id) = (vec![0, 1], 0);
    while id < 2000 {
        free.extend(host.returned());
        while let Some(frame) = free.pop() {
            host.offer(frame, id);
            id += 1;
        }
    }
    host.writer.end();
    let (ids, ended) = taker.join().unwrap();
    assert_eq!(ended, Some(End::InOrder));
    assert!(ids.iter().enumerate().all(|(place, one)| *one == (place as u64, true)) && ids.len() as u64 == id);
}

#[test]
fn second_reader_and_block_readers_are_rejected_with_a_reason() {
    let mut host = Host::new(2);
    let reader = host.attach().unwrap();
    let error = host.attach().unwrap_err().to_string();
    assert!(error.contains("another reader is attached, and the limit is one"), "{error}");
    let attaching = AttachOptions::default().begin(&host.name).unwrap();
    host.let_in();
    let error = attaching.finish().unwrap_err().to_string();
    assert!(error.contains("linerate frames"), "{error}");
    assert_eq!(host.acceptor.refused(), 2);
    drop(reader);
    host.look();
    host.attach().unwrap();
    let mut blocks = support::Ring::new(4);
    let name = blocks.name.clone();
    let thread = std::thread::spawn(move || AttachOptions::default().frames(&name).map(drop));
    while !thread.is_finished() {
        blocks.let_in();
    }
    let error = thread.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("linerate capture shm:NAME"), "{error}");
}

#[test]
fn frames_of_a_reader_go_to_the_next_in_order() {
    let mut host = Host::new(5);
    let mut reader = host.attach().unwrap();
    (0..4).for_each(|id| host.offer(id, id.into()));
    let mut taken = all(&mut reader);
    assert_eq!(ids(&taken), [0, 1, 2, 3]);
    drop(taken.remove(1));
    // It is gone, with the frames that it held; those returned before count.
    let second = taken.remove(1);
    reader.leave();
    assert!(reader.take().is_none() && reader.ended() == Some(End::Left));
    drop((taken, second, reader));
    host.look();
    assert_eq!((host.returned(), host.writer.out()), (vec![1], (0, 3)));
    host.offer(4, 4);
    let mut reader = host.attach().unwrap();
    let taken = all(&mut reader);
    let offered: Vec<u32> = taken.iter().map(|taken| taken.about.offered).collect();
    assert_eq!((ids(&taken), offered), (vec![0, 2, 3, 4], vec![1, 1, 1, 0]));
    assert!(taken.iter().all(|taken| taken.bytes().iter().all(|byte| *byte == taken.about.id as u8)));
    let counts = host.writer.counts();
    assert_eq!((counts.readers, counts.handed, counts.redelivered, counts.returned), (2, 8, 3, 1));
    let events = host.writer.take_events();
    assert!(
        events[0].contains("\"a reader\"") && events[0].contains("3 frames that it held are offered again"),
        "{events:?}"
    );
}

#[test]
fn end_follows_the_last_frame_for_the_current_reader() {
    let mut host = Host::new(2);
    host.offer(0, 0);
    host.writer.end();
    let mut reader = host.attach().unwrap();
    let taken = reader.take().unwrap();
    assert!(reader.take().is_none() && reader.ended() == Some(End::InOrder));
    drop(reader);
    // The reader is dropped before the frame, which is returned later.
    host.look();
    assert_eq!(taken.bytes()[7], 0);
    drop(taken);
    assert_eq!(host.returned(), [0]);
    // A writer that dies leaves the frames that it handed over.
    let mut host = Host::new(2);
    let mut reader = host.attach().unwrap();
    host.offer(1, 9);
    drop(host);
    reader.wait(Duration::ZERO);
    let taken = reader.take().unwrap();
    assert_eq!((taken.bytes()[0], reader.take().is_none(), reader.ended()), (9, true, Some(End::Died)));
}

#[test]
fn misbehaving_reader_is_evicted_and_the_next_gets_its_frames() {
    type Tampering = fn(&Raw);
    let lies: [(&str, Tampering); 7] = [
        ("returned an unknown frame", |raw| raw.give(1, &[u64::MAX])),
        ("returned an unknown frame", |raw| raw.give(1, &[20])),
        ("returned a frame that it does not hold", |raw| raw.give(1, &[3])),
        ("returned a frame that it does not hold", |raw| raw.give(2, &[1, 1])),
        ("returned more frames than it holds", |raw| raw.give(3, &[0, 1, 2])),
        ("returned more frames than it holds", |raw| raw.give(u64::MAX, &[0, 1])),
        ("returned a frame that it does not hold", |raw| {
            (0..raw.control.bytes).step_by(8).for_each(|at| raw.control.long(at).store(2, Relaxed));
        }),
    ];
    for (said, lie) in lies {
        let mut host = Host::new(4);
        host.offer(0, 0);
        host.offer(1, 1);
        let raw = host.raw();
        assert_eq!(raw.control.long(control::PUBLISHED).load(Acquire), 2);
        lie(&raw);
        let mut free = host.returned();
        host.look();
        let (events, counts) = (host.writer.take_events(), host.writer.counts());
        assert!(events.len() == 1 && events[0].contains(said), "{said}: {events:?}");
        assert_eq!((counts.evicted, host.writer.reader().is_none()), (1, true), "{said}");
        assert_eq!(raw.control.word(156).load(Acquire), 1, "{said}: it sees the eviction");
        let mut reader = host.attach().unwrap();
        host.offer(2, 2);
        let taken = all(&mut reader);
        free.extend(ids(&taken).iter().map(|id| *id as u32));
        free.sort_unstable();
        assert_eq!(free, [0, 1, 2], "{said}");
        assert!(taken.iter().all(|one| one.bytes().iter().all(|byte| *byte == one.about.id as u8)), "{said}");
    }
}

#[test]
fn reader_can_write_only_its_control_memory() {
    let mut host = Host::new(2);
    host.offer(0, 7);
    let raw = host.raw();
    assert_eq!((raw.arena.copy(0, 8), raw.arena.word(28).load(Relaxed)), (b"LRFRAMES".to_vec(), 2));
    assert!(rustix::fs::ftruncate(&raw.control_fd, 0).is_err());
    // The writer does not read back its own fields.
    raw.control.long(control::PUBLISHED).store(u64::MAX, Relaxed);
    raw.control.word(156).store(9, Relaxed);
    raw.control.word(control::SLEEPING).store(u32::MAX, Relaxed);
    host.offer(1, 8);
    assert_eq!((host.returned(), host.writer.counts().evicted, host.writer.out()), (vec![], 0, (2, 0)));
    raw.give(2, &[1, 0]);
    assert_eq!(host.returned(), [1, 0]);
}

#[test]
fn gaps_beyond_the_list_size_are_merged() {
    let mut host = Host::new(1);
    // There is room for 97 of a frame of 100,000 bytes.
    let gaps: Vec<_> = (0..200).map(|gap| gap * 100..gap * 100 + 1).collect();
    assert!(host.writer.offer(0, &FrameMetadata { missing: 200, ..about(1) }, &gaps, &[]));
    let taken = host.attach().unwrap().take().unwrap();
    assert_eq!((taken.gaps.len(), taken.about.is_coarse, taken.about.missing), (97, true, 200));
    assert_eq!((taken.gaps[95].clone(), taken.gaps[96].clone()), (9500..9501, 9600..19_901));
}
