//! A recording replayed at ten times its speed through a veth pair: by how much the gaps between frames differ from
//! those recorded, by the stamps of the receiver, beside tcpreplay.
//!
//! The recording is `real-mix.pcap` of the captures that `LINERATE_CORPUS` names, as far as its frames fit Ethernet's
//! MTU; without it, frames of mixed sizes with gaps as of independent arrivals.

use super::Effort;
use super::folder::Folder;
use super::measure::{Rounds, Row};
use anyhow::{Context, bail, ensure};
use linerate_backends::pcap::Recording;
use linerate_backends::{open_rx, open_tx};
use linerate_burst::{Block, Desc, Interface, Ledger, LinkType, Nanos, Sink, StampSource};
use linerate_cli::view::terminal::tell;
use linerate_engine::replay::{Edits, Memory, Replay};
use linerate_engine::{Progress, Stop, clock};
use linerate_generate::{Delays, Pacing};
use linerate_lab::{Plan, TemporaryLab};
use linerate_port::{RxOptions, RxPort, Spec, TxOptions};
use linerate_record::{Format, Output, Reader, Writer};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const SPEED: f64 = 10.0;
/// Frames of a recording; made up ones are a quarter of a millisecond apart.
const FRAMES: usize = 34_000;
const MEAN_GAP: f64 = 2_500_000.0;
const LONGEST: usize = 1514;
const LENGTHS: [usize; 12] = [60, 60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590];
/// How long what was sent last may be on its way.
const SETTLE: Duration = Duration::from_millis(50);

/// Who sends.
#[derive(Clone, Copy)]
enum Way {
    Ours(&'static str),
    Tcpreplay,
}

/// What the receiver saw of one way.
struct Side {
    way: Way,
    rounds: Rounds,
    /// Median, 99 % and greatest gap error of each round, in microseconds.
    errors: [Vec<f64>; 3],
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    if !rustix::process::geteuid().is_root() {
        tell("bench replay: SKIPPED: test hosts need root\n");
        return Ok(Vec::new());
    }
    let has_peer = Command::new("tcpreplay").arg("--version").output().is_ok();
    if !has_peer {
        tell("bench replay: no comparison with tcpreplay: not installed (apt install tcpreplay)\n");
    }
    let file = MadeFile::new(effort)?;
    let lab = TemporaryLab::up(&Plan::from_links("bench", vec!["tx:eth0,rx:eth0".parse()?])?)?;
    let side = |way| Side { way, rounds: Rounds::default(), errors: Default::default() };
    let mut sides = vec![side(Way::Ours("xdp")), side(Way::Ours("packet"))];
    if has_peer {
        sides.push(side(Way::Tcpreplay));
    }
    for _ in 0..effort.rounds.min(3) {
        for side in &mut sides {
            side.round(&lab, &file)?;
        }
    }
    let peer = sides.iter().find(|side| matches!(side.way, Way::Tcpreplay)).map(Side::told);
    let ours = sides.iter().filter_map(|side| match side.way {
        Way::Ours(scheme) => Some((scheme, side)),
        Way::Tcpreplay => None,
    });
    Ok(ours.map(|(scheme, side)| side.row(scheme, &file, peer.as_deref())).collect())
}

impl Side {
    fn round(&mut self, lab: &TemporaryLab, file: &MadeFile) -> anyhow::Result<()> {
        let port =
            open_rx(&Spec::parse(&format!("xdp:eth0?netns={}", lab.plan().namespace("rx")))?, &RxOptions::default())?;
        let stop = Stop::new();
        let started = Instant::now();
        let stamps = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(port, &stop));
            let sent = match self.way {
                Way::Ours(scheme) => send(lab, scheme, &file.path),
                Way::Tcpreplay => tcpreplay(lab, &file.path),
            };
            let span = started.elapsed();
            std::thread::sleep(SETTLE);
            stop.request();
            let stamps = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sent.and_then(|()| Ok((stamps?, span)))
        });
        let (mut stamps, span) = stamps?;
        stamps.sort_unstable();
        ensure!(stamps.len() == file.times.len(), "{} of {} frames arrived", stamps.len(), file.times.len());
        let mut errors = Delays::new();
        for (got, wanted) in stamps.windows(2).zip(file.times.windows(2)) {
            let due = wanted[1].saturating_sub(wanted[0]) as f64 / SPEED;
            errors.add(((got[1] - got[0]) as f64 - due).abs() as u64);
        }
        self.rounds.add(stamps.len() as u64, span.as_secs_f64());
        let figures = [errors.quantile(0.5), errors.quantile(0.99), errors.max()];
        for (all, figure) in self.errors.iter_mut().zip(figures) {
            all.push(figure.as_secs_f64() * 1e6);
        }
        Ok(())
    }

    /// The figures of the middle round each.
    fn medians(&self) -> [f64; 3] {
        self.errors.clone().map(|mut rounds| {
            rounds.sort_by(f64::total_cmp);
            rounds.get(rounds.len() / 2).copied().unwrap_or_default()
        })
    }

    fn told(&self) -> String {
        let [p50, p99, max] = self.medians();
        format!("p50 {p50:.1}, p99 {p99:.1}, at most {max:.0} us")
    }

    fn row(&self, scheme: &str, file: &MadeFile, peer: Option<&str>) -> Row {
        let mut row = self.rounds.row("replay", format!("{scheme}, {} at speed 10", file.name), file.mean_length);
        let [p50, p99, _] = self.medians();
        (row.p50_us, row.p99_us) = (Some(p50), Some(p99));
        row.remark = format!("gap error {}", self.told());
        if let Some(peer) = peer {
            row.peer = Some("tcpreplay".to_owned());
            row.remark += &format!("; tcpreplay {peer}");
        }
        row
    }
}

fn send(lab: &TemporaryLab, scheme: &str, path: &Path) -> anyhow::Result<()> {
    let spec = Spec::parse(&format!("{scheme}:eth0?netns={}", lab.plan().namespace("tx")))?;
    let recording = Recording::open(&path.to_string_lossy())?;
    let report = Replay {
        open: Box::new(move || recording.port()),
        memory: Memory::IfSmall,
        loops: 1,
        loop_gap: None,
        edits: Edits::default(),
        ports: vec![open_tx(&spec, &TxOptions::default())?],
        pacing: Pacing::Recorded(SPEED),
        at_once: false,
        duration: None,
        stop: Stop::new(),
        progress: Progress::new(),
    }
    .run();
    report.failure.map_or(Ok(()), |failure| Err(failure.into()))
}

fn tcpreplay(lab: &TemporaryLab, path: &Path) -> anyhow::Result<()> {
    let mut command = lab.exec("tx", "tcpreplay")?;
    command.args(["--quiet", "--preload-pcap", "--intf1=eth0", &format!("--multiplier={SPEED}")]).arg(path);
    let output = command.output().context("tcpreplay")?;
    if !output.status.success() {
        bail!("tcpreplay: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// The times at which frames arrived, until stopping is requested.
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
    /// What its frames are.
    name: &'static str,
    /// When each was recorded, in nanoseconds.
    times: Vec<u64>,
    mean_length: f64,
}

impl MadeFile {
    fn new(effort: Effort) -> anyhow::Result<MadeFile> {
        let folder = Folder::on_disk("replay")?;
        let path = folder.file("replay.pcap");
        let mut file = MadeFile { path, _folder: folder, name: "made-up mix", times: Vec::new(), mean_length: 0.0 };
        let output = Output::open(&file.path.to_string_lossy())?;
        let mut filling =
            Filling { writer: Writer::new(output, Format::Pcap), block: Block::new(1 << 20, 8192), bytes: 0 };
        let most = effort.of(FRAMES);
        let real = std::env::var_os("LINERATE_CORPUS").map(|folder| Path::new(&folder).join("real-mix.pcap"));
        match real.filter(|path| path.exists()) {
            Some(path) => {
                file.name = "real mix";
                file.copy(&path, most, &mut filling)?;
            }
            None => file.make(most, &mut filling)?,
        }
        filling.flush()?;
        filling.writer.finish(&Ledger::new())?;
        file.mean_length = filling.bytes as f64 / file.times.len().max(1) as f64;
        Ok(file)
    }

    fn copy(&mut self, path: &Path, most: usize, filling: &mut Filling) -> anyhow::Result<()> {
        let mut reader = Reader::open(&path.to_string_lossy())?;
        loop {
            let burst = reader.fill()?;
            if burst.is_empty() || self.times.len() >= most {
                return Ok(());
            }
            for (desc, frame) in
                burst.iter().filter(|(desc, _)| !desc.is_truncated() && desc.captured as usize <= LONGEST)
            {
                self.times.push(desc.time.0);
                filling.push(desc.time, frame)?;
            }
            let frames = burst.len();
            reader.consume(frames);
        }
    }

    fn make(&mut self, frames: usize, filling: &mut Filling) -> anyhow::Result<()> {
        let (mut time, mut random) = (1_700_000_000_000_000_000u64, 88_172_645_463_325_252);
        for number in 0..frames {
            random = super::merge::xorshift(random);
            let uniform = ((random >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
            time += (-uniform.ln() * MEAN_GAP) as u64;
            self.times.push(time);
            filling.push(Nanos(time), &[0x5a; LONGEST][..LENGTHS[number % LENGTHS.len()]])?;
        }
        Ok(())
    }
}

/// A file being written.
struct Filling {
    writer: Writer,
    block: Block,
    bytes: u64,
}

impl Filling {
    fn push(&mut self, time: Nanos, frame: &[u8]) -> anyhow::Result<()> {
        let desc = Desc::new(time, 0, frame.len() as u32);
        self.bytes += frame.len() as u64;
        if !self.block.push(&desc, frame) {
            self.flush()?;
            self.block.push(&desc, frame);
        }
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let interfaces = [Interface::new("bench", LinkType::ETHERNET, StampSource::User)];
        self.writer.accept(self.block.view(0, &interfaces))?;
        self.block.clear();
        Ok(())
    }
}
