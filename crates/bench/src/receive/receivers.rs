//! Who receives: the kernel, or this program over one of its ports.

use super::{PATIENCE, QUICK_SPAN, SPAN, Way};
use anyhow::{Context, bail, ensure};
use linerate_backends::netns::within;
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_burst::LinkType;
use linerate_engine::reception::{Protocol, ReceptionWatch};
use linerate_engine::{Receive, Reception, Stop};
use linerate_generate::answer::{ANSWERS_PER_SECOND, Addresses, Answerer, Own};
use linerate_lab::{Plan, TemporaryLab};
use linerate_port::{RxOptions, RxPort, Spec, TxOptions};
use linerate_receive::destination::Discard;
use linerate_receive::frames::{Config, Frames};
use linerate_receive::tcp::{self, Endpoint, Local};
use linerate_wire::MacAddr;
use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

/// The most bytes that one read of the kernel's receiver asks for.
const READ: usize = 4 << 20;
/// Frames that bytes are put into, and small ones.
const FRAME: usize = 64 << 20;
const QUICK_FRAME: usize = 1 << 20;
/// Where the kernel receives, and where this program does: the one on the wire has an address that no interface has.
const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const PACKET: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 9);
const TUN: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 9);
const PORT: u16 = 5001;
/// Of this program on the wire: one that no maker of cards has assigned.
const STATION: MacAddr = MacAddr([0x02, 0x6c, 10, 9, 0, 9]);

/// Who receives.
#[derive(Clone, Copy)]
pub(super) struct Receiver {
    pub name: &'static str,
    by: By,
    /// Whether there is a CRC-32C of each frame.
    crc: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Kernel,
    Packet,
    Xdp,
    Tun,
}

/// The one that ratios are taken to first.
pub(super) const RECEIVERS: [Receiver; 6] = [
    Receiver { name: "kernel", by: By::Kernel, crc: false },
    Receiver { name: "packet", by: By::Packet, crc: true },
    Receiver { name: "packet, no CRC", by: By::Packet, crc: false },
    Receiver { name: "xdp", by: By::Xdp, crc: true },
    Receiver { name: "tun", by: By::Tun, crc: true },
    Receiver { name: "tun, no CRC", by: By::Tun, crc: false },
];

/// A host that sends, one that receives, and the wire between them.
pub(super) struct Stage {
    lab: TemporaryLab,
    way: Way,
    is_quick: bool,
}

/// A receiver that listens.
pub(super) struct Receiving {
    pub to: SocketAddr,
    how: How,
}

enum How {
    /// And the memory that it reads into, frame after frame.
    Kernel(TcpListener, Vec<u8>),
    Ours(Box<(RxPort, Reception, ReceptionWatch)>),
}

impl Stage {
    pub(super) fn up(way: Way, is_quick: bool) -> anyhow::Result<Stage> {
        let link = format!("tx:eth0=10.9.0.1/24,rx:eth0={KERNEL}/24,mtu={}", way.mtu);
        let lab = TemporaryLab::up(&Plan::from_links("bench", vec![link.parse()?])?)?;
        if !way.is_joined {
            // An XDP program sees no mark of a checksum that is left to a card: whoever receives verifies them.
            let cut = ["-K", "eth0", "tx", "off", "tso", "off", "gso", "off", "gro", "off"];
            for host in ["tx", "rx"] {
                let run = lab.exec(host, "ethtool")?.args(cut).output().context("ethtool")?;
                ensure!(run.status.success(), "ethtool: {}", String::from_utf8_lossy(&run.stderr).trim());
            }
        }
        Ok(Stage { lab, way, is_quick })
    }

    /// The namespace that is sent from.
    pub(super) fn sender(&self) -> String {
        self.lab.plan().namespace("tx")
    }

    /// How long chunks of one size are sent.
    pub(super) fn span(&self) -> Duration {
        if self.is_quick { QUICK_SPAN } else { SPAN }
    }

    /// Where the program receives.
    fn spec(&self, by: By) -> anyhow::Result<Spec> {
        let text = match by {
            By::Kernel | By::Packet => format!("packet:eth0?netns={}", self.lab.plan().namespace("rx")),
            By::Xdp => format!("xdp:eth0?netns={}", self.lab.plan().namespace("rx")),
            By::Tun => {
                let offloads = if self.way.is_joined { "yes" } else { "no" };
                let (sender, mtu) = (self.sender(), self.way.mtu);
                format!("tun:lr0?netns={sender}&address=10.8.0.1/24&mtu={mtu}&offloads={offloads}")
            }
        };
        Ok(Spec::parse(&text)?)
    }
}

impl Receiver {
    /// Whether it is measured where segments stay together, or where each is a frame: no XDP program takes frames of 64 KiB.
    pub(super) fn suits(&self, way: Way) -> bool {
        if way.is_joined { self.by != By::Xdp } else { self.crc || self.by == By::Kernel }
    }

    /// Starts to listen.
    pub(super) fn open(&self, stage: &Stage) -> anyhow::Result<Receiving> {
        let ip = match self.by {
            By::Kernel => KERNEL,
            By::Packet | By::Xdp => PACKET,
            By::Tun => TUN,
        };
        let to = SocketAddr::from((ip, PORT));
        let how = if self.by == By::Kernel {
            let namespace = stage.lab.plan().namespace("rx");
            let listener = within(Some(&namespace), || TcpListener::bind(to))?;
            listener.set_nonblocking(true)?;
            How::Kernel(listener, self.memory(stage))
        } else {
            How::Ours(Box::new(self.reception(stage, to)?))
        };
        Ok(Receiving { to, how })
    }

    /// As the verb of that name has it by itself, but for the CRC.
    fn reception(&self, stage: &Stage, to: SocketAddr) -> anyhow::Result<(RxPort, Reception, ReceptionWatch)> {
        let (spec, ip) = (stage.spec(self.by)?, to.ip());
        let options = RxOptions {
            promiscuous: true,
            lanes: 1,
            scatter: true,
            // The kernel does not receive at the same time.
            take: true,
            filter: format!("arp or dst host {ip}"),
            ..RxOptions::default()
        };
        let mut from = open_rx(&spec, &options)?;
        // Acknowledgements have the link header that frames came with: over a tunnel none.
        let link = if self.by == By::Tun { LinkType::RAW } else { LinkType::ETHERNET };
        let port = open_tx(&REGISTRY.for_sending(&spec)?, &TxOptions { link, ..TxOptions::default() })?;
        let random = RandomState::new();
        let endpoint = Endpoint::new(tcp::Config {
            listen: vec![Local { ip, ports: PORT..=PORT }],
            stations: vec![STATION],
            mtu: stage.way.mtu,
            secret: [random.hash_one(1), random.hash_one(2)],
            ..tcp::Config::default()
        })?;
        let (frames, own) = (self.frames(stage)?, Own::one(ip, STATION));
        let answerer = Answerer::new(Addresses::new(vec![own])?, ANSWERS_PER_SECOND);
        let protocol = Protocol::Tcp { endpoint: Box::new(endpoint), frames: Box::new(frames) };
        let watch = ReceptionWatch::default();
        let reception = Reception::new(protocol, answerer, port, Box::new(Discard::default()));
        from.queues.iter_mut().for_each(|queue| queue.start());
        Ok((from, reception.streams(Some(1)).watch(watch.clone()), watch))
    }

    fn config(&self, stage: &Stage) -> Config {
        let size = if stage.is_quick { QUICK_FRAME } else { FRAME };
        Config { size, crc: self.crc, ..Config::default() }
    }

    /// As much memory as all frames together, touched.
    fn memory(&self, stage: &Stage) -> Vec<u8> {
        let Config { size, frames, .. } = self.config(stage);
        vec![1; size * frames]
    }

    fn frames(&self, stage: &Stage) -> anyhow::Result<Frames> {
        let mut frames = Frames::new(&self.config(stage))?;
        if !stage.is_quick {
            let began = Instant::now();
            frames.calibrate(stage.way.segment() as usize, &|| began.elapsed().as_nanos() as u64);
        }
        Ok(frames)
    }
}

impl Receiving {
    /// Receives one stream on this processor, and tells which thread that does; how many bytes there were.
    pub(super) fn run(self, cpu: Option<usize>, stop: &Stop, thread: &Sender<i32>) -> anyhow::Result<u64> {
        if let Some(cpu) = cpu {
            let mut set = CpuSet::new();
            set.set(cpu);
            sched_setaffinity(None, &set).context("staying on a processor")?;
        }
        // Whoever started this waits for it.
        let _ = thread.send(gettid().as_raw_nonzero().get());
        match self.how {
            How::Kernel(listener, memory) => read(&accept(&listener, stop)?, memory),
            How::Ours(ours) => {
                let (from, mut reception, watch) = *ours;
                let run = Receive { stop: stop.clone(), ..Receive::all(vec![from]) };
                if let Some(failure) = run.run(&mut [&mut reception]).failure {
                    return Err(failure.into());
                }
                let totals = watch.totals();
                ensure!(totals.missing == 0, "{} bytes did not come", totals.missing);
                Ok(totals.bytes)
            }
        }
    }
}

fn accept(listener: &TcpListener, stop: &Stop) -> anyhow::Result<TcpStream> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(stream),
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) if stop.is_requested() => bail!("nobody connected"),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Reads to the end, through all of the memory again and again.
fn read(mut stream: &TcpStream, mut memory: Vec<u8>) -> anyhow::Result<u64> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut at, mut bytes) = (0, 0);
    loop {
        let end = memory.len().min(at + READ);
        match stream.read(&mut memory[at..end])? {
            0 => return Ok(bytes),
            more => (at, bytes) = ((at + more) % memory.len(), bytes + more as u64),
        }
    }
}
