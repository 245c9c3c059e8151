//! What verbs that join ports have in common: options, which ports can be joined, how they are opened, and how such a run ends.

use super::inputs::{are_live, link, span};
use super::show::ShowArgs;
use crate::exit::{Exit, usage};
use crate::privileges::Identity;
use crate::view::ledger;
use crate::view::rates::stated;
use crate::view::terminal::{fail, show, show_document};
use linerate_backends::faulty::{Faults, receive_through};
use linerate_backends::inventory::is_default_route;
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_burst::{Count, Ledger, LinkType};
use linerate_engine::{Received, Waiting};
use linerate_port::{Backend, PortError, RxOptions, RxPort, Spec, Target, TxOptions, TxPort};
use serde::Serialize;
use std::time::Duration;

/// Options of every verb that joins ports.
#[derive(Debug, clap::Args)]
pub(super) struct JoinArgs {
    /// Stop after this many seconds
    #[arg(short = 't', long, alias = "seconds", value_name = "S")]
    duration: Option<f64>,
    /// Join an interface even if it carries the default route of this machine
    #[arg(long)]
    pub yes: bool,
    /// End with status 3 if a frame was lost: dropped by no rule, fault or verdict
    #[arg(long)]
    lossless: bool,
    /// Print one JSON document at the end; each verb names its schema here
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub show: ShowArgs,
    /// Never sleep while waiting for frames: least delay, a whole core (of wire two)
    #[arg(long)]
    spin: bool,
    /// Go on as this user once ports are open (default: whoever called sudo, doas or pkexec; of root at interfaces
    /// linerate, or nobody)
    #[arg(short = 'Z', long, value_name = "USER")]
    user: Option<String>,
}

impl JoinArgs {
    /// How long the run lasts at most.
    pub(super) fn duration(&self) -> anyhow::Result<Option<Duration>> {
        self.duration.map(|s| span("--duration", s)).transpose()
    }

    /// Who the run is once these ports are open.
    pub(super) fn identity<'a>(&self, specs: impl IntoIterator<Item = &'a Spec>) -> anyhow::Result<Identity> {
        Identity::choose(self.user.as_deref(), are_live(specs))
    }

    /// How to wait for frames.
    pub(super) fn waiting(&self) -> Waiting {
        if self.spin { Waiting::Spin } else { Waiting::Adaptive }
    }

    /// Whether people are told what is joined.
    pub(super) fn is_told(&self) -> bool {
        !self.show.quiet && !self.json
    }

    /// Says what came of a run, as `document` or as `summary`, and how the program ends.
    pub(super) fn conclude<D: Serialize>(
        &self,
        run: &Received,
        summary: impl FnOnce() -> String,
        document: impl FnOnce() -> D,
    ) -> anyhow::Result<Exit> {
        if self.json {
            show_document(&document())?;
        } else if !self.show.quiet {
            show(ledger::run(run, &summary(), self.show.ledger));
        }
        if let Some(hint) = hint(&run.ledger) {
            fail(hint);
        }
        if let Some(failure) = &run.failure {
            fail(failure);
            return Ok(Exit::Failed);
        }
        let proven = run.quiesced && run.ledger.lost() == 0 && run.ledger.imbalances().is_empty();
        Ok(if self.lossless && !proven { Exit::Lost } else { Exit::Done })
    }
}

/// Opens an end to receive from: frames come out at the other one as they were on the wire.
pub fn receive_whole(from: &Spec, faults: &Faults, no_faults: bool) -> Result<RxPort, PortError> {
    // One lane keeps the order of frames, and gives each a number that the faults can go by.
    let options = RxOptions { promiscuous: true, lanes: 1, paused: true, ..RxOptions::default() };
    let mut from = from.clone();
    if link(&from) == LinkType::RAW && from.option("offloads").is_none() {
        // What comes out at the other end needs its checksums, and fits a wire.
        from.options.push(("offloads".to_owned(), "no".to_owned()));
    }
    let mut port = open_rx(&from, &options)?;
    // Whose frames can be held, they can be sent on from where they lie; a line in between would copy them. What it does
    // without faults is to fill in checksums, and only ports whose frames cannot be held tell where these are missing.
    let is_plain = no_faults && port.queues.iter_mut().all(|queue| queue.holding().is_some());
    Ok(if is_plain { port } else { receive_through(port, faults, from.to_string()) })
}

/// Opens an end to send to what comes at the other one.
pub fn send_as(to: &Spec, from: &Spec) -> Result<TxPort, PortError> {
    open_tx(&REGISTRY.for_sending(to)?, &TxOptions { link: link(from), ..TxOptions::default() })
}

/// The two ends of what joins two ports, if they can be; `yes`: also where one carries the default route.
pub(super) fn ends(one: &str, other: &str, yes: bool) -> anyhow::Result<[Spec; 2]> {
    let (one, other) = (Spec::parse(one).map_err(usage)?, Spec::parse(other).map_err(usage)?);
    for spec in [&one, &other] {
        let (backend, at) = REGISTRY.innermost(spec)?;
        let target = &at.target;
        let on_host = match backend.target {
            Target::Interface { .. } => at.option("netns").is_none(),
            Target::Device | Target::Tunnel => false,
            _ => return Err(usage(format!("{spec}: a wire joins interfaces; use capture or generate for files"))),
        };
        if on_host && !yes && is_default_route(target) {
            return Err(usage(format!(
                "{target} carries the default route of this machine: give --yes if it is really to be joined"
            )));
        }
    }
    let end = |(_, at): (&Backend, Spec)| (at.option("netns").map(str::to_owned), at.scheme, at.target);
    if REGISTRY.innermost(&one).map(end)? == REGISTRY.innermost(&other).map(end)? {
        return Err(usage(format!("{one} is given as both ends: a wire has two")));
    }
    if let Some(refusal) = differ(&one, &other) {
        return Err(usage(refusal));
    }
    Ok([one, other])
}

/// Why no wire joins these two: what one sends the other cannot read.
fn differ(one: &Spec, other: &Spec) -> Option<String> {
    let (packets, frames) = match (link(one), link(other)) {
        (LinkType::RAW, LinkType::ETHERNET) => (one, other),
        (LinkType::ETHERNET, LinkType::RAW) => (other, one),
        _ => return None,
    };
    Some(format!(
        "{packets} has IP packets and {frames} Ethernet frames, and a wire changes neither: with mode=tap it has frames too"
    ))
}

/// What to do about frames that no wire carries.
fn hint(ledger: &Ledger) -> Option<String> {
    let (long, made) = (ledger.total(Count::TooLong), ledger.total(Count::SuperFrames));
    (long > 0 && made > 0).then(|| {
        format!(
            "{} too long to send on: a host at one end makes super-frames; on that host run \
             ethtool -K INTERFACE tso off gso off gro off (in a lab: offloads=off on the links)",
            stated(long, "frames were")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_joins_what_has_the_same_frames() {
        let differ = |one: &str, other: &str| differ(&Spec::parse(one).unwrap(), &Spec::parse(other).unwrap());
        for (one, other) in [("tun:a", "tun:b"), ("tun:a?mode=tap", "eth0"), ("eth0", "eth1")] {
            assert_eq!(differ(one, other), None, "{one} {other}");
        }
        for (one, other) in [("tun:a", "eth0"), ("eth0", "tun:a"), ("faulty:tun:a?drop=1%", "tun:b?mode=tap")] {
            assert!(differ(one, other).unwrap().contains("with mode=tap it has frames too"), "{one} {other}");
        }
    }

    #[test]
    fn what_is_sent_has_the_link_type_of_where_it_comes_from() {
        assert_eq!(link(&Spec::parse("tun:a").unwrap()), LinkType::RAW);
        assert_eq!(link(&Spec::parse("tun:a?mode=tap").unwrap()), LinkType::ETHERNET);
    }
}
