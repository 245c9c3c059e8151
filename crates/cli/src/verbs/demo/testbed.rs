//! Ports of the demonstration (test hosts or memory), and the capture that it replays.

use anyhow::Context;
use linerate_burst::{Block, Desc, Interface, Ledger, LinkType, Nanos, Sink, StampSource};
use linerate_generate::packet::{self, Setup, Sizes};
use linerate_generate::stream::Selector;
use linerate_lab::{Plan, TemporaryLab};
use linerate_pcap::{Format, Output, Writer};
use linerate_port::Spec;

use std::path::{Path, PathBuf};

/// Number of parts of the recording: one per sending host.
pub(super) const PARTS: usize = 2;
/// The real capture contains packets merged by GRO, up to 21,942 bytes.
const MTU: u32 = 22_000;
const HOSTS: [&str; PARTS] = ["left", "right"];
/// Number of generated packets, if no recording is given.
const MADE_FRAMES: u32 = 30_000;

/// The senders and the sensor.
pub(super) enum Stage {
    /// Hosts in network namespaces, removed on drop.
    Hosts(TemporaryLab),
    /// Memory ports, and the reason.
    Memory(String),
}

impl Stage {
    /// Creates test hosts if possible, else memory ports.
    pub(super) fn set(memory: bool) -> anyhow::Result<Self> {
        if memory {
            return Ok(Stage::Memory("--memory".into()));
        }
        if !rustix::process::geteuid().is_root() {
            return Ok(Stage::Memory("test hosts need root".into()));
        }
        let links = (0..PARTS)
            .map(|part| Plan::parse_link(&format!("{}:eth0,sensor:port{part},mtu={MTU}", HOSTS[part])))
            .collect::<Result<Vec<_>, _>>()?;
        let plan = Plan::from_links("demo", links)?;
        Ok(match TemporaryLab::up(&plan) {
            Ok(lab) => Stage::Hosts(lab),
            Err(error) => Stage::Memory(format!("cannot create test hosts: {error}")),
        })
    }

    /// Describes the ports for the user.
    pub(super) fn describe(&self) -> String {
        match self {
            Stage::Hosts(_) => {
                "two sending hosts and a sensor with two ports, in network namespaces of this host".into()
            }
            Stage::Memory(reason) => {
                format!("two senders and a sensor connected by MEMORY, not by a network ({reason})")
            }
        }
    }

    /// Returns the sending port of each part.
    pub(super) fn senders(&self) -> Vec<Spec> {
        self.specs(|lab, part| match lab {
            Some(lab) => format!("packet:eth0?netns={}", lab.plan().namespace(HOSTS[part])),
            None => format!("mem:{}?stamp=now", self.interfaces()[part]),
        })
    }

    /// Returns the receiving port of each part.
    pub(super) fn sensor(&self) -> Vec<Spec> {
        self.specs(|lab, part| match lab {
            Some(lab) => format!("packet:port{part}?netns={}", lab.plan().namespace("sensor")),
            None => format!("mem:{}", self.interfaces()[part]),
        })
    }

    /// Returns the names of the sensor's interfaces in the file.
    pub(super) fn interfaces(&self) -> Vec<String> {
        (0..PARTS).map(|part| format!("port{part}")).collect()
    }

    fn specs(&self, text: impl Fn(Option<&TemporaryLab>, usize) -> String) -> Vec<Spec> {
        let lab = match self {
            Stage::Hosts(lab) => Some(lab),
            Stage::Memory(_) => None,
        };
        (0..PARTS).map(|part| Spec::parse(&text(lab, part)).expect("ports of the stage are well formed")).collect()
    }
}

/// A capture file to replay.
#[derive(Debug)]
pub struct Recording {
    /// Path of the file.
    pub path: PathBuf,
    /// Origin, as text for the user.
    pub origin: String,
}

/// Returns the given recording, the real one of the corpus, or one generated in `workplace`.
pub fn recording(asked: Option<&Path>, workplace: &Path) -> anyhow::Result<Recording> {
    found(asked).map_or_else(|| made(workplace.join("made.pcap")), Ok)
}

/// Returns the given recording, or the real one of the corpus.
pub(super) fn found(asked: Option<&Path>) -> Option<Recording> {
    if let Some(path) = asked {
        return Some(Recording { path: path.to_path_buf(), origin: path.display().to_string() });
    }
    let real = std::env::var_os("LINERATE_CORPUS").map(|corpus| PathBuf::from(corpus).join("real-mix.pcap"));
    real.filter(|path| path.exists())
        .map(|path| Recording { origin: format!("{} (real traffic)", path.display()), path })
}

/// Generates a recording at `path`.
pub(super) fn made(path: PathBuf) -> anyhow::Result<Recording> {
    make(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Recording {
        path,
        origin: "generated packets (for real traffic set LINERATE_CORPUS or use --replay FILE)".into(),
    })
}

/// Writes a few seconds of UDP between hosts, in frames of every size from 64 to 1518 bytes.
fn make(path: &Path) -> anyhow::Result<()> {
    let mut writer = Writer::new(Output::open(&path.to_string_lossy())?, Format::Pcap);
    let interfaces = [Interface::new("made", LinkType::ETHERNET, StampSource::User)];
    let mut block = Block::new(1 << 20, 4096);
    let start = Nanos::from_parts(1_700_000_000, 0);
    for number in 0..MADE_FRAMES {
        let (from, to) = ((number % 7) as u8, (number % 5) as u8 + 10);
        let packet = format!(
            "eth(src=02:00:00:00:00:{from:02x}, dst=02:00:00:00:00:{to:02x})/ip(src=198.18.0.{from}, dst=198.18.0.{to})\
             /udp(sport={}, dport={})",
            number % 50_000 + 1024,
            number / 50_000 + 9
        );
        let size = 64 + number as usize * 37 % 1455;
        let setup = Setup { sizes: Sizes::Of(vec![size], Selector::ONE), ..Setup::default() };
        let frame = &packet::frames(&packet, &setup)?.variants[0].frame;
        let desc = Desc::new(Nanos(start.0 + u64::from(number) * 100_000), 0, frame.len() as u32);
        if !block.push(&desc, frame) {
            writer.accept(block.view(0, &interfaces))?;
            block.clear();
            block.push(&desc, frame);
        }
    }
    writer.accept(block.view(0, &interfaces))?;
    writer.finish(&Ledger::new())?;
    Ok(())
}
