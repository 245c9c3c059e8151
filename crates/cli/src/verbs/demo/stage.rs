//! Where the demonstration takes place: test hosts of its own, or memory; and what it replays.

use anyhow::Context;
use linerate_burst::{Block, Desc, Interface, Ledger, LinkType, Nanos, Sink, StampSource};
use linerate_generate::packet::{self, Setup, Sizes};
use linerate_generate::stream::Selector;
use linerate_lab::{Plan, TemporaryLab};
use linerate_port::Spec;
use linerate_record::{Format, Output, Writer};

use std::path::{Path, PathBuf};

/// Into how many parts the recording is split: one for each sending host.
pub(super) const PARTS: usize = 2;
/// Real captures hold frames that GRO made, up to 21,942 bytes.
const MTU: u32 = 22_000;
const HOSTS: [&str; PARTS] = ["left", "right"];
/// Frames of the recording that is made where there is none.
const MADE_FRAMES: u32 = 30_000;

/// The senders and the sensor.
pub(super) enum Stage {
    /// Hosts in network namespaces, gone when this is dropped.
    Hosts(TemporaryLab),
    /// Memory ports, and why.
    Memory(String),
}

impl Stage {
    /// Sets the stage: hosts if that is possible, else memory.
    pub(super) fn set(memory: bool) -> anyhow::Result<Self> {
        if memory {
            return Ok(Stage::Memory("as asked for".into()));
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
            Err(error) => Stage::Memory(format!("test hosts cannot be made: {error}")),
        })
    }

    /// One sentence for the user.
    pub(super) fn describe(&self) -> String {
        match self {
            Stage::Hosts(_) => {
                "two sending hosts and a sensor with two ports, in network namespaces of this machine".into()
            }
            Stage::Memory(reason) => format!("two senders and a sensor joined by MEMORY, not by a network ({reason})"),
        }
    }

    /// Where each part is sent to.
    pub(super) fn senders(&self) -> Vec<Spec> {
        self.specs(|lab, part| match lab {
            Some(lab) => format!("packet:eth0?netns={}", lab.plan().namespace(HOSTS[part])),
            None => format!("mem:{}?stamp=now", self.interfaces()[part]),
        })
    }

    /// Where each part arrives.
    pub(super) fn sensor(&self) -> Vec<Spec> {
        self.specs(|lab, part| match lab {
            Some(lab) => format!("packet:port{part}?netns={}", lab.plan().namespace("sensor")),
            None => format!("mem:{}", self.interfaces()[part]),
        })
    }

    /// What the sensor's interfaces are called in the file.
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
    /// Where it came from, as text for the user.
    pub origin: String,
}

/// The recording asked for, the real one of the corpus, or one made in `workplace`.
pub fn recording(asked: Option<&Path>, workplace: &Path) -> anyhow::Result<Recording> {
    found(asked).map_or_else(|| made(workplace.join("made.pcap")), Ok)
}

/// The recording asked for, or the real one of the corpus.
pub(super) fn found(asked: Option<&Path>) -> Option<Recording> {
    if let Some(path) = asked {
        return Some(Recording { path: path.to_path_buf(), origin: path.display().to_string() });
    }
    let real = std::env::var_os("LINERATE_CORPUS").map(|corpus| PathBuf::from(corpus).join("real-mix.pcap"));
    real.filter(|path| path.exists())
        .map(|path| Recording { origin: format!("{} (real traffic)", path.display()), path })
}

/// One made here, as `path`.
pub(super) fn made(path: PathBuf) -> anyhow::Result<Recording> {
    make(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Recording {
        path,
        origin: "a recording made here (for real traffic set LINERATE_CORPUS, or give --replay FILE)".into(),
    })
}

/// A few seconds of UDP between hosts, in frames of every size from 64 to 1518 bytes.
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
