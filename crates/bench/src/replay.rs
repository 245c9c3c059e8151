//! A recording replayed at ten times its speed through a veth pair: difference between the gaps of packets at the receiver and those
//! recorded, compared with tcpreplay.
//!
//! The recording is `real-mix.pcap` of the folder `LINERATE_CORPUS`, without packets longer than Ethernet's MTU; otherwise packets of
//! mixed sizes with the gaps of independent arrivals.

use super::Effort;
use super::folder::Folder;
use super::harness::{Case, Ours, Prepare, Sample, case};
use super::machine::{has_hosts, lab, port_in};
use super::peers::{self, Job, TCPREPLAY_FASTER};
use super::traffic::{CaptureFile, LONGEST, MIX, START};
use anyhow::{Context, ensure};
use linerate_backends::pcap::Recording;
use linerate_backends::{open_rx, open_tx};
use linerate_burst::random::next as random;
use linerate_engine::replay::{Edits, RecordingMemory, Replay};
use linerate_engine::{Progress, Stop, clock};
use linerate_generate::{Delays, Pacing};
use linerate_lab::TemporaryLab;
use linerate_pcap::{Format, Reader};
use linerate_port::{RxOptions, RxPort, TxOptions};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// As the arguments of tcpreplay.
const SPEED: f64 = 10.0;
/// Packets of a recording, and the mean gap of made ones in nanoseconds.
const FRAMES: usize = 34_000;
const MEAN_GAP: f64 = 2_500_000.0;
/// Wait for the last packets in flight.
const SETTLE: Duration = Duration::from_millis(50);

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    if !has_hosts("replay") {
        return Ok(Vec::new());
    }
    Ok(vec![case(move || {
        let file = MadeFile::new(effort)?;
        let (name, bytes) = (file.name, file.mean_length);
        let stage = Rc::new((lab(&["tx:eth0,rx:eth0"])?, file));
        let mut all = Case { bytes, ..Case::default() };
        for scheme in ["xdp", "packet"] {
            let stage = Rc::clone(&stage);
            let round = move || round(&stage.0, &stage.1, || send(&stage.0, scheme, &stage.1.path));
            all = all.ours(Ours::new(format!("{scheme}, {name} at speed 10"), round));
        }
        if TCPREPLAY_FASTER.is_installed() {
            all = all.peer("tcpreplay", move || {
                let job = Job { inputs: vec![stage.1.path.clone()], ..Job::default() };
                let mut command = TCPREPLAY_FASTER.command(Some((&stage.0, "tx")), &job)?;
                round(&stage.0, &stage.1, || peers::run(&mut command)?.context("tcpreplay took too long").map(drop))
            });
        }
        Ok(all)
    })])
}

fn round(lab: &TemporaryLab, file: &MadeFile, send: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Sample> {
    let port = open_rx(&port_in(lab, "xdp:IF", "rx", "eth0")?, &RxOptions::default())?;
    let (stop, started) = (Stop::new(), Instant::now());
    let (mut stamps, span) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(port, &stop));
        let sent = send();
        let span = started.elapsed();
        std::thread::sleep(SETTLE);
        stop.request();
        let stamps = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent.and_then(|()| Ok((stamps?, span)))
    })?;
    stamps.sort_unstable();
    ensure!(stamps.len() == file.times.len(), "{} of {} packets arrived", stamps.len(), file.times.len());
    let mut errors = Delays::new();
    for (got, wanted) in stamps.windows(2).zip(file.times.windows(2)) {
        let due = wanted[1].saturating_sub(wanted[0]) as f64 / SPEED;
        errors.add(((got[1] - got[0]) as f64 - due).abs() as u64);
    }
    let delays = [errors.quantile(0.5), errors.quantile(0.99), errors.max()];
    let delays = delays.map(|error| Some(error.as_secs_f64() * 1e6));
    Ok(Sample { delays, ..Sample::new(stamps.len() as u64, span.as_secs_f64()) })
}

fn send(lab: &TemporaryLab, scheme: &str, path: &Path) -> anyhow::Result<()> {
    let spec = port_in(lab, &format!("{scheme}:IF"), "tx", "eth0")?;
    let recording = Recording::open(&path.to_string_lossy())?;
    let report = Replay {
        open: Box::new(move || recording.port()),
        memory: RecordingMemory::IfSmall,
        loops: 1,
        loop_gap: None,
        edits: Edits::default(),
        ports: vec![open_tx(&spec, &TxOptions::default())?],
        pacing: Pacing::Recorded(SPEED),
        at_once: false,
        packets: None,
        duration: None,
        stop: Stop::new(),
        progress: Progress::new(),
    }
    .run();
    report.failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// Receives until stopping is requested; returns the time of each packet.
fn receive(mut port: RxPort, stop: &Stop) -> anyhow::Result<Vec<u64>> {
    let mut stamps = Vec::with_capacity(FRAMES);
    while !stop.is_requested() {
        for queue in &mut port.queues {
            let burst = queue.fill(clock::now())?.burst;
            stamps.extend(burst.descs().iter().map(|desc| desc.time.0));
            let frames = burst.len();
            queue.consume(frames);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(stamps)
}

/// A recording made for this run, removed with this value.
struct MadeFile {
    path: PathBuf,
    _folder: Folder,
    name: &'static str,
    /// Time of each packet in the recording, in nanoseconds.
    times: Vec<u64>,
    mean_length: f64,
}

impl MadeFile {
    fn new(effort: Effort) -> anyhow::Result<MadeFile> {
        let folder = Folder::on_disk("replay")?;
        let path = folder.file("replay.pcap");
        let (mut times, frames) = (Vec::new(), effort.of(FRAMES));
        let mut file = CaptureFile::create(&path, Format::Pcap)?;
        let real = std::env::var_os("LINERATE_CORPUS").map(|folder| Path::new(&folder).join("real-mix.pcap"));
        let real = real.filter(|path| path.exists());
        let name = if real.is_some() { "real mix" } else { "made-up mix" };
        if let Some(path) = real {
            let mut reader = Reader::open(&path.to_string_lossy())?;
            loop {
                let burst = reader.fill()?;
                if burst.is_empty() || times.len() >= frames {
                    break;
                }
                for (desc, frame) in burst.iter() {
                    if !desc.is_truncated() && desc.captured as usize <= LONGEST {
                        times.push(desc.time.0);
                        file.push(desc.time.0, frame)?;
                    }
                }
                let shown = burst.len();
                reader.consume(shown);
            }
        } else {
            let (mut time, mut state) = (START, 1);
            for number in 0..frames {
                let uniform = ((random(&mut state) >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
                time += (-uniform.ln() * MEAN_GAP) as u64;
                times.push(time);
                file.push(time, &[0x5a; LONGEST][..MIX[number % MIX.len()]])?;
            }
        }
        let mean_length = file.bytes as f64 / times.len().max(1) as f64;
        file.finish()?;
        Ok(MadeFile { path, _folder: folder, name, times, mean_length })
    }
}
