//! Devices compared with a map of bytes.

use crate::support;
use linerate_burst::pool::OwnedBytes;
use linerate_device::cpu::{Cpu, CpuConfig};
use linerate_device::list::ListError;
use linerate_device::{Device, DeviceError, Form, Route, Shape, Ticket};
use linerate_headers::Crc32c;
use linerate_transport::frames::{Batch, Entry};
use proptest::prelude::*;
use std::ops::Range;

#[derive(Clone, Debug)]
enum Step {
    Clear(u32, usize, usize),
    Copy(u32, usize, usize),
    Mark(u32, u64, u64),
    /// Pieces of a block: frame, distance after the bytes present, and length; and whether in reverse order.
    Place(Vec<(u32, usize, usize)>, bool, Route),
    Examine(u32, usize),
    Forget(u32),
    Read(u32, usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (frame, byte) = (0_u32..3, 0_usize..200);
    let route = prop_oneof![Just(Route::Place), Just(Route::Gather), Just(Route::Copy)];
    let piece = (0_u32..3, 0_usize..9, 0_usize..60);
    let step = prop_oneof![
        1 => (frame.clone(), byte.clone(), byte.clone()).prop_map(|(frame, at, len)| Step::Clear(frame, at, len)),
        1 => (frame.clone(), byte.clone(), byte.clone()).prop_map(|(frame, at, len)| Step::Copy(frame, at, len)),
        1 => (frame.clone(), 0_u64..200, 0_u64..200).prop_map(|(frame, at, len)| Step::Mark(frame, at, len)),
        6 => (prop::collection::vec(piece, 0..8), any::<bool>(), route)
            .prop_map(|(pieces, back, route)| Step::Place(pieces, back, route)),
        2 => (frame.clone(), byte.clone()).prop_map(|(frame, len)| Step::Examine(frame, len)),
        1 => frame.clone().prop_map(Step::Forget),
        1 => (frame, byte.clone(), byte).prop_map(|(frame, at, len)| Step::Read(frame, at, len)),
    ];
    prop::collection::vec(step, 0..40)
}

/// Expected contents of a frame.
#[derive(Clone)]
struct Frame {
    /// Stream bytes by position; equal to the device's bytes without conversion.
    raw: Vec<u8>,
    there: Vec<bool>,
}

struct Model {
    shape: Shape,
    device: Box<dyn Device>,
    frames: Vec<Frame>,
    next: u8,
    blocks: Vec<OwnedBytes>,
    last: Ticket,
    /// Expected results: frame, its bytes on the device, its bitmap.
    examined: Vec<(u32, Vec<u8>, Vec<u64>)>,
}

impl Model {
    fn new(mut device: Box<dyn Device>, shape: Shape) -> Model {
        device.allocate(shape).unwrap();
        let frame = Frame { raw: vec![0; shape.bytes], there: vec![false; shape.bytes] };
        // Memory allocated by the device, and registered memory.
        let others = device.register(OwnedBytes::of(vec![0; 500], 0..500)).unwrap();
        let blocks = vec![device.block(500).unwrap(), others];
        let frames = vec![frame; shape.frames as usize];
        Model { shape, device, frames, next: 0, blocks, last: Ticket(0), examined: Vec::new() }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut next = || {
            self.next = self.next.wrapping_mul(5).wrapping_add(17);
            self.next
        };
        (0..count).map(|_| next()).collect()
    }

    fn on_device(&self, frame: u32) -> Vec<u8> {
        self.shape.form.convert(&self.frames[frame as usize].raw)
    }

    fn step(&mut self, step: &Step) {
        let size = self.shape.bytes;
        match step {
            Step::Clear(frame, at, len) => self.clear(*frame, *at, *len),
            Step::Copy(frame, at, len) => {
                let bytes = self.bytes(*len);
                let done = self.device.copy(&bytes, *frame, *at);
                if self.shape.form != Form::Raw || at + len > size {
                    assert!(done.is_err());
                    return;
                }
                self.went(done.unwrap());
                self.frames[*frame as usize].raw[*at..at + len].copy_from_slice(&bytes);
            }
            Step::Mark(frame, at, len) => {
                let range = *at..at + len;
                let fits = range.end <= size as u64;
                let there = &mut self.frames[*frame as usize].there;
                // Bytes already present are never marked.
                if fits && !there[*at as usize..range.end as usize].contains(&true) {
                    there[*at as usize..range.end as usize].fill(true);
                    let done = self.device.mark(*frame, &[range]).unwrap();
                    self.went(done);
                } else if !fits {
                    assert_eq!(self.device.mark(*frame, &[range]), Err(DeviceError::List(ListError::Place(0))));
                }
            }
            Step::Place(pieces, back, route) => self.place(pieces, *back, *route),
            Step::Examine(frame, len) => self.examine(*frame, *len),
            Step::Forget(frame) => {
                let done = self.device.forget(*frame).unwrap();
                self.went(done);
                let model = &mut self.frames[*frame as usize];
                model.there.fill(false);
                if self.shape.form != Form::Raw {
                    model.raw.fill(0);
                }
            }
            Step::Read(frame, at, len) => {
                let all = self.on_device(*frame);
                let range = *at..at + len;
                match all.get(range.clone()) {
                    Some(wanted) => assert_eq!(self.device.read(*frame, range).unwrap(), wanted),
                    None => assert!(self.device.read(*frame, range).is_err()),
                }
            }
        }
    }

    fn went(&mut self, ticket: Ticket) {
        assert!(ticket > self.last, "{ticket:?} after {:?}", self.last);
        self.last = ticket;
        assert!(self.device.reached().unwrap() <= ticket);
    }

    fn clear(&mut self, frame: u32, at: usize, len: usize) {
        let form = self.shape.form;
        // Numbers are cleared as a whole.
        let range: Range<usize> = if form == Form::Raw { at..at + len } else { 0..form.bytes(self.shape.bytes) };
        let done = self.device.clear(frame, range.clone());
        if range.end > form.bytes(self.shape.bytes) {
            assert_eq!(done, Err(DeviceError::List(ListError::Place(0))));
            return;
        }
        self.went(done.unwrap());
        let raw = &mut self.frames[frame as usize];
        match form {
            Form::Raw => raw.raw[range].fill(0),
            _ => *raw = Frame { raw: vec![0; self.shape.bytes], there: raw.there.clone() },
        }
    }

    /// Places bytes at free positions, each once.
    fn place(&mut self, pieces: &[(u32, usize, usize)], back: bool, route: Route) {
        let mut block = self.blocks.pop().unwrap_or_else(|| self.device.block(500).unwrap());
        let (mut list, mut used) = (Vec::new(), 3);
        for (frame, skip, len) in pieces {
            let there = &self.frames[*frame as usize].there;
            // Numbers add up: bytes placed twice would count twice.
            let Some(free) = there.iter().position(|there| !there).map(|free| free + skip) else { continue };
            let Some(behind) = there.get(free..) else { continue };
            let run = behind.iter().take_while(|there| !**there).count();
            let len = (*len).min(run).min(block.len() - used);
            let bytes = self.bytes(len);
            block.bytes_mut()[used..used + len].copy_from_slice(&bytes);
            list.push(Entry { at: free as u64, from: used as u32, len: len as u32, frame: *frame });
            if len > 0 {
                let model = &mut self.frames[*frame as usize];
                model.raw[free..free + len].copy_from_slice(&bytes);
                model.there[free..free + len].fill(true);
            }
            used = (used + len + skip).min(block.len());
        }
        if back {
            list.reverse();
        }
        let done = self.device.place(Batch { block, used, list }, route).unwrap();
        self.went(done);
    }

    fn examine(&mut self, frame: u32, len: usize) {
        let done = self.device.examine(frame, len);
        if len > self.shape.bytes {
            assert_eq!(done, Err(DeviceError::List(ListError::Place(0))));
            return;
        }
        self.went(done.unwrap());
        let bytes = self.on_device(frame)[..self.shape.form.bytes(len)].to_vec();
        let there = &mut self.frames[frame as usize].there;
        let mut words = vec![0_u64; len.div_ceil(self.shape.granule).div_ceil(64)];
        for (part, start) in (0..len).step_by(self.shape.granule).enumerate() {
            // Bytes after the end do not count, except in the last part of a frame.
            let present =
                there[start..(start + self.shape.granule).min(there.len())].iter().filter(|there| **there).count();
            if present == self.shape.granule.min(len - start) {
                words[part / 64] |= 1 << (part % 64);
            }
        }
        there.fill(false);
        self.examined.push((frame, bytes, words));
    }

    fn finish(mut self) {
        self.device.wait(self.last).unwrap();
        assert!(self.device.reached().unwrap() >= self.last);
        for (frame, bytes, words) in std::mem::take(&mut self.examined) {
            let found = self.device.examined().unwrap();
            assert_eq!((found.frame, found.presence), (frame, words));
            assert_eq!(found.crc32c, Crc32c::NEW.with(&bytes).value(), "of frame {frame}");
        }
        assert_eq!(self.device.examined(), None);
        for frame in 0..self.shape.frames {
            let wanted = self.on_device(frame);
            assert_eq!(self.device.read(frame, 0..wanted.len()).unwrap(), wanted, "frame {frame}");
        }
        assert!(std::iter::from_fn(|| self.device.returned()).all(|batch| batch.block.len() == 500));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn devices_match_a_map_of_bytes(
        steps in steps(), half in 1_usize..75, granule in 1_usize..40, form in 0_usize..4, seed in any::<u64>(),
    ) {
        let shape = Shape { frames: 3, bytes: half * 2, form: Form::ALL[form], granule };
        for device in support::devices(seed) {
            let mut model = Model::new(device, shape);
            let mut has_forgotten = [false; 3];
            for step in &steps {
                // A number placed again without being cleared is the sum of both.
                match step {
                    Step::Examine(frame, _) => has_forgotten[*frame as usize] = true,
                    Step::Clear(frame, ..) | Step::Forget(frame) => has_forgotten[*frame as usize] = false,
                    Step::Place(pieces, ..) if form > 0 && pieces.iter().any(|piece| has_forgotten[piece.0 as usize]) => {
                        continue;
                    }
                    _ => {}
                }
                model.step(step);
            }
            model.finish();
        }
    }
}

#[test]
fn impossible_frames_are_rejected() {
    let good = Shape { frames: 2, bytes: 100, form: Form::Raw, granule: 10 };
    for bad in [
        Shape { frames: 0, ..good },
        Shape { bytes: 0, ..good },
        Shape { granule: 0, ..good },
        Shape { bytes: 101, form: Form::Int16, ..good },
        Shape { frames: u32::MAX, bytes: 1 << 36, ..good },
    ] {
        let mut device = support::cpu(1);
        assert!(matches!(device.allocate(bad), Err(DeviceError::Shape(_))), "{bad:?}");
    }
    let mut small = Cpu::open(CpuConfig { memory: 10_000, ..CpuConfig::default() });
    assert!(matches!(small.allocate(Shape { bytes: 5000, ..good }), Err(DeviceError::Memory { free: 10_000, .. })));
    let mut device = support::cpu(1);
    assert!(matches!(device.clear(0, 0..1), Err(DeviceError::Cannot(_))), "before there are frames");
    device.allocate(good).unwrap();
    assert!(matches!(device.allocate(good), Err(DeviceError::Cannot(_))), "twice");
}

#[test]
fn invalid_list_is_rejected_as_a_whole_and_its_block_returned() {
    for mut device in support::devices(1) {
        device.allocate(Shape { frames: 2, bytes: 100, form: Form::Raw, granule: 10 }).unwrap();
        let good = Entry { at: 0, from: 0, len: 10, frame: 0 };
        for (bad, why) in [
            (Entry { len: 101, ..good }, ListError::Block(1)),
            (Entry { from: u32::MAX, ..good }, ListError::Block(1)),
            (Entry { frame: 2, ..good }, ListError::Frame(1)),
            (Entry { at: 91, ..good }, ListError::Place(1)),
            (Entry { at: u64::MAX, ..good }, ListError::Place(1)),
            // A sequence number before the previous one, as an unsigned distance.
            (Entry { at: (1 << 32) - 1448, ..good }, ListError::Place(1)),
        ] {
            let mut block = device.block(100).unwrap();
            block.bytes_mut().fill(7);
            let batch = Batch { block, used: 100, list: vec![good, bad] };
            assert_eq!(device.place(batch, Route::Place), Err(DeviceError::List(why)));
            assert_eq!(device.returned().map(|batch| batch.list.len()), Some(2));
        }
        assert_eq!(device.read(0, 0..100).unwrap(), [0; 100]);
    }
}

#[test]
fn work_completes_later_and_in_order() {
    let config = CpuConfig { delay: std::time::Duration::from_millis(20), ..CpuConfig::default() };
    let was_late = (0..10).any(|_| {
        let mut device = Cpu::open(config);
        device.allocate(Shape { frames: 1, bytes: 64, form: Form::Raw, granule: 64 }).unwrap();
        let tickets: Vec<Ticket> = (0..20).map(|at| device.copy(&[at as u8 + 1], 0, at).unwrap()).collect();
        let is_late = device.reached().unwrap() < tickets[19];
        device.wait(tickets[4]).unwrap();
        assert!(device.reached().unwrap() >= tickets[4]);
        assert_eq!(device.read(0, 0..20).unwrap(), (1..=20).collect::<Vec<u8>>());
        is_late
    });
    assert!(was_late, "20 pieces of work of 10 ms each were done at once, ten times");
}

#[test]
fn a_failed_device_stays_failed_and_returns_its_batches() {
    for seed in 1..50 {
        let mut device = Cpu::open(CpuConfig { seed, fail_one_in: Some(5), ..CpuConfig::default() });
        let _ = device.allocate(Shape { frames: 1, bytes: 64, form: Form::Raw, granule: 64 });
        for _ in 0..100 {
            let block = device.block(64).unwrap();
            let _ = device.place(Batch { block, used: 64, list: Vec::new() }, Route::Place);
        }
        let error = device.wait(Ticket(100)).unwrap_err();
        assert!(matches!(error, DeviceError::Failed { .. }), "{error}");
        assert_eq!((device.reached(), device.read(0, 0..1)), (Err(error.clone()), Err(error.clone())));
        let mut back = 0;
        while back < 100 {
            match device.returned() {
                Some(_) => back += 1,
                None => std::thread::yield_now(),
            }
        }
    }
}
