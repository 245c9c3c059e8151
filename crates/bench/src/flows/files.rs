//! A capture file into flow records, compared with other flow meters.

use super::traffic::{Pattern, Traffic};
use super::{OTHER_FLOWS, PACKETS};
use crate::Effort;
use crate::folder::Folder;
use crate::harness::{Case, Ours, Prepare, Sample, case};
use crate::peers::{self, FLOW_METERS, Job, PATIENCE};
use crate::traffic::CaptureFile;
use linerate_burst::Block;
use linerate_pcap::Format;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

/// Packets of a file, at least.
const FRAMES: usize = 2_000_000;

pub(crate) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    let wanted = [256, OTHER_FLOWS, 1_048_576].into_iter().filter(|flows| effort.wants(*flows));
    Ok(wanted.map(|flows| case(move || of(effort, effort.of(flows)))).collect())
}

fn of(effort: Effort, flows: usize) -> anyhow::Result<Case> {
    let folder = Rc::new(Folder::new("flows")?);
    let input = folder.file("input.pcap");
    let frames = effort.of(FRAMES).max(flows * PACKETS);
    write(&input, frames, flows)?;
    let frames = frames as u64;
    // A program that was stopped has handled no known number of packets.
    let timed = move |command: &mut Command| {
        let seconds = peers::run(command)?;
        Ok(seconds.map_or_else(Sample::default, |seconds| Sample::new(frames, seconds)))
    };
    let own = input.clone();
    let ours = Ours::new(format!("file of {flows} flows"), move || {
        let mut command = Command::new(crate::linerate()?);
        command.args(["flows", "--quiet", "--write", "null", "--max-flows"]).arg((flows + 1).to_string());
        timed(command.arg("--read").arg(&own))
    });
    let least = frames as f64 / PATIENCE.as_secs_f64() / 1e6;
    let ours = ours.with(|row| row.flows = Some(flows)).finish(move |row| {
        let stopped: Vec<&str> =
            row.peers.iter().filter(|peer| peer.mpps.is_none()).map(|peer| peer.name.as_str()).collect();
        if !stopped.is_empty() {
            row.remark = format!("stopped after {PATIENCE:?}, below {least:.2} M/s: {}", stopped.join(", "));
        }
    });
    let mut all = Case::sized(64).ours(ours);
    for peer in FLOW_METERS.iter().filter(|peer| peer.is_installed()) {
        let (folder, input) = (Rc::clone(&folder), input.clone());
        // An exporter without a collector would export nothing.
        let collector = UdpSocket::bind("127.0.0.1:0")?;
        let mut is_too_slow = false;
        all = all.peer(peer.program, move || {
            if is_too_slow {
                return Ok(Sample::default());
            }
            let output = folder.file(peer.program);
            std::fs::create_dir(&output)?;
            let port = collector.local_addr()?.port();
            let job = Job { inputs: vec![input.clone()], output: output.clone(), port, ..Job::default() };
            let sample = timed(&mut peer.command(None, &job)?)?;
            is_too_slow = sample.count == 0;
            std::fs::remove_dir_all(&output)?;
            Ok(sample)
        });
    }
    Ok(all)
}

/// Writes the first packets of all flows, then packets of random flows.
pub(crate) fn write(path: &Path, frames: usize, flows: usize) -> anyhow::Result<()> {
    const CHUNK: usize = 8192;
    let mut file = CaptureFile::create(path, Format::Pcap)?;
    let mut block = Block::new(CHUNK * 128, CHUNK);
    let mut traffic = Traffic::new(Pattern::Random, flows, 64);
    let mut done = 0;
    while done < frames {
        block.clear();
        if done < flows {
            traffic.open(&mut block, CHUNK.min(flows - done));
        } else {
            traffic.continue_any(&mut block, CHUNK.min(frames - done));
        }
        done += block.len();
        file.append(&block)?;
    }
    file.finish()
}
