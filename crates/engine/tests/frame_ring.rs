//! Frames of a ring, taken for a destination.

use linerate_burst::Nanos;
use linerate_engine::Stop;
use linerate_engine::frame_ring::FrameRingReader;
use linerate_engine::reception::ReceptionWatch;
use linerate_share::frame_ring::{Ending, FrameMetadata, Options, Reader, Writer};
use linerate_share::{Acceptor, Access, AttachOptions};
use linerate_transport::destination::{Destination, DestinationError, DestinationTotals};
use linerate_transport::frames::Frame;
use std::io;

/// Takes a limited number of frames.
struct Full(u64, Vec<u64>);

impl Destination for Full {
    fn accept(&mut self, frame: &Frame) -> Result<(), DestinationError> {
        if self.1.len() as u64 == self.0 {
            return Err(DestinationError::Write {
                path: "disk".into(),
                error: io::ErrorKind::StorageFull.into(),
                kept: 0,
            });
        }
        assert!(frame.bytes().iter().all(|byte| u64::from(*byte) == frame.meta.id));
        self.1.push(frame.meta.id);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), DestinationError> {
        Ok(())
    }

    fn stored(&self) -> DestinationTotals {
        DestinationTotals::default()
    }
}

fn about(id: u64) -> FrameMetadata {
    let end = "10.0.0.1:9".parse().expect("an address");
    FrameMetadata {
        id,
        stream: 0,
        from: end,
        to: end,
        number: id,
        offset: id * 4096,
        len: 4096,
        missing: 0,
        crc32c: None,
        first: Nanos(1),
        last: Nanos(1),
        repeated: 0,
        late: 0,
        ending: (id == 3).then_some(Ending::Complete),
        offered: 0,
        is_coarse: false,
    }
}

fn attach(name: &str, writer: &mut Writer, acceptor: &mut Acceptor, now: Nanos) -> Reader {
    let thread = {
        let name = name.to_owned();
        std::thread::spawn(move || AttachOptions::default().frames(&name))
    };
    while !thread.is_finished() {
        acceptor.step(now).into_iter().for_each(|client| writer.admit(client));
    }
    thread.join().expect("a thread").expect("a reader")
}

#[test]
fn frames_that_a_destination_rejects_stay_for_the_next_reader() {
    let name = format!("taking-{}", std::process::id());
    let options = Options { frames: 4, frame_bytes: 4096, granule: 4096, huge: false };
    let (mut writer, mut acceptor, mut pieces) =
        Writer::create(&name, Access::default(), &options, Nanos(1)).expect("a ring");
    for id in 0..4 {
        pieces[id as usize].bytes_mut().fill(id as u8);
        assert!(writer.offer(id as u32, &about(id), &[], &[1]));
    }
    writer.end();
    for (round, most, got, lost) in [(1u64, 2, vec![0, 1], 1), (2, 9, vec![2, 3], 0)] {
        writer.tick(Nanos(round * 1_000_000_000));
        let reader = attach(&name, &mut writer, &mut acceptor, Nanos(round * 1_000_000_000));
        let (mut full, watch) = (Full(most, Vec::new()), ReceptionWatch::default());
        let take = FrameRingReader {
            name: name.clone(),
            reader,
            streams: None,
            duration: None,
            stop: Stop::new(),
            watch: watch.clone(),
        };
        let took = take.run(&mut full);
        assert_eq!((full.1, took.run.ledger.lost(), took.run.failure.is_some()), (got, lost, lost > 0));
        assert_eq!((took.is_whole, took.redelivered, watch.totals().frames), (lost == 0, (round - 1) * 2, 2));
        assert!(took.run.ledger.imbalances().is_empty());
    }
    let back: Vec<u32> = std::iter::from_fn(|| writer.returned()).collect();
    assert_eq!((back, writer.counts().redelivered), (vec![0, 1, 2, 3], 2));
}
