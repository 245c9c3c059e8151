//! Lanes in memory merged into one ordered block, compared with one lane; their order without the copy, compared with a binary heap;
//! and capture files merged into one, compared with mergecap.

use super::Effort;
use super::folder::Folder;
use super::harness::{Case, Ours, Prepare, Sample, case};
use super::peers::{self, Job, MERGECAP};
use super::traffic::{CaptureFile, LONGEST, MIX, START};
use anyhow::{Context, ensure};
use linerate_backends::open_rx;
use linerate_burst::random::next as random;
use linerate_burst::{Block, Burst, Desc, FrameIndex, Horizon, Nanos};
use linerate_engine::{Capture, Receive, Selection};
use linerate_merge::{Input, Merge};
use linerate_pcap::{Format, Output, Writer};
use linerate_port::{RxOptions, Spec};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Packets per lane; the merge sees this many at a time.
const SHOWN: usize = 1024;
const LANE_FRAMES: usize = 64 * SHOWN;
const FRAME: usize = 60;
/// Packets of all lanes where only the order is measured: their descs fit into a large cache.
const ORDERED: usize = 512 * 1024;
/// Capture files, their bytes together, and the bytes of a record header.
const FILES: usize = 4;
const BYTES: usize = 100 << 20;
const RECORD: usize = 16;
/// Bytes per read and write of the plain copy.
const PIECE: usize = 256 << 10;

/// Work on the descs of all lanes; returns packets.
type OverLanes = Box<dyn Fn(&[Vec<Desc>]) -> u64>;
/// Makes a file.
type FileMaker = Box<dyn Fn(&Path) -> anyhow::Result<()>>;

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    let copied = [(2, 1), (4, 1), (4, 32), (16, 1)];
    let copied = copied.map(|(lanes, run)| case(move || Ok(copies(effort, lanes, run))));
    let orders = [1, 2, 4, 8, 16, 64].into_iter().flat_map(|lanes| [(lanes, 1, SHOWN), (lanes, 32, SHOWN)]);
    let orders = orders.chain([(4, 1, 64), (4, 1, 4), (2, 1, 1)]);
    let orders = orders.map(|(lanes, run, shown)| case(move || Ok(order_case(effort, lanes, run, shown))));
    Ok(copied.into_iter().chain(orders).chain([case(move || files(effort))]).collect())
}

fn named(lanes: usize, run: usize) -> String {
    if run == 1 { format!("{lanes} lanes at random") } else { format!("{lanes} lanes in runs of {run}") }
}

fn copies(effort: Effort, lanes: usize, run: usize) -> Case {
    let passes = effort.of(100).div_ceil(lanes);
    let side = |lanes: Vec<Block>, passes: usize| {
        let mut block = Block::new(1 << 20, 8192);
        move || {
            let lanes: Vec<Burst<'_>> = lanes.iter().map(Block::burst).collect();
            Sample::timed(|| Ok((0..passes).map(|_| merge(&lanes, &mut block)).sum()))
        }
    };
    let ours = Ours::new(named(lanes, run), side(lanes_of(lanes, run), passes)).with(|row| row.ports = lanes);
    Case::sized(FRAME + 4).ours(ours).limit("one lane", side(lanes_of(1, 1), passes * lanes))
}

/// The order of packets that alternate in runs of `run`, `shown` packets of a lane at a time.
fn order_case(effort: Effort, count: usize, run: usize, shown: usize) -> Case {
    let mut lanes = vec![Vec::new(); count];
    alternating(count, run, ORDERED, |lane, desc| lanes[lane].push(desc));
    let (lanes, passes) = (Rc::new(lanes), effort.of(40));
    let side = |passes: usize, work: OverLanes| {
        let lanes = Rc::clone(&lanes);
        move || Sample::timed(|| Ok((0..passes).map(|_| work(&lanes)).sum()))
    };
    let few = if shown == SHOWN { String::new() } else { format!(", {shown} at a time") };
    let ours = Ours::new(
        format!("order, {}{few}", named(count, run)),
        side(
            passes,
            Box::new(move |lanes| {
                let descs: Vec<&[Desc]> = lanes.iter().map(Vec::as_slice).collect();
                ordered(&descs, shown, |picks, _| _ = black_box(picks))
            }),
        ),
    );
    Case::sized(FRAME + 4)
        .ours(ours.with(|row| row.ports = count))
        .peer("binary heap", side(passes.div_ceil(8), Box::new(move |lanes| merge_by_heap(lanes, shown))))
        .limit("read times", side(passes, Box::new(read_times)))
}

/// Orders all packets, `shown` packets of a lane at a time; `each` gets the picks, and the packets of each lane before them.
fn ordered(lanes: &[&[Desc]], shown: usize, mut each: impl FnMut(&[FrameIndex], &[usize])) -> u64 {
    let mut merge = Merge::new(lanes.len());
    let mut done = vec![0; lanes.len()];
    let mut inputs = Vec::with_capacity(lanes.len());
    let mut picks: Vec<FrameIndex> = Vec::new();
    loop {
        inputs.clear();
        inputs.extend(lanes.iter().zip(&done).map(|(lane, done)| {
            let end = (done + shown).min(lane.len());
            let horizon = lane.get(end).map_or(Horizon::Ended, |desc| Horizon::At(desc.time));
            Input { descs: &lane[*done..end], horizon }
        }));
        picks.clear();
        merge.order(&inputs, &mut picks);
        if picks.is_empty() {
            return merge.frames();
        }
        each(&picks, &done);
        for (lane, done) in done.iter_mut().enumerate() {
            *done += merge.taken(lane);
        }
    }
}

/// Orders all packets by a heap of the heads, in the same rounds: `shown` packets of a lane at a time, up to the first one not shown.
/// No late packets.
fn merge_by_heap(lanes: &[Vec<Desc>], shown: usize) -> u64 {
    let mut done = vec![0; lanes.len()];
    let (mut heads, mut picks) = (BinaryHeap::new(), Vec::new());
    let mut frames = 0;
    loop {
        let end = |lane: usize, done: usize| (done + shown).min(lanes[lane].len());
        let next = (0..lanes.len()).filter_map(|lane| Some((lanes[lane].get(end(lane, done[lane]))?.time, lane))).min();
        let head = |lane: usize, index: usize| {
            let is_shown = index < end(lane, done[lane]);
            is_shown.then(|| Reverse((lanes[lane][index].time, lane, index)))
        };
        picks.clear();
        heads.clear();
        heads.extend((0..lanes.len()).filter_map(|lane| head(lane, done[lane])));
        while let Some(mut least) = heads.peek_mut() {
            let Reverse((time, lane, index)) = *least;
            if next.is_some_and(|next| (time, lane) >= next) {
                break;
            }
            picks.push(FrameIndex::new(lane, index - done[lane]));
            match head(lane, index + 1) {
                Some(next) => *least = next,
                None => drop(PeekMut::pop(least)),
            }
        }
        if picks.is_empty() {
            return frames;
        }
        frames += black_box(&picks).len() as u64;
        picks.iter().for_each(|pick| done[pick.lane()] += 1);
    }
}

fn read_times(lanes: &[Vec<Desc>]) -> u64 {
    let latest = lanes.iter().map(|lane| lane.iter().fold(Nanos::ZERO, |latest, desc| latest.max(desc.time)));
    black_box(latest.max());
    lanes.iter().map(|lane| lane.len() as u64).sum()
}

/// Merges and copies all packets of all lanes once.
fn merge(lanes: &[Burst<'_>], block: &mut Block) -> u64 {
    block.clear();
    let descs: Vec<&[Desc]> = lanes.iter().map(|lane| lane.descs()).collect();
    ordered(&descs, SHOWN, |picks, done| {
        let shown: Vec<Burst<'_>> =
            lanes.iter().zip(done).map(|(lane, done)| lane.slice(*done..(*done + SHOWN).min(lane.len()))).collect();
        let mut copied = 0;
        while copied < picks.len() {
            copied += block.gather(&shown, &picks[copied..], &mut ());
            if copied < picks.len() {
                block.clear();
            }
        }
    })
}

/// Lanes whose packets alternate at random, in runs of `run`.
fn lanes_of(count: usize, run: usize) -> Vec<Block> {
    let mut lanes: Vec<Block> =
        (0..count).map(|_| Block::new(LANE_FRAMES * (FRAME + 16) + (1 << 20), LANE_FRAMES)).collect();
    alternating(count, run, LANE_FRAMES * count, |lane, desc| {
        lanes[lane].push(&desc, &[0x5a; FRAME]);
    });
    lanes
}

/// Makes packets in runs of `run`, each of a lane at random.
fn alternating(lanes: usize, run: usize, frames: usize, mut push: impl FnMut(usize, Desc)) {
    let (mut state, mut time) = (1, START);
    for _ in 0..frames / run {
        let lane = (random(&mut state) >> 30) as usize % lanes;
        for _ in 0..run {
            time += 7;
            push(lane, Desc::new(Nanos(time), 0, FRAME as u32));
        }
    }
}

/// Capture files merged into one.
fn files(effort: Effort) -> anyhow::Result<Case> {
    let folder = Rc::new(Folder::new("merge")?);
    let inputs: Vec<PathBuf> = (0..FILES).map(|file| folder.file(&format!("{file}.pcap"))).collect();
    let mean = MIX.iter().sum::<usize>() as f64 / MIX.len() as f64;
    let frames = (effort.of(BYTES) as f64 / (mean + RECORD as f64)) as u64;
    let mut files: Vec<CaptureFile> =
        inputs.iter().map(|path| CaptureFile::create(path, Format::Pcap)).collect::<Result<_, _>>()?;
    let mut state = 1;
    for number in 0..frames {
        let file = (random(&mut state) >> 30) as usize % FILES;
        files[file].push(START + number * 100, &[0x5a; LONGEST][..MIX[number as usize % MIX.len()]])?;
    }
    let bytes: u64 = 24 + files.iter().map(|file| file.bytes + RECORD as u64 * file.frames).sum::<u64>();
    files.into_iter().try_for_each(CaptureFile::finish)?;
    // A side makes a new file of all packets.
    let side = |name: &str, work: FileMaker| {
        let output = folder.file(name);
        move || {
            if output.exists() {
                std::fs::remove_file(&output)?;
            }
            let sample = Sample::timed(|| work(&output).map(|()| frames))?;
            let size = std::fs::metadata(&output)?.len();
            ensure!(size == bytes, "{}: {size} bytes, {bytes} were expected", output.display());
            Ok(sample)
        }
    };
    let (own, peer, ours) = (inputs.clone(), inputs, folder.file("ours"));
    let kept = Rc::clone(&folder);
    let row =
        Ours::new(format!("{FILES} files to one"), side("ours", Box::new(move |to| merge_files(&own, to, frames))));
    let row = row.with(|row| row.ports = FILES).finish(move |row| {
        let _folder = &kept;
        row.remark = format!("{:.2} GB/s written", row.mpps * bytes as f64 / frames as f64 / 1e3);
    });
    let copy = move |to: &Path| {
        let (mut from, mut to, mut buffer) = (File::open(&ours)?, File::create_new(to)?, vec![0; PIECE]);
        loop {
            match from.read(&mut buffer)? {
                0 => return Ok(()),
                bytes => to.write_all(&buffer[..bytes])?,
            }
        }
    };
    let mut case = Case { bytes: mean, ..Case::default() }.ours(row);
    if MERGECAP.is_installed() {
        let mergecap = move |to: &Path| {
            let job = Job { inputs: peer.clone(), output: to.to_owned(), ..Job::default() };
            peers::run(&mut MERGECAP.command(None, &job)?)?.context("mergecap took too long").map(drop)
        };
        case = case.peer("mergecap", side("theirs", Box::new(mergecap)));
    }
    Ok(case.limit("plain copy", side("copied", Box::new(copy))))
}

fn merge_files(inputs: &[PathBuf], output: &Path, frames: u64) -> anyhow::Result<()> {
    let open = |path: &PathBuf| open_rx(&Spec::file(&path.to_string_lossy()), &RxOptions::default());
    let writer = Writer::new(Output::open(&output.to_string_lossy())?, Format::Pcap);
    let mut capture = Capture::new(Selection::default(), vec![Box::new(writer)]);
    let run = Receive::all(inputs.iter().map(open).collect::<Result<_, _>>()?).run(&mut [&mut capture]);
    if let Some(failure) = run.failure {
        return Err(failure.into());
    }
    let merged = capture.done().frames;
    ensure!(merged == frames, "{merged} of {frames} packets were merged");
    Ok(())
}
