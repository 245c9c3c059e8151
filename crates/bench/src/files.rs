//! Capture files into one, ordered by time, beside mergecap and beside a plain copy of the same bytes.

use super::Effort;
use super::folder::Folder;
use super::measure::{Rounds, Row};
use anyhow::{Context, ensure};
use linerate_backends::open_rx;
use linerate_burst::{Block, Desc, Interface, Ledger, LinkType, Nanos, Sink, StampSource};
use linerate_cli::view::terminal::tell;
use linerate_engine::{Capture, Receive, Selection};
use linerate_port::{RxOptions, Spec};
use linerate_record::{Format, Output, Writer};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FILES: usize = 4;
/// Bytes of all files together.
const BYTES: usize = 100 << 20;
/// Captured lengths in turn: short, middle and long frames, 7 : 4 : 1 as in the IMIX that testers of networks use.
const LENGTHS: [usize; 12] = [60, 60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590];
const RECORD: usize = 16;
/// What a plain copy reads and writes at a time.
const PIECE: usize = 256 << 10;

pub(super) fn run(effort: Effort) -> anyhow::Result<Row> {
    let folder = Folder::new("merge")?;
    let inputs: Vec<PathBuf> = (0..FILES).map(|file| folder.file(&format!("{file}.pcap"))).collect();
    let mean = LENGTHS.iter().sum::<usize>() as f64 / LENGTHS.len() as f64;
    let frames = (effort.of(BYTES) as f64 / (mean + RECORD as f64)) as usize;
    write_inputs(&inputs, frames)?;
    let has_mergecap = Command::new("mergecap").arg("--version").output().is_ok();
    if !has_mergecap {
        tell("bench merge: no comparison with mergecap: not installed (apt install wireshark-common)\n");
    }

    let (ours, theirs, copied) = (folder.file("ours"), folder.file("theirs"), folder.file("copied"));
    let (mut our, mut their, mut plain) = (Rounds::default(), Rounds::default(), Rounds::default());
    for _ in 0..effort.rounds {
        timed(&mut our, frames, &ours, || merge(&inputs, &ours, frames))?;
        timed(&mut plain, frames, &copied, || copy(&ours, &copied))?;
        if has_mergecap {
            timed(&mut their, frames, &theirs, || mergecap(&inputs, &theirs))?;
        }
    }
    let bytes = std::fs::metadata(&ours).with_context(|| ours.display().to_string())?.len();
    let rate = |rounds: &Rounds| rounds.median() * bytes as f64 / frames as f64 / 1e3;
    let mut row = our.row("merge", format!("{FILES} files to one"), mean);
    row.remark = format!("{:.2} GB/s, plain copy {:.2}", rate(&our), rate(&plain));
    if has_mergecap {
        let size = |path: &Path| std::fs::metadata(path).map(|file| file.len());
        ensure!(size(&theirs)? == bytes, "mergecap made another file of the same frames");
        row.remark += &format!(", mergecap {:.2}", rate(&their));
        row = row.beside("mergecap", &their);
    }
    row.ports = FILES;
    Ok(row.limited("plain copy", &plain))
}

/// Times what makes a new file.
fn timed(
    rounds: &mut Rounds,
    frames: usize,
    output: &Path,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if output.exists() {
        std::fs::remove_file(output)?;
    }
    let mut done = Ok(());
    rounds.time(|| {
        done = work();
        frames as u64
    });
    done.with_context(|| output.display().to_string())
}

fn merge(inputs: &[PathBuf], output: &Path, frames: usize) -> anyhow::Result<()> {
    let open = |path: &PathBuf| open_rx(&Spec::file(&path.to_string_lossy()), &RxOptions::default());
    let writer = Writer::new(Output::open(&output.to_string_lossy())?, Format::Pcap);
    let mut capture = Capture::new(Selection::default(), vec![Box::new(writer)]);
    let run = Receive::all(inputs.iter().map(open).collect::<Result<_, _>>()?).run(&mut [&mut capture]);
    if let Some(failure) = run.failure {
        return Err(failure.into());
    }
    let merged = capture.done().frames;
    ensure!(merged == frames as u64, "{merged} of {frames} frames were merged");
    Ok(())
}

fn mergecap(inputs: &[PathBuf], output: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("mergecap");
    command.args(["-F", "nsecpcap", "-w"]).arg(output).args(inputs);
    let done = command.stdin(Stdio::null()).output().context("mergecap")?;
    ensure!(done.status.success(), "mergecap failed ({}): {}", done.status, String::from_utf8_lossy(&done.stderr));
    Ok(())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let (mut from, mut to) = (File::open(from)?, File::create_new(to)?);
    let mut buffer = vec![0; PIECE];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            bytes => to.write_all(&buffer[..bytes])?,
        }
    }
}

/// Frames in the order of their times, each to one of the files at random.
fn write_inputs(paths: &[PathBuf], frames: usize) -> anyhow::Result<()> {
    let open = |path: &PathBuf| Output::open(&path.to_string_lossy());
    let outputs: Vec<Output> = paths.iter().map(open).collect::<Result<_, _>>()?;
    let new = |output| (Writer::new(output, Format::Pcap), Block::new(1 << 20, 8192));
    let mut files: Vec<(Writer, Block)> = outputs.into_iter().map(new).collect();
    let interfaces = [Interface::new("bench", LinkType::ETHERNET, StampSource::User)];
    let frame = [0x5a; 1514];
    let mut random = 88_172_645_463_325_252;
    for number in 0..frames {
        random = super::merge::xorshift(random);
        let (writer, block) = &mut files[(random >> 30) as usize % paths.len()];
        let length = LENGTHS[number % LENGTHS.len()];
        let desc = Desc::new(Nanos(1_700_000_000_000_000_000 + number as u64 * 100), 0, length as u32);
        if !block.push(&desc, &frame[..length]) {
            writer.accept(block.view(0, &interfaces))?;
            block.clear();
            block.push(&desc, &frame[..length]);
        }
    }
    for (mut writer, block) in files {
        writer.accept(block.view(0, &interfaces))?;
        writer.finish(&Ledger::new())?;
    }
    Ok(())
}
