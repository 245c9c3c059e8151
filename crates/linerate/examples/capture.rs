//! Captures frames of a port to a file, until the port ends or for 10 s:
//! `cargo run --example capture -- packet:eth0 dns.pcapng 'udp port 53'`.

use linerate::engine::{Capture, Receive, Selection};
use linerate::pcap::{Format, Output, Writer};
use linerate::port::{RxOptions, Spec, open_rx};
use std::error::Error;
use std::time::Duration;

/// Returns the number of frames captured.
pub(crate) fn run(port: &str, file: &str, filter: &str) -> Result<u64, Box<dyn Error>> {
    let options = RxOptions { filter: filter.into(), promiscuous: true, ..RxOptions::default() };
    let port = open_rx(&Spec::parse(port)?, &options)?;
    let writer = Writer::new(Output::open(file)?, Format::of_path(file)?);
    let selection = Selection { filter: filter.into(), ..Selection::default() };
    let mut capture = Capture::new(selection, vec![Box::new(writer)]);
    let receive = Receive { duration: Some(Duration::from_secs(10)), ..Receive::all(vec![port]) };
    let run = receive.run(&mut [&mut capture]);
    if let Some(failure) = run.failure {
        return Err(failure.into());
    }
    let captured = capture.done();
    println!("{} frames, {} bytes, {} lost", captured.frames, captured.bytes, run.ledger.lost());
    // Accounts of frames that are not in the file, by cause.
    for account in run.ledger.accounts() {
        println!("  {} {}: {:?}", account.stage.name(), account.subject, account.counts().collect::<Vec<_>>());
    }
    Ok(captured.frames)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut word = |usual: &str| words.next().unwrap_or_else(|| usual.to_owned());
    run(&word("packet:eth0"), &word("out.pcapng"), &word("")).map(|_| ())
}
