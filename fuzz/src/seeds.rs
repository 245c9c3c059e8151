//! Seeds of the fuzz targets: `seeds FOLDER [CORPUS]` writes frames to `FOLDER/frames` and capture files to
//! `FOLDER/captures`, from the samples of the tests and, if given, a corpus of captures; packet expressions to
//! `FOLDER/texts`, stream files to `FOLDER/streams` and a dictionary to `FOLDER/words`, from these frames and the
//! documentation.

use libfuzzer_sys as _;
use linerate_burst::{Block, Desc, Interface, Ledger, LinkType, Nanos, Sink, StampSource};
use linerate_headers::Protocol;
use linerate_headers::build::{BuildError, Frame, Header};
use linerate_pcap::{Compression, Format, Output, Reader, Writer};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../crates/headers/tests/samples/mod.rs"]
mod samples;
mod texts;

/// Frames per capture; the first frames of a conversation differ most.
const FRAMES_OF_EACH: usize = 6;
/// Max lengths: longer frames and files are slow to fuzz.
const LONGEST_FRAME: usize = 1024;
const LONGEST_FILE: u64 = 4096;

type Done = Result<(), Box<dyn Error>>;

fn main() -> Done {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().ok_or("usage: seeds FOLDER [CORPUS]")?;
    let (frames, captures) = (folder.join("frames"), folder.join("captures"));
    for folder in [&frames, &captures] {
        fs::create_dir_all(folder)?;
    }
    let built = sample_frames()?;
    write_captures(&captures, &built)?;
    texts::write(&folder, &built)?;
    let mut found: BTreeSet<Vec<u8>> = built.into_iter().collect();
    for (number, path) in files(arguments.next())?.iter().enumerate() {
        found.extend(first_frames(path));
        if fs::metadata(path)?.len() <= LONGEST_FILE {
            fs::copy(path, captures.join(number.to_string()))?;
        }
    }
    for (number, frame) in found.iter().enumerate() {
        fs::write(frames.join(number.to_string()), frame)?;
    }
    println!("seeds: {} frames", found.len());
    Ok(())
}

/// Returns a frame for each sample with the fewest headers before it, and with each sample that it can carry.
fn sample_frames() -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let samples = samples::samples();
    let first_headers = (0..samples.len()).filter(|index| samples[*index].1.is_some());
    let mut stacks: Vec<Vec<usize>> = first_headers.map(|index| vec![index]).collect();
    let mut reached: BTreeSet<usize> = stacks.iter().flatten().copied().collect();
    let mut frames = Vec::new();
    let mut next = 0;
    while let Some(stack) = stacks.get(next).cloned() {
        next += 1;
        let mut headers: Vec<&dyn Header> = stack.iter().map(|index| samples[*index].0.as_ref()).collect();
        frames.push(built(&headers)?);
        for (index, (header, _)) in samples.iter().enumerate() {
            if headers.last().is_some_and(|last| samples::can_carry(*last, header.as_ref())) {
                headers.push(header.as_ref());
                frames.push(built(&headers)?);
                headers.pop();
                if reached.insert(index) {
                    stacks.push([stack.as_slice(), &[index]].concat());
                }
            }
        }
    }
    Ok(frames)
}

fn built(headers: &[&dyn Header]) -> Result<Vec<u8>, BuildError> {
    let last = headers.last().map_or(Protocol::Ethernet, |last| last.protocol());
    Frame::new(headers, samples::payload(last)).to_vec()
}

/// Writes a few frames in each format, compressed and not.
fn write_captures(folder: &Path, frames: &[Vec<u8>]) -> Done {
    let interfaces = [Interface::new("seed", LinkType::ETHERNET, StampSource::Kernel)];
    let mut block = Block::new(1 << 16, frames.len());
    for (number, frame) in frames.iter().take(8).enumerate() {
        block.push(&Desc::new(Nanos(1_700_000_000_123_456_789 + number as u64), 0, frame.len() as u32), frame);
    }
    for format in [Format::Pcap, Format::PcapMicros, Format::Pcapng] {
        for compression in [None, Some(Compression::Gzip), Some(Compression::Zstd)] {
            let name = format!("{format:?}-{}", compression.map_or("plain", Compression::name));
            let output = Output::open(folder.join(name).to_str().ok_or("the folder's name is not UTF-8")?)?;
            let output = match compression {
                Some(compression) => output.compressed(compression)?,
                None => output,
            };
            let mut writer = Writer::new(output, format);
            writer.comment("a seed");
            writer.accept(block.view(0, &interfaces))?;
            writer.finish(&Ledger::new())?;
        }
    }
    Ok(())
}

/// Returns all captures of a corpus, sorted.
fn files(corpus: Option<PathBuf>) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let (mut folders, mut found) = (Vec::from_iter(corpus), BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let ending = path.extension().and_then(|ending| ending.to_str());
            if path.is_dir() {
                folders.push(path);
            } else if ending.is_some_and(|ending| ["pcap", "pcapng", "cap", "trace"].contains(&ending)) {
                found.insert(path);
            }
        }
    }
    Ok(found.into_iter().collect())
}

/// Returns the first frames of a capture, as far as it can be read.
fn first_frames(path: &Path) -> Vec<Vec<u8>> {
    let reader = path.to_str().map(Reader::open);
    let Some(Ok(mut reader)) = reader else { return Vec::new() };
    let Ok(burst) = reader.fill() else { return Vec::new() };
    let frames = burst.iter().map(|(_, frame)| frame.to_vec());
    frames.filter(|frame| frame.len() <= LONGEST_FRAME).take(FRAMES_OF_EACH).collect()
}
