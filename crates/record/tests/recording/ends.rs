//! What fails where a file begins or ends, and what lies beside files.

use super::{Scratch, counted, frame, hand};
use linerate_burst::block::View;
use linerate_burst::{Count, Flags, Ledger, Nanos, Sink, SinkError};
use linerate_record::recording::{Open, PartialFile};
use linerate_record::{Format, Limits, OnTrouble, Recording, Writer};
use std::fs;
use std::io::{self, Write};
use std::time::Duration;

/// A file beside each capture, which cannot be finished.
fn beside(fails: bool) -> Open {
    struct Beside(Writer, linerate_record::Output, bool);

    impl Sink for Beside {
        fn accept(&mut self, view: View<'_>) -> Result<(), SinkError> {
            self.0.accept(view)
        }

        fn flush(&mut self) -> Result<(), SinkError> {
            self.0.flush()
        }

        fn finish(&mut self, run: &Ledger) -> Result<(), SinkError> {
            self.0.finish(run)?;
            let reason = io::ErrorKind::StorageFull.into();
            let failure = || SinkError { target: self.1.name().to_owned(), reason, advice: "make it later".to_owned() };
            if self.2 { Err(failure()) } else { Ok(()) }
        }

        fn counters(&self, ledger: &mut Ledger) {
            self.0.counters(ledger);
        }
    }

    Box::new(move |partial: &mut PartialFile| {
        let writer = Writer::new(partial.output(), Format::Pcap);
        let mut output = partial.beside(".idx").1?;
        output.write_all(b"index")?;
        Ok(Box::new(Beside(writer, output, fails)))
    })
}

#[test]
fn what_an_earlier_run_left_beside_a_name_costs_the_name_alone() {
    let limits = Limits { every: Some(Duration::from_secs(1)), files: Some(2), ..Limits::default() };
    for left in ["1700000000.pcap.idx", "1700000000.pcap.part.idx", "1700000000.pcap", "1700000000.pcap.part"] {
        let scratch = Scratch::new();
        fs::write(scratch.path(left), "somebody's").unwrap();
        let mut recording = Recording::new(&scratch.path("%s.pcap"), "", limits, beside(false)).unwrap();
        hand(&mut recording, &[frame(0, 60, Flags::NONE), frame(1000, 60, Flags::NONE)], 1);
        recording.finish(&Ledger::new()).unwrap();
        let mut wanted =
            vec!["1700000000_002.pcap", "1700000000_002.pcap.idx", "1700000001.pcap", "1700000001.pcap.idx", left];
        wanted.sort_unstable();
        assert_eq!(scratch.names(), wanted, "{left}");
        assert_eq!(fs::read(scratch.path(left)).unwrap(), b"somebody's");
    }
}

/// What comes while a file is written is left alone, and what was written is kept and removed in its turn.
#[test]
fn what_comes_beside_a_name_meanwhile_costs_the_name_alone() {
    let scratch = Scratch::new();
    let limits = Limits { every: Some(Duration::from_secs(1)), files: Some(2), ..Limits::default() };
    let mut recording = Recording::new(&scratch.path("%s.pcap"), "", limits, beside(false)).unwrap();
    hand(&mut recording, &[frame(0, 60, Flags::NONE)], 1);
    fs::write(scratch.path("1700000000.pcap.idx"), "somebody's").unwrap();
    hand(&mut recording, &[frame(1000, 60, Flags::NONE)], 1);
    assert_eq!(scratch.names().len(), 5, "{:?}", scratch.names());
    hand(&mut recording, &[frame(2000, 60, Flags::NONE)], 1);
    recording.finish(&Ledger::new()).unwrap();
    let wanted =
        ["1700000000.pcap.idx", "1700000001.pcap", "1700000001.pcap.idx", "1700000002.pcap", "1700000002.pcap.idx"];
    assert_eq!(scratch.names(), wanted);
}

#[test]
fn an_index_that_fails_is_told_and_ends_nothing() {
    let scratch = Scratch::new();
    let limits = Limits { every: Some(Duration::from_secs(1)), ..Limits::default() };
    let mut recording = Recording::new(&scratch.path("%s.pcap"), "", limits, beside(true)).unwrap();
    hand(&mut recording, &(0..3).map(|second| frame(second * 1000, 60, Flags::NONE)).collect::<Vec<_>>(), 1);
    recording.finish(&Ledger::new()).unwrap();
    assert_eq!(counted(&recording).total(Count::Written), 3);
    let notes = recording.notes().join("\n");
    let wanted =
        format!("3 files are complete without what lies beside them, at last: {}", scratch.path("1700000002.pcap.idx"));
    assert!(notes.contains(&wanted) && notes.contains("make it later"), "{notes}");
}

/// A user who asks for a new file is told, and so is the run, which ends.
#[test]
fn what_fails_at_a_new_file_ends_the_run() {
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

    for on_trouble in [OnTrouble::Stop, OnTrouble::GoOn] {
        let scratch = Scratch::new();
        let open: Open =
            Box::new(|partial: &mut PartialFile| Ok(Box::new(Fails(Writer::new(partial.output(), Format::Pcap)))));
        let recording = Recording::new(&scratch.path(""), ".pcap", Limits::default(), open).unwrap();
        let mut recording = recording.on_trouble(on_trouble);
        hand(&mut recording, &[frame(0, 60, Flags::NONE)], 1);
        let ends = on_trouble == OnTrouble::Stop;
        assert_eq!(recording.reopen(&Ledger::new()).is_err(), ends);
        assert_eq!(recording.look(&Ledger::new(), Nanos::ZERO).is_err(), ends);
        recording.look(&Ledger::new(), Nanos::ZERO).unwrap();
    }
}
