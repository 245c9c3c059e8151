//! What benchmarks send.

use linerate_backends::open_tx;
use linerate_engine::Streams;
use linerate_engine::streams::Run;
use linerate_generate::Rate;
use linerate_generate::packet::{self, Setup};
use linerate_generate::stream::{Mark, Order, Stream, StreamSet};
use linerate_generate::trailer::Key;
use linerate_port::{Spec, TxOptions};
use std::time::Duration;

/// A datagram in which nothing changes.
pub(crate) const ONE: &str = "ip/udp(sport=49152)";
/// Addresses and ports change, two by chance and two in turn, and both checksums with them.
pub(crate) const FOUR: &str = "ip(src=random(198.18.0.1..198.18.255.255), dst=198.19.0.1..198.19.195.80)/udp(sport=random(1024..61023), dport=1024..2023)";

/// So many frames of a packet, of this size with FCS, at top speed.
pub(crate) fn streams(packet: &str, size: usize, frames: u64, mark: Mark) -> anyhow::Result<StreamSet> {
    let setup = Setup { sizes: packet::sizes(&size.to_string(), 1)?, mark, seed: 1, ..Setup::default() };
    let stream = Stream { rate: Rate::Top, count: Some(frames), ..packet::frames(packet, &setup)?.stream(0, mark) };
    Ok(StreamSet { streams: vec![stream], order: Order::Sequential, rate: None, key: Key::default() })
}

/// Sends through a port, frames made once and kept where `keep` says so; how many left, and how long that took without opening
/// and closing.
pub(crate) fn send(spec: &Spec, set: &StreamSet, keep: bool) -> anyhow::Result<(u64, Duration)> {
    let port = open_tx(spec, &TxOptions::default())?;
    let streams = if keep { Streams::kept(set, port, 256)? } else { Streams::new(set, port)? };
    let report = streams.run(&Run::default());
    match report.failure {
        Some(failure) => Err(failure.into()),
        None => Ok((report.sent.frames, report.elapsed)),
    }
}
