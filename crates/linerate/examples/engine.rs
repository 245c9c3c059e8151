//! Engine for `linerate inline`: blocks DNS queries for names below `example.com`, and passes everything else.
//!
//!     linerate inline eth1 eth2 --share ids &
//!     cargo run --example engine -- ids

use linerate::share::{AttachOptions, Engine, Verdict, VerdictReply};
use std::error::Error;
use std::time::Duration;

/// Name in wire format: each label with a length prefix.
const NAME: &[u8] = b"\x07example\x03com\0";

fn main() -> Result<(), Box<dyn Error>> {
    let ring = std::env::args().nth(1).ok_or("usage: engine NAME")?;
    let engine = AttachOptions { name: "engine".into(), ..AttachOptions::default() }.engine(&ring)?;
    let blocked = run(engine);
    println!("{blocked} frames blocked");
    Ok(())
}

/// Decides until the writer ends. Returns the number of blocked packets.
pub(crate) fn run(mut engine: Engine) -> u64 {
    let mut blocked = 0;
    while engine.ended().is_none() {
        let looked = engine.look(|seen, _| {
            let names = seen.bytes.windows(NAME.len()).any(|bytes| bytes.eq_ignore_ascii_case(NAME));
            blocked += u64::from(names);
            VerdictReply::Now(if names { Verdict::Block } else { Verdict::Pass })
        });
        if looked == 0 {
            // A program with other things to do polls `engine.wake()` instead.
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    blocked
}
