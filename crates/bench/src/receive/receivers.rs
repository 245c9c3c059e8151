//! Receivers: the kernel, or this program over one of its ports.

use super::{PATIENCE, PacketPath, QUICK_SPAN, SPAN};
use crate::machine::{lab, pin};
use anyhow::{Context, bail, ensure};
use linerate_backends::netns::within;
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_burst::LinkType;
use linerate_engine::reception::{Protocol, ReceptionWatch};
use linerate_engine::{Receive, Reception, Stop};
use linerate_generate::answer::{ANSWERS_PER_SECOND, AddressRange, Addresses, Answerer};
use linerate_headers::MacAddr;
use linerate_lab::TemporaryLab;
use linerate_port::{RxOptions, RxPort, Spec, TxOptions};
use linerate_transport::copy::Crc;
use linerate_transport::destination::Discard;
use linerate_transport::frames::{Config, Frames};
use linerate_transport::tcp::{self, Endpoint, Local};
use rustix::thread::gettid;
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum bytes of one read of the kernel's receiver; with a checksum, which then finds them in a cache.
const READ: usize = 4 << 20;
const SUMMED_READ: usize = 256 << 10;
/// Bytes of a frame, and of one with --quick.
const FRAME: usize = 64 << 20;
const QUICK_FRAME: usize = 1 << 20;
/// Addresses of the kernel's receiver, and of this program: over a wire it has an address of no interface.
const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const PACKET: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 9);
const TUN: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 9);
const PORT: u16 = 5001;
/// MAC address of this program on the wire, locally administered.
const STATION: MacAddr = MacAddr([0x02, 0x6c, 10, 9, 0, 9]);

/// A receiver.
#[derive(Clone, Copy)]
pub(super) struct Receiver {
    pub name: &'static str,
    by: ReceiverKind,
    /// Computes CRC-32C of each frame.
    crc: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReceiverKind {
    Kernel,
    Packet,
    Xdp,
    Tun,
}

/// All receivers. Ratios are to the kernel's that does the same.
pub(super) const RECEIVERS: [Receiver; 7] = [
    Receiver { name: "kernel, no CRC", by: ReceiverKind::Kernel, crc: false },
    Receiver { name: "kernel", by: ReceiverKind::Kernel, crc: true },
    Receiver { name: "packet", by: ReceiverKind::Packet, crc: true },
    Receiver { name: "packet, no CRC", by: ReceiverKind::Packet, crc: false },
    Receiver { name: "xdp", by: ReceiverKind::Xdp, crc: true },
    Receiver { name: "tun", by: ReceiverKind::Tun, crc: true },
    Receiver { name: "tun, no CRC", by: ReceiverKind::Tun, crc: false },
];

/// A host that sends, one that receives, and the wire between them.
pub(super) struct Stage {
    lab: TemporaryLab,
    way: PacketPath,
    is_quick: bool,
}

/// A receiver that listens.
pub(super) struct ListeningReceiver {
    pub to: SocketAddr,
    how: ReceiverState,
}

enum ReceiverState {
    /// With the frames that it reads into, in sequence, and whether it computes their CRC.
    Kernel(TcpListener, Vec<Vec<u8>>, bool),
    Ours(Box<(RxPort, Reception, ReceptionWatch)>),
}

impl Stage {
    pub(super) fn up(way: PacketPath, is_quick: bool) -> anyhow::Result<Stage> {
        let link = format!("tx:eth0=10.9.0.1/24,rx:eth0={KERNEL}/24,mtu={}", way.mtu);
        let lab = lab(&[&link])?;
        if !way.is_joined {
            // An XDP program cannot see that a checksum is left to a card: receivers verify it.
            let cut = ["-K", "eth0", "tx", "off", "tso", "off", "gso", "off", "gro", "off"];
            for host in ["tx", "rx"] {
                let run = lab.exec(host, "ethtool")?.args(cut).output().context("ethtool")?;
                ensure!(run.status.success(), "ethtool: {}", String::from_utf8_lossy(&run.stderr).trim());
            }
        }
        Ok(Stage { lab, way, is_quick })
    }

    /// Returns the namespace of the sender.
    pub(super) fn sender(&self) -> String {
        self.lab.plan().namespace("tx")
    }

    /// Returns the sending time of chunks of one size.
    pub(super) fn span(&self) -> Duration {
        if self.is_quick { QUICK_SPAN } else { SPAN }
    }

    /// Returns the port of the receiver.
    fn spec(&self, by: ReceiverKind) -> anyhow::Result<Spec> {
        let text = match by {
            ReceiverKind::Kernel | ReceiverKind::Packet => {
                format!("packet:eth0?netns={}", self.lab.plan().namespace("rx"))
            }
            ReceiverKind::Xdp => format!("xdp:eth0?netns={}", self.lab.plan().namespace("rx")),
            ReceiverKind::Tun => {
                let offloads = if self.way.is_joined { "yes" } else { "no" };
                let (sender, mtu) = (self.sender(), self.way.mtu);
                format!("tun:lr0?netns={sender}&address=10.8.0.1/24&mtu={mtu}&offloads={offloads}")
            }
        };
        Ok(Spec::parse(&text)?)
    }
}

impl Receiver {
    /// Returns true if it is measured with joined segments, or with single ones: XDP has no packets of 64 KiB.
    pub(super) fn suits(&self, way: PacketPath) -> bool {
        if way.is_joined { self.by != ReceiverKind::Xdp } else { self.crc || self.by == ReceiverKind::Kernel }
    }

    /// Starts to listen.
    pub(super) fn open(&self, stage: &Stage) -> anyhow::Result<ListeningReceiver> {
        let ip = match self.by {
            ReceiverKind::Kernel => KERNEL,
            ReceiverKind::Packet | ReceiverKind::Xdp => PACKET,
            ReceiverKind::Tun => TUN,
        };
        let to = SocketAddr::from((ip, PORT));
        let how = if self.by == ReceiverKind::Kernel {
            let namespace = stage.lab.plan().namespace("rx");
            let listener = within(Some(&namespace), || TcpListener::bind(to))?;
            listener.set_nonblocking(true)?;
            ReceiverState::Kernel(listener, self.memory(stage), self.crc)
        } else {
            ReceiverState::Ours(Box::new(self.reception(stage, to)?))
        };
        Ok(ListeningReceiver { to, how })
    }

    /// Opens it as the verb does by default, apart from the CRC.
    fn reception(&self, stage: &Stage, to: SocketAddr) -> anyhow::Result<(RxPort, Reception, ReceptionWatch)> {
        let (spec, ip) = (stage.spec(self.by)?, to.ip());
        let options = RxOptions {
            promiscuous: true,
            lanes: 1,
            scatter: true,
            // The kernel must not receive at the same time.
            take: true,
            filter: format!("arp or dst host {ip}"),
            ..RxOptions::default()
        };
        let mut from = open_rx(&spec, &options)?;
        // Acknowledgements have the link header of received packets: over a tunnel none.
        let link = if self.by == ReceiverKind::Tun { LinkType::RAW } else { LinkType::ETHERNET };
        let port = open_tx(&REGISTRY.for_sending(&spec)?, &TxOptions { link, ..TxOptions::default() })?;
        let random = RandomState::new();
        let endpoint = Endpoint::new(tcp::Config {
            listen: vec![Local { ip, ports: PORT..=PORT }],
            stations: vec![STATION],
            mtu: stage.way.mtu,
            secret: [random.hash_one(1), random.hash_one(2)],
            ..tcp::Config::default()
        })?;
        let (frames, own) = (self.frames(stage)?, AddressRange::one(ip, STATION));
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

    /// Returns the name of the kernel's receiver that does the same, unless this is one.
    pub(super) fn peer(&self) -> Option<&'static str> {
        let does_same = |peer: &&Receiver| peer.by == ReceiverKind::Kernel && peer.crc == self.crc;
        RECEIVERS.iter().find(does_same).filter(|_| self.by != ReceiverKind::Kernel).map(|peer| peer.name)
    }

    /// Describes the memory of the kernel's receivers, which is that of the others.
    pub(super) fn job(&self, stage: &Stage) -> Option<String> {
        let Config { size, frames, .. } = self.config(stage);
        let text = format!("read(2) into {frames} frames of {} MiB, as the other receivers fill", size >> 20);
        (self.by == ReceiverKind::Kernel).then_some(text)
    }

    /// As many frames of the same size as the other receivers have, touched.
    fn memory(&self, stage: &Stage) -> Vec<Vec<u8>> {
        let Config { size, frames, .. } = self.config(stage);
        vec![vec![1; size]; frames]
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

impl ListeningReceiver {
    /// Receives one stream on this processor, and reports the thread; returns the received bytes.
    pub(super) fn run(self, cpu: usize, stop: &Stop, thread: &Sender<i32>) -> anyhow::Result<u64> {
        pin(cpu);
        let _ = thread.send(gettid().as_raw_nonzero().get());
        match self.how {
            ReceiverState::Kernel(listener, frames, crc) => read(&accept(&listener, stop)?, frames, crc),
            ReceiverState::Ours(ours) => {
                let (from, mut reception, watch) = *ours;
                let run = Receive { stop: stop.clone(), ..Receive::all(vec![from]) };
                if let Some(failure) = run.run(&mut [&mut reception]).failure {
                    return Err(failure.into());
                }
                let totals = watch.totals();
                ensure!(totals.missing == 0, "{} bytes are missing", totals.missing);
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
            Err(_) if stop.is_requested() => bail!("the sender did not connect"),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Reads to the end, filling frame after frame, again and again; with `crc` computes CRC-32C of each.
fn read(mut stream: &TcpStream, mut frames: Vec<Vec<u8>>, crc: bool) -> anyhow::Result<u64> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut frame, mut at, mut bytes, mut sum) = (0, 0, 0, Crc::NEW);
    loop {
        let memory = &mut frames[frame];
        let end = memory.len().min(at + if crc { SUMMED_READ } else { READ });
        let more = stream.read(&mut memory[at..end])?;
        if more == 0 {
            return Ok(bytes);
        }
        if crc {
            sum = sum.with(&memory[at..at + more]);
        }
        (at, bytes) = (at + more, bytes + more as u64);
        if at == memory.len() {
            std::hint::black_box(sum.value());
            (frame, at, sum) = ((frame + 1) % frames.len(), 0, Crc::NEW);
        }
    }
}
