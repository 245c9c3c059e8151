//! Throughput of reading capture files from the page cache, compared with plain `read(2)` of the same file.
//!
//! `cargo run --release -p linerate-record --example read_speed [FILE]`; without a file it creates files itself.

use linerate_burst::{Block, Desc, Interface, Ledger, LinkType, Nanos, Sink, StampSource};
use linerate_pcap::{Format, Output, Reader, Writer};
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::time::Instant;

const ROUNDS: usize = 7;
const FILE_BYTES: usize = 512 << 20;
/// Same size as the reader's pieces.
const PIECE: usize = 256 << 10;
const PAGE: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:<28} {:>12} {:>10} {:>14} {:>7}", "file", "M records/s", "GB/s", "read(2) GB/s", "ratio");
    if let Some(path) = std::env::args().nth(1) {
        return measure(&path, &path);
    }
    for length in [60, 1514] {
        for (format, name) in [(Format::Pcap, "pcap"), (Format::Pcapng, "pcapng")] {
            let path = std::env::temp_dir().join(format!("linerate-read-speed-{}", std::process::id()));
            let path = path.to_string_lossy().into_owned();
            let result = make(&path, format, length).and_then(|()| measure(&path, &format!("{name}, {length} bytes")));
            std::fs::remove_file(&path)?;
            result?;
        }
    }
    Ok(())
}

fn make(path: &str, format: Format, length: usize) -> Result<(), Box<dyn Error>> {
    let mut writer = Writer::new(Output::open(path)?, format);
    let interfaces = [Interface::new("eth0", LinkType::ETHERNET, StampSource::User)];
    let mut block = Block::new(1 << 20, 1 << 14);
    let frame = vec![0x55; length];
    let mut written = 0;
    let mut time = Nanos::from_parts(1_700_000_000, 0);
    while written < FILE_BYTES {
        block.clear();
        while block.push(&Desc::new(time, 0, length as u32), &frame) {
            time.0 += 67;
            written += length + 16;
        }
        writer.accept(block.view(0, &interfaces))?;
    }
    Ok(writer.finish(&Ledger::new())?)
}

fn measure(path: &str, name: &str) -> Result<(), Box<dyn Error>> {
    plain(path)?;
    let (mut plain_seconds, mut reader_seconds) = (Vec::new(), Vec::new());
    let (mut bytes, mut records) = (0, 0);
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        bytes = plain(path)?;
        plain_seconds.push(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        records = read(path)?;
        reader_seconds.push(begin.elapsed().as_secs_f64());
    }
    let (plain, reader) = (median(&mut plain_seconds), median(&mut reader_seconds));
    let [rate, speed, limit] = [records as f64 / reader / 1e6, bytes as f64 / reader / 1e9, bytes as f64 / plain / 1e9];
    println!("{name:<28} {rate:>12.1} {speed:>10.2} {limit:>14.2} {:>7.2}", speed / limit);
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn plain(path: &str) -> std::io::Result<usize> {
    let mut file = File::open(path)?;
    let mut memory = vec![0; PIECE + PAGE];
    // Page aligned, like the reader's buffer: the kernel copies up to twice as fast.
    let start = memory.as_ptr().align_offset(PAGE);
    let mut bytes = 0;
    loop {
        match file.read(&mut memory[start..start + PIECE])? {
            0 => return Ok(bytes),
            count => bytes += count,
        }
    }
}

/// Reads all frames; the sum prevents the compiler from removing the work.
fn read(path: &str) -> Result<usize, Box<dyn Error>> {
    let mut reader = Reader::open(path)?;
    let (mut records, mut sum) = (0, 0);
    loop {
        let burst = reader.fill()?;
        let shown = burst.len();
        if shown == 0 {
            std::hint::black_box(sum);
            return Ok(records);
        }
        sum = burst.descs().iter().fold(sum, |sum, desc| sum ^ desc.time.0 ^ u64::from(desc.captured));
        records += shown;
        reader.consume(shown);
    }
}
