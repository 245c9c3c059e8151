//! Packets kept in memory until a trigger.

use super::{frames_of, many, recorded};
use linerate_tests::support::program::{linerate, run, spawn};
use linerate_tests::support::{Scratch, records, wait_until};
use rustix::process::Signal;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

/// Records packets before and after each match of the trigger.
#[test]
fn packets_around_a_trigger_are_recorded() {
    let scratch = Scratch::new();
    let (input, folder) = (scratch.file("in.pcap"), scratch.file("kept/"));
    let sent = many(3000);
    records::write(&input, &sent);
    // One frame every 10 ms; three of them are from the host of the trigger.
    let mut some = sent.clone();
    some.iter_mut()
        .enumerate()
        .for_each(|(at, record)| record.bytes[29] = if [1000, 1100, 2000].contains(&at) { 77 } else { 1 });
    records::write(&input, &some);
    let options = ["--trigger", "host 10.0.0.77", "--before", "0.495", "--after", "1.995", "--json"];
    let words = [&["capture", "-r", &input, "-w", &folder, "--format", "pcap"][..], &options].concat();
    let json = run(&words).good().json();
    let paths = recorded(&folder);
    assert_eq!(paths.len(), 2, "{paths:?}");
    let [first, second] = [0, 1].map(|at| frames_of(&scratch, &paths[at..=at]));
    records::assert_same_frames("two triggers", &first, &some[951..1300]);
    records::assert_same_frames("one", &second, &some[1951..2200]);
    assert_eq!(json["drops"]["not_triggered"], 3000 - 349 - 249, "{json}");
    assert!(json["balanced"] == true && json["events"].to_string().contains("triggers: 2"), "{json}");
}

/// SIGUSR2 triggers a recording without a trigger filter.
#[test]
fn signal_triggers_a_recording() {
    let (scratch, sent) = (Scratch::new(), many(500));
    let folder = scratch.file("kept/");
    let mut command = linerate(&["capture", "-r", "-", "-w", &folder, "--before", "2", "--after", "1000", "--json"]);
    let mut running = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut to = running.take_input().unwrap();
    running.wait_until_open();
    to.write_all(&records::header()).unwrap();
    to.write_all(&records::body(&sent)).unwrap();
    to.flush().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(recorded(&folder).is_empty());
    running.signal(Signal::USR2);
    wait_until("a file exists", || !recorded(&folder).is_empty());
    drop(to);
    let json = running.end().good().json();
    let got = frames_of(&scratch, &recorded(&folder));
    assert!((190..=210).contains(&got.len()), "{} {json}", got.len());
    records::assert_same_frames("the last two seconds", &got, &sent[500 - got.len()..]);
}
