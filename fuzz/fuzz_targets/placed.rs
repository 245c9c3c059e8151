//! Any datagrams into external frames: no list exceeds a frame or places a byte twice, and all bytes reported are
//! there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_burst::Nanos;
use linerate_burst::pool::OwnedBytes;
use linerate_device::list::Guard;
use linerate_device::{Form, Shape};
use linerate_transport::datagrams::{self, Datagrams, Field, Unit, WhenFull};
use linerate_transport::frames::{Batch, Config, RemoteMemory};
use linerate_transport::pattern::Pattern;
use linerate_transport::stream_memory::Ends;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

const SIZE: usize = 96;
const FRAMES: usize = 4;

/// Frames, and the check of their lists.
#[derive(Debug)]
struct Memory {
    guard: Guard,
    frames: Vec<[u8; SIZE]>,
}

#[derive(Clone, Debug)]
struct Elsewhere(Arc<Mutex<Memory>>);

impl Elsewhere {
    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().expect("a lock without a panic")
    }
}

impl RemoteMemory for Elsewhere {
    fn exchange(&mut self, full: Batch) -> Batch {
        let mut memory = self.lock();
        memory.guard.take(&full.list, full.used).expect("a valid list");
        for entry in &full.list {
            let bytes = &full.block.bytes()[entry.from as usize..][..entry.len as usize];
            memory.frames[entry.frame as usize][entry.at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        Batch { block: OwnedBytes::of(vec![0; 64], 0..64), ..Batch::default() }
    }

    fn forget(&mut self, frame: u32) {
        self.lock().guard.release(frame);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&choice, input)) = input.split_first() else { return };
    let shape = Shape { frames: FRAMES as u32, bytes: SIZE, form: Form::Raw, granule: 16 };
    let memory = Memory { guard: Guard::new(shape), frames: vec![[0; SIZE]; FRAMES] };
    let elsewhere = Elsewhere(Arc::new(Mutex::new(memory)));
    let config = datagrams::Config {
        frames: Config { size: SIZE, frames: FRAMES, granule: 16, ..Config::default() },
        form: datagrams::Form::Fixed { sequence: Field::big(0, 2), unit: Unit::Bytes, batch: None, data: 2 },
        window: 1 + usize::from(choice & 3),
        reach: 1 << 12,
        timeout: Duration::from_millis(10),
        full: if choice & 4 != 0 { WhenFull::DropOldest } else { WhenFull::DropNewest },
        streams: 3,
    };
    let mut datagrams = Datagrams::beyond(config, Box::new(elsewhere.clone())).expect("frames of some bytes");
    let (pattern, mut time, mut held) = (Pattern::new(3), 1, Vec::new());
    let take = |datagrams: &mut Datagrams, held: &mut Vec<_>| {
        datagrams.flush();
        while let Some(frame) = datagrams.full() {
            let memory = elsewhere.lock();
            for (place, there) in
                frame.place().into_iter().flat_map(|place| frame.there().map(move |there| (place, there)))
            {
                let bytes = &memory.frames[place as usize][there.start as usize..there.end as usize];
                pattern.check(frame.meta.offset + there.start, bytes).expect("the reported bytes");
            }
            drop(memory);
            held.push(frame);
        }
    };
    for part in input.chunks(4) {
        let at = |place: usize| part.get(place).copied().unwrap_or_default();
        let (position, len) = (u16::from_be_bytes([at(0) & 15, at(1)]), usize::from(at(2)));
        time += u64::from(at(3) >> 4) * 1_000_000;
        let ends = Ends { from: ([10, 0, 0, 1], u16::from(at(3) & 1)).into(), to: ([10, 0, 0, 2], 9).into() };
        let mut datagram = vec![0; 2 + len];
        datagram[..2].copy_from_slice(&position.to_be_bytes());
        // Restarted streams and wrapped numbers have other positions: placed bytes are checked against their own.
        pattern.fill(position.into(), &mut datagram[2..]);
        datagrams.receive(&ends, &datagram, Nanos(time));
        datagrams.tick(Nanos(time));
        if at(3) & 2 != 0 {
            take(&mut datagrams, &mut held);
        }
        if at(3) & 4 != 0 && !held.is_empty() {
            let frame = held.remove(0);
            frame.place().into_iter().for_each(|place| elsewhere.lock().guard.release(place));
            datagrams.return_frame(frame);
        }
    }
    datagrams.finish();
    take(&mut datagrams, &mut held);
});
