//! Packets that benchmarks send, and capture files of packets.

use linerate_backends::open_tx;
use linerate_burst::{Block, Desc, Interface, Ledger, LinkType, Nanos, Sink, StampSource};
use linerate_engine::Streams;
use linerate_engine::streams::StreamRun;
use linerate_generate::Rate;
use linerate_generate::packet::{self, Setup};
use linerate_generate::stream::{Mark, Order, Stream, StreamSet};
use linerate_generate::trailer::Key;
use linerate_pcap::{Format, Output, Writer};
use linerate_port::{Spec, TxOptions};
use std::path::Path;

/// A datagram in which nothing changes.
pub(crate) const ONE: &str = "ip/udp(sport=49152)";
/// Addresses and ports change, two at random and two in sequence, and both checksums with them.
pub(crate) const FOUR: &str = "ip(src=random(198.18.0.1..198.18.255.255), dst=198.19.0.1..198.19.195.80)/udp(sport=random(1024..61023), dport=1024..2023)";

/// Time of the first packet.
pub(crate) const START: u64 = 1_700_000_000_000_000_000;
/// Captured lengths in sequence, 7 : 4 : 1 short, middle and long packets, as in IMIX.
pub(crate) const MIX: [usize; 12] = [60, 60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590];
pub(crate) const LONGEST: usize = 1514;

/// An endless stream of a packet, of these sizes with FCS, at the maximum rate.
pub(crate) fn packets(packet: &str, sizes: &str, mark: Mark) -> anyhow::Result<Stream> {
    let setup = Setup { sizes: packet::sizes(sizes, 1)?, mark, seed: 1, ..Setup::default() };
    Ok(Stream { rate: Rate::Top, count: None, ..packet::frames(packet, &setup)?.stream(0, mark) })
}

/// Streams that are sent in turn.
pub(crate) fn set(streams: Vec<Stream>) -> StreamSet {
    let order = if streams.len() == 1 { Order::Sequential } else { Order::Interleaved };
    StreamSet { streams, order, rate: None, key: Key::default() }
}

/// This number of packets, of this size with FCS, at the maximum rate.
pub(crate) fn streams(packet: &str, size: usize, frames: u64, mark: Mark) -> anyhow::Result<StreamSet> {
    Ok(set(vec![Stream { count: Some(frames), ..packets(packet, &size.to_string(), mark)? }]))
}

/// The bytes of the datagram in which nothing changes.
pub(crate) fn frame(size: usize) -> anyhow::Result<Vec<u8>> {
    let set = streams(ONE, size, 1, Mark::None)?;
    Ok(set.streams[0].frame(0, 0, &set.key))
}

/// Sends through a port, with prebuilt packets if `keep`; returns the packets sent and the seconds without opening and closing.
pub(crate) fn send(spec: &Spec, set: &StreamSet, keep: bool) -> anyhow::Result<(u64, f64)> {
    let port = open_tx(spec, &TxOptions::default())?;
    let streams = if keep { Streams::kept(set, port, 256)? } else { Streams::new(set, port)? };
    let report = streams.run(&StreamRun::default());
    match report.failure {
        Some(failure) => Err(failure.into()),
        None => Ok((report.sent.frames, report.elapsed.as_secs_f64())),
    }
}

/// A capture file that is written.
pub(crate) struct CaptureFile {
    writer: Writer,
    block: Block,
    pub frames: u64,
    pub bytes: u64,
}

impl CaptureFile {
    pub(crate) fn create(path: &Path, format: Format) -> anyhow::Result<Self> {
        let writer = Writer::new(Output::open(&path.to_string_lossy())?, format);
        Ok(CaptureFile { writer, block: Block::new(1 << 20, 8192), frames: 0, bytes: 0 })
    }

    pub(crate) fn push(&mut self, time: u64, frame: &[u8]) -> anyhow::Result<()> {
        let desc = Desc::new(Nanos(time), 0, frame.len() as u32);
        if !self.block.push(&desc, frame) {
            self.flush()?;
            self.block.push(&desc, frame);
        }
        self.frames += 1;
        self.bytes += frame.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        Self::write(&mut self.writer, &self.block)?;
        self.block.clear();
        Ok(())
    }

    fn write(writer: &mut Writer, block: &Block) -> anyhow::Result<()> {
        let interfaces = [Interface::new("bench", LinkType::ETHERNET, StampSource::User)];
        Ok(writer.accept(block.view(0, &interfaces))?)
    }

    /// Appends all packets of a block.
    pub(crate) fn append(&mut self, block: &Block) -> anyhow::Result<()> {
        Self::write(&mut self.writer, block)
    }

    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        self.flush()?;
        self.writer.finish(&Ledger::new())?;
        Ok(())
    }
}
