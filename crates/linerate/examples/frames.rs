//! Streams in memory: received here (`frames PORT ADDRESS`), or read from a process that shares them (`frames NAME`).

use linerate::engine::{Receive, Reception};
use linerate::generate::answer::{ANSWERS_PER_SECOND, AddressRange, Addresses, Answerer};
use linerate::port::{RxOptions, Spec, TxOptions, open_rx, open_tx};
use linerate::share::AttachOptions;
use linerate::transport::destination::{Destination, DestinationError, DestinationTotals};
use linerate::transport::frames::{Config, Frame, Frames};
use linerate::transport::tcp::{self, Endpoint, Local};
use std::error::Error;
use std::time::Duration;

/// Sums all bytes.
#[derive(Default)]
struct Sum(u64, DestinationTotals);

impl Destination for Sum {
    fn accept(&mut self, frame: &Frame) -> Result<(), DestinationError> {
        self.0 += frame.bytes().iter().map(|byte| u64::from(*byte)).sum::<u64>();
        self.1.frames += 1;
        self.1.bytes += frame.bytes().len() as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), DestinationError> {
        println!("{} frames, {} bytes, sum {}", self.1.frames, self.1.bytes, self.0);
        Ok(())
    }

    fn stored(&self) -> DestinationTotals {
        self.1
    }
}

/// Receives one stream at this address, which no host must have: ports 5001 to 5016.
fn receive(port: &str, ip: &str) -> Result<(), Box<dyn Error>> {
    let (spec, ip, mac) = (Spec::parse(port)?, ip.parse()?, "02:6c:00:00:00:09".parse()?);
    let listen = vec![Local { ip, ports: 5001..=5016 }];
    let endpoint = Endpoint::new(tcp::Config { listen, stations: vec![mac], ..tcp::Config::default() })?;
    let frames = Frames::new(&Config { size: 4 << 20, ..Config::default() })?;
    let answerer = Answerer::new(Addresses::new(vec![AddressRange::one(ip, mac)])?, ANSWERS_PER_SECOND);
    let from = open_rx(&spec, &RxOptions { promiscuous: true, lanes: 1, scatter: true, ..RxOptions::default() })?;
    let to = open_tx(&spec, &TxOptions::default())?;
    let protocol = linerate::engine::reception::Protocol::Tcp { endpoint: endpoint.into(), frames: frames.into() };
    let mut reception = Reception::new(protocol, answerer, to, Box::new(Sum::default())).streams(Some(1));
    Receive::all(vec![from]).run(&mut [&mut reception]).failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// Reads the frames of `linerate receive PORT --tcp A:P --share NAME`; dropping a frame returns it.
fn take(name: &str) -> Result<(), Box<dyn Error>> {
    let mut reader = AttachOptions { name: "example".into(), ..AttachOptions::default() }.frames(name)?;
    let (mut frames, mut bytes, mut sum) = (0u64, 0u64, 0u64);
    while reader.ended().is_none() {
        match reader.take() {
            Some(frame) => {
                sum += frame.bytes().iter().map(|byte| u64::from(*byte)).sum::<u64>();
                (frames, bytes) = (frames + 1, bytes + frame.about.len);
            }
            None => reader.wait(Duration::from_secs(1)),
        }
    }
    println!("{frames} frames, {bytes} bytes, sum {sum}");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [name] => take(name),
        [port, address] => receive(port, address),
        _ => Err("usage: frames NAME, or frames PORT ADDRESS".into()),
    }
}
