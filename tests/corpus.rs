//! Reads, dissects and captures every file of the corpus.
//!
//! `LINERATE_CORPUS` is the corpus; without it these tests are skipped with a note.

use linerate::burst::{Count, Ledger, Sink, SinkError, block::View};
use linerate::engine::{Capture, Receive, Selection};
use linerate::headers::{Layers, Link, Stop as Why, dissect};
use linerate::pcap::{ReadError, Reader};
use linerate::port::{RxOptions, Spec, open_rx};
use linerate_tests::support::{corpus, files};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Minimum number of captures in the corpus.
const AT_LEAST: usize = 1200;

#[test]
fn every_frame_is_dissected_within_its_bounds() {
    let Some(folder) = corpus(".") else { return };
    let (mut captures, mut frames, mut whole, mut layers_found) = (0, 0u64, 0u64, 0u64);
    for path in files(&folder) {
        let Ok(mut reader) = Reader::open(&path.to_string_lossy()) else { continue };
        captures += 1;
        let mut layers = Layers::new();
        while let Ok(shown) = reader.fill().map(|burst| burst.len()) {
            if shown == 0 {
                break;
            }
            for (desc, frame) in reader.shown().iter() {
                let interface = &reader.interfaces()[usize::from(desc.interface)];
                let Some(link) = Link::from_linktype(interface.link.0) else { continue };
                dissect(link, frame, &mut layers);
                check(&layers, frame, &path);
                frames += 1;
                whole += u64::from(layers.stop() == Why::End);
                layers_found += layers.as_slice().len() as u64;
            }
            reader.consume(shown);
        }
    }
    assert!(captures >= AT_LEAST, "{captures} captures read");
    assert!(
        frames > 80_000 && whole * 2 > frames && layers_found > 2 * frames,
        "{frames} frames, {whole} to their end"
    );
}

#[test]
fn capture_of_each_file_accounts_for_every_frame() {
    let Some(folder) = corpus(".") else { return };
    let mut runs = 0;
    for path in files(&folder) {
        let (frames, error) = count(&path);
        if matches!(error, Some(ReadError::NotACapture { .. })) {
            continue;
        }
        let port = open_rx(&Spec::file(&path.to_string_lossy()), &RxOptions::default()).expect("the file opens");
        let seen = Arc::new(Mutex::new(0));
        let mut capture = Capture::new(Selection::default(), vec![Box::new(Counter(Arc::clone(&seen)))]);
        let report = Receive::all(vec![port]).run(&mut [&mut capture]);
        let captured = capture.done().frames;
        let name = path.display();
        assert!(report.quiesced, "{name}");
        assert_eq!(report.ledger.imbalances(), [], "{name}");
        assert_eq!((captured, *seen.lock().unwrap(), report.ledger.lost()), (frames, frames, 0), "{name}");
        assert_eq!(report.failure.is_some(), error.is_some(), "{name}: {:?} and {error:?}", report.failure);
        assert!(report.ledger.total(Count::Late) <= frames);
        runs += 1;
    }
    assert!(runs >= AT_LEAST, "{runs} captures run");
}

/// Checks that layers do not overlap and are inside the frame.
fn check(layers: &Layers, frame: &[u8], path: &Path) {
    let mut end = 0;
    for layer in layers.as_slice() {
        assert!(layer.offset >= end && layer.end() as usize <= frame.len(), "{}: {layers:?}", path.display());
        end = layer.end();
    }
    assert!(layers.payload(frame).len() <= frame.len());
}

/// Counts the frames of a file; also returns the error that ends reading.
fn count(path: &Path) -> (u64, Option<ReadError>) {
    let mut reader = match Reader::open(&path.to_string_lossy()) {
        Ok(reader) => reader,
        Err(error) => return (0, Some(error)),
    };
    let mut frames = 0;
    loop {
        match reader.fill().map(|burst| burst.len()) {
            Ok(0) => return (frames, None),
            Ok(shown) => {
                frames += shown as u64;
                reader.consume(shown);
            }
            Err(error) => return (frames, Some(error)),
        }
    }
}

/// Sink that counts packets.
struct Counter(Arc<Mutex<u64>>);

impl Sink for Counter {
    fn accept(&mut self, view: View<'_>) -> Result<(), SinkError> {
        *self.0.lock().unwrap() += view.burst().len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self, _run: &Ledger) -> Result<(), SinkError> {
        Ok(())
    }

    fn counters(&self, _ledger: &mut Ledger) {}
}
