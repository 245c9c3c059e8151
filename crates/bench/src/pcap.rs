//! Reading and counting capture files from the page cache, beside a plain read of the same file.

use super::Effort;
use super::folder::Folder;
use super::measure::{Rounds, Row};
use linerate_backends::open_rx;
use linerate_burst::{Block, Desc, Interface, Ledger, LinkType, Nanos, Sink, StampSource};
use linerate_engine::{Counting, Receive, Selection};
use linerate_port::{RxOptions, RxPort, Spec};
use linerate_record::{Format, Output, Reader, Writer};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What the reader asks for at a time, and so does the plain read.
const PIECE: usize = 256 << 10;
/// Bytes of the test file: more than the caches hold.
const FILE_BYTES: usize = 512 << 20;

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let folder = Folder::on_disk("pcap")?;
    for size in [64, 1518] {
        for format in [Format::Pcap, Format::Pcapng] {
            let path = folder.file(&size.to_string());
            let frames = effort.of(FILE_BYTES) / (size + 12);
            let written = write(&path, format, size - 4, frames);
            let result = written.and_then(|()| measure(&path, frames as u64, effort.rounds));
            std::fs::remove_file(&path)?;
            let Measured { ours, counted, plain } = result?;
            let case = if format == Format::Pcap { "read pcap" } else { "read pcapng" };
            let mut row = ours.row("pcap", case, (size - 4) as f64).sized(size).limited("plain read", &plain);
            row.remark = format!("{:.1} GB/s of frames", ours.median() * (size - 4) as f64 / 1e3);
            rows.push(row);
            let case = if format == Format::Pcap { "count pcap" } else { "count pcapng" };
            rows.push(counted.row("pcap", case, (size - 4) as f64).sized(size).limited("plain read", &plain));
        }
    }
    Ok(rows)
}

/// The rounds of reader, count, and plain read.
struct Measured {
    ours: Rounds,
    counted: Rounds,
    plain: Rounds,
}

fn measure(path: &Path, frames: u64, rounds: usize) -> anyhow::Result<Measured> {
    let (mut ours, mut counted, mut plain) = (Rounds::default(), Rounds::default(), Rounds::default());
    let mut buffer = vec![0; PIECE];
    for _ in 0..rounds {
        let mut file = File::open(path)?;
        let mut failure = None;
        plain.time(|| {
            loop {
                match file.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                }
            }
            frames
        });
        let mut reader = Reader::new(Box::new(File::open(path)?), path.to_string_lossy())?;
        let mut result = Ok(0);
        ours.time(|| {
            result = read_all(&mut reader);
            frames
        });
        let port = open_rx(&Spec::file(&path.to_string_lossy()), &RxOptions::default())?;
        let mut found = 0;
        counted.time(|| {
            found = count(port);
            frames
        });
        anyhow::ensure!(result? == frames && found == frames && failure.is_none(), "the test file was not read whole");
    }
    Ok(Measured { ours, counted, plain })
}

fn count(port: RxPort) -> u64 {
    let mut counting = Counting::new(Selection::default(), false);
    Receive::all(vec![port]).run(&mut [&mut counting]);
    counting.done().all.traffic.frames
}

fn read_all(reader: &mut Reader) -> Result<u64, linerate_record::ReadError> {
    let mut frames = 0;
    loop {
        let shown = reader.fill()?.len();
        if shown == 0 {
            return Ok(frames);
        }
        frames += shown as u64;
        reader.consume(shown);
    }
}

fn write(path: &Path, format: Format, length: usize, frames: usize) -> anyhow::Result<()> {
    let mut writer = Writer::new(Output::open(&path.to_string_lossy())?, format);
    let interfaces = [Interface::new("bench", LinkType::ETHERNET, StampSource::User)];
    let frame = vec![0x5a; length];
    let mut block = Block::new(1 << 20, 8192);
    for number in 0..frames {
        let desc = Desc::new(Nanos(1_700_000_000_000_000_000 + number as u64 * 100), 0, length as u32);
        if !block.push(&desc, &frame) {
            writer.accept(block.view(0, &interfaces))?;
            block.clear();
            block.push(&desc, &frame);
        }
    }
    writer.accept(block.view(0, &interfaces))?;
    writer.finish(&Ledger::new())?;
    Ok(())
}
