//! Failures at the start or end of a file, and companion files.

use super::{Scratch, counted, frame, hand};
use linerate_burst::block::View;
use linerate_burst::{Count, Flags, Ledger, Nanos, Sink, SinkError};
use linerate_pcap::recording::{Open, PartialFile};
use linerate_pcap::{Format, Limits, Recording, WriteErrorPolicy, Writer};
use std::fs;
use std::io::{self, Write};
use std::time::Duration;

/// Opens a companion file of each capture, which optionally cannot be finished.
fn with_index(fails: bool) -> Open {
    struct WithIndex(Writer, linerate_pcap::Output, bool);

    impl Sink for WithIndex {
        fn accept(&mut self, view: View<'_>) -> Result<(), SinkError> {
            self.0.accept(view)
        }

        fn flush(&mut self) -> Result<(), SinkError> {
            self.0.flush()
        }

        fn finish(&mut self, run: &Ledger) -> Result<(), SinkError> {
            self.0.finish(run)?;
            let reason = io::ErrorKind::StorageFull.into();
            let failure =
                || SinkError { target: self.1.name().to_owned(), reason, advice: "build it later".to_owned() };
            if self.2 { Err(failure()) } else { Ok(()) }
        }

        fn counters(&self, ledger: &mut Ledger) {
            self.0.counters(ledger);
        }
    }

    Box::new(move |partial: &mut PartialFile| {
        let writer = Writer::new(partial.output(), Format::Pcap);
        let mut output = partial.open_companion(".idx").1?;
        output.write_all(b"index")?;
        Ok(Box::new(WithIndex(writer, output, fails)))
    })
}

#[test]
fn leftovers_of_an_earlier_run_only_cost_the_name() {
    let limits = Limits { every: Some(Duration::from_secs(1)), files: Some(2), ..Limits::default() };
    for left in ["1700000000.pcap.idx", "1700000000.pcap.part.idx", "1700000000.pcap", "1700000000.pcap.part"] {
        let scratch = Scratch::new();
        fs::write(scratch.path(left), "of another").unwrap();
        let mut recording = Recording::new(&scratch.path("%s.pcap"), "", limits, with_index(false)).unwrap();
        hand(&mut recording, &[frame(0, 60, Flags::NONE), frame(1000, 60, Flags::NONE)], 1);
        recording.finish(&Ledger::new()).unwrap();
        let mut wanted =
            vec!["1700000000_002.pcap", "1700000000_002.pcap.idx", "1700000001.pcap", "1700000001.pcap.idx", left];
        wanted.sort_unstable();
        assert_eq!(scratch.names(), wanted, "{left}");
        assert_eq!(fs::read(scratch.path(left)).unwrap(), b"of another");
    }
}

/// Files created by others in the meantime are not touched; the recording's own files are kept and deleted in order.
#[test]
fn files_created_in_between_only_cost_the_name() {
    let scratch = Scratch::new();
    let limits = Limits { every: Some(Duration::from_secs(1)), files: Some(2), ..Limits::default() };
    let mut recording = Recording::new(&scratch.path("%s.pcap"), "", limits, with_index(false)).unwrap();
    hand(&mut recording, &[frame(0, 60, Flags::NONE)], 1);
    fs::write(scratch.path("1700000000.pcap.idx"), "of another").unwrap();
    hand(&mut recording, &[frame(1000, 60, Flags::NONE)], 1);
    assert_eq!(scratch.names().len(), 5, "{:?}", scratch.names());
    hand(&mut recording, &[frame(2000, 60, Flags::NONE)], 1);
    recording.finish(&Ledger::new()).unwrap();
    let wanted =
        ["1700000000.pcap.idx", "1700000001.pcap", "1700000001.pcap.idx", "1700000002.pcap", "1700000002.pcap.idx"];
    assert_eq!(scratch.names(), wanted);
}

#[test]
fn failed_index_is_reported_and_the_recording_continues() {
    let scratch = Scratch::new();
    let limits = Limits { every: Some(Duration::from_secs(1)), ..Limits::default() };
    let mut recording = Recording::new(&scratch.path("%s.pcap"), "", limits, with_index(true)).unwrap();
    hand(&mut recording, &(0..3).map(|second| frame(second * 1000, 60, Flags::NONE)).collect::<Vec<_>>(), 1);
    recording.finish(&Ledger::new()).unwrap();
    assert_eq!(counted(&recording).total(Count::Written), 3);
    let notes = recording.notes().join("\n");
    let wanted =
        format!("3 files are complete without their index, last error: {}", scratch.path("1700000002.pcap.idx"));
    assert!(notes.contains(&wanted) && notes.contains("build it later"), "{notes}");
}

/// A user who requests a new file gets the error, and so does the run, which ends.
#[test]
fn failure_at_a_new_file_ends_the_run() {
    struct Fails(Writer);

    impl Sink for Fails {
        fn accept(&mut self, view: View<'_>) -> Result<(), SinkError> {
            self.0.accept(view)
        }

        fn flush(&mut self) -> Result<(), SinkError> {
            Ok(())
        }

        fn finish(&mut self, _: &Ledger) -> Result<(), SinkError> {
            let reason = io::ErrorKind::StorageFull.into();
            Err(SinkError { target: "a file".to_owned(), reason, advice: String::new() })
        }

        fn counters(&self, ledger: &mut Ledger) {
            self.0.counters(ledger);
        }
    }

    for on_write_error in [WriteErrorPolicy::Stop, WriteErrorPolicy::Continue] {
        let scratch = Scratch::new();
        let open: Open =
            Box::new(|partial: &mut PartialFile| Ok(Box::new(Fails(Writer::new(partial.output(), Format::Pcap)))));
        let recording = Recording::new(&scratch.path(""), ".pcap", Limits::default(), open).unwrap();
        let mut recording = recording.on_write_error(on_write_error);
        hand(&mut recording, &[frame(0, 60, Flags::NONE)], 1);
        let ends = on_write_error == WriteErrorPolicy::Stop;
        assert_eq!(recording.reopen(&Ledger::new()).is_err(), ends);
        assert_eq!(recording.look(&Ledger::new(), Nanos::ZERO).is_err(), ends);
        recording.look(&Ledger::new(), Nanos::ZERO).unwrap();
    }
}
