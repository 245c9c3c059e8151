//! Sending of UDP datagrams.

use super::report::{Head, conclude_datagrams};
use super::{Args, RunServices};
use crate::exit::{Exit, usage};
use crate::privileges::Identity;
use anyhow::anyhow;
use linerate_backends::transfer::{ConnectOptions, DatagramPlan, DatagramResult, Datagrams, explain};
use linerate_generate::Rate;
use linerate_generate::rate::{Layer, RequestedRate};
use std::io;
use std::net::SocketAddr;

/// Default rate, moderate for a shared network.
const USUAL: RequestedRate = RequestedRate::Rate(Rate::Bits(1e9, Layer::L2));

/// Sends datagrams.
pub(super) fn run(args: &Args, to: &[SocketAddr], way: &ConnectOptions, identity: &Identity) -> anyhow::Result<Exit> {
    let asked = args.rate.unwrap_or(USUAL).on_line(None);
    let asked = asked.ok_or_else(|| {
        usage("--rate: percentages need a line rate, which is unknown here; expected a rate such as 5gbps")
    })?;
    let peer = to[0];
    let open = |_| Datagrams::open(peer, way, args.datagram).map_err(|error| anyhow!(explain(&error, peer)));
    let mut sockets = (0..args.connections).map(open).collect::<anyhow::Result<Vec<_>>>()?;
    let session = args.confine(identity)?;
    let local = sockets[0].local()?;
    let head = Head { protocol: "udp", peer, local, datagram: Some(sockets[0].size()), ..args.head() };
    let mut sources = sockets.iter().map(|_| args.bytes()).collect::<anyhow::Result<Vec<_>>>()?;
    args.print_note(&head.text());
    let paced =
        DatagramPlan { rate: share(asked, sockets.len()), bytes: args.size, duration: args.duration()?, cpu: None };
    let running = RunServices::start(args, &session)?;
    let flag = running.stop.flag();
    let watched = running.watched(&flag);
    let results: Vec<(DatagramResult, Option<io::Error>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter_mut()
            .zip(&mut sources)
            .enumerate()
            .map(|(number, (socket, source))| {
                let paced = DatagramPlan { cpu: args.cpu(number), ..paced };
                scope.spawn(move || socket.send(source, paced, watched))
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    drop(running);
    conclude_datagrams(args, &head, results)
}

/// Returns the rate of one of several connections.
fn share(rate: Rate, of: usize) -> Rate {
    match rate {
        Rate::Frames(frames) => Rate::Frames(frames / of as f64),
        Rate::Bits(bits, layer) => Rate::Bits(bits / of as f64, layer),
        Rate::Top => Rate::Top,
    }
}
