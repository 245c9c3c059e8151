//! Records the flows of a port as JSON lines, in a file or on standard output:
//! `cargo run --example flows -- pcap:trace.pcap flows.jsonl`.

use linerate::burst::Count;
use linerate::engine::{MeterConsumer, Meters, Receive, Selection};
use linerate::export::{Exports, Options, open};
use linerate::meter::{Config, Level};
use linerate::port::{RxOptions, Spec, open_rx};
use std::error::Error;

/// Returns the number of records.
pub(crate) fn run(port: &str, target: &str) -> Result<u64, Box<dyn Error>> {
    let config = Config { max_flows: 1 << 16, level: Level::Tcp, ..Config::default() };
    let exports = Exports::start(open(&[target], &Options::default())?, || ())?;
    let mut metering = MeterConsumer::new(Meters::new(&config, 1), Selection::default(), exports);
    let port = open_rx(&Spec::parse(port)?, &RxOptions::default())?;
    let mut run = Receive::all(vec![port]).run(&mut [&mut metering]);
    let (metered, exports) = metering.done();
    exports.finish(run.failure.is_some(), &mut run.ledger)?;
    if let Some(failure) = run.failure {
        return Err(failure.into());
    }
    eprintln!(
        "{} frames, {} of them not IP, {} records",
        metered.counts.frames,
        metered.counts.not_ip,
        run.ledger.total(Count::Exported)
    );
    Ok(run.ledger.total(Count::Exported))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let port = words.next().unwrap_or_else(|| "pcap:trace.pcap".to_owned());
    run(&port, &words.next().unwrap_or_else(|| "flows.jsonl".to_owned())).map(|_| ())
}
