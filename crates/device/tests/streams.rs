//! Streams into frames on a device, by every route: the contents match the stream.

mod damaging;

use crate::support;
use damaging::FaultyDevice;
use linerate_burst::Nanos;
use linerate_burst::pool::OwnedBytes;
use linerate_device::cpu::{Cpu, CpuConfig};
use linerate_device::frames::{DeviceDestination, Memory, Options, open};
use linerate_device::list::ListError;
use linerate_device::{Device, Form, Route};
use linerate_transport::copy::Kernel;
use linerate_transport::datagrams::{self, Datagrams, Field, Unit, WhenFull};
use linerate_transport::destination::{Destination, DestinationError, DestinationTotals};
use linerate_transport::frames::{Batch, Config, Entry, Frames, Missing};
use linerate_transport::pattern::Pattern;
use linerate_transport::ranges::Ranges;
use linerate_transport::stream_memory::{Ending, Ends, Payload, Place, StreamId};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KEY: u64 = 7;

fn ends(stream: StreamId) -> Ends {
    Ends { from: ([10, 0, 0, 1], stream.0 as u16).into(), to: ([10, 0, 0, 2], 9).into() }
}

fn options(size: usize, frames: usize, route: Route, form: Form) -> Options {
    let frames = Config {
        size,
        frames,
        ahead: 2 * size as u64,
        missing: Missing::Zeroed,
        granule: 16,
        crc: true,
        kernel: Kernel::default(),
    };
    Options { frames, form, route, block: 100, blocks: 2, pattern: Some(Pattern::new(KEY)) }
}

fn filled(options: &Options, memory: Memory) -> Frames {
    match memory {
        Memory::Here(pieces) => Frames::over(&options.frames, pieces).unwrap(),
        Memory::RemoteMemory(beyond) => Frames::beyond(&options.frames, beyond).unwrap(),
    }
}

/// A stream, a distance after its edge, and a length; or the end of a stream, or a fetch of finished frames.
#[derive(Clone, Debug)]
enum Step {
    Segment(usize, u64, u64),
    Lent(usize, u64, u64),
    End(usize),
    Fetch,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let segment = (0_usize..3, prop_oneof![2 => Just(0), 1 => 0_u64..150], 0_u64..170);
    let step = prop_oneof![
        10 => segment.clone().prop_map(|(stream, behind, len)| Step::Segment(stream, behind, len)),
        2 => segment.prop_map(|(stream, behind, len)| Step::Lent(stream, behind, len)),
        1 => (0_usize..3).prop_map(Step::End),
        3 => Just(Step::Fetch),
    ];
    prop::collection::vec(step, 0..100)
}

/// Streams, and the frames that they fill.
struct Run {
    frames: Frames,
    device: DeviceDestination,
    /// `None` after the end of a stream.
    streams: Vec<Option<Ranges>>,
    is_lending: bool,
    sent: u64,
}

impl Run {
    fn step(&mut self, step: &Step) -> Result<(), DestinationError> {
        match step {
            Step::Segment(stream, behind, len) => self.segment(*stream, *behind, *len),
            // Bytes of a lent block are only noted.
            Step::Lent(stream, behind, len) if self.is_lending => {
                let mut block = OwnedBytes::of(vec![0; 200], 0..200);
                let Some(range) = self.range(*stream, *behind, *len) else { return Ok(()) };
                let bytes = &mut block.bytes_mut()[5..5 + (range.end - range.start) as usize];
                Pattern::new(KEY).fill(range.start, bytes);
                self.frames.lend(block.bytes());
                self.put(*stream, range.clone(), &block.bytes()[5..]);
                let list = self.frames.lent();
                assert!(list.iter().all(|entry| entry.from >= 5 && u64::from(entry.len) <= range.end - range.start));
                // The test passes on the block, in place of its owner.
                let noted: u64 = list.iter().map(|entry| u64::from(entry.len)).sum();
                assert!(noted <= range.end - range.start);
                self.by_hand(block, list)?;
            }
            Step::Lent(stream, behind, len) => self.segment(*stream, *behind, *len),
            Step::End(stream) => self.end(*stream),
            Step::Fetch => self.fetch()?,
        }
        Ok(())
    }

    fn by_hand(&mut self, block: OwnedBytes, list: Vec<Entry>) -> Result<(), DestinationError> {
        let placed = self.device.place(Batch { used: block.len(), block, list });
        placed.map(drop).map_err(|error| DestinationError::Elsewhere(Box::new(error)))
    }

    fn range(&mut self, stream: usize, behind: u64, len: u64) -> Option<Range<u64>> {
        let there = self.streams[stream].as_ref()?;
        let from = there.edge() + behind;
        Some(from..(from + len).min(self.frames.room(StreamId(stream as u32))).max(from))
    }

    fn segment(&mut self, stream: usize, behind: u64, len: u64) {
        let Some(range) = self.range(stream, behind, len) else { return };
        let mut bytes = vec![0; (range.end - range.start) as usize];
        Pattern::new(KEY).fill(range.start, &mut bytes);
        self.put(stream, range, &bytes);
    }

    fn put(&mut self, stream: usize, range: Range<u64>, bytes: &[u8]) {
        let (id, mut new) = (StreamId(stream as u32), Vec::new());
        let Some(there) = &mut self.streams[stream] else { return };
        there.insert(range.clone(), usize::MAX, |piece| new.push(piece)).unwrap();
        let edge = there.edge();
        for piece in new {
            let part = (piece.start - range.start) as usize..(piece.end - range.start) as usize;
            self.sent += part.len() as u64;
            self.frames.place(id, piece.start, Payload::Bytes(&bytes[part]), Nanos(1));
        }
        self.frames.advance(id, edge, Nanos(1));
    }

    fn end(&mut self, stream: usize) {
        if self.streams[stream].take().is_some() {
            self.frames.end(StreamId(stream as u32), Ending::Stopped, Nanos(2));
        }
    }

    fn fetch(&mut self) -> Result<(), DestinationError> {
        self.frames.flush();
        while let Some(frame) = self.frames.full() {
            self.device.accept(&frame)?;
            self.frames.return_frame(frame);
        }
        Ok(())
    }
}

/// Frames passed to the taker: id and bytes.
type SeenFrames = Arc<Mutex<Vec<(u64, u64)>>>;

fn run(
    device: Box<dyn Device>,
    options: Options,
    steps: &[Step],
    seen: &SeenFrames,
) -> Result<(DestinationTotals, u64), DestinationError> {
    let (memory, device) = open(device, options).unwrap();
    let theirs = Arc::clone(seen);
    let device = device.taker(Box::new(move |placed| {
        assert!(placed.at.bytes >= placed.bytes);
        theirs.lock().unwrap().push((placed.frame.meta.id, placed.bytes));
        Ok(())
    }));
    let is_lending = options.route != Route::Copy;
    let mut run = Run { frames: filled(&options, memory), device, streams: Vec::new(), is_lending, sent: 0 };
    for stream in (0..3).map(StreamId) {
        assert!(run.frames.begin(stream, &ends(stream), Nanos(1)));
        run.streams.push(Some(Ranges::default()));
    }
    steps.iter().try_for_each(|step| run.step(step))?;
    (0..3).for_each(|stream| run.end(stream));
    run.fetch()?;
    run.device.finish()?;
    let (counts, size) = (run.frames.counts(), options.frames.frames);
    assert_eq!((run.frames.state(), counts.beyond), ((size, 0), 0));
    assert_eq!(run.device.stored().bytes - counts.missing, run.sent, "the bytes sent are on the device");
    Ok((run.device.stored(), run.sent))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Checked by the CRC-32C of the expected contents, including gaps, and by the bitmap.
    #[test]
    fn frames_on_a_device_are_the_streams(
        steps in steps(), half in 10_usize..80, frames in 3_usize..7, form in 0_usize..4, seed in any::<u64>(),
    ) {
        for route in Route::ALL {
            let form = if route == Route::Copy { Form::Raw } else { Form::ALL[form] };
            for device in support::devices(seed) {
                let seen = SeenFrames::default();
                let stored = run(device, options(half * 2, frames, route, form), &steps, &seen);
                prop_assert!(stored.is_ok(), "{route}: {:?}", stored);
                let seen = seen.lock().unwrap();
                prop_assert!(seen.is_sorted_by_key(|one| one.0) && seen.len() as u64 <= stored.unwrap().0.frames);
            }
        }
    }

    /// The run ends with an error and without a panic, whatever piece of work fails.
    #[test]
    fn a_device_that_fails_ends_the_run(steps in steps(), one in 1_u64..60, seed in 1_u64..1000) {
        for route in Route::ALL {
            let device = Cpu::open(CpuConfig { seed, fail_one_in: Some(one), ..CpuConfig::default() });
            match run(Box::new(device), options(60, 4, route, Form::Raw), &steps, &SeenFrames::default()) {
                Ok(_) => {}
                Err(DestinationError::Elsewhere(error)) => prop_assert!(error.to_string().starts_with("cpu: "), "{error}"),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}

#[test]
fn damage_in_transit_is_detected_and_reported() {
    let steps = [Step::Segment(0, 0, 64), Step::Fetch];
    for route in Route::ALL {
        let damaged = |leaves_out, options| {
            let device = Box::new(FaultyDevice { device: support::cpu(1), leaves_out });
            run(device, options, &steps, &SeenFrames::default()).unwrap_err().to_string()
        };
        let options = options(64, 3, route, Form::Raw);
        let error = damaged(false, options);
        assert!(error.contains("byte 20 of the stream is 0x"), "{route}: {error}");
        let error = damaged(true, options);
        assert!(error.contains("frame 0 has 0 complete parts instead of 4 complete parts"), "{route}: {error}");
        if route == Route::Copy {
            let error = damaged(false, Options { pattern: None, ..options });
            assert!(error.contains("frame 0 has CRC-32C"), "by the host's checksum: {error}");
        } else {
            let error = damaged(false, Options { form: Form::Int16Big, ..options });
            assert!(error.contains("frame 0 has CRC-32C"), "{route}, converted: {error}");
        }
    }
}

#[test]
fn duplicates_are_rejected_on_the_host() {
    for route in [Route::Place, Route::Gather] {
        let (memory, mut device) = open(support::cpu(1), options(64, 3, route, Form::Raw)).unwrap();
        let Memory::RemoteMemory(mut beyond) = memory else { panic!("no memory of the device") };
        let mut batch = beyond.exchange(Batch::default());
        batch.used = 32;
        batch.list = vec![Entry { at: 0, from: 0, len: 16, frame: 1 }, Entry { at: 15, from: 16, len: 16, frame: 1 }];
        let next = beyond.exchange(batch);
        assert_eq!((next.used, next.list.len(), next.block.len()), (0, 0, 100), "blocks are still exchanged");
        let error = device.finish().unwrap_err().to_string();
        assert_eq!(error, format!("invalid placement list: {}", ListError::Twice(1)));
    }
}

fn datagrams(options: Options, memory: Memory, full: WhenFull) -> Datagrams {
    let config = datagrams::Config {
        frames: options.frames,
        form: datagrams::Form::Fixed { sequence: Field::big(0, 8), unit: Unit::Bytes, batch: None, data: 8 },
        window: 2,
        reach: 1 << 20,
        timeout: Duration::from_secs(1),
        full,
        streams: 10,
    };
    match memory {
        Memory::Here(pieces) => Datagrams::over(config, pieces).unwrap(),
        Memory::RemoteMemory(beyond) => Datagrams::beyond(config, beyond).unwrap(),
    }
}

#[test]
fn datagrams_become_frames_on_a_device() {
    for (route, form) in [(Route::Copy, Form::Raw), (Route::Place, Form::Int16Big), (Route::Gather, Form::Int8)] {
        let options = options(120, 4, route, form);
        let (memory, mut device) = open(support::cpu(4), options).unwrap();
        let mut datagrams = datagrams(options, memory, WhenFull::DropNewest);
        // 37 bytes each, so that samples are split; every fifth is lost, every third duplicated, neighbours swapped.
        for number in (0_u64..300).map(|number| number ^ 1).filter(|number| number % 5 != 4) {
            let mut datagram = [0; 8 + 37];
            datagram[..8].copy_from_slice(&(number * 37).to_be_bytes());
            Pattern::new(KEY).fill(number * 37, &mut datagram[8..]);
            for _ in 0..1 + u64::from(number % 3 == 0) {
                datagrams.receive(&ends(StreamId(1)), &datagram, Nanos(1));
            }
            datagrams.flush();
            while let Some(frame) = datagrams.full() {
                device.accept(&frame).unwrap_or_else(|error| panic!("{route}: {error}"));
                datagrams.return_frame(frame);
            }
        }
        assert!(datagrams.counts().missing > 1000 && device.stored().frames > 80, "{route}: {:?}", device.stored());
    }
}

/// A frame dropped before it was taken can be reused.
#[test]
fn the_oldest_frames_are_dropped_on_a_device() {
    for (route, form) in [(Route::Copy, Form::Raw), (Route::Place, Form::Raw), (Route::Gather, Form::Int16)] {
        let options = options(120, 4, route, form);
        let (memory, mut device) = open(support::cpu(3), options).unwrap();
        let mut datagrams = datagrams(options, memory, WhenFull::DropOldest);
        for number in 0_u64..400 {
            let mut datagram = [0; 8 + 30];
            datagram[..8].copy_from_slice(&(number * 30).to_be_bytes());
            Pattern::new(KEY).fill(number * 30, &mut datagram[8..]);
            datagrams.receive(&ends(StreamId(1)), &datagram, Nanos(1));
            // Fetch the finished frames from time to time.
            if number % 50 == 49 {
                datagrams.flush();
                while let Some(frame) = datagrams.full() {
                    device.accept(&frame).unwrap_or_else(|error| panic!("{route}: {error}"));
                    datagrams.return_frame(frame);
                }
            }
        }
        let reclaimed = datagrams.counts().reclaimed;
        assert!(reclaimed > 30 && device.stored().frames > 10, "{route}: {reclaimed}, {:?}", device.stored());
        device.finish().unwrap();
    }
}

#[test]
fn frame_is_not_reused_while_held() {
    let (memory, device) = open(support::cpu(1), options(64, 3, Route::Place, Form::Raw)).unwrap();
    let held = Arc::new(Mutex::new(None));
    let theirs = Arc::clone(&held);
    let mut device = device.taker(Box::new(move |placed| {
        *theirs.lock().unwrap() = Some(Arc::clone(&placed.hold));
        Ok(())
    }));
    let mut frames = filled(&options(64, 3, Route::Place, Form::Raw), memory);
    frames.begin(StreamId(0), &ends(StreamId(0)), Nanos(1));
    let mut bytes = [0; 64];
    Pattern::new(KEY).fill(0, &mut bytes);
    frames.place(StreamId(0), 0, Payload::Bytes(&bytes), Nanos(1));
    frames.advance(StreamId(0), 64, Nanos(1));
    frames.flush();
    let frame = frames.full().unwrap();
    let waiting = std::thread::spawn(move || device.accept(&frame).map(|()| frame));
    // The thread cannot finish while this is held.
    let hold = loop {
        match held.lock().unwrap().take() {
            Some(hold) => break hold,
            None => std::thread::yield_now(),
        }
    };
    for _ in 0..100 {
        std::thread::yield_now();
        assert!(!waiting.is_finished());
    }
    drop(hold);
    frames.return_frame(waiting.join().unwrap().unwrap());
    assert_eq!(frames.state(), (2, 0));
}
