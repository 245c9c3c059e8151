//! Capture files read and counted from the page cache, compared with a plain read of the same file.

use super::Effort;
use super::folder::Folder;
use super::harness::{Case, Ours, Prepare, Sample, case};
use super::traffic::{CaptureFile, START};
use linerate_backends::open_rx;
use linerate_engine::{CountConsumer, Receive, Selection};
use linerate_pcap::{Format, Reader};
use linerate_port::{RxOptions, Spec};
use std::fs::File;
use std::io::Read;
use std::rc::Rc;

/// Bytes per read, as the reader's.
const PIECE: usize = 256 << 10;
/// Bytes of the test file: more than the caches hold.
const FILE_BYTES: usize = 512 << 20;

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    let formats = [("pcap", Format::Pcap), ("pcapng", Format::Pcapng)];
    let all = [64, 1518].into_iter().flat_map(|size| formats.map(|format| (size, format)));
    Ok(all.map(|(size, (name, format))| case(move || of(size, name, format, effort))).collect())
}

fn of(size: usize, name: &str, format: Format, effort: Effort) -> anyhow::Result<Case> {
    let folder = Rc::new(Folder::on_disk("pcap")?);
    let path = folder.file(name);
    let (length, frames) = (size - 4, (effort.of(FILE_BYTES) / (size + 12)) as u64);
    let mut file = CaptureFile::create(&path, format)?;
    let frame = vec![0x5a; length];
    (0..frames).try_for_each(|number| file.push(START + number * 100, &frame))?;
    file.finish()?;
    let whole = move |found: u64| {
        anyhow::ensure!(found == frames, "{found} of {frames} packets were read");
        Ok(frames)
    };
    let [read, walked, counted, plain] = [0; 4].map(|_| path.clone());
    let read = move || {
        let mut reader = Reader::new(Box::new(File::open(&read)?), read.to_string_lossy())?;
        Sample::timed(|| {
            let mut found = 0;
            loop {
                let shown = reader.fill()?.len();
                if shown == 0 {
                    return whole(found);
                }
                found += shown as u64;
                reader.consume(shown);
            }
        })
    };
    let walk = move || {
        let mut packets = linerate::open(&walked.to_string_lossy())?.packets()?;
        Sample::timed(|| {
            let mut found = 0;
            while packets.next()?.is_some() {
                found += 1;
            }
            whole(found)
        })
    };
    let count = move || {
        let port = open_rx(&Spec::file(&counted.to_string_lossy()), &RxOptions::default())?;
        Sample::timed(|| {
            let mut counting = CountConsumer::new(Selection::default(), false);
            Receive::all(vec![port]).run(&mut [&mut counting]);
            whole(counting.done().all.traffic.frames)
        })
    };
    let mut buffer = vec![0; PIECE];
    let plain = move || {
        let (_folder, mut file) = (&folder, File::open(&plain)?);
        Sample::timed(|| {
            while file.read(&mut buffer)? > 0 {}
            Ok(frames)
        })
    };
    let read = Ours::new(format!("read {name}"), read);
    let read = read.finish(move |row| row.remark = format!("{:.1} GB/s of packets", row.mpps * length as f64 / 1e3));
    let [walk, count] = [Ours::new(format!("{name}, packets()"), walk), Ours::new(format!("count {name}"), count)];
    Ok(Case::sized(size).ours(read).ours(walk).ours(count).limit("plain read", plain))
}
