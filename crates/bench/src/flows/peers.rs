//! A capture file into flow records, beside other flow meters.

use super::PACKETS;
use super::traffic::{Pattern, Traffic};
use crate::Effort;
use crate::folder::Folder;
use crate::measure::{Rounds, Row};
use anyhow::{Context, bail};
use linerate_backends::dpdk::trusted;
use linerate_burst::{Block, Interface, Ledger, LinkType, Sink, StampSource};
use linerate_cli::view::terminal::{shown, tell};
use linerate_record::{Format, Output, Writer};
use std::ffi::OsString;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Frames of a file, at least.
const FRAMES: usize = 2_000_000;
const SIZE: usize = 64;
/// Rounds: some peers take a minute for one.
const ROUNDS: usize = 3;
/// How long a program gets.
const PATIENCE: Duration = Duration::from_secs(90);

/// A flow meter and what it is called with.
struct Peer {
    name: &'static str,
    arguments: fn(input: &Path, folder: &Path, port: u16) -> Vec<OsString>,
}

const PEERS: [Peer; 3] = [
    Peer { name: "nfpcapd", arguments: |input, folder, _| words(&["-r"], input, &["-w"], folder) },
    Peer {
        name: "softflowd",
        arguments: |input, _, port| {
            let collector = PathBuf::from(format!("127.0.0.1:{port}"));
            words(&["-d", "-m", "2000000", "-r"], input, &["-n"], &collector)
        },
    },
    Peer { name: "argus", arguments: |input, folder, _| words(&["-r"], input, &["-w"], &folder.join("argus")) },
];

fn words(front: &[&str], one: &Path, between: &[&str], other: &Path) -> Vec<OsString> {
    let texts = |texts: &[&str]| texts.iter().map(OsString::from).collect::<Vec<_>>();
    [texts(front), vec![one.into()], texts(between), vec![other.into()]].concat()
}

/// A row for each peer that is there.
pub(crate) fn run(effort: Effort, flows: usize) -> anyhow::Result<Vec<Row>> {
    let folder = Folder::new("flows")?;
    let input = folder.file("input.pcap");
    let flows = effort.of(flows);
    let frames = effort.of(FRAMES).max(flows * PACKETS);
    write(&input, frames, flows)?;
    let rounds = effort.rounds.min(ROUNDS);
    let mut ours = Rounds::default();
    for _ in 0..rounds {
        let mut command = Command::new(crate::linerate()?);
        command.args(["flows", "--quiet", "--write", "null", "--max-flows"]).arg((flows + 1).to_string());
        command.arg("--read").arg(&input);
        let Some(seconds) = seconds_of(&mut command)? else { bail!("linerate flows took more than {PATIENCE:?}") };
        ours.add(frames as u64, seconds);
    }
    let row = || Row { flows: Some(flows), ..ours.row("flows", format!("file of {flows} flows"), 60.0).sized(SIZE) };
    let mut rows = Vec::new();
    let unpacked = unpacked();
    for peer in &PEERS {
        let Some(program) = find(peer.name, unpacked.as_deref()) else {
            tell(format_args!(
                "bench flows: {} is not installed; scripts/peers unpacks it: no such peer beside us\n",
                peer.name
            ));
            continue;
        };
        // A collector that takes what comes: without one, exporting would be left out.
        let collector = UdpSocket::bind("127.0.0.1:0")?;
        let mut theirs = Rounds::default();
        while theirs.len() < rounds {
            let output = folder.file(&format!("{}-{}", peer.name, theirs.len()));
            std::fs::create_dir(&output).with_context(|| output.display().to_string())?;
            let mut command = Command::new(&program);
            command.args((peer.arguments)(&input, &output, collector.local_addr()?.port()));
            if let Some(folder) = unpacked.as_deref().filter(|folder| program.starts_with(folder)) {
                command.env("LD_LIBRARY_PATH", folder.join("usr/lib/x86_64-linux-gnu"));
            }
            let Some(seconds) = seconds_of(&mut command)? else { break };
            theirs.add(frames as u64, seconds);
            std::fs::remove_dir_all(&output).with_context(|| output.display().to_string())?;
        }
        rows.push(if theirs.len() == 0 {
            let most = frames as f64 / PATIENCE.as_secs_f64() / 1e6;
            let remark = format!("{} was ended after {PATIENCE:?}: less than {most:.2} M/s", peer.name);
            Row { remark, peer: Some(peer.name.into()), ..row() }
        } else {
            row().beside(peer.name, &theirs)
        });
    }
    if rows.is_empty() {
        rows.push(row());
    }
    Ok(rows)
}

/// How long a program runs; none if it was ended because that was too long.
fn seconds_of(command: &mut Command) -> anyhow::Result<Option<f64>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let started = Instant::now();
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = quiet.spawn().with_context(|| name.clone())?;
    loop {
        if let Some(status) = child.try_wait()? {
            let seconds = started.elapsed().as_secs_f64();
            anyhow::ensure!(status.success(), "{name} failed ({status})");
            return Ok(Some(seconds));
        }
        if started.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        sleep(Duration::from_millis(1));
    }
}

/// Where programs lie that were unpacked, not installed (`scripts/peers`): beside the folder of this program. Root runs what
/// is there, so nobody else may be able to put something there.
fn unpacked() -> Option<PathBuf> {
    let folder = std::env::current_exe().ok()?.parent()?.parent()?.join("peers");
    folder.is_dir().then_some(())?;
    if let Err(reason) = trusted(&folder) {
        tell(format_args!(
            "bench flows: {}: programs in {} are not run\n",
            shown(&reason),
            shown(&folder.display().to_string())
        ));
        return None;
    }
    Some(folder)
}

/// Where a program lies.
fn find(name: &str, unpacked: Option<&Path>) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = unpacked.into_iter().flat_map(|folder| ["usr/bin", "usr/sbin"].map(|part| folder.join(part)));
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut folders = std::env::split_paths(&path).chain(system).chain(unpacked);
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}

/// The first packets of all flows, then packets of any.
pub(crate) fn write(path: &Path, frames: usize, flows: usize) -> anyhow::Result<()> {
    const CHUNK: usize = 8192;
    let mut writer = Writer::new(Output::open(&path.to_string_lossy())?, Format::Pcap);
    let interfaces = [Interface::new("bench", LinkType::ETHERNET, StampSource::User)];
    let mut block = Block::new(CHUNK * 128, CHUNK);
    let mut traffic = Traffic::new(Pattern::Random, flows, SIZE);
    let mut done = 0;
    while done < frames {
        block.clear();
        if done < flows {
            traffic.begin(&mut block, CHUNK.min(flows - done));
        } else {
            traffic.go_on(&mut block, CHUNK.min(frames - done));
        }
        done += block.len();
        writer.accept(block.view(0, &interfaces))?;
    }
    writer.finish(&Ledger::new())?;
    Ok(())
}
