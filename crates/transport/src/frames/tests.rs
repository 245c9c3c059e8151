//! Frames compared with streams known byte by byte.

use super::*;
use crate::copy::Kernel;
use crate::ranges::Ranges;
use linerate_headers::Crc32c;
use proptest::prelude::*;

/// Returns the byte of a stream at an offset; never 0, so that missing ones show.
fn byte(stream: StreamId, offset: u64) -> u8 {
    ((offset * 31 + offset / 255 + u64::from(stream.0) * 101) % 255) as u8 + 1
}

fn bytes(stream: StreamId, range: Range<u64>) -> Vec<u8> {
    range.map(|offset| byte(stream, offset)).collect()
}

fn ends(stream: StreamId) -> Ends {
    Ends { from: ([10, 0, 0, 1], stream.0 as u16).into(), to: ([10, 0, 0, 2], 9).into() }
}

/// Bytes that a stream has sent, and the state of its reader.
struct Sender {
    id: StreamId,
    there: Ranges,
    room: u64,
    /// Index of the next frame of its reader.
    next: u64,
    ending: Option<Ending>,
    is_over: bool,
}

/// The frames, and their expected state.
struct Model {
    config: Config,
    frames: Frames,
    senders: Vec<Sender>,
    fetched: Vec<Frame>,
    ids: u64,
    time: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Begin,
    /// Stream, distance beyond its edge, number of bytes, and how they arrive.
    Segment(usize, u64, u64, DeliveryPath),
    End(usize, Ending),
    Fetch,
    GiveBack(usize),
}

#[derive(Clone, Copy, Debug)]
enum DeliveryPath {
    Copied,
    /// Read into place, expected this many bytes beyond the edge of that stream, after a header of this many bytes.
    Read(usize, u64, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let way = prop_oneof![
        Just(DeliveryPath::Copied),
        (0_usize..4, 0_u64..4, 0_usize..5).prop_map(|(stream, n, header)| DeliveryPath::Read(stream, n * 7, header)),
        Just(DeliveryPath::Read(usize::MAX, 0, 3)),
    ];
    let ending = prop_oneof![Just(Ending::Complete), Just(Ending::Reset), Just(Ending::Silent)];
    let step = prop_oneof![
        1 => Just(Step::Begin),
        12 => (0_usize..4, prop_oneof![Just(0), 0_u64..50], 0_u64..60, way)
            .prop_map(|(stream, behind, len, way)| Step::Segment(stream, behind, len, way)),
        1 => (0_usize..4, ending).prop_map(|(stream, ending)| Step::End(stream, ending)),
        3 => Just(Step::Fetch),
        3 => (0_usize..4).prop_map(Step::GiveBack),
    ];
    prop::collection::vec(step, 0..120)
}

impl Model {
    fn step(&mut self, step: &Step) {
        self.time += 1;
        match step {
            Step::Begin => self.begin(),
            Step::Segment(stream, behind, len, way) => self.segment(*stream, *behind, *len, *way),
            Step::End(stream, ending) => {
                let Some(stream) = self.live(*stream) else { return };
                self.senders[stream].ending = Some(*ending);
                self.frames.end(self.senders[stream].id, *ending, Nanos(self.time));
            }
            Step::Fetch => {
                if let Some(frame) = self.frames.full() {
                    self.check(&frame);
                    self.fetched.push(frame);
                }
            }
            Step::GiveBack(index) if !self.fetched.is_empty() => {
                let frame = self.fetched.swap_remove(index % self.fetched.len());
                self.frames.return_frame(frame);
            }
            Step::GiveBack(_) => {}
        }
        self.keeps_promises();
    }

    fn live(&self, stream: usize) -> Option<usize> {
        let live: Vec<usize> = (0..self.senders.len()).filter(|index| self.senders[*index].ending.is_none()).collect();
        (!live.is_empty()).then(|| live[stream % live.len()])
    }

    fn begin(&mut self) {
        let (id, free) = (StreamId(self.senders.len() as u32), self.frames.state().0);
        let began = self.frames.begin(id, &ends(id), Nanos(self.time));
        assert_eq!(began, free > 0);
        if began {
            let sender = Sender { id, there: Ranges::default(), room: 0, next: 0, ending: None, is_over: false };
            self.senders.push(sender);
        }
    }

    fn segment(&mut self, stream: usize, behind: u64, len: u64, way: DeliveryPath) {
        let Some(stream) = self.live(stream) else { return };
        let (id, from) = (self.senders[stream].id, self.senders[stream].there.edge() + behind);
        let range = from..(from + len).min(self.senders[stream].room).max(from);
        let sent = bytes(id, range.clone());
        let skip = if let DeliveryPath::Read(expected, ahead, header) = way {
            self.read(stream, expected, ahead, header, &sent)
        } else {
            0
        };
        let (sender, mut new) = (&mut self.senders[stream], Vec::new());
        sender.there.insert(range.clone(), usize::MAX, |piece| new.push(piece)).unwrap();
        for piece in new {
            let part = (piece.start - range.start) as usize..(piece.end - range.start) as usize;
            let payload = match way {
                // Bytes in the header buffer belong to the caller.
                DeliveryPath::Read(..) if part.start >= skip => {
                    Payload::Read { from: part.start - skip, len: part.len() }
                }
                _ => Payload::Bytes(&sent[part]),
            };
            self.frames.place(id, piece.start, payload, Nanos(self.time));
        }
        self.frames.advance(id, sender.there.edge(), Nanos(self.time));
    }

    /// Reads the payload and checks what was read. Returns the number of its bytes in the header buffer.
    fn read(&mut self, stream: usize, expected: usize, ahead: u64, header: usize, sent: &[u8]) -> usize {
        let expected = match expected {
            usize::MAX => Some((self.senders[stream].id, self.senders[stream].there.edge())),
            index => self.live(index).map(|index| (self.senders[index].id, self.senders[index].there.edge() + ahead)),
        };
        let mut buffer = vec![0; header];
        let read = self.frames.read(expected, &mut buffer, |pieces| {
            let mut left = sent;
            for piece in pieces {
                let count = left.len().min(piece.len());
                piece[..count].copy_from_slice(&left[..count]);
                left = &left[count..];
            }
            assert!(left.is_empty());
            Ok::<_, ()>(sent.len())
        });
        assert_eq!(read, Ok(sent.len()));
        let behind = &sent[header.min(sent.len())..];
        assert_eq!(self.frames.read_bytes(0..behind.len()).collect::<Vec<_>>().concat(), behind);
        if ahead == 7 {
            assert_eq!(self.frames.read_whole(0..behind.len()), behind);
            assert_eq!(self.frames.read_bytes(0..behind.len()).collect::<Vec<_>>().concat(), behind);
        }
        header
    }

    fn keeps_promises(&mut self) {
        for sender in self.senders.iter_mut().filter(|sender| sender.ending.is_none()) {
            let room = self.frames.room(sender.id);
            assert!(room >= sender.room, "room of {} went back from {} to {room}", sender.id, sender.room);
            sender.room = room;
        }
        for stream in &self.frames.streams {
            let queued = self.frames.without.iter().chain(&self.frames.wanting).filter(|id| **id == stream.id).count();
            assert_eq!(queued, usize::from(stream.waits), "{} in the queues", stream.id);
        }
        let held: usize = self.frames.streams.iter().map(|stream| stream.held.len()).sum();
        let with_memory = |frame: &&Frame| !frame.memory().is_empty();
        let (free, _) = self.frames.state();
        let fetched = self.fetched.iter().filter(with_memory).count();
        let full = self.frames.pool.waiting_with_memory();
        assert_eq!(free + held + full + fetched, self.config.frames, "frames got lost");
        let without = self.frames.streams.iter().any(|stream| stream.held.is_empty());
        assert!(!without || free == 0, "a stream waits although a frame is free");
    }

    fn check(&mut self, frame: &Frame) {
        let (meta, size) = (frame.meta, self.config.size as u64);
        let sender = &mut self.senders[meta.stream.0 as usize];
        assert_eq!((meta.id, meta.number, meta.ends), (self.ids, sender.next, ends(sender.id)));
        assert_eq!(meta.offset, meta.number * size);
        assert!(!sender.is_over);
        (self.ids, sender.next, sender.is_over) = (self.ids + 1, sender.next + 1, meta.ending.is_some());
        let end = sender.there.end().max(meta.offset).min(meta.offset + size);
        assert_eq!(meta.offset + meta.len as u64, end);
        assert_eq!(frame.bytes().len(), meta.len);
        assert!(meta.ending.is_some() || meta.len == self.config.size, "{meta:?}");
        assert!(sender.ending.is_some() || frame.is_complete(), "{meta:?}");
        if meta.ending.is_some() {
            assert_eq!(meta.ending, sender.ending);
            assert!(sender.there.end() <= end, "more received than output");
        }
        let is_there = |at: u64| {
            let at = meta.offset + at;
            at < sender.there.edge() || sender.there.beyond().iter().any(|range| range.contains(&at))
        };
        for at in 0..meta.len as u64 {
            let wanted = if is_there(at) { byte(sender.id, meta.offset + at) } else { 0 };
            let is_left = self.config.missing == Missing::Left && !is_there(at);
            assert!(is_left || frame.bytes()[at as usize] == wanted, "byte {at} of {meta:?}");
        }
        let wanted: Vec<u64> = (0..meta.len as u64).filter(|at| !is_there(*at)).collect();
        let missing: Vec<u64> = frame.missing().iter().flat_map(Clone::clone).collect();
        assert_eq!((missing.len() as u64, missing), (meta.missing, wanted));
        let there: Vec<u64> = frame.there().flatten().collect();
        assert_eq!(there, (0..meta.len as u64).filter(|at| is_there(*at)).collect::<Vec<_>>());
        let granules: Vec<bool> = (0..meta.len)
            .step_by(self.config.granule)
            .map(|at| (at..(at + self.config.granule).min(meta.len)).all(|at| is_there(at as u64)))
            .collect();
        let presence = frame.presence();
        assert_eq!((0..presence.len()).map(|at| presence.is_there(at)).collect::<Vec<_>>(), granules);
        assert!(!presence.is_there(presence.len()));
        let ones: u32 = presence.words().iter().map(|word| word.count_ones()).sum();
        assert_eq!(ones as usize, granules.iter().filter(|there| **there).count());
        let crc = Crc32c::NEW.with(frame.bytes()).value();
        assert_eq!(meta.crc32c, self.config.crc.then_some(crc));
        assert!(meta.first <= meta.last && meta.last.0 <= self.time);
        assert_eq!(meta.first == Nanos::ZERO, meta.missing == meta.len as u64);
    }

    /// Stops everything; all frames are free afterwards.
    fn finish(mut self) {
        for stream in 0..self.senders.len() {
            if self.senders[stream].ending.is_none() {
                self.senders[stream].ending = Some(Ending::Stopped);
                self.frames.end(self.senders[stream].id, Ending::Stopped, Nanos(self.time));
            }
        }
        while let Some(frame) = self.frames.full() {
            self.check(&frame);
            self.fetched.push(frame);
        }
        for frame in std::mem::take(&mut self.fetched) {
            self.frames.return_frame(frame);
        }
        assert!(self.senders.iter().all(|sender| sender.is_over), "a stream has no end");
        assert_eq!(self.frames.state(), (self.config.frames, 0));
        assert_eq!((self.frames.counts().frames, self.frames.counts().beyond), (self.ids, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn frames_contain_the_streams(
        steps in steps(), size in 1_usize..80, count in 1_usize..7, ahead in 0_u64..200, granule in 1_usize..20,
        left in any::<bool>(), crc in any::<bool>(),
    ) {
        let missing = if left { Missing::Left } else { Missing::Zeroed };
        let config = Config { size, frames: count, ahead, missing, granule, crc, kernel: Kernel::default() };
        let frames = Frames::new(&config).unwrap();
        let mut model = Model { config, frames, senders: Vec::new(), fetched: Vec::new(), ids: 0, time: 0 };
        model.step(&Step::Begin);
        steps.iter().for_each(|step| model.step(step));
        model.finish();
    }
}

fn frames(size: usize, count: usize, ahead: u64) -> Frames {
    Frames::new(&Config { size, frames: count, ahead, ..Config::default() }).unwrap()
}

/// Sends this many bytes of a stream, as far as there is room. Returns their number.
fn fill(frames: &mut Frames, stream: StreamId, from: u64, len: u64) -> u64 {
    let end = (from + len).min(frames.room(stream));
    frames.place(stream, from, Payload::Bytes(&bytes(stream, from..end)), Nanos(1));
    frames.advance(stream, end, Nanos(1));
    end - from
}

#[test]
fn a_single_stream_gets_the_whole_pool() {
    let mut frames = frames(10, 5, 1000);
    assert!(frames.begin(StreamId(0), &ends(StreamId(0)), Nanos(1)));
    assert_eq!((frames.room(StreamId(0)), frames.state()), (10, (4, 0)), "while it has received nothing");
    let mut at = 0;
    for len in [10, 10, 20, 10, 0] {
        assert_eq!(fill(&mut frames, StreamId(0), at, 100), len);
        at += len;
    }
    assert_eq!((frames.state(), frames.room(StreamId(0))), ((0, 5), 50));
    let first = frames.full().unwrap();
    frames.return_frame(first);
    assert_eq!(frames.room(StreamId(0)), 60);
}

#[test]
fn each_stream_has_reserved_frames() {
    let mut frames = frames(10, 9, 20);
    for stream in (0..3).map(StreamId) {
        assert!(frames.begin(stream, &ends(stream), Nanos(1)));
        fill(&mut frames, stream, 0, 6);
        assert_eq!(frames.room(stream), 20, "of {stream}");
    }
}

#[test]
fn simultaneous_streams_do_not_take_frames_of_others() {
    let mut frames = frames(10, 9, 1000);
    for stream in (0..8).map(StreamId) {
        assert!(frames.begin(stream, &ends(stream), Nanos(1)), "{stream}");
        fill(&mut frames, stream, 0, 5);
    }
}

/// Two streams that want everything, and a reader that returns frames one by one: they get alternate frames.
#[test]
fn greedy_streams_share_the_pool() {
    for count in [2, 5] {
        let mut frames = frames(10, count, 1000);
        let streams = [StreamId(0), StreamId(1)];
        let mut filled = [0, 0];
        assert!(frames.begin(streams[0], &ends(streams[0]), Nanos(1)));
        assert!(frames.begin(streams[1], &ends(streams[1]), Nanos(1)));
        for _ in 0..100 {
            for stream in [0, 1] {
                filled[stream] += fill(&mut frames, streams[stream], filled[stream], 1000);
            }
            let frame = frames.full().unwrap();
            frames.return_frame(frame);
        }
        assert!(filled.iter().all(|filled| *filled > 480), "{filled:?}");
    }
}

#[test]
fn bytes_without_room_are_counted_and_not_written() {
    let mut frames = frames(10, 2, 0);
    frames.begin(StreamId(0), &ends(StreamId(0)), Nanos(1));
    frames.place(StreamId(0), 5, Payload::Bytes(&[7; 20]), Nanos(1));
    frames.place(StreamId(9), 0, Payload::Bytes(&[7; 4]), Nanos(1));
    assert_eq!(frames.counts().beyond, 15 + 4);
    frames.end(StreamId(0), Ending::Reset, Nanos(2));
    let frame = frames.full().unwrap();
    assert_eq!(
        (frame.bytes(), frame.missing()),
        ([0, 0, 0, 0, 0, 7, 7, 7, 7, 7].as_slice(), std::slice::from_ref(&(0..5)))
    );
}

#[test]
fn placed_data_may_be_consumed_in_part() {
    let (mut frames, id) = (frames(100, 2, 0), StreamId(0));
    frames.begin(id, &ends(id), Nanos(1));
    let read = frames.read(Some((id, 0)), &mut [], |pieces| {
        pieces[1][..50].fill(7);
        Ok::<_, ()>(50)
    });
    frames.place(id, 0, Payload::Read { from: 0, len: 20 }, Nanos(1));
    frames.end(id, Ending::Reset, Nanos(2));
    assert_eq!((read, frames.full().unwrap().bytes()), (Ok(50), [7; 20].as_slice()));
}

/// Runs in a child process limited to 2 GB.
#[test]
fn missing_memory_is_rejected() {
    let output = std::process::Command::new("sh")
        .args(["-c", r#"ulimit -v 2000000 && exec "$1" --ignored --exact frames::tests::in_little_memory"#, "sh"])
        .arg(std::env::current_exe().unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "runs inside missing_memory_is_rejected"]
fn in_little_memory() {
    let error = Frames::new(&Config { size: 4 << 30, frames: 2, ..Config::default() }).unwrap_err();
    assert_eq!(error, FramesError::Memory(2, 4 << 30));
}

#[test]
fn impossible_frames_are_rejected() {
    let config = Config { size: 0, ..Config::default() };
    assert_eq!(Frames::new(&config).unwrap_err(), FramesError::Size(0));
    let config = Config { frames: 0, ..Config::default() };
    assert!(matches!(Frames::new(&config), Err(FramesError::Frames(0, _))));
    let config = Config { size: 1 << 36, frames: 1 << 30, ..Config::default() };
    assert!(matches!(Frames::new(&config), Err(FramesError::Frames(..))));
}
