//! Reads the shared frames of another process in place, with a custom consumer: while
//! `linerate capture eth0 --share feed` runs, `cargo run --example attach -- feed`.

use linerate::engine::{Consumer, FrameOrder, Receive, ReceiveError, Round, RunEnd};
use linerate::port::{RxOptions, Spec, open_rx};
use std::error::Error;

/// Counts bytes by the third octet of the destination address, without copying.
pub(crate) struct Networks {
    /// Number of frames.
    pub frames: u64,
    /// Bytes on the wire.
    pub bytes: [u64; 256],
}

impl Consumer for Networks {
    fn name(&self) -> &'static str {
        "networks"
    }

    fn order(&self) -> FrameOrder {
        FrameOrder::Any
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        for (desc, frame) in round.bursts.iter().flat_map(|burst| burst.iter()) {
            self.frames += 1;
            // IPv4 over Ethernet; `linerate::headers` parses everything else.
            if let ([8, 0], Some(octet)) = (frame.get(12..14).unwrap_or(&[0; 2]), frame.get(32)) {
                self.bytes[usize::from(*octet)] += u64::from(desc.wire);
            }
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut RunEnd<'_>) {}
}

/// Reads until the writer ends.
pub(crate) fn run(ring: &str) -> Result<Networks, Box<dyn Error>> {
    let port = open_rx(&Spec::parse(&format!("shm:{ring}?mode=lossless"))?, &RxOptions::default())?;
    let mut networks = Networks { frames: 0, bytes: [0; 256] };
    let run = Receive::all(vec![port]).run(&mut [&mut networks]);
    match run.failure {
        Some(failure) => Err(failure.into()),
        None => Ok(networks),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let networks = run(&std::env::args().nth(1).unwrap_or_else(|| "feed".to_owned()))?;
    for (octet, bytes) in networks.bytes.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
        println!("x.x.{octet}.x: {bytes} bytes");
    }
    Ok(())
}
